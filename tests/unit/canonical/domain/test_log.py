"""A page knows the shard of each of its memories."""

from datetime import timedelta

from canonical.domain.log import Event, Mark, Page
from canonical.domain.records import Op
from tests.support.builders import NOW, record


def test_a_pages_memories_are_of_their_events_shards_unless_it_says_otherwise() -> None:
    one, other = record(), record()
    event = Event(3, 7, one.id, 1, 1, Op.ADD, "t1", NOW - timedelta(seconds=1))
    page = Page((event,), {one.id: one}, [Mark(3, 7, one.id, 1, 1)], 1)
    assert page.shard_of(one.id) == 3
    redriven = Page((), {other.id: other}, [], 1, {other.id: 5})
    assert redriven.shard_of(other.id) == 5
