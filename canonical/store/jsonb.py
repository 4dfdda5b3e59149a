"""How jsonb is read, whatever it holds."""

import json
from decimal import Decimal
from typing import Any, Final

import orjson

MOST: Final = 10**4000  # Python writes whole numbers of up to 4,300 digits


def loads(data: str | bytes) -> Any:
    """Read jsonb.

    Guarantee: never fails. 1e308, which jsonb writes as 309 digits, is a float again, since no
               answer could hold it otherwise. A number that no double holds was put there by hand:
               it is read as a whole number, within 10^4000, so that the record can be shown and
               found, and the engines refuse it alone.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data, parse_int=_number, parse_float=_number)


def _number(digits: str) -> float:
    try:
        read: float = orjson.loads(digits)
    except orjson.JSONDecodeError:
        return max(-MOST, min(MOST, int(Decimal(digits))))
    return read
