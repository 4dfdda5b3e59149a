"""Waiting until every projection has passed a position, by its watermarks."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from canonical.domain.positions import Position
from gnomon.cli import progress
from gnomon.cli.answers import Listed
from gnomon.cli.failures import CommandError, Exit

POLL_S: Final = 0.1


class Projections(Protocol):
    """Who knows how far the projections are: `Client`."""

    def projections(self) -> Listed:
        """Read how far each projection has come."""
        ...


@dataclass(frozen=True)
class Patience:
    """How long to wait, and by which clock."""

    seconds: float
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait(server: Projections, target: Position, patience: Patience) -> Iterator[dict[str, int]]:
    """Yield how far each projection is behind `target`, until none is.

    Raises: CommandError: at once when one stands still for good, transient when time is over.
    """
    deadline = patience.monotonic() + patience.seconds
    while True:
        found = server.projections()["items"]
        missing = {one["name"]: progress.behind(one, target) for one in found}
        yield missing
        late = [one for one in found if missing[one["name"]]]
        if not late:
            return
        if (error := next(filter(None, map(progress.standing, late)), None)) is not None:
            raise error
        if patience.monotonic() > deadline:
            raise _too_late(missing, patience.seconds)
        patience.sleep(POLL_S)


def _too_late(missing: dict[str, int], seconds: float) -> CommandError:
    who = ", ".join(f"{name} by {count} positions" for name, count in missing.items() if count)
    return CommandError(
        "not_projected_yet",
        f"after {seconds:g} s still behind: {who}",
        "All of it is committed, and searches find it. See `gnomon status`.",
        Exit.TRANSIENT,
    )
