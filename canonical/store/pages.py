"""What became of a page: the hand-over from a projector to the log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection

from canonical.errors import PoisonError


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a page.

    refused:        memories that can't be projected, each with its reason: they are parked.
    in_transaction: for projections in Postgres: writes that must commit with the watermark.
    committed:      told once they have; not after a rehearsal, or a commit whose end is unknown.
    stale, again:   memories that the engine was already past; writes that it took only when they
                    were sent once more.
    """

    refused: Mapping[UUID, PoisonError] = field(default_factory=dict)
    in_transaction: Callable[[Connection], None] | None = None
    committed: Callable[[], None] | None = None
    stale: int = 0
    again: int = 0
