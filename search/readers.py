"""The readers of a projection by generation, opened when a search first needs one."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from canonical.errors import EngineUnavailableError, GnomonError

R = TypeVar("R")
Opened = tuple[R, Callable[[], None]]  # and how it is closed

KEPT = 2  # the one that serves, and the one before: searches that began with it still use it
AGAIN_S = 1.0


class ByGeneration(Generic[R]):
    """Opens the reader of the generation that a search asks for, and keeps it.

    Guarantee: an engine that was away when the process started is used once it is back, and a
               generation that serves from now on by the next search; neither needs a restart. One
               search at a time waits for an opening: the others are told at once that the engine is
               away, and so are those within `again_s` of a failed one.
    """

    def __init__(self, open_: Callable[[int], Opened[R]], *, again_s: float = AGAIN_S) -> None:
        self._open, self._again_s = open_, again_s
        self._held: dict[int, Opened[R]] = {}
        self._opening = threading.Lock()
        self._failed: tuple[float, int, GnomonError] | None = None

    def __call__(self, generation: int) -> R:
        """Return the reader of a generation.

        Raises: EngineUnavailableError, or whatever opening it has raised.
        """
        if (held := self._held.get(generation)) is not None:
            return held[0]
        if not self._opening.acquire(blocking=False):
            raise EngineUnavailableError(f"generation {generation} is just being opened")
        try:
            if (held := self._held.get(generation)) is None:
                self._refuse_again(generation)
                held = self._opened(generation)
            return held[0]
        finally:
            self._opening.release()

    def _refuse_again(self, generation: int) -> None:
        if self._failed is not None:
            at, failed, error = self._failed
            if failed == generation and time.monotonic() - at < self._again_s:
                raise error.with_traceback(None)

    def _opened(self, generation: int) -> Opened[R]:
        try:
            opened = self._open(generation)
        except GnomonError as exc:
            self._failed = time.monotonic(), generation, exc
            raise
        for gone in sorted(self._held)[: len(self._held) - KEPT + 1]:
            self._held.pop(gone)[1]()
        self._held[generation] = opened
        return opened

    def close(self) -> None:
        """Close what is open."""
        with self._opening:
            while self._held:
                self._held.popitem()[1][1]()
