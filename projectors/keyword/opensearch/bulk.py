"""A bulk request: how writes are cut into requests, and what each item's answer means. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

DONE = frozenset({200, 201})
CONFLICT = 409
REFUSED = frozenset({400, 413, 422})
# Errors of these kinds are about the index and not about the one document.
GONE = frozenset({"index_not_found_exception"})
HELD = frozenset({"index_closed_exception", "cluster_block_exception"})


class Item(NamedTuple):
    """One write. `key`: the memory it is about, if it is about one; `lines`: as it is sent."""

    key: UUID | None
    lines: bytes


class Verdict(Enum):
    """What became of an item."""

    DONE = "done"
    STALE = "stale"  # something as new or newer is there: as good as done
    AGAIN = "again"  # not now: busy, blocked, away
    REFUSED = "refused"  # this document, for good
    GONE = "gone"  # there is no such index


def requests(items: Iterable[Item], *, most_bytes: int, most: int) -> Iterator[list[Item]]:
    """Cut items into requests of bounded size; one that is too large by itself goes alone."""
    request: list[Item] = []
    size = 0
    for item in items:
        if request and (len(request) == most or size + len(item.lines) > most_bytes):
            yield request
            request, size = [], 0
        request.append(item)
        size += len(item.lines)
    if request:
        yield request


def verdict(status: int, kind: str) -> Verdict:
    """Tell what an item's status and kind of error mean.

    Only what is known to be about the document is `REFUSED`: what is taken for it parks a memory.
    """
    if status in DONE:
        return Verdict.DONE
    if status == CONFLICT:
        return Verdict.STALE
    if kind in GONE:
        return Verdict.GONE
    if status in REFUSED and kind not in HELD:
        return Verdict.REFUSED
    return Verdict.AGAIN


def verdicts(answer: Mapping[str, Any], request: Sequence[Item]) -> list[tuple[Verdict, str]]:
    """Read the verdict on each item of a request, in its order, with the kind of error.

    The reason is left out: it may quote the document.
    Raises: LookupError, TypeError, ValueError, when it isn't the answer to such a request.
    """
    told = [next(iter(entry.values())) for entry in answer["items"]]
    return [
        (verdict(entry["status"], kind), kind)
        for _, entry in zip(request, told, strict=True)
        for kind in (str(entry.get("error", {}).get("type", "")),)
    ]
