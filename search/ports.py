"""What a search needs of the canonical store, the readers and the models: nothing more."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from canonical.domain.records import Record
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from inference.protocols import Embedder
from projectors.keyword.relevance import Statistics
from projectors.protocol import KeywordReader, VectorReader


class Served(Protocol):
    """How far a projection's live generation has come."""

    @property
    def generation(self) -> int:
        """Return its number; 0 if there is none."""
        ...

    @property
    def state(self) -> str:
        """Return `live`, or why there is no such generation."""
        ...

    @property
    def marks(self) -> Mapping[int, int]:
        """Return the watermark of each shard."""
        ...

    @property
    def lag(self) -> Mapping[int, int]:
        """Return how many positions each shard is behind."""
        ...

    @property
    def oldest_unserved_seconds(self) -> float | None:
        """Return the age of the oldest event that is not applied; None if all are."""
        ...

    @property
    def halted(self) -> bool:
        """Tell whether a shard stopped for good."""
        ...

    @property
    def error_code(self) -> str | None:
        """Return why shards don't go on, if they don't."""
        ...


class Tail(Protocol):
    """Records of a scope that are not projected yet."""

    @property
    def records(self) -> Sequence[Record]:
        """Return them, newest first, whatever their status."""
        ...

    @property
    def truncated(self) -> bool:
        """Tell whether there are more."""
        ...


class Canonical(Protocol):
    """The canonical store, as a search reads it."""

    def current(self, tenant: str, ids: Sequence[UUID], /) -> Mapping[UUID, Record]:
        """Return the present state of those that the tenant has, whatever their status."""
        ...

    def tail(
        self,
        scope: Scope,
        served: Sequence[Mapping[int, int]],
        *,
        limit: int,
        must_reach: Mapping[int, int] | None,
    ) -> Tail:
        """Return what lies above the lowest watermark of each shard; all, if none is given."""
        ...

    def served(self, projections: Sequence[str], /) -> Mapping[str, Served]:
        """Return how far each projection's live generation has come."""
        ...

    def scope_count(self, scope: Scope, limit: int, /) -> int:
        """Return how many records the scope has, up to `limit`."""
        ...


class Seen(Protocol):
    """A memory that a leg saw."""

    @property
    def memory_id(self) -> UUID:
        """Return the memory."""
        ...

    @property
    def rev(self) -> int:
        """Return the revision that the leg scored."""
        ...

    @property
    def score(self) -> float:
        """Return the raw score, on the leg's own scale."""
        ...


class EntityHit(Seen, Protocol):
    """A memory that is linked to a name of the query; score: similarity x weight x penalty."""

    @property
    def name(self) -> str:
        """Return the name that both share, normalised."""
        ...

    @property
    def similarity(self) -> float:
        """Return how alike the names are."""
        ...

    @property
    def degree(self) -> int:
        """Return how many records of the scope the name is linked to."""
        ...


class EntityReader(Protocol):
    """Search by names."""

    def names_in(self, text: str, /) -> Sequence[str]:
        """Return the names of a query, normalised."""
        ...

    def linked(self, names: Sequence[str], visible: Visible, limit: int, /) -> Sequence[EntityHit]:
        """Return the memories that are linked to these names, best first."""
        ...


class Words(KeywordReader, Protocol):
    """Search by words, and what is needed to score other texts on the same scale."""

    def statistics(self, terms: Iterable[str], *, tenant: str) -> Statistics:
        """Return how rare terms are among the tenant's documents."""
        ...


R = TypeVar("R")

# The reader of a generation: the one whose watermarks the search has read, or records that are in
# neither would be missing. Asked in the leg's time; raises TransientError or HaltError.
Of = Callable[[int], R]


def always(reader: R) -> Of[R]:
    """Return the same reader for every generation: where there is but one in a process's life."""
    return lambda _generation: reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Everything a search asks."""

    canonical: Canonical
    vector: Of[VectorReader]
    keyword: Of[Words]
    entity: Of[EntityReader]
    embedder: Embedder
