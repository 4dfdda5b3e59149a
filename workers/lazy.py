"""A projector whose engine is opened with its first page, and anew after it failed."""

import threading
from collections.abc import Callable
from contextlib import suppress

from canonical.errors import EngineUnavailableError, HaltError, TransientError
from projectors.protocol import Applied, Page, Projector

Close = Callable[[], None]


class LazyProjector:
    """Opens what it writes to when there is work, so that a process starts while engines are away.

    Guarantee: what `open_` raises is what a page meets: an engine that is away holds the shards
               back, one that is gone halts them. After a failure it is opened anew, with all checks
               of an opening: an engine that comes back may have come back older.
    """

    def __init__(self, open_: Callable[[], tuple[Projector, Close]]) -> None:
        self._open = open_
        self._opened: tuple[Projector, Close] | None = None
        self._opening = threading.Lock()

    def apply(self, page: Page) -> Applied:
        """Apply a page on the engine.

        Raises: what opening it or `Projector.apply` raises.
        """
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            projector, _ = self._opened
        try:
            return projector.apply(page)
        except (EngineUnavailableError, HaltError):
            self.close()
            raise

    def close(self) -> None:
        """Let go of the engine; safe twice, and it may be opened again."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(TransientError, HaltError):
                opened[1]()
