"""JSON as callers send it: read exactly, or refused with the place."""

import json
import math
from typing import Any, Final, NoReturn

import orjson

from canonical.domain.places import shown
from gnomon.api.refusals import MalformedBodyError

CUT = 40


def parse(raw: bytes, field: str = "body") -> Any:
    """Read one JSON value.

    Guarantee: nothing is changed in silence: lone surrogates and NUL come through to the door,
               whole numbers stay whole, and a key that stands twice, NaN, infinity and a number
               over a double's range are refused.
    Raises:    MalformedBodyError, with the line and column, or the key.
    """
    try:
        return _DECODER.decode(raw.decode())
    except UnicodeDecodeError as exc:
        problem = f"is not UTF-8 at byte {exc.start + 1}"
    except json.JSONDecodeError as exc:
        problem = (
            f"is not JSON: {exc.msg.removesuffix(' at')} at line {exc.lineno}, column {exc.colno}"
        )
    except RecursionError:
        problem = "is nested too deep"
    except UnusableError as exc:
        if exc.key is not None:
            raise MalformedBodyError("stands twice", shown(exc.key)) from None
        problem = f"is not JSON: {exc}{_place(raw)}"
    except ValueError:  # a whole number of thousands of digits
        problem = "has a number that is too long"
    raise MalformedBodyError(problem, field)


def parse_line(raw: bytes) -> Any:
    """Read a line of a bulk: as `parse`, and named a line in its errors."""
    return parse(raw, "line")


class UnusableError(Exception):
    """JSON's grammar allows it, or Python's reader does, and we don't."""

    def __init__(self, problem: str, key: str | None = None) -> None:
        """Say what; `key`, when it is a key that stands twice."""
        super().__init__(problem)
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise UnusableError("a key stands twice", key)
            seen.add(key)
    return members


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        _constant(literal)
    return value


def _constant(literal: str) -> NoReturn:
    raise UnusableError(f"{literal[:CUT]} is no finite number")


def _place(raw: bytes) -> str:
    """Find where a number is that Python's reader took; orjson is stricter and says where."""
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        return f" at line {exc.lineno}, column {exc.colno}"
    return ""


# Python's own reader: orjson takes the last of two equal keys, makes floats of long whole numbers,
# and refuses a lone surrogate without naming its field. It costs some 5 µs a memory more.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_constant=_constant
)
