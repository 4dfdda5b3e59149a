"""Postgres array literals of whole columns, written ten times faster than by the driver.

A statement casts such a parameter: `CAST(:ids AS uuid[])`.
"""

from collections.abc import Iterable
from uuid import UUID


def uuids(values: Iterable[UUID]) -> str:
    """Write a uuid[]."""
    return "{" + ",".join([value.hex for value in values]) + "}"


def numbers(values: Iterable[int | float]) -> str:
    """Write an array of numbers."""
    return "{" + ",".join(map(repr, values)) + "}"


def blobs(values: Iterable[bytes]) -> str:
    """Write a bytea[]."""
    return hexes([value.hex() for value in values])


def hexes(values: Iterable[str]) -> str:
    """Write a bytea[] of hexadecimal texts."""
    return "{" + ",".join(['"\\\\x' + value + '"' for value in values]) + "}"


def words(values: Iterable[str]) -> str:
    """Write an array of texts that need no quotes: ids in hexadecimal, names of ours."""
    return "{" + ",".join(values) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Write a text[]; any text, also one that reads like NULL or holds quotes.

    Cost: each distinct value is quoted once, so a column that repeats a tenant is cheap.
    """
    column = list(values)
    quoted = {value: _quoted(value) for value in set(column)}
    return "{" + ",".join([quoted[value] for value in column]) + "}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
