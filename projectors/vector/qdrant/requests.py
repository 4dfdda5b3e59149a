"""How a page becomes few large requests: pure."""

from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from projectors.vector.mapping import IndexWrite

_NUMBER_BYTES: Final = 23  # of a float32 as JSON, at most: -1.1754943508222875e-38 and a comma
_POINT_BYTES: Final = 128  # the id, twice, and the names of the fields


def cut(
    writes: Iterable[IndexWrite], *, points: int, size_bytes: int, dimension: int
) -> Iterator[list[IndexWrite]]:
    """Cut writes into requests, which hold at most so many points and bytes.

    Shapes: in order; a point that is larger than a request by itself makes one by itself.
    """
    here: list[IndexWrite] = []
    room = size_bytes
    for write in writes:
        size = _POINT_BYTES + dimension * _NUMBER_BYTES + len(orjson.dumps(write.payload))
        if here and (len(here) == points or size > room):
            yield here
            here, room = [], size_bytes
        here.append(write)
        room -= size
    if here:
        yield here
