"""Filters over metadata: their grammar, what they mean, and the facets that engines index.

A filter sees a record's top-level metadata keys only, so it can narrow a scope and never widen it.

    {"project": "atlas"}                equality, typed (3 is not "3"); a list matches by its items
    {"priority": {"gte": 3, "lt": 10}}  all of them
    {"AND": [f, …]}  {"OR": [f, …]}  {"NOT": f}

Operators: eq, ne, in, gt, gte, lt, lte (numbers), exists (true or false), contains (as eq: reads
better of lists). A missing key matches `ne` and `exists: false` and nothing else.
"""

import hashlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, assert_never

from canonical.domain import places
from canonical.domain.values import value_object
from canonical.errors import InvalidInputError

MAX_DEPTH = 8
MAX_CONDITIONS = 64
MAX_CHOICES = 256  # values in one `in`

_REMEMBERED = 1 << 14  # opaque terms; some 5 MB when full
_REMEMBERED_LENGTH = 96  # characters of key and value

# Names of the record itself: metadata can't set them, filters can't name them.
SYSTEM_FIELDS = frozenset(
    {
        *("id", "memory_id", "tenant", "user_id", "agent_id", "run_id", "actor_id", "role"),
        *("text", "content_hash", "kind", "attributed_to", "metadata", "provenance", "links"),
        *("valid_from", "valid_to", "expires_at", "status", "tombstone", "legal_hold"),
        *("created_at", "updated_at", "version", "rev", "event_id", "event_part", "mutation_id"),
        *("superseded_by", "source_message_ids", "source_role", "source_trust"),
    }
)

Scalar = str | int | float | bool | None


class Operator(StrEnum):
    """What a condition asks of a key's values."""

    EQ = "eq"
    IN = "in"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    EXISTS = "exists"


RANGES: dict[Operator, Callable[[float, float], bool]] = {
    Operator.GT: operator.gt,
    Operator.GTE: operator.ge,
    Operator.LT: operator.lt,
    Operator.LTE: operator.le,
}


@value_object
class Condition:
    """One question to one key. `value` is a tuple for IN, True for EXISTS, a number for ranges."""

    field: str
    op: Operator
    value: Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts hold; of none: true."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds; of none: false."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part doesn't hold."""

    part: "Filter"


Filter = Condition | AllOf | AnyOf | Not


def parse(raw: object, *, field: str = "filter") -> Filter | None:
    """Read a filter as JSON gave it; an empty object or None means no filter.

    Raises: InvalidInputError, which names the place inside the filter.
    """
    if raw is None or raw == {}:
        return None
    parsed = _parse(raw, field, depth=1)
    if sum(1 for _ in conditions(parsed)) > MAX_CONDITIONS:
        raise InvalidInputError(field, "too many conditions", f"at most {MAX_CONDITIONS}")
    return parsed


def _parse(raw: object, place: str, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise InvalidInputError(place, "nested too deep", f"at most {MAX_DEPTH} levels")
    if not isinstance(raw, dict) or not raw:
        raise InvalidInputError(place, "not a non-empty JSON object", '{"key": value}')
    parts = tuple(_parse_entry(key, value, place, depth) for key, value in raw.items())
    return parts[0] if len(parts) == 1 else AllOf(parts)


def _parse_entry(key: str, value: object, place: str, depth: int) -> Filter:
    here = places.inside(place, key)
    if key in ("AND", "OR"):
        if not isinstance(value, list) or not value:
            raise InvalidInputError(here, "not a non-empty list", "a list of filters")
        parts = tuple(_parse(v, f"{here}[{n}]", depth + 1) for n, v in enumerate(value))
        return AllOf(parts) if key == "AND" else AnyOf(parts)
    if key == "NOT":
        return Not(_parse(value, here, depth + 1))
    if key in SYSTEM_FIELDS:
        raise InvalidInputError(
            here, "is a field of the record, not a metadata key", "metadata keys; ids go into scope"
        )
    _check_text(key, here)
    if isinstance(value, dict):
        if not value:
            raise InvalidInputError(here, "no operator", _operators())
        parts = tuple(_condition(key, op, v, places.inside(here, op)) for op, v in value.items())
        return parts[0] if len(parts) == 1 else AllOf(parts)
    return Condition(key, Operator.EQ, _scalar(value, here))


def _operators() -> str:
    return "eq, ne, in, gt, gte, lt, lte, exists, contains"


def _condition(key: str, op: str, value: object, here: str) -> Filter:
    match op:
        case "eq" | "contains":
            return Condition(key, Operator.EQ, _scalar(value, here))
        case "ne":
            return Not(Condition(key, Operator.EQ, _scalar(value, here)))
        case "in":
            if not isinstance(value, list) or not value or len(value) > MAX_CHOICES:
                raise InvalidInputError(here, "not such a list", f"1 to {MAX_CHOICES} values")
            return Condition(key, Operator.IN, tuple(_scalar(v, here) for v in value))
        case "gt" | "gte" | "lt" | "lte":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInputError(here, "not a number", "a number")
            return Condition(key, Operator(op), _number(value, here))
        case "exists":
            if not isinstance(value, bool):
                raise InvalidInputError(here, "not a boolean", "true or false")
            present = Condition(key, Operator.EXISTS, value=True)
            return present if value else Not(present)
        case _:
            raise InvalidInputError(here, "unknown operator", _operators())


def _scalar(value: object, here: str) -> Scalar:
    match value:
        case str():
            _check_text(value, here)
            return value
        case None | bool():
            return value
        case int() | float():
            return _number(value, here)
        case _:
            raise InvalidInputError(here, "not a scalar", "a string, number, boolean or null")


def _number(value: float, here: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInputError(here, "not a finite number", "a finite number")
    return value


def _check_text(value: str, here: str) -> None:
    if "\x00" in value or not _encodable(value):
        raise InvalidInputError(here, "has a NUL or a lone surrogate", "valid Unicode without NUL")


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def conditions(where: Filter) -> Iterator[Condition]:
    """Yield each condition of a filter."""
    match where:
        case Condition():
            yield where
        case Not(part):
            yield from conditions(part)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from conditions(part)
        case _:
            assert_never(where)


def matches(where: Filter, metadata: Mapping[str, Any]) -> bool:
    """Tell whether a filter holds for a record's metadata: what every engine must agree with."""
    match where:
        case AllOf(parts):
            return all(matches(part, metadata) for part in parts)
        case AnyOf(parts):
            return any(matches(part, metadata) for part in parts)
        case Not(part):
            return not matches(part, metadata)
        case Condition(field, op, value):
            return _holds(op, value, metadata, field)
        case _:
            assert_never(where)


def _holds(op: Operator, value: Any, metadata: Mapping[str, Any], field: str) -> bool:
    if field not in metadata:
        return False
    held = _values(metadata[field])
    match op:
        case Operator.EXISTS:
            return True
        case Operator.EQ:
            return any(_same(h, value) for h in held)
        case Operator.IN:
            return any(_same(h, v) for h in held for v in value)
        case _:
            numbers = [float(h) for h in held if isinstance(h, int | float) and _is_number(h)]
            return any(RANGES[op](n, float(value)) for n in numbers)


def _values(value: object) -> Sequence[Scalar]:
    if isinstance(value, list):
        return [item for item in value if item is None or isinstance(item, (str, int, float))]
    return (value,) if value is None or isinstance(value, (str, int, float)) else ()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(held: Scalar, wanted: Scalar) -> bool:
    if isinstance(held, int | float) and isinstance(wanted, int | float):
        return isinstance(held, bool) == isinstance(wanted, bool) and float(held) == float(wanted)
    return type(held) is type(wanted) and held == wanted


@value_object
class Facets:
    """What an engine indexes of a record's metadata.

    `terms`: opaque, of one length, one per (key, value) and one per key. `numbers`: (opaque key,
    value), for ranges. Opaque, so that an index never grows a field per key, holds no plain
    metadata, and has no term too long.
    """

    terms: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...]


def facets(metadata: Mapping[str, Any]) -> Facets:
    """Return what engines index of `metadata`."""
    terms: dict[str, None] = {}  # in the order in which they come, each once
    numbers: dict[tuple[str, float], None] = {}
    for key, value in metadata.items():
        name = key_term(key)
        terms[name] = None
        for held in _values(value):
            term, number = _facet(key, held)
            terms[term] = None
            if number is not None:
                numbers[name, number] = None
    return Facets(tuple(terms), tuple(numbers))


def _facet(key: str, value: Scalar) -> tuple[str, float | None]:
    """Return a value's term, and as what it is compared if it is a number."""
    length = len(key) + (len(value) if isinstance(value, str) else 0)
    return (_facet_remembered if length <= _REMEMBERED_LENGTH else _facet_made)(key, value)


def _facet_made(key: str, value: Scalar) -> tuple[str, float | None]:
    term = value_term(key, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return term, float(value)
    return term, None


# 1, 1.0 and True are equal, and different values.
_facet_remembered = lru_cache(_REMEMBERED, typed=True)(_facet_made)


def key_term(key: str) -> str:
    """Return the opaque term that says: this key is present."""
    return _opaque("k", key, "")


def value_term(key: str, value: Scalar) -> str:
    """Return the opaque term that says: this key has this value (numbers by their double)."""
    match value:
        case None:
            return _opaque("n", key, "")
        case bool():
            return _opaque("b", key, str(value))
        case int() | float():
            return _opaque("f", key, repr(float(value) + 0.0))  # + 0.0: -0.0 equals 0.0
        case str():
            return _opaque("s", key, value)
        case _:
            assert_never(value)


def _opaque(kind: str, key: str, value: str) -> str:
    short = len(key) + len(value) <= _REMEMBERED_LENGTH
    return _remembered(kind, key, value) if short else _digest(kind, key, value)


def _digest(kind: str, key: str, value: str) -> str:
    raw = f"{kind}{len(key)}:{key}{value}".encode()
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


# The same keys come with every record, and most values with many.
_remembered = lru_cache(_REMEMBERED)(_digest)
