"""What the loop, the log and the projections are to each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from canonical.domain.records import Op, Record
from canonical.domain.visibility import Visible
from canonical.errors import PoisonError


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a page.

    refused:        memories that can't be projected, each with its reason: they are parked.
    in_transaction: for projections in Postgres: writes that must commit with the watermark.
    """

    refused: Mapping[UUID, PoisonError] = field(default_factory=dict)
    in_transaction: Callable[[Connection], None] | None = None


class Projector(Protocol):
    """The writing side of one generation of a projection."""

    def apply(self, page: Page) -> Applied:
        """Bring the engine to at least the state of `page.records`, and keep `page.marks`.

        Guarantee: idempotent by (memory id, rev); an older write never replaces a newer one;
                   durable when it returns (or, with `in_transaction`, when that commits).
        Raises:    TransientError: nothing is known, the page is repeated. HaltError: stop.
        """
        ...


class Step(Enum):
    """Where a projector can die; tests kill it at each."""

    CLAIMED = "claimed"
    PAGE_READ = "page_read"
    PAGE_APPLIED = "page_applied"
    WATERMARK_MOVED = "watermark_moved"


class Feed(Protocol):
    """The log as a projector sees it."""

    def claim(self, shards: Sequence[int]) -> list[Lease]:
        """Take the lease of each shard that is free or whose lease has ended."""
        ...

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extend leases; return those that are still ours."""
        ...

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back, so that another worker need not wait for their end."""
        ...

    def read(self, leases: Sequence[Lease], *, limit: int) -> list[Event]:
        """Return up to `limit` events above each lease's watermark, in position order."""
        ...

    def page(self, events: Sequence[Event]) -> Page:
        """Make a page of events: the current records of the memories that are not parked."""
        ...

    def advance(self, leases: Sequence[Lease], page: Page, applied: Applied) -> list[Lease]:
        """Move each shard's watermark to its mark, park what was refused; all in one transaction.

        Raises: LeaseLostError, when a watermark was not ours to move: nothing was changed.
        """
        ...

    def hold(self, leases: Sequence[Lease], error: Exception, *, halt: bool) -> None:
        """Record why shards don't go on."""
        ...


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that an engine found. `score`: raw, the higher the better, of the engine's scale."""

    memory_id: UUID
    rev: int  # the revision that the engine holds
    score: float


class VectorReader(Protocol):
    """Search by meaning."""

    def nearest(
        self, vector: NDArray[np.float32], *, visible: Visible, limit: int, timeout: timedelta
    ) -> list[Hit]:
        """Return the memories nearest to `vector`, best first; score is the cosine.

        Raises: TransientError or HaltError, when the engine can't answer.
        """
        ...


class KeywordReader(Protocol):
    """Search by words."""

    def best(
        self, terms: Sequence[str], *, visible: Visible, limit: int, timeout: timedelta
    ) -> list[Hit]:
        """Return the memories that hold some of `terms`, best first; score is BM25.

        Raises: TransientError or HaltError, when the engine can't answer.
        """
        ...
