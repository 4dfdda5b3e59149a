"""What the index must hold for a record: pure, and the same for every engine.

Body terms and numbers start with a tag of their tenant. So a tenant's words have statistics of
their own (another tenant's texts change no score), and a small tenant's search never walks
through a large one's postings. The tag is not the wall between tenants: every query also asks for
the tenant itself.
"""

import hashlib
import struct
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import assert_never
from uuid import UUID

from canonical.domain import filters
from canonical.domain.records import Record, Status, guard
from canonical.domain.scope import Scope
from canonical.domain.values import named_value_object
from canonical.errors import EngineRefusedError
from projectors.keyword import analysis
from projectors.keyword.schema import ALWAYS, NEVER

NUMBER_DIGITS = "abcdefghijklmnop"  # in order and side by side, so that a range is a simple pattern
NUMBER_LENGTH = 16
# A number is also indexed by its first digits, so that a range visits few terms where numbers are
# many: at most 256 at each step of two digits, and 16 for small whole numbers.
NUMBER_STEPS = (6, 8, 10, 12, NUMBER_LENGTH)

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_TO_DIGITS = str.maketrans("0123456789abcdef", NUMBER_DIGITS)


@named_value_object
class Upsert:
    """A document that is found."""

    memory_id: UUID
    guard: int
    status: Status
    scope: Scope
    valid_from: int
    valid_to: int
    expires_at: int
    facets: tuple[str, ...]
    numbers: tuple[str, ...]
    body: str


@named_value_object
class Tombstone:
    """A document that is never found and keeps older writes away."""

    memory_id: UUID
    guard: int
    status: Status
    tenant: str


IndexWrite = Upsert | Tombstone


def write_for(record: Record, *, epoch: int) -> IndexWrite:
    """Translate a record's current state into the one write that the index needs.

    Raises: EngineRefusedError, when its metadata holds a number that no double can hold.
    """
    match record.status:
        case Status.ACTIVE | Status.SUPERSEDED:
            return _upsert(record, guard(epoch, record.rev))
        case Status.DELETED | Status.ERASED:
            return Tombstone(
                memory_id=record.id,
                guard=guard(epoch, record.rev),
                status=record.status,
                tenant=record.scope.tenant,
            )
        case _:
            assert_never(record.status)


def _upsert(record: Record, held: int) -> Upsert:
    try:
        facets = filters.facets(record.metadata)
    except OverflowError as exc:
        raise EngineRefusedError(f"{record.id}: a number in its metadata is too large") from exc
    tenant = record.scope.tenant
    return Upsert(
        memory_id=record.id,
        guard=held,
        status=record.status,
        scope=record.scope,
        valid_from=micros(record.valid_from) if record.valid_from else ALWAYS,
        valid_to=micros(record.valid_to) if record.valid_to else NEVER,
        expires_at=micros(record.expires_at) if record.expires_at else NEVER,
        facets=facets.terms,
        numbers=tuple(
            prefix + step
            for key, value in facets.numbers
            for prefix in (number_prefix(tenant, key),)
            for step in steps(value)
        ),
        body=body(tenant, record.text),
    )


def body(tenant: str, text: str) -> str:
    """Return a text's terms as the index takes them."""
    prefix = tag(tenant)
    found = analysis.terms(text)
    return f"{prefix}{f' {prefix}'.join(found)}" if found else ""


@lru_cache(4096)
def tag(tenant: str) -> str:
    """Return what a tenant's terms start with: short, of one length, without white space."""
    return hashlib.blake2b(tenant.encode(), digest_size=4).hexdigest()


def number_prefix(tenant: str, key_term: str) -> str:
    """Return what all numbers under one metadata key of a tenant start with."""
    return tag(tenant) + key_term


def number(value: float) -> str:
    """Return a double as a string of one length, whose order is that of the numbers.

    Source: IEEE 754: the bits of a positive double are in order as they are, those of a negative
            one in reverse.
    """
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # + 0.0: -0.0 equals 0.0
    return f"{bits ^ (_ALL if bits & _SIGN else _SIGN):016x}".translate(_TO_DIGITS)


@lru_cache(4096)
def steps(value: float) -> tuple[str, ...]:
    """Return the number's terms, from the coarsest to the whole; each starts with its step."""
    digits, letters = number(value), zip(NUMBER_DIGITS, NUMBER_STEPS, strict=False)
    return tuple(step + digits[:length] for step, length in letters)


def micros(moment: datetime) -> int:
    """Return the microseconds from 1970 to `moment`."""
    return (moment - _START) // _MICROSECOND
