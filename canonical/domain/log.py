"""What the log says and how far a reader of it has come: events, pages, leases, marks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from canonical.domain.records import Op, Record
from canonical.domain.values import value_object

CAUTIOUS_AFTER = 3  # claims of a shard without progress: whoever held it died

# A record that ends its worker leaves nothing but such claims. From here on its shard is handled
# alone and one event at a time, so that only the culprit is parked.
PARK_AFTER = 6


@value_object
class Event:
    """One row of the log."""

    shard: int
    pos: int
    memory_id: UUID
    rev: int
    version: int
    op: Op
    tenant: str
    at: datetime
    trace: str | None = None  # of the write, as W3C writes it


@value_object
class Mark:
    """How far an engine has come in one shard, with the event that stood there."""

    shard: int
    pos: int
    memory_id: UUID
    rev: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to move one shard's watermark of one generation, until it ends."""

    projection: str
    generation: int
    shard: int
    owner: str
    epoch: int  # fencing: rises with every claim
    watermark: int  # where the watermark stood at the claim, or at our last move
    attempts: int = 0  # claims since the watermark moved last


@dataclass(frozen=True, slots=True)
class Page:
    """Events handled together, of one or more shards, and the current state of what they name.

    events:  dense and in position order inside each shard; every change (audit needs each).
    records: each memory once, as canonical state holds it *now* (an index needs only this). A
             memory that is parked is in `events` and not here.
    marks:   the last event of each shard, to be kept by the engine together with the page.
    """

    events: tuple[Event, ...]
    records: Mapping[UUID, Record]
    marks: Sequence[Mark]
    epoch: int
    # The shard of each record; where it is left out, the events say it.
    shards: Mapping[UUID, int] = field(default_factory=dict)

    def shard_of(self, memory_id: UUID) -> int:
        """Return the shard of one of the page's memories."""
        if memory_id in self.shards:
            return self.shards[memory_id]
        return next(event.shard for event in self.events if event.memory_id == memory_id)


@dataclass(frozen=True, slots=True)
class Reading:
    """What stood above some watermarks, in one snapshot."""

    events: tuple[Event, ...]  # by shard, in position order
    heads: Mapping[int, int]  # position of each shard's newest event


@value_object
class Due:
    """A parked memory whose next try has come."""

    tenant: str
    memory_id: UUID
    shard: int
    last_pos: int  # newest position that named it
