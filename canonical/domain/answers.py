"""What an acknowledged command answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from canonical.domain.positions import Position
from canonical.domain.values import value_object


@value_object
class Written:
    """One memory that a command wrote: committed, with its version and place in the log."""

    memory_id: UUID
    version: int
    shard: int
    pos: int
    replayed: bool = False  # the command's key was used before with the same body


@value_object
class Refused:
    """One line of a bulk that was not written."""

    line: int
    code: str
    message: str
    hint: str
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of the lines of one transaction; `written` by their line."""

    written: Mapping[int, Written]
    refused: tuple[Refused, ...] = field(default=())
    replayed: bool = False


def position(epoch: int, written: "list[Written]") -> Position:
    """Return the place past all of `written`."""
    shards: dict[int, int] = {}
    for one in written:
        shards[one.shard] = max(one.pos, shards.get(one.shard, 0))
    return Position(epoch, shards)
