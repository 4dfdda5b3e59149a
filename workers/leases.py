"""The leases that one runner holds: claimed, renewed, lost to others, given back."""

import logging
import secrets
import threading
from collections.abc import Sequence

from projectors.protocol import Feed, Lease
from workers.counts import Counts
from workers.faults import FAILURES, placed, told

log = logging.getLogger(__name__)

TURN = 16  # passes after which shards are given back, if others wait


class Leases:
    """One runner's leases, for its two threads: that which works and that which renews."""

    def __init__(self, name: str, feed: Feed, counts: Counts) -> None:
        self._name, self._feed, self._counts = name, feed, counts
        self._held: dict[int, Lease] = {}
        self._passes = 0  # of this turn
        self._last = secrets.randbelow(16)  # shard of the last turn: runners begin apart
        self._noticing = threading.Lock()  # of a lost lease: either thread may be the first
        self._unrenewed = 0  # renewals in a row that failed
        self._error: Exception | None = None  # of the last of them

    def of(self, shards: Sequence[int]) -> list[Lease]:
        """Return the leases of these shards, as far as they are held or free to be claimed."""
        unheld = [shard for shard in shards if shard not in self._held]
        if unheld:
            self._held |= {lease.shard: lease for lease in self._feed.claim(unheld)}
        return [self._held[shard] for shard in shards if shard in self._held]

    def in_turn(self, waiting: Sequence[int], most: int) -> list[int]:
        """Return which of the waiting shards to work on, of at most so many; give others back.

        Guarantee: where several runners share the work, each shard comes to its turn: what has no
                   work is free for others at once, and what is held is given back after a turn.
        """
        held = set(self._held)
        is_over = self._passes >= TURN and not held.issuperset(waiting)
        self._passes = 0 if is_over or not waiting else self._passes + 1
        if gone := held if is_over else held.difference(waiting):
            self.release([self._held[shard] for shard in gone])
        kept = [shard for shard in waiting if shard in self._held]
        free = [shard for shard in waiting if shard not in self._held]
        # From where it came to: who always began with the lowest would never leave them.
        ahead = [shard for shard in free if shard > self._last]
        chosen = [*kept, *ahead, *(shard for shard in free if shard <= self._last)][:most]
        self._last = chosen[-1] if chosen else self._last
        return chosen

    def begin_with(self, shard: int) -> None:
        """Let the next turn begin with a shard, if it waits."""
        self._last = shard - 1

    def keep(self, moved: Sequence[Lease]) -> None:
        """Keep leases at their new watermarks, but for those that were lost meanwhile."""
        with self._noticing:
            self._held |= {one.shard: one for one in moved if one.shard in self._held}

    def lose(self, leases: Sequence[Lease]) -> None:
        """Drop leases that are not ours any more; each loss is counted and said once."""
        with self._noticing:
            news = [one for one in leases if self._epoch(one.shard) == one.epoch]
            for lease in news:
                del self._held[lease.shard]
            self._counts.leases_lost += len(news)
        for lease in news:
            log.warning(
                "%s generation %d shard %d: the lease is lost (lease_lost); the work at hand is "
                "dropped, and done again by whoever holds the shard",
                lease.projection,
                lease.generation,
                lease.shard,
                extra=facts(lease),
            )

    def _epoch(self, shard: int) -> int | None:
        held = self._held.get(shard)
        return None if held is None else held.epoch

    def forget(self) -> None:
        """Drop all: they are claimed anew, at their real watermarks."""
        self._held.clear()

    def release(self, leases: Sequence[Lease]) -> None:
        """Give these back."""
        self._feed.release(leases)
        for lease in leases:
            self._held.pop(lease.shard, None)

    def renew(self) -> None:
        """Extend all; nothing that goes wrong is raised: it is logged, and an ailment if it lasts.

        Without renewal the leases may end, and the watermark's guard stands.
        """
        try:
            if held := list(self._held.values()):
                ours = {lease.shard for lease in self._feed.renew(held)}
                self.lose([lease for lease in held if lease.shard not in ours])
            self._unrenewed = 0
        # The outermost guard of the thread that renews: if it ended, every lease would, unseen.
        except Exception as exc:  # noqa: BLE001
            self._unrenewed += 1
            self._error = exc
            log.warning("%s: leases not renewed, tried again: %s", self._name, placed(exc))

    def ailment(self) -> str | None:
        """Say that renewals fail again and again; no tenant's text."""
        if self._unrenewed > FAILURES and self._error is not None:
            return f"its leases are not renewed: {told(self._error)}"
        return None

    def give_back(self) -> None:
        """Release all at the end; what can't be released ends by itself."""
        try:
            if self._held:
                self._feed.release(list(self._held.values()))
        # The outermost guard of the last act of the thread that works.
        except Exception as exc:  # noqa: BLE001
            log.warning("%s: leases not given back: %s", self._name, placed(exc))
        self._held.clear()


def facts(lease: Lease) -> dict[str, str | int]:
    """Return what a line of the log says of a lease, for whoever sorts lines by it."""
    return {
        "projection": lease.projection,
        "generation": lease.generation,
        "shard": lease.shard,
    }
