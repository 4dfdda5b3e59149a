"""What a runner, and a process of runners, has done since its start."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Counts:
    """Counts of one runner; each is counted by one thread, or under a lock."""

    events: int = 0
    pages: int = 0
    done: int = 0  # memories that a page brought to their present state
    stale: int = 0  # that the engine was already past
    refused: int = 0  # and parked
    again: int = 0  # writes that an engine took only when they were sent once more
    retried: int = 0  # parked memories
    failures: int = 0  # passes
    leases_lost: int = 0  # each shard's
    halts: int = 0
    beat_at: float = field(default_factory=time.monotonic)  # the loop's last sign of life


SUMMED = (
    *("events", "pages", "done", "stale", "refused", "again"),
    *("retried", "failures", "leases_lost", "halts"),
)


def total(counts: Iterable[Counts]) -> dict[str, int]:
    """Add counts up, each under its name."""
    held = list(counts)
    return {name: sum(getattr(one, name) for one in held) for name in SUMMED}


class HintCounts(Protocol):
    """Who is told what becomes of hints; it never raises.

    `outcome`: `given` (a commit asked for one), `sent` or `lost` on its way to the broker; at the
    worker `worked`, or `idle` when there was nothing to do.
    """

    def hinted(self, outcome: str, count: int = 1) -> None:
        """Count hints."""
        ...
