"""Where the time comes from: passed in, so that tests can set it."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of the present time."""

    def now(self) -> datetime:
        """Return the present time, aware, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place that reads it
