"""Small chores of a serving process, on their own thread: forgetting what has had its time."""

import threading
from collections.abc import Callable, Sequence

from canonical.errors import GnomonError


class Maintenance:
    """Does each chore at the start and then once an hour; one that fails is tried at the next."""

    def __init__(self, chores: Sequence[Callable[[], object]], *, every_s: float = 3600.0) -> None:
        self._chores, self._every_s = chores, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self.failures: list[GnomonError] = []

    def start(self) -> None:
        """Run in a thread until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End after the chore at hand; safe twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self.run_once()
            if self._stop.wait(self._every_s):
                return

    def run_once(self) -> None:
        """Do each chore."""
        for chore in self._chores:
            try:
                chore()
            except GnomonError as exc:
                self.failures = [*self.failures[-9:], exc]
