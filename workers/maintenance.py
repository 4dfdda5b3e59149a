"""Small chores of a serving process, on their own thread: forgetting what has had its time."""

import logging
import threading
from collections.abc import Callable, Mapping

from workers.faults import placed

log = logging.getLogger(__name__)

Chore = Callable[[], bool]  # does a portion; tells whether there is more to do


class Maintenance:
    """Does each chore at the start and then once an hour, or a minute after one has failed.

    Guarantee: nothing that a chore raises ends the thread or keeps another from being done; it is
               counted, and logged without its message, which may hold a tenant's text.
    """

    def __init__(
        self, chores: Mapping[str, Chore], *, every_s: float = 3600.0, again_s: float = 60.0
    ) -> None:
        self._chores, self._every_s, self._again_s = chores, every_s, again_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self.failures = dict.fromkeys(chores, 0)  # since the start

    def start(self) -> None:
        """Run in a thread until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End after the portion at hand; safe twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            well = self.run_once()
            self._stop.wait(self._every_s if well else self._again_s)

    def run_once(self) -> bool:
        """Do each chore to its end; returns whether all went well."""
        done = [self._is_done(name) for name in self._chores]
        return all(done)

    def _is_done(self, name: str) -> bool:
        try:
            while self._chores[name]() and not self._stop.is_set():
                pass
        # The loop's outermost guard: whatever went wrong, the thread lives, and the log says so.
        except Exception as exc:  # noqa: BLE001
            self.failures[name] += 1
            log.error("%s failed, tried again in %g s: %s", name, self._again_s, placed(exc))  # noqa: TRY400
            return False
        return True
