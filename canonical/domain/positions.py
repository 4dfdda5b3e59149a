"""Position tokens: how far the log was when a write was acknowledged, opaque to callers."""

import base64
import binascii
import struct
import zlib
from collections.abc import Mapping
from dataclasses import field

from canonical.domain.values import value_object
from canonical.errors import InvalidInputError

FORMAT = 1
# Signed, as Postgres holds them: what a token says always fits a column.
_HEAD = struct.Struct(">Bq")  # format, epoch
_PAIR = struct.Struct(">hq")  # shard, position
_CHECK = struct.Struct(">I")


@value_object
class Position:
    """A place in each of some shards, in one life of the log."""

    epoch: int
    shards: Mapping[int, int] = field(default_factory=dict)

    def joined(self, other: "Position") -> "Position":
        """Return the place that is past both (of one epoch)."""
        shards = dict(self.shards)
        for shard, pos in other.shards.items():
            shards[shard] = max(pos, shards.get(shard, 0))
        return Position(max(self.epoch, other.epoch), shards)


def to_token(position: Position) -> str:
    """Write a position as callers hand it back."""
    body = _HEAD.pack(FORMAT, position.epoch) + b"".join(
        _PAIR.pack(shard, pos) for shard, pos in sorted(position.shards.items())
    )
    raw = body + _CHECK.pack(zlib.crc32(body))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_token(token: str, field_name: str = "after") -> Position:
    """Read a token.

    Raises: InvalidInputError, when it isn't one of ours.
    """
    problem = InvalidInputError(field_name, "not a position token", "the position of a write")
    try:
        raw = base64.b64decode(
            token.encode("ascii") + b"=" * (-len(token) % 4), b"-_", validate=True
        )
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise problem from None
    body, check = raw[: -_CHECK.size], raw[-_CHECK.size :]
    pairs = len(body) - _HEAD.size
    if pairs < 0 or pairs % _PAIR.size or check != _CHECK.pack(zlib.crc32(body)):
        raise problem
    version, epoch = _HEAD.unpack_from(body)
    shards = dict(_PAIR.iter_unpack(body[_HEAD.size :]))
    if version != FORMAT or min((epoch, *shards, *shards.values())) < 0:
        raise problem
    return Position(epoch, shards)
