"""What the keyword projection's writer and reader need of an index, whichever engine holds it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from canonical.domain.records import Status
from canonical.domain.visibility import Visible
from canonical.errors import PoisonError
from projectors.keyword.mapping import IndexWrite
from projectors.keyword.relevance import Statistics
from projectors.protocol import Hit, Mark


@dataclass(frozen=True, slots=True)
class Written:
    """What became of writes. `stale`: how many the index was already past; `again`: sent again."""

    stale: int = 0
    refused: Mapping[UUID, PoisonError] = field(default_factory=dict)
    again: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """A search: what may be seen, the terms, and by how much each counts beside its own weight."""

    visible: Visible
    boosts: Mapping[str, float]
    limit: int


class View(Protocol):
    """One tenant's documents, as one search sees them."""

    def statistics(self, terms: Iterable[str]) -> Statistics:
        """Return how rare terms are among the tenant's documents.

        Raises: EngineUnavailableError, EngineMismatchError.
        """
        ...

    def search(self, question: Question) -> list[Hit]:
        """Return the memories that hold some of the terms, best first; score is BM25.

        Guarantee: exactly what is visible. Nothing in a term is read as syntax.
        Raises:    EngineUnavailableError, EngineMismatchError.
        """
        ...


class KeywordEngine(Protocol):
    """An open index: one generation of the projection. Any number of threads may use it.

    Each method raises EngineUnavailableError, when it may go through later, and
    EngineMismatchError, when the index is lost, damaged or another one.
    """

    def write(
        self,
        wanted: Mapping[UUID, int],
        write_for: Callable[[UUID], IndexWrite],
        marks: Iterable[Mark],
    ) -> Written:
        """Write what is newer than what the index holds, then the marks.

        Guarantee: durable and seen by every later search when it returns; the marks are kept only
                   with all of the writes, and each moves forward only (by epoch, then position).
                   After an error some writes may be done, never the marks without them: repeat it.
        Shapes:    `wanted`: the guard of each memory; `write_for` may raise a PoisonError: that
                   memory is left out and named.
        """
        ...

    def guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the guard of each of these memories that the index holds, dead or alive."""
        ...

    def marks(self) -> dict[int, Mark]:
        """Return, per shard, the last event whose page the index holds."""
        ...

    def count(self, *, live: bool = True) -> int:
        """Return how many memories the index holds: those that can be found, or tombstones too."""
        ...

    def scan(self) -> Iterator[tuple[UUID, int, Status]]:
        """Yield (memory id, guard, status) of everything that the index holds, once each."""
        ...

    def view(self, tenant: str, *, timeout: timedelta) -> View:
        """Return what a search of this tenant reads; each call on it ends within `timeout`."""
        ...

    def close(self) -> None:
        """Let go of the index."""
        ...
