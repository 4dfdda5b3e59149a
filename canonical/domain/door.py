"""The one place that says which values come in: the same rules for writes, queries and bulks.

A refusal names the field, what was wrong with it and what is allowed. Nothing is repaired in
silence: NUL and lone surrogates are refused everywhere, and a text comes back as it was sent.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from canonical.domain import places
from canonical.domain.filters import SYSTEM_FIELDS
from canonical.domain.scope import Scope
from canonical.errors import InvalidInputError, TooLargeError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what comes in. Sizes in bytes are of UTF-8."""

    text_bytes: int = 64 * 1024
    query_bytes: int = 8 * 1024
    metadata_bytes: int = 16 * 1024
    metadata_depth: int = 8
    id_chars: int = 256
    list_items: int = 1_000  # records in one transaction
    source_messages: int = 256
    top_k: int = 200


LIMITS: Final = Limits()

# No control characters, no wildcards, no lone surrogates. `%` and `_` are plain characters here.
_ID = re.compile(r"[^\x00-\x1f\x7f-\x9f*?\ud800-\udfff]+")
_UNSOUND = re.compile(r"[\x00\ud800-\udfff]")
# White space and format characters that show nothing: at an id's ends they would make two of one.
_PADDING = "\\s\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
_PAD = re.compile(f"[{_PADDING}]")
# Further: control characters, fillers, the blank of Braille, selectors of a variant, tags.
_BLANK = (
    f"{_PADDING}\x00-\x1f\x7f-\x9f\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164"
    "\ufe00-\ufe0f\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_VISIBLE = re.compile(f"[^{_BLANK}]")
# RFC 3339, where seconds may be left out; Python by itself reads more, and differently by version.
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_INSTANT_RULE = "a date and time with an offset, such as 2026-03-01T00:30:00+08:00"
_ID_RULE = "characters without control characters, wildcards (* ?) and surrounding white space"
_UNICODE_RULE = "valid Unicode without NUL"


def identifier(value: object, field: str, limits: Limits = LIMITS) -> str:
    """Check an id that a caller chose."""
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {_kind(value)}", "a string")
    if not value:
        raise InvalidInputError(field, "is empty", f"1 to {limits.id_chars} {_ID_RULE}")
    if len(value) > limits.id_chars:
        raise InvalidInputError(
            field, f"has {len(value)} characters", f"1 to {limits.id_chars} {_ID_RULE}"
        )
    if not _is_sound_id(value):
        raise InvalidInputError(
            field, "has a character that an id can't have", f"1 to {limits.id_chars} {_ID_RULE}"
        )
    return value


@lru_cache(maxsize=16_384)
def _is_sound_id(value: str) -> bool:
    """Tell whether an id within its bound has only what it may have; ids come again and again."""
    return (
        _ID.fullmatch(value) is not None
        and _PAD.match(value[0]) is None
        and _PAD.match(value[-1]) is None
        and _VISIBLE.search(value) is not None
    )


def optional_identifier(value: object, field: str, limits: Limits = LIMITS) -> str | None:
    """Check an id that may be left out."""
    return None if value is None else identifier(value, field, limits)


def scope(raw: Mapping[str, Any], tenant: str, limits: Limits = LIMITS) -> Scope:
    """Read the ids of a scope; at least one must be named."""
    named = Scope(
        tenant,
        optional_identifier(raw.get("user_id"), "user_id", limits),
        optional_identifier(raw.get("agent_id"), "agent_id", limits),
        optional_identifier(raw.get("run_id"), "run_id", limits),
    )
    if named.user_id is None and named.agent_id is None and named.run_id is None:
        raise InvalidInputError(
            "user_id", "no scope is named", "at least one of user_id, agent_id and run_id"
        )
    return named


def text(value: object, field: str = "text", limits: Limits = LIMITS) -> str:
    """Check a record's text: not blank, sound Unicode, within its bound."""
    return _sound(value, field, limits.text_bytes)


def query_text(value: object, field: str = "query", limits: Limits = LIMITS) -> str:
    """Check a query's text by the rule of a record's text; over its bound it is 422."""
    try:
        return _sound(value, field, limits.query_bytes)
    except TooLargeError as exc:
        raise InvalidInputError(
            field, f"has {exc.size} bytes", f"at most {exc.limit} bytes"
        ) from None


def note(value: object, field: str, limits: Limits = LIMITS) -> str | None:
    """Check a short optional text, such as a role or a reason."""
    return None if value is None else _sound(value, field, 4 * limits.id_chars)


def _sound(value: object, field: str, limit: int) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {_kind(value)}", f"a string of 1 to {limit} bytes")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInputError(field, "has a lone surrogate", _UNICODE_RULE) from None
    if "\x00" in value:
        raise InvalidInputError(field, "has a NUL character", _UNICODE_RULE)
    if size > limit:
        raise TooLargeError(field, size, limit)
    if _VISIBLE.search(value) is None:
        raise InvalidInputError(field, "is blank", f"a text of 1 to {limit} bytes")
    return value


def metadata(value: object, limits: Limits = LIMITS) -> dict[str, Any]:
    """Check a record's metadata: a JSON object, bounded, that sets no field of the record."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInputError("metadata", f"is {_kind(value)}", "a JSON object")
    for key in value:
        if key in SYSTEM_FIELDS:
            raise InvalidInputError(f"metadata.{key}", "is a field of the record", "any other key")
    _check_tree(value, "metadata", limits)
    size = len(orjson.dumps(value))
    if size > limits.metadata_bytes:
        raise TooLargeError("metadata", size, limits.metadata_bytes)
    return value


def _check_tree(value: object, place: str, limits: Limits, depth: int = 1) -> None:
    if isinstance(value, str):
        if _UNSOUND.search(value) is not None:
            raise InvalidInputError(place, "has a NUL or a lone surrogate", _UNICODE_RULE)
    elif isinstance(value, dict | list):
        _check_branch(value, place, limits, depth)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(place, "is not a finite number", "finite numbers")
    elif isinstance(value, int) and abs(value) > 2**63 - 1:
        raise InvalidInputError(place, "is an integer over 64 bits", "64-bit integers")
    elif value is not None and not isinstance(value, int | float):
        raise InvalidInputError(place, f"is {_kind(value)}", "JSON values")


def _is_plain(value: object) -> bool:
    """Tell quickly that most values are fine; what isn't plain is looked at closely."""
    kind = type(value)
    if kind is str:
        return _UNSOUND.search(value) is None  # type: ignore[call-overload]
    if kind is int:
        return -(2**63) < value < 2**63  # type: ignore[operator]
    return kind is bool or value is None


def _check_branch(
    value: dict[Any, Any] | list[Any], place: str, limits: Limits, depth: int
) -> None:
    if depth > limits.metadata_depth:
        allowed = f"a depth of at most {limits.metadata_depth}"
        raise InvalidInputError(place, "is nested too deep", allowed)
    if isinstance(value, list):
        for n, item in enumerate(value):
            _check_tree(item, f"{place}[{n}]", limits, depth + 1)
        return
    for key, item in value.items():
        if not isinstance(key, str) or not key:
            raise InvalidInputError(place, "has a key that is no text or empty", "text keys")
        if _UNSOUND.search(key) is not None:
            raise InvalidInputError(
                place, "has a key with a NUL or a lone surrogate", _UNICODE_RULE
            )
        if not _is_plain(item):
            _check_tree(item, places.inside(place, key), limits, depth + 1)


def instant(value: object, field: str) -> datetime | None:
    """Read a point in time: RFC 3339 with an offset; returned in UTC."""
    if value is None:
        return None
    if not isinstance(value, str) or _INSTANT.fullmatch(value) is None:
        raise InvalidInputError(field, "is not a date and time with an offset", _INSTANT_RULE)
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInputError(field, "names no time that there is", _INSTANT_RULE) from None


def whole_number(value: object, field: str, low: int, high: int) -> int:
    """Check a whole number within its bounds; a number in quotes is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInputError(field, f"is {value!r:.40}", f"a whole number from {low} to {high}")
    return value


def known_fields(raw: object, allowed: frozenset[str], place: str = "body") -> dict[str, Any]:
    """Check that `raw` is an object without unknown fields: a misspelt one is never ignored."""
    if not isinstance(raw, dict):
        raise InvalidInputError(place, f"is {_kind(raw)}", "a JSON object")
    if not raw.keys() <= allowed:
        unknown = min(raw.keys() - allowed, key=str)
        allowed_names = ", ".join(sorted(allowed))
        raise InvalidInputError(places.shown(str(unknown)), "is an unknown field", allowed_names)
    return raw


def _kind(value: object) -> str:
    if value is None:
        return "missing or null"
    kinds = ((bool, "a boolean"), (int | float, "a number"), (str, "a string"), (list, "a list"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "an object")
