"""Sends hints after commits, off the thread that committed: what fails is counted, and no harm."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta

from canonical.store import projections
from canonical.store.database import Database
from workers.celery_app import HINT_TTL_S, PROJECT, TAIL, build_app
from workers.counts import HintCounts
from workers.faults import placed

log = logging.getLogger(__name__)

Send = Callable[[str, int, int], None]  # projection, generation, shard
Serving = Callable[[], Mapping[str, int]]  # the generation of each projection

GATHER_S = 0.1  # a shard is hinted at once in this time, however often it is written to
BACKOFF_MOST_S = 30.0
SOCKET = timedelta(seconds=1)


class Hints:
    """Tells workers which shards were written to; `hint` neither blocks nor fails.

    Guarantee: nothing about it can keep a write from being acknowledged. What isn't sent, because
               the broker is away, full or silent, or because the process ended, is found by the
               workers' own looks. After a failure it is left alone for a growing time.
    """

    def __init__(
        self, send: Send, serving: Serving, counts: HintCounts, *, gather_s: float = GATHER_S
    ) -> None:
        self._send, self._serving, self._counts, self._gather_s = send, serving, counts, gather_s
        self._pending: set[int] = set()
        self._guard = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._failures = 0  # in a row
        self._thread = threading.Thread(target=self._run, name="hints", daemon=True)

    def start(self) -> None:
        """Send in a thread until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End without sending what is left; a round at work ends by itself."""
        self._stop.set()
        self._wake.set()

    def hint(self, shards: Collection[int]) -> None:
        """Say that these shards were written to; none in particular: that there may be work."""
        with self._guard:
            self._pending.update(shards or (0,))  # a hint to each projection is enough
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._stop.wait(self._gather_s)
            self._wake.clear()
            self.send_pending()
            if self._failures:
                self._stop.wait(min(BACKOFF_MOST_S, self._gather_s * 2.0**self._failures))

    def send_pending(self) -> None:
        """Send one round; nothing that goes wrong is raised."""
        with self._guard:
            shards, self._pending = sorted(self._pending), set()
        if not shards:
            return
        left = len(shards)
        try:
            due = [(*one, shard) for one in self._serving().items() for shard in shards]
            for left in range(len(due), 0, -1):
                self._send(*due[-left])
                self._counts.hinted("sent")
        # The outermost guard: a hint is worth nothing but time, and its sender must live.
        except Exception as exc:  # noqa: BLE001
            self._failed(exc, left)
            return
        if self._failures:
            log.warning("hints are sent again, after %d rounds that failed", self._failures)
            self._failures = 0

    def _failed(self, error: Exception, lost: int) -> None:
        self._counts.hinted("lost", lost)
        if not self._failures:
            log.warning(
                "hints can't be sent (%s): workers find their work by looking, a little later",
                placed(error),
            )
        self._failures = min(self._failures + 1, 16)


class NoHintCounts:
    """Counts nothing."""

    def hinted(self, outcome: str, count: int = 1) -> None:
        """Do nothing."""


def over_redis(url: str, projector: Database, names: Collection[str], counts: HintCounts) -> Hints:
    """Return what hints through a Redis at the live generations of some projections."""
    app = build_app(url, socket=SOCKET)

    def send(projection: str, generation: int, shard: int) -> None:
        app.send_task(
            PROJECT,
            (projection, generation, shard),
            queue=TAIL,
            expires=HINT_TTL_S,
            retry=False,
            ignore_result=True,
        )

    def serving() -> dict[str, int]:
        with projector.transaction() as conn:
            found = projections.working(conn, list(names))
        return {
            name: one.number
            for name, working in found.items()
            for one in working
            if one.state == "live"
        }

    return Hints(send, serving, counts)
