"""Path and query parameters: bounded, none twice, none unknown, read by the door's own rules."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from canonical.domain.places import shown
from canonical.errors import InvalidInputError

MAX_PARAMETERS: Final = 64
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_BOOLEANS: Final = {"true": True, "false": False}


def query(raw: bytes, allowed: frozenset[str]) -> dict[str, str]:
    """Read a query string.

    Raises: InvalidInputError, for a parameter that is unknown, stands twice or is not UTF-8.
    """
    if not raw:
        return {}
    given: dict[str, str] = {}
    for name, value in _pairs(raw):
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "no parameters"
            raise InvalidInputError(shown(name), "is an unknown parameter", known)
        if name in given:
            raise InvalidInputError(name, "stands twice", "one value")
        given[name] = value
    return given


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except UnicodeError:
        raise InvalidInputError("query string", "is not UTF-8", "percent-encoded UTF-8") from None
    except ValueError:
        raise InvalidInputError(
            "query string", "has too many parameters", f"at most {MAX_PARAMETERS}"
        ) from None


def number(given: Mapping[str, str], field: str, default: int | None = None) -> object:
    """Read a whole number; what isn't one is left to the door to refuse."""
    value = given.get(field)
    if value is None:
        return default
    return int(value) if _NUMBER.fullmatch(value) else value


def boolean(value: object, field: str, *, default: bool = False) -> bool:
    """Read a truth value of a JSON body."""
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidInputError(field, "is not a boolean", "true or false")
    return value


def flag(given: Mapping[str, str], field: str) -> bool:
    """Read a truth value of a query string; false, when it is left out."""
    value = given.get(field, "false")
    if value not in _BOOLEANS:
        raise InvalidInputError(field, "is not a boolean", "true or false")
    return _BOOLEANS[value]


def boolean_of(given: Mapping[str, object], field: str) -> bool:
    """Read a truth value of a JSON body by its name; false, when it is left out."""
    return boolean(given.get(field), field)
