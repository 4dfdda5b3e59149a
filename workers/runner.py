"""Runs one generation of a projection: waits for work, handles it, holds on faults."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from canonical.errors import HaltError, LeaseLostError, ProjectorFailedError, TransientError
from projectors import loop
from projectors.protocol import Feed, Lease, Projector
from workers.faults import placed, told

log = logging.getLogger(__name__)

ISOLATE_AFTER = 3  # passes in a row that ended in a way that nobody foresaw
SILENT_S = 60.0  # of a loop: a page and its pause together take less
FAILURES = 3  # passes in a row: more are no passing fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a runner works and waits. Seconds."""

    page_events: int = 2_000
    gather_s: float = 0.1  # after a page that wasn't full: a look has a price, so let events gather
    idle_s: float = 1.0  # the sweep: a lost wake-up costs no more than this
    renew_s: float = 10.0  # a third of the lease
    backoff_s: float = 0.5  # doubled with each failure in a row, with jitter
    backoff_most_s: float = 30.0


@dataclass(slots=True)
class Counts:
    """What a runner has done since its start."""

    events: int = 0
    pages: int = 0
    refused: int = 0
    retried: int = 0
    failures: int = 0
    leases_lost: int = 0  # each shard's
    halts: int = 0
    beat_at: float = field(default_factory=time.monotonic)  # the loop's last sign of life


class Runner:
    """The loop of one projection's generation over every shard it can lease.

    Guarantee: nothing that happens in a pass ends the loop; a dead engine holds its shards back
               with growing pauses and parks nothing; a wake-up only shortens the wait. An error
               that nobody foresaw is tried again; then the memories that fail by themselves, while
               others go through, are parked.
    """

    def __init__(
        self,
        name: str,
        feed: Feed,
        projector: Projector,
        *,
        pace: Pace | None = None,
        caught_up: Callable[[int], None] | None = None,
    ) -> None:
        """`caught_up` is told how many events may have come since the work was done."""
        self.name, self.counts = name, Counts()
        self.last_error: Exception | None = None
        self._feed, self._projector = feed, projector
        self._pace, self._caught_up = pace or Pace(), caught_up
        self._leases: dict[int, Lease] = {}
        self._noticing = threading.Lock()  # of a lost lease: either thread may be the first
        self._failures = self._unforeseen = self._unrenewed = 0
        self._renewal_error: Exception | None = None
        self._stop, self._wake = threading.Event(), threading.Event()
        self._passed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Run in threads until `stop`."""
        for work in (self._run, self._keep_leases):
            thread = threading.Thread(target=work, name=f"{self.name}:{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def failures(self) -> int:
        """Return how many passes in a row have failed."""
        return self._failures

    def ailment(self) -> str | None:
        """Say that the loop gives no sign of life, or fails again and again; no tenant's text."""
        silent_s = time.monotonic() - self.counts.beat_at
        if silent_s > SILENT_S:
            return f"its loop gives no sign of life for {silent_s:.0f} s"
        if self._failures > FAILURES and self.last_error is not None:
            return f"its loop fails: {told(self.last_error)}"
        if self._unrenewed > FAILURES and self._renewal_error is not None:
            return f"its leases are not renewed: {told(self._renewal_error)}"
        return None

    def wake(self) -> None:
        """Say that there may be work; never blocks and never fails."""
        self._wake.set()

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> None:
        """Return once `done`, asked after every pass, says so.

        Raises: TimeoutError.
        """
        with self._passed:
            if not self._passed.wait_for(done, timeout_s):
                raise TimeoutError(f"{self.name}: not done within {timeout_s} s")

    def stop(self, timeout_s: float = 30.0) -> None:
        """Finish the page at hand, give the leases back and end; safe twice."""
        self._stop.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(timeout_s)

    def run_once(self) -> int:
        """Handle one page of whatever waits; returns the number of events and retries done."""
        waiting = self._feed.waiting()
        if not waiting:
            self._notice_end(may_have_come=0)
            return 0
        unheld = [shard for shard in waiting if shard not in self._leases]
        if unheld:
            self._leases |= {lease.shard: lease for lease in self._feed.claim(unheld)}
        leases = [self._leases[shard] for shard in waiting if shard in self._leases]
        done = self._handle(leases) if leases else 0
        if 0 < done < self._pace.page_events:
            # Where writers never pause, some work is left after every page.
            self._notice_end(may_have_come=self._pace.page_events)
        return done

    def _notice_end(self, *, may_have_come: int) -> None:
        if self._caught_up is not None:
            self._caught_up(may_have_come)

    def _handle(self, leases: Sequence[Lease]) -> int:
        try:
            progress = loop.run_page(
                self._feed,
                self._projector,
                leases,
                limit=self._pace.page_events,
                isolate=self._unforeseen >= ISOLATE_AFTER,
            )
            self._keep(progress.leases)
            for shard, gap in progress.halted.items():
                self._halt([lease for lease in leases if lease.shard == shard], gap)
            retried = loop.retry_parked(self._feed, self._projector, progress.leases)
        except LeaseLostError as exc:
            self._lost([lease for lease in leases if lease.shard in exc.shards] or leases)
            self._leases.clear()  # claimed anew, at their real watermarks
            return 0
        except HaltError as exc:
            self._halt(leases, exc)
            return 0
        except TransientError as exc:
            self._feed.hold(leases, exc, halt=False)
            raise
        except Exception as exc:
            self._unforeseen += 1
            self._hold_unforeseen(leases, exc)
            raise
        self._unforeseen = 0
        self._count(progress, retried)
        return progress.events + retried

    def _count(self, progress: loop.Progress, retried: int) -> None:
        self.counts.events += progress.events
        self.counts.pages += bool(progress.events)
        self.counts.refused += progress.refused
        self.counts.retried += retried

    def _hold_unforeseen(self, leases: Sequence[Lease], error: Exception) -> None:
        """Note it with its class and place alone: its message may hold a text of some tenant."""
        said = placed(error)
        log.error("%s: not foreseen, tried again: %s", self.name, said)
        self._feed.hold(leases, ProjectorFailedError(said), halt=False)

    def _keep(self, moved: Sequence[Lease]) -> None:
        """Keep leases at their new watermarks, but for those that were lost meanwhile."""
        with self._noticing:
            self._leases |= {one.shard: one for one in moved if one.shard in self._leases}

    def _lost(self, leases: Sequence[Lease]) -> None:
        """Drop leases that are not ours any more; each loss is counted and said once."""
        with self._noticing:
            news = [one for one in leases if self._epoch(one.shard) == one.epoch]
            for lease in news:
                del self._leases[lease.shard]
            self.counts.leases_lost += len(news)
        for lease in news:
            log.warning(
                "%s generation %d shard %d: the lease is lost (lease_lost); the work at hand is "
                "dropped, and done again by whoever holds the shard",
                lease.projection,
                lease.generation,
                lease.shard,
            )

    def _epoch(self, shard: int) -> int | None:
        held = self._leases.get(shard)
        return None if held is None else held.epoch

    def _halt(self, leases: Sequence[Lease], error: HaltError) -> None:
        self.counts.halts += len(leases)
        self._feed.hold(leases, error, halt=True)
        self._feed.release(leases)
        for lease in leases:
            self._leases.pop(lease.shard, None)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            pause_s = gather_s = 0.0
            try:
                done = self.run_once()
                self._failures = 0
                pause_s = 0.0 if done else self._pace.idle_s
                gather_s = 0.0 if done >= self._pace.page_events else self._pace.gather_s
            # The outermost guard: whatever went wrong, the loop lives, and its state says so.
            except Exception as exc:  # noqa: BLE001
                pause_s = self._after(exc)
            self.counts.beat_at = time.monotonic()
            with self._passed:
                self._passed.notify_all()
            self._stop.wait(gather_s)
            if pause_s:
                self._pause(pause_s)
        self._give_back()

    def _pause(self, pause_s: float) -> None:
        """Wait: while all is well a wake-up ends it, while something fails only a stop does."""
        (self._stop if self._failures else self._wake).wait(pause_s)

    def _after(self, exc: Exception) -> float:
        self._failures += 1
        self.counts.failures += 1
        self.last_error = exc
        most = self._pace.backoff_most_s
        doublings = min(self._failures - 1, 10)
        pause_s = min(most, self._pace.backoff_s * float(1 << doublings))
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    def _keep_leases(self) -> None:
        while not self._stop.wait(self._pace.renew_s):
            try:
                self._renew(list(self._leases.values()))
                self._unrenewed = 0
            # The outermost guard. The leases may end, and the watermark's guard stands; a thread
            # that ended would let go of every lease that is held for longer than a renewal, unseen.
            except Exception as exc:  # noqa: BLE001
                self._unrenewed += 1
                self._renewal_error = exc
                log.warning("%s: leases not renewed, tried again: %s", self.name, placed(exc))

    def _renew(self, held: Sequence[Lease]) -> None:
        if held:
            ours = {lease.shard for lease in self._feed.renew(held)}
            self._lost([lease for lease in held if lease.shard not in ours])

    def _give_back(self) -> None:
        try:
            if self._leases:
                self._feed.release(list(self._leases.values()))
        # The outermost guard of the thread's last act: they end by themselves.
        except Exception as exc:  # noqa: BLE001
            log.warning("%s: leases not given back: %s", self.name, placed(exc))
        self._leases.clear()
