"""Which legs serve, and which of them are further behind than usual: read from the watermarks."""

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

from search.answer import Degraded, Leg, Shortfall
from search.ports import Canonical, Served
from search.settings import SearchSettings

LIVE = "live"
# A record that these serve can be found by its content; the entity leg only adds to it.
CONTENT_LEGS = (Leg.VECTOR, Leg.KEYWORD)


class Marks:
    """Watermarks as some search of this process read them, a moment ago at most.

    A search must use marks read *before* it asks an engine: with later ones, a record that was
    projected in between is missing from the engine's answer and from the tail.
    """

    def __init__(self, canonical: Canonical, max_age: timedelta) -> None:
        self._canonical = canonical
        self._max_age_s = max_age.total_seconds()
        self._reading = threading.Lock()
        self._held: tuple[float, Mapping[str, Served]] = (-1.0, {})

    def recent(self) -> Mapping[str, Served]:
        """Return the watermarks of every leg's projection, at most `max_age` old.

        Raises: StoreUnavailableError.
        """
        if (held := self._fresh()) is not None:
            return held
        if self._max_age_s <= 0:
            return self._canonical.served(list(Leg))
        with self._reading:  # many searches at once read once
            if (held := self._fresh()) is None:
                at = time.monotonic()
                held = self._canonical.served(list(Leg))
                self._held = (at, held)
            return held

    def _fresh(self) -> Mapping[str, Served] | None:
        at, held = self._held
        return held if held and time.monotonic() - at < self._max_age_s else None


def serving(served: Mapping[str, Served]) -> list[Leg]:
    """Return the legs that have a live generation."""
    return [leg for leg in Leg if leg in served and served[leg].state == LIVE]


def tail_floor(served: Mapping[str, Served], legs: Sequence[Leg]) -> list[Mapping[int, int]]:
    """Return the watermarks above which a record may not be findable by its content.

    Of a lost index there are none: it is failed, and what it held is not all tail. If no index
    can find by content, the list is empty and the whole scope is tail.
    """
    return [served[leg].marks for leg in CONTENT_LEGS if leg in legs]


def shortfalls(served: Mapping[str, Served], settings: SearchSettings) -> list[Degraded]:
    """Name the projections that are lost, stopped, or behind by more than usual."""
    found = (_shortfall(leg, served.get(leg), settings) for leg in Leg)
    return [one for one in found if one is not None]


def _shortfall(leg: Leg, served: Served | None, settings: SearchSettings) -> Degraded | None:
    if served is None:
        return Degraded(leg, Shortfall.FAILED, "lost")
    behind = sum(max(lag, 0) for lag in served.lag.values())
    oldest = served.oldest_unserved_seconds
    if served.state != LIVE:
        code = "rebuilding" if served.state == "building" else "lost"
        return Degraded(leg, Shortfall.FAILED, code, behind, oldest)
    if served.halted:
        return Degraded(leg, Shortfall.HALTED, served.error_code, behind, oldest)
    is_late = oldest is not None and oldest >= settings.lagging_for.total_seconds()
    if behind and (is_late or behind >= settings.lagging_positions):
        return Degraded(leg, Shortfall.LAGGING, served.error_code, behind, oldest)
    return None
