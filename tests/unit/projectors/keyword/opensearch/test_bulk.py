"""How writes are cut into bulk requests, and what the items' answers mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projectors.keyword.opensearch import bulk
from projectors.keyword.opensearch.bulk import Item, Verdict

ITEMS = st.lists(st.integers(1, 30).map(lambda size: Item(None, b"x" * size)))


@given(ITEMS, st.integers(1, 60), st.integers(1, 5))
def test_requests_hold_everything_in_order_within_both_bounds(
    items: list[Item], most_bytes: int, most: int
) -> None:
    cut = list(bulk.requests(items, most_bytes=most_bytes, most=most))
    assert [item for request in cut for item in request] == items
    for request in cut:
        size = sum(len(item.lines) for item in request)
        assert len(request) == 1 or (len(request) <= most and size <= most_bytes)


def test_requests_are_as_few_as_the_bounds_allow() -> None:
    items = [Item(None, b"x" * 10)] * 7
    assert [len(r) for r in bulk.requests(items, most_bytes=30, most=5)] == [3, 3, 1]
    assert [len(r) for r in bulk.requests(items, most_bytes=99, most=5)] == [5, 2]


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (200, "", Verdict.DONE),
        (201, "", Verdict.DONE),
        (409, "version_conflict_engine_exception", Verdict.STALE),
        (400, "mapper_parsing_exception", Verdict.REFUSED),
        (400, "strict_dynamic_mapping_exception", Verdict.REFUSED),
        (400, "illegal_argument_exception", Verdict.REFUSED),
        (400, "index_closed_exception", Verdict.AGAIN),
        (403, "cluster_block_exception", Verdict.AGAIN),
        (403, "security_exception", Verdict.AGAIN),
        (404, "index_not_found_exception", Verdict.GONE),
        (404, "shard_not_found_exception", Verdict.AGAIN),
        (429, "cluster_block_exception", Verdict.AGAIN),
        (429, "rejected_execution_exception", Verdict.AGAIN),
        (500, "null_pointer_exception", Verdict.AGAIN),
        (503, "unavailable_shards_exception", Verdict.AGAIN),
    ],
)
def test_only_what_is_about_the_document_is_its_fault(
    status: int, kind: str, expected: Verdict
) -> None:
    """E-01: what is taken for it parks a memory."""
    assert bulk.verdict(status, kind) is expected


def test_an_answer_to_another_number_of_items_is_none() -> None:
    answer = {"items": [{"index": {"status": 200}}]}
    assert bulk.verdicts(answer, [Item(None, b"")]) == [(Verdict.DONE, "")]
    with pytest.raises(ValueError, match="shorter"):
        bulk.verdicts(answer, [Item(None, b"")] * 2)
