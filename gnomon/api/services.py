"""What the HTTP API stands on; whoever starts a process fills it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from canonical.domain.clock import Clock
from canonical.domain.door import LIMITS, Limits
from canonical.store.database import Database
from canonical.store.reading import CanonicalReader
from gnomon.metrics.counters import Metrics
from search.answer import Answer
from search.query import Query


class Searches(Protocol):
    """Finds memories."""

    def search(self, query: Query, /) -> Answer:
        """Answer one search.

        Raises: StoreUnavailableError.
        """
        ...


class Usage(Protocol):
    """Keeps what became of a search's hits."""

    def used(
        self, tenant: str, query_id: UUID, *, packed: Sequence[UUID], used: Sequence[UUID]
    ) -> None:
        """Mark what a search's hits were used for."""
        ...


@dataclass(frozen=True, slots=True)
class Ailment:
    """A part that doesn't do its work, and why: no tenant, id or text in it."""

    part: str
    problem: str


def well() -> Sequence[Ailment]:
    """Report nothing."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Bounds of the HTTP API.

    tenant:      of requests without a key.
    body_bytes:  of a JSON body.
    line_bytes:  of a line of a bulk; its number of lines is not bounded.
    spool_bytes: of a bulk's answer that are held in memory; the rest goes to a temporary file.
    upload_idle: longest pause inside an upload.
    stuck_after: an event that waits this long, while its watermark stands, makes /readyz red.
    *_threads:   requests of a kind that are at work at once; more wait up to `queue_for`.
    """

    tenant: str = "default"
    body_bytes: int = 16 << 20
    line_bytes: int = 1 << 20
    spool_bytes: int = 4 << 20
    upload_idle: timedelta = timedelta(seconds=30)
    stuck_after: timedelta = timedelta(seconds=20)
    queue_for: timedelta = timedelta(seconds=5)
    write_threads: int = 8
    read_threads: int = 8
    search_threads: int = 16
    bulk_threads: int = 8
    admin_threads: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that the routes use.

    database:    serves as the API role: one tenant at a time.
    projector:   serves as the projector role: the state of projections over all tenants.
    epoch:       of the log; position tokens carry it.
    keys_exist:  tells whether a key was ever made; until then loopback needs none.
    hint:        told after each commit which shards were written to, or none if unknown, so that
                 the projectors need not wait for their sweep.
    health:      names what is unwell in this process beside the projections' lag.
    """

    database: Database
    projector: Database
    canonical: CanonicalReader
    searcher: Searches
    usage: Usage
    epoch: int
    clock: Clock
    keys_exist: Callable[[], bool]
    hint: Callable[[Collection[int]], None]
    health: Callable[[], Sequence[Ailment]] = well
    metrics: Metrics = field(default_factory=Metrics)
    limits: Limits = LIMITS
    settings: ApiSettings = field(default_factory=ApiSettings)
