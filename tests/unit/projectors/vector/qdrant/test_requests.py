"""How a page becomes requests."""

import json
from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from projectors.vector.mapping import IndexWrite, Tombstone, Upsert
from projectors.vector.qdrant.requests import cut

DIMENSION = 3
LONGEST = np.array([-1.1754943508222875e-38, -1.2345678e-7, -0.98765432], dtype=np.float32)


def write(number: int, text: str, *, live: bool) -> IndexWrite:
    payload = {"terms": [text], "guard": 1 << 52}
    if live:
        return Upsert(UUID(int=number), 1 << 52, payload, LONGEST)
    return Tombstone(UUID(int=number), 1 << 52, payload)


def size_of(made: IndexWrite) -> int:
    """Return the bytes of a point with its place in a condition, as the client writes them."""
    vector = made.vector.tolist() if isinstance(made, Upsert) else [0.0] * DIMENSION
    point = {"id": str(made.memory_id), "vector": vector, "payload": made.payload}
    return len(json.dumps(point, separators=(",", ":"), ensure_ascii=False).encode()) + 39 + 1


@given(
    told=st.lists(st.tuples(st.text(max_size=60), st.booleans()), max_size=40),
    points=st.integers(1, 10),
    size_bytes=st.integers(1, 3_000),
)
def test_every_write_goes_once_in_order_within_the_bounds(
    told: list[tuple[str, bool]], points: int, size_bytes: int
) -> None:
    """E-14: one that is larger than a request goes alone; no request is empty."""
    writes = [write(n, text, live=live) for n, (text, live) in enumerate(told)]
    requests = list(cut(writes, points=points, size_bytes=size_bytes, dimension=DIMENSION))
    assert [w for request in requests for w in request] == writes
    for request in requests:
        assert 1 <= len(request) <= points
        assert len(request) == 1 or sum(map(size_of, request)) <= size_bytes


def test_requests_are_as_few_as_the_bounds_allow() -> None:
    writes = [write(n, "tea", live=True) for n in range(2_500)]
    requests = cut(writes, points=1_000, size_bytes=16 << 20, dimension=DIMENSION)
    assert [len(request) for request in requests] == [1_000, 1_000, 500]
    (whole,) = cut(writes, points=3_000, size_bytes=2 * sum(map(size_of, writes)), dimension=3)
    assert len(whole) == 2_500
