"""What a search answers: hits, what fell short, and why each candidate stands where it does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from canonical.domain.records import Record, Status
from canonical.domain.scope import Scope
from canonical.domain.values import named_value_object, value_object


class Leg(StrEnum):
    """Where candidates are looked for; also the name of the projection that is asked."""

    __hash__ = str.__hash__  # as equality has it; an Enum's own is by name, and slow

    VECTOR = "vector"
    KEYWORD = "keyword"
    ENTITY = "entity"


TAIL = "tail"  # canonical records that the legs don't serve yet
RECHECK = "recheck"

BELOW_THRESHOLD = "below_threshold"
BEYOND_TOP_K = "beyond_top_k"


class Shortfall(StrEnum):
    """In which way an answer is less than it would be on a good day."""

    FAILED = "failed"  # the leg gave nothing; `code` says why
    TOO_LATE = "too_late"  # the leg was not done within its budget
    HALTED = "halted"  # a shard of the projection stopped; `code` says why
    LAGGING = "lagging"  # the projection is behind by more than usual
    TAIL_TRUNCATED = "tail_truncated"  # more is not projected than one search can look at
    TERMS_ONLY = "terms_only"  # some of the tail was compared by its words alone
    REFILL_BOUNDED = "refill_bounded"  # so many candidates were dead that some live were not seen


@dataclass(frozen=True, slots=True)
class Degraded:
    """A part of the search that fell short, and by how much. `lag_seconds`: of the oldest event."""

    leg: str
    reason: Shortfall
    code: str | None = None
    lag_positions: int | None = None
    lag_seconds: float | None = None


@value_object
class LegScore:
    """What one leg says of a record. `rank`: from 1, None if the text itself was scored here."""

    rank: int | None
    raw: float
    normalised: float


@value_object
class EntityFactor:
    """What a shared name adds: `boost` = similarity x weight x a penalty that grows with degree."""

    name: str
    similarity: float
    degree: int
    boost: float


@named_value_object
class Considered:
    """What became of one candidate, and why.

    scope_match: None, when canonical state has no such record for this tenant.
    tail:        not every leg serves its present revision yet.
    rescored:    some leg held another revision, so the canonical text was scored instead.
    relevance:   None, when it was not needed to decide.
    rank:        in the fused order, from 1; None, when it was dropped.
    dropped:     a DropReason, `below_threshold` or `beyond_top_k`; None for a hit.
    """

    memory_id: UUID
    version: int | None
    scope_match: bool | None
    sources: tuple[str, ...]
    legs: Mapping[Leg, LegScore]
    entity: EntityFactor | None = None
    tail: bool = False
    rescored: bool = False
    relevance: float | None = None
    score: float | None = None
    rank: int | None = None
    dropped: str | None = None


@value_object
class Hit:
    """A record that may be shown, as canonical state holds it.

    score:     orders hits; in [0, 1].
    relevance: what `threshold` is compared with; in [0, 1], the same meaning for every query.
    """

    record: Record
    score: float
    relevance: float
    explain: Considered | None = None

    @property
    def memory_id(self) -> UUID:
        """Return the record's id."""
        return self.record.id

    @property
    def version(self) -> int:
        """Return the record's version."""
        return self.record.version

    @property
    def status(self) -> Status:
        """Return the record's status."""
        return self.record.status

    @property
    def scope(self) -> Scope:
        """Return whose the record is."""
        return self.record.scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one search.

    hits:          best first, ties in the order of their ids; at most `top_k`.
    scope_records: how many records the scope has; only counted when there are no hits.
    considered:    every candidate, for diagnostics; the caller's explanation leaves out those
                   outside the scope, and those that this tenant hasn't got.
    seconds:       of each leg, the tail, the re-check and the whole.
    """

    query_id: UUID
    hits: Sequence[Hit] = ()
    degraded: Sequence[Degraded] = ()
    scope_records: int | None = None
    considered: Sequence[Considered] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
