"""The union of what the legs and the tail offer: each memory once, with where it came from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from canonical.domain.records import Record
from canonical.domain.values import value_object
from canonical.domain.visibility import DropReason, Visible, drop_reason
from search.answer import Leg
from search.ports import Seen


@value_object
class Place:
    """Where a leg saw a memory. `rank`: from 1. `rev`: the revision that the leg scored."""

    rank: int
    rev: int
    score: float


Places = Mapping[Leg, Place]


@dataclass(slots=True)
class Candidate:
    """A memory that may answer the query. `record`: None, while canonical state was not read."""

    memory_id: UUID
    places: dict[Leg, Place] = field(default_factory=dict)
    is_tail: bool = False
    record: Record | None = None

    def current(self, record: Record) -> Places:
        """Return where legs saw its present revision: their word on another one doesn't count."""
        for place in self.places.values():
            if place.rev != record.rev:
                return {leg: p for leg, p in self.places.items() if p.rev == record.rev}
        return self.places


class Field:
    """The candidates of one search, and what canonical state says of each."""

    def __init__(self, visible: Visible) -> None:
        self.visible = visible
        self.candidates: dict[UUID, Candidate] = {}
        self.live: list[tuple[Candidate, Record]] = []
        self.dropped: list[tuple[Candidate, DropReason]] = []
        self._dead_tail: dict[UUID, Record] = {}
        self._unknown: list[Candidate] = []
        self._fell = 0  # of those dropped: what `judge` has told

    def take_tail(self, records: Iterable[Record]) -> None:
        """Add the tail: those that may be shown are candidates; the others are known as dead."""
        for record in records:
            if drop_reason(record, self.visible) is None:
                candidate = self.candidates[record.id] = Candidate(record.id, is_tail=True)
                self._settle(candidate, record)
            else:
                self._dead_tail[record.id] = record

    def take(self, leg: Leg, hits: Sequence[Seen]) -> None:
        """Add what a leg found; a memory that it names twice counts where it stands best."""
        for rank, hit in enumerate(hits, start=1):
            memory_id = hit.memory_id
            candidate = self.candidates.get(memory_id) or self._offered(memory_id)
            held = candidate.places.get(leg)
            if held is None:
                candidate.places[leg] = Place(rank, hit.rev, hit.score)
            elif (hit.rev, hit.score) > (held.rev, held.score):
                candidate.places[leg] = Place(held.rank, hit.rev, hit.score)

    def _offered(self, memory_id: UUID) -> Candidate:
        candidate = self.candidates[memory_id] = Candidate(memory_id)
        if (dead := self._dead_tail.get(memory_id)) is not None:
            self._settle(candidate, dead)
        else:
            self._unknown.append(candidate)
        return candidate

    def unknown(self) -> list[UUID]:
        """Return the candidates whose canonical state was not read yet."""
        return [candidate.memory_id for candidate in self._unknown]

    def judge(self, read: Mapping[UUID, Record]) -> int:
        """Take in what canonical state holds of the unknown; return how many candidates fell."""
        for candidate in self._unknown:
            if (record := read.get(candidate.memory_id)) is not None:
                self._settle(candidate, record)
            else:
                self.dropped.append((candidate, DropReason.MISSING))
        self._unknown = []
        before, self._fell = self._fell, len(self.dropped)
        return self._fell - before

    def _settle(self, candidate: Candidate, record: Record) -> None:
        candidate.record = record
        if (reason := drop_reason(record, self.visible)) is None:
            self.live.append((candidate, record))
        else:
            self.dropped.append((candidate, reason))
