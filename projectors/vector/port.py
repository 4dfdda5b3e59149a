"""What the writer and the reader ask of an open vector index, whichever engine holds it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from projectors.protocol import Mark
from projectors.vector.mapping import Held, IndexWrite
from projectors.vector.predicates import Predicate
from projectors.vector.schema import Shape


class Near(NamedTuple):
    """A point that is near to a query. `score`: the dot product of unit vectors."""

    memory_id: UUID
    guard: int
    score: float


class VectorEngine(Protocol):
    """One generation of a vector index, open; any number of threads.

    Every method raises EngineUnavailableError when the engine can't answer now, or the index is
    closed; EngineMismatchError, when the index is gone, damaged or not ours.
    """

    @property
    def shape(self) -> Shape:
        """Return the model and the dimension of its vectors."""
        ...

    def marks(self) -> dict[int, Mark]:
        """Return, per shard, the last event whose page the index holds."""
        ...

    def require_reached(self, watermarks: Mapping[int, int]) -> None:
        """Check that the index holds what the log believes it holds: a position per shard.

        Raises: EngineMismatchError, when it is behind: it was lost, or an old copy came back.
        """
        ...

    def write(self, writes: Sequence[IndexWrite], marks: Iterable[Mark]) -> int:
        """Write what is newer than what the index holds; then keep the marks.

        Guarantee: durable when it returns. Readers may see a part of it earlier. An older write
                   changes nothing, also if it was under way while a newer one came. A mark moves
                   forward only, and never stands in the index without what was written before it.
        Shapes:    returns how many memories the index was already past.
        Raises:    EngineUnavailableError, EngineMismatchError: a part may have been written, the
                   marks may not have been moved; repeating is harmless.
        """
        ...

    def guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the guard of each of these memories that the index holds, dead or alive."""
        ...

    def nearest(
        self, vector: NDArray[np.float32], where: Predicate, limit: int, timeout: timedelta
    ) -> list[Near]:
        """Return the nearest points for which `where` holds, best first.

        Shapes: `vector` has length 1 and the index's dimension; `limit` is at least 1.
        """
        ...

    def count(self, *, live: bool = True) -> int:
        """Return how many memories the index holds: those that can be found, or tombstones too."""
        ...

    def scan(self) -> Iterator[Held]:
        """Yield everything, once each, in the order of the ids.

        Cost: constant memory. It is no fixed view: of what is written meanwhile some is seen.
        """
        ...

    def close(self) -> None:
        """Give the index up; whoever comes later is told so."""
        ...
