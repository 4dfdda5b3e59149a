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


@dataclass(slots=True)
class Candidate:
    """A memory that may answer the query."""

    memory_id: UUID
    places: dict[Leg, Place] = field(default_factory=dict)
    is_tail: bool = False

    def is_current(self, leg: Leg, record: Record) -> bool:
        """Tell whether what `leg` says of it is about its present revision."""
        place = self.places.get(leg)
        return place is not None and place.rev == record.rev

    def is_outdated(self, record: Record) -> bool:
        """Tell whether some leg scored another revision: its word doesn't count."""
        for place in self.places.values():  # noqa: SIM110 - a generator costs more than this
            if place.rev != record.rev:
                return True
        return False


class Field:
    """The candidates of one search, and what canonical state says of each."""

    def __init__(self, visible: Visible) -> None:
        self.visible = visible
        self.live: dict[UUID, Record] = {}
        self.dropped: dict[UUID, DropReason] = {}
        self.candidates: dict[UUID, Candidate] = {}
        self.records: dict[UUID, Record] = {}

    def take_tail(self, records: Iterable[Record]) -> None:
        """Add the tail: those that may be shown are candidates; the others are known as dead."""
        for record in records:
            self.records[record.id] = record
            if drop_reason(record, self.visible) is None:
                self._candidate(record.id).is_tail = True
                self.live[record.id] = record

    def take(self, leg: Leg, hits: Sequence[Seen]) -> None:
        """Add what a leg found; a memory that it names twice counts where it stands best."""
        for rank, hit in enumerate(hits, start=1):
            places = self._candidate(hit.memory_id).places
            held = places.get(leg)
            if held is None or (hit.rev, hit.score) > (held.rev, held.score):
                first = rank if held is None else held.rank
                places[leg] = Place(first, hit.rev, hit.score)

    def _candidate(self, memory_id: UUID) -> Candidate:
        if (held := self.candidates.get(memory_id)) is None:
            held = self.candidates[memory_id] = Candidate(memory_id)
        return held

    def unknown(self) -> list[UUID]:
        """Return the candidates whose canonical state was not read yet."""
        return [memory_id for memory_id in self.candidates if memory_id not in self.records]

    def judge(self, read: Mapping[UUID, Record], asked: Sequence[UUID]) -> int:
        """Take in what canonical state holds of `asked`; return how many candidates fell now."""
        before = len(self.dropped)
        self.records.update(read)
        for memory_id, record in read.items():
            self._decide(memory_id, drop_reason(record, self.visible), record)
        for memory_id in asked:
            if memory_id not in read:
                self.dropped[memory_id] = DropReason.MISSING
        for memory_id in self.candidates.keys() - self.live.keys() - self.dropped.keys():
            record = self.records[memory_id]  # of the tail, dead, and offered by a leg
            self._decide(memory_id, drop_reason(record, self.visible), record)
        return len(self.dropped) - before

    def _decide(self, memory_id: UUID, reason: DropReason | None, record: Record) -> None:
        if reason is None:
            self.live[memory_id] = record
        else:
            self.dropped[memory_id] = reason
