"""What a search counts, for whoever watches it."""

from typing import Protocol

from search.answer import Answer, Degraded


class SearchMetrics(Protocol):
    """Counters of searches; implementations never raise."""

    def searched(self, answer: Answer, *, candidates: int, dropped: int, rounds: int) -> None:
        """Count a search: how many candidates it had and how many the re-check dropped.

        The share dropped tells how much dead weight the engines carry. `answer.seconds` has the
        time of each part.
        """
        ...

    def degraded(self, shortfall: Degraded) -> None:
        """Count a shortfall by leg, reason and code."""
        ...

    def diagnostics_lost(self, code: str) -> None:
        """Count a diagnostics event that could not be kept."""
        ...


class NoMetrics:
    """Counts nothing."""

    def searched(self, answer: Answer, *, candidates: int, dropped: int, rounds: int) -> None:
        """Do nothing."""

    def degraded(self, shortfall: Degraded) -> None:
        """Do nothing."""

    def diagnostics_lost(self, code: str) -> None:
        """Do nothing."""
