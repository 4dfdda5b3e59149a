"""What the loop, the log and the projections are to each other."""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from canonical.domain.log import Due, Event, Lease, Mark, Page, Reading
from canonical.domain.values import value_object
from canonical.domain.visibility import Visible
from canonical.store.pages import Applied

__all__ = [
    "Applied",
    "Due",
    "Event",
    "Feed",
    "Hit",
    "KeywordReader",
    "Lease",
    "Mark",
    "Page",
    "Projector",
    "Reading",
    "Step",
    "VectorReader",
]


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

    def waiting(self) -> list[int]:
        """List the shards with work whose lease is free or ours; none while paused."""
        ...

    def read(self, leases: Sequence[Lease], *, limit: int) -> Reading:
        """Read up to `limit` events above the leases' watermarks."""
        ...

    def page(self, events: Sequence[Event]) -> Page:
        """Make a page of events: the current records of the memories that are not parked."""
        ...

    def advance(self, leases: Sequence[Lease], page: Page, applied: Applied) -> list[Lease]:
        """Move each shard's watermark to its mark, park what was refused; all in one transaction.

        Shapes: one lease for each of the page's marks; returns them at their new watermarks.
        Raises: LeaseLostError, when a watermark was not ours to move; TooManyParkedError. Nothing
                was changed then.
        """
        ...

    def rehearse(self, leases: Sequence[Lease], applied: Applied) -> None:
        """Do what would commit with the watermarks, and take it back.

        Raises: LeaseLostError; whatever the commit would have raised.
        """
        ...

    def due(self, leases: Sequence[Lease], *, limit: int) -> list[Due]:
        """List parked memories of these shards whose next try has come."""
        ...

    def retry_page(self, due: Sequence[Due]) -> Page:
        """Make a page of parked memories as they are now: no events, no marks."""
        ...

    def settle(self, leases: Sequence[Lease], due: Sequence[Due], applied: Applied) -> None:
        """Clear what was projected, back off from what was refused again.

        Raises: LeaseLostError, when a lease is no longer ours: nothing was changed.
        """
        ...

    def hold(self, leases: Sequence[Lease], error: Exception, *, halt: bool) -> None:
        """Record why shards don't go on."""
        ...


@value_object
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
