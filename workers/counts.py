"""What a runner has done since its start."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Counts of one runner; each is counted by one thread, or under a lock."""

    events: int = 0
    pages: int = 0
    refused: int = 0
    retried: int = 0
    failures: int = 0
    leases_lost: int = 0  # each shard's
    halts: int = 0
    beat_at: float = field(default_factory=time.monotonic)  # the loop's last sign of life
