"""Runs one generation of a projection: waits for work, handles it, holds on faults."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from canonical.errors import HaltError, LeaseLostError, ProjectorFailedError, TransientError
from projectors import loop
from projectors.protocol import Feed, Lease, Projector
from workers.counts import Counts
from workers.faults import FAILURES, placed, told
from workers.leases import Leases, facts

log = logging.getLogger(__name__)

ISOLATE_AFTER = 3  # passes in a row that ended in a way that nobody foresaw
SILENT_S = 60.0  # of a loop: a page and its pause together take less


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a runner works and waits. Seconds."""

    page_events: int = 2_000
    gather_s: float = 0.1  # after a page that wasn't full: a look has a price, so let events gather
    idle_s: float = 1.0  # the sweep: a lost wake-up costs no more than this
    renew_s: float = 10.0  # a third of the lease
    shards: int | None = None  # at once, where runners share the work; None: this one has it alone
    backoff_s: float = 0.5  # doubled with each failure in a row, with jitter
    backoff_most_s: float = 30.0


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
        self._leases = Leases(name, feed, self.counts)
        self._failures = self._unforeseen = 0
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
        return self._leases.ailment()

    def wake(self, shard: int | None = None) -> None:
        """Say that there may be work, in a shard or in any; never blocks and never fails."""
        if shard is not None:
            self._leases.begin_with(shard)
        self._wake.set()

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> None:
        """Return once `done`, asked after every pass, says so.

        Raises: TimeoutError.
        """
        with self._passed:
            if not self._passed.wait_for(done, timeout_s):
                raise TimeoutError(f"{self.name}: not done within {timeout_s} s")

    def ask_to_stop(self) -> None:
        """Say that it is to end after the page at hand, and wait for nothing."""
        self._stop.set()
        self._wake.set()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Finish the page at hand, give the leases back and end; safe twice.

        A page that takes longer is given up: its leases are free, so its watermarks don't move, and
        whoever takes them over does it again.
        """
        self.ask_to_stop()
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.warning("%s: the page at hand is given up after %g s", self.name, timeout_s)
            self._leases.give_back()

    def run_once(self) -> int:
        """Handle one page of whatever waits; returns the number of events and retries done."""
        waiting = self._feed.waiting()
        if self._pace.shards is not None:
            waiting = self._leases.in_turn(waiting, self._pace.shards)
        if not waiting:
            self._notice_end(may_have_come=0)
            return 0
        leases = self._leases.of(waiting)
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
            self._leases.keep(progress.leases)
            for shard, gap in progress.halted.items():
                self._halt([lease for lease in leases if lease.shard == shard], gap)
            retried = loop.retry_parked(self._feed, self._projector, progress.leases)
        except LeaseLostError as exc:
            self._leases.lose([lease for lease in leases if lease.shard in exc.shards] or leases)
            self._leases.forget()
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
        self.counts.done += progress.writes.done
        self.counts.stale += progress.writes.stale
        self.counts.refused += progress.writes.refused
        self.counts.again += progress.writes.again
        self.counts.retried += retried

    def _hold_unforeseen(self, leases: Sequence[Lease], error: Exception) -> None:
        """Note it with its class and place alone: its message may hold a text of some tenant."""
        said = placed(error)
        log.error("%s: not foreseen, tried again: %s", self.name, said)
        self._feed.hold(leases, ProjectorFailedError(said), halt=False)

    def _halt(self, leases: Sequence[Lease], error: HaltError) -> None:
        self.counts.halts += len(leases)
        for lease in leases:
            said = f"{lease.projection} generation {lease.generation} shard {lease.shard}"
            log.error("%s halts: %s", said, told(error), extra=facts(lease))
        self._feed.hold(leases, error, halt=True)
        self._leases.release(leases)

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
        self._leases.give_back()

    def _pause(self, pause_s: float) -> None:
        """Wait: while all is well a wake-up ends it, while something fails only a stop does."""
        (self._stop if self._failures else self._wake).wait(pause_s)

    def _after(self, exc: Exception) -> float:
        self._failures += 1
        if self._failures == 1 and isinstance(exc, TransientError):
            log.warning("%s is held, and tried again: %s", self.name, told(exc))
        self.counts.failures += 1
        self.last_error = exc
        most = self._pace.backoff_most_s
        doublings = min(self._failures - 1, 10)
        pause_s = min(most, self._pace.backoff_s * float(1 << doublings))
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    def _keep_leases(self) -> None:
        while not self._stop.wait(self._pace.renew_s):
            self._leases.renew()
