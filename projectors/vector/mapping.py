"""What the index must hold for a record: pure, and the same for every engine."""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple, assert_never
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from canonical.domain import filters
from canonical.domain.records import EPOCH_SHIFT, Record, Status, guard
from canonical.domain.values import value_object
from canonical.errors import EngineMismatchError, EngineRefusedError
from projectors.protocol import Mark
from projectors.vector import schema
from projectors.vector.schema import MAX_EXACT

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIGN_BIT, _ALL_BITS = 1 << 63, (1 << 64) - 1
_REV = (1 << EPOCH_SHIFT) - 1
_LENGTH_TOLERANCE = 1e-3  # of a vector's length 1: what float32 and an engine's copy may differ by


@value_object
class Upsert:
    """A point that is found."""

    memory_id: UUID
    guard: int
    payload: dict[str, Any]
    vector: NDArray[np.float32]


@value_object
class Tombstone:
    """A point that is never found and keeps older writes away.

    Its vector is to be overwritten with zeros, not left out: an engine that is told to leave it
    out keeps the old one on disk.
    """

    memory_id: UUID
    guard: int
    payload: dict[str, Any]


IndexWrite = Upsert | Tombstone


class Held(NamedTuple):
    """A point as a scan meets it; what a foreign hand left without a guard has -1, and so None."""

    memory_id: UUID
    guard: int
    status: Status | None


_STATUSES: Final = {status.value: status for status in Status}


def write_for(
    record: Record, vector: NDArray[np.float32] | None, *, epoch: int, dimension: int
) -> IndexWrite:
    """Translate a record's current state into the one write that the index needs.

    Shapes: `vector`: of a live record; a tombstone has none.
    Raises: EngineRefusedError, when this record's vector or metadata can't be held.
            EngineMismatchError, when the model doesn't fit the index.
    """
    held = guard(epoch, record.rev)
    if held >= MAX_EXACT:
        raise EngineMismatchError(f"epoch {epoch} is too high for the vector index's guards")
    match record.status:
        case Status.ACTIVE | Status.SUPERSEDED:
            return Upsert(record.id, held, _payload(record, held), _checked(vector, dimension))
        case Status.DELETED | Status.ERASED:
            payload = {
                schema.TENANT: record.scope.tenant,
                schema.STATUS: record.status.value,
                schema.GUARD: held,
            }
            return Tombstone(record.id, held, payload)
        case _:
            assert_never(record.status)


def _payload(record: Record, held: int) -> dict[str, Any]:
    try:
        facets = filters.facets(record.metadata)
    except OverflowError as exc:
        raise EngineRefusedError(f"{record.id}: a number in its metadata is too large") from exc
    return {
        schema.TENANT: record.scope.tenant,
        **record.scope.named(),
        schema.STATUS: record.status.value,
        schema.GUARD: held,
        **_moments(record),
        schema.TERMS: list(facets.terms),
        schema.NUMBERS: [_number(key, value) for key, value in facets.numbers],
    }


def _moments(record: Record) -> dict[str, int]:
    """Return the bounds that the record has; most have none, and a missing one costs nothing."""
    found: dict[str, int] = {}
    if record.valid_from is not None:
        found[schema.VALID_FROM] = start(record.valid_from)
    if record.valid_to is not None:
        found[schema.VALID_TO] = end(record.valid_to)
    if record.expires_at is not None:
        found[schema.EXPIRES_AT] = end(record.expires_at)
    return found


def _number(key: str, value: float) -> dict[str, Any]:
    high, low = in_order(value)
    return {schema.NUMBER_KEY: key, schema.NUMBER_HIGH: high, schema.NUMBER_LOW: low}


@lru_cache(4096)
def in_order(value: float) -> tuple[int, int]:
    """Return a double as two integers of 32 bits, whose order is that of the numbers.

    Edge reads a double back a bit off (10 of 100 between -1,000 and 1,000), so that a bound equal
    to the number would miss it. Integers come back as they were.

    Source: IEEE 754: the bits of a positive double are in order as they are, those of a negative
            one in reverse.
    """
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # + 0.0: -0.0 equals 0.0
    high, low = divmod(bits ^ (_ALL_BITS if bits & _SIGN_BIT else _SIGN_BIT), 1 << 32)
    return high, low


def _checked(vector: NDArray[np.float32] | None, dimension: int) -> NDArray[np.float32]:
    if vector is None or vector.shape != (dimension,):
        found = None if vector is None else vector.shape
        raise EngineMismatchError(
            f"the model gave a vector of shape {found}, the index holds {dimension} dimensions"
        )
    squared = float(vector @ vector)
    if not math.isfinite(squared):
        raise EngineRefusedError("the vector is not finite")
    if abs(squared - 1) > _LENGTH_TOLERANCE:
        raise EngineMismatchError(f"the model gave a vector of length {squared**0.5:.4f}, not 1")
    return vector


# Moments are cut to what a double holds exactly: the years 1684 to 2255. The bounds are chosen so
# that a record is never hidden where the uncut moments would show it (it may be shown too much:
# the re-check of a search drops that).


def start(moment: datetime) -> int:
    """Return a `valid_from`."""
    return min(_micros(moment), MAX_EXACT - 1)


def end(moment: datetime) -> int:
    """Return a `valid_to` or an `expires_at`."""
    return max(_micros(moment), 2 - MAX_EXACT)


def asked(moment: datetime) -> int:
    """Return the moment of a query, to be compared with `start` and `end`."""
    return min(max(_micros(moment), 1 - MAX_EXACT), MAX_EXACT - 1)


def _micros(moment: datetime) -> int:
    micros = (moment - _START) // _MICROSECOND
    return min(max(micros, -MAX_EXACT), MAX_EXACT)


def newest(writes: Iterable[IndexWrite]) -> dict[UUID, IndexWrite]:
    """Return each memory's write with the highest guard.

    Of the same id twice in one request an engine keeps the last, even if it is older.
    """
    kept: dict[UUID, IndexWrite] = {}
    for write in writes:
        held = kept.get(write.memory_id)
        if held is None or write.guard > held.guard:
            kept[write.memory_id] = write
    return kept


def by_guard(writes: Iterable[IndexWrite], at_most: int) -> Iterator[Sequence[IndexWrite]]:
    """Cut writes into requests: at most so many in each, all of one guard.

    The condition that keeps an older write away belongs to a request as a whole.
    """
    for _, group in groupby(sorted(writes, key=_guard_of), key=_guard_of):
        same = list(group)
        for start_at in range(0, len(same), at_most):
            yield same[start_at : start_at + at_most]


def _guard_of(write: IndexWrite) -> int:
    return write.guard


def stored_vector(write: IndexWrite, zeros: list[float]) -> list[float]:
    """Return the vector to be stored: a tombstone's are zeros."""
    return write.vector.tolist() if isinstance(write, Upsert) else zeros


def held(memory_id: UUID, payload: Mapping[str, Any] | None) -> Held:
    """Read a point's state back."""
    told = (payload or {}).get(schema.STATUS)
    status = _STATUSES.get(told) if isinstance(told, str) else None
    return Held(memory_id, held_guard(payload), status)


def held_guard(payload: Mapping[str, Any] | None) -> int:
    """Read a point's guard back; -1 where there is none."""
    found = (payload or {}).get(schema.GUARD)
    return found if isinstance(found, int) else -1


def rev_of(held: int) -> int:
    """Return the rev inside a guard."""
    return held & _REV


def mark_payload(mark: Mark) -> dict[str, Any]:
    """Return what the point of a shard's mark holds."""
    return {
        schema.MARK: {
            "pos": mark.pos,
            "memory_id": str(mark.memory_id),
            "rev": mark.rev,
            "epoch": mark.epoch,
        }
    }


def mark_of(shard: int, payload: Mapping[str, Any]) -> Mark:
    """Read a mark back."""
    held = payload[schema.MARK]
    return Mark(shard, held["pos"], UUID(held["memory_id"]), held["rev"], held["epoch"])


def ahead(held: Mapping[int, Mark], marks: Iterable[Mark]) -> dict[int, Mark]:
    """Return of each shard the mark that moves it forward: by epoch, then by position."""
    found: dict[int, Mark] = {}
    for mark in marks:
        known = found.get(mark.shard) or held.get(mark.shard)
        if known is None or (mark.epoch, mark.pos) > (known.epoch, known.pos):
            found[mark.shard] = mark
    return found


def require_reached(marks: Mapping[int, Mark], watermarks: Mapping[int, int], place: str) -> None:
    """Check that an index holds what the log believes it holds: a position per shard.

    Raises: EngineMismatchError, when it is behind: it was lost, or an old copy came back.
    """
    for shard, pos in watermarks.items():
        mark = marks.get(shard)
        if (mark.pos if mark else 0) < pos:
            raise EngineMismatchError(
                f"shard {shard}: the watermark is {pos}, the index in {place} has "
                f"come to {mark.pos if mark else 'nothing'}"
            )
