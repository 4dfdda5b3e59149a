"""What is kept of searches, so that finding and ranking can be judged later: never a text."""

import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol
from uuid import UUID

import orjson

from search.answer import Considered
from search.legs import code_of
from search.metrics import NoMetrics, SearchMetrics

log = logging.getLogger(__name__)

Event = list[dict[str, Any]]

HELD_EVENTS = 2_000  # of searches that may yet be reported as used; some 10 KB each
WAIT_S = 5.0


class Recorder(Protocol):
    """Where events are kept."""

    def record_query(
        self,
        tenant: str,
        query_id: UUID,
        candidates: list[dict[str, Any]],
        keep: bool,  # noqa: FBT001 - the store's own shape
        /,
    ) -> None:
        """Keep an event; one with `keep` is not purged with the samples."""
        ...

    def mark_used(
        self, tenant: str, query_id: UUID, packed: Sequence[UUID], used: Sequence[UUID], /
    ) -> None:
        """Mark what was packed into a prompt and what the answer used, and keep the event."""
        ...


class Diagnostics:
    """Events of this process's searches: a sample is recorded, the newest others are held.

    Whether a search gets used is known only afterwards. So the events of the newest searches that
    were not sampled stay in memory, and are recorded once a search is reported as used. Of one
    that is older than those, or that another process answered, only the marks are kept.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        sample: float,
        held: int = HELD_EVENTS,
        metrics: SearchMetrics | None = None,
    ) -> None:
        self._recorder = recorder
        self._sample = sample
        self._limit = held
        self._metrics = metrics or NoMetrics()
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, UUID], Future[bytes]] = OrderedDict()

    def wants(self) -> bool:
        """Tell whether this search is part of the sample."""
        return random.random() < self._sample  # noqa: S311 - a sample, not a secret

    def note(
        self,
        pool: Executor,
        key: tuple[str, UUID],
        tell: Callable[[], Sequence[Considered]],
        *,
        sampled: bool,
    ) -> None:
        """Hold the event of the search `key` (tenant, query_id); record it, if it is sampled.

        Guarantee: takes no time of the search itself; what goes wrong is counted and logged.
        """
        future = pool.submit(self._keep, key, tell, sampled=sampled)
        future.add_done_callback(self._settled)
        with self._lock:
            self._held[key] = future
            while len(self._held) > self._limit:
                self._held.popitem(last=False)

    def _keep(
        self, key: tuple[str, UUID], tell: Callable[[], Sequence[Considered]], *, sampled: bool
    ) -> bytes:
        event = [as_json(considered) for considered in tell()]
        if sampled:
            self._recorder.record_query(*key, event, False)  # noqa: FBT003 - the port's shape
        return orjson.dumps(event)

    def _settled(self, future: "Future[bytes]") -> None:
        if future.cancelled() or (error := future.exception()) is None:
            return
        self._metrics.diagnostics_lost(code_of(error))
        log.warning("a diagnostics event was lost", exc_info=error)

    def used(
        self, tenant: str, query_id: UUID, *, packed: Sequence[UUID], used: Sequence[UUID]
    ) -> None:
        """Mark what a search's hits were used for; its event is kept from now on.

        Raises: StoreUnavailableError.
        """
        with self._lock:
            held = self._held.pop((tenant, query_id), None)
        if held is not None and held.exception(WAIT_S) is None:
            event = orjson.loads(held.result())
            self._recorder.record_query(tenant, query_id, event, True)  # noqa: FBT003 - as above
        self._recorder.mark_used(tenant, query_id, packed, used)


def as_json(one: Considered) -> dict[str, Any]:
    """Write a candidate for an event or an explanation: ids, ranks and scores."""
    told: dict[str, Any] = {
        "memory_id": str(one.memory_id),
        "version": one.version,
        "scope_match": one.scope_match,
        "sources": list(one.sources),
        "legs": {
            leg.value: {"rank": s.rank, "raw": s.raw, "normalised": s.normalised}
            for leg, s in one.legs.items()
        },
        "entity_boost": one.entity.boost if one.entity is not None else None,
        "tail": one.tail,
        "rescored": one.rescored,
        "relevance": one.relevance,
        "score": one.score,
        "rank": one.rank,
        "dropped": one.dropped,
    }
    return told
