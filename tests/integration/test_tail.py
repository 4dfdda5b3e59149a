"""The canonical tail: what no watermark has passed, found along the log."""

from functools import partial

import pytest

from canonical.domain.commands import Change
from canonical.domain.scope import Scope
from canonical.errors import StoreUnavailableError
from canonical.mutations.add import add
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.mutations.change import delete, update
from canonical.store import reading
from canonical.store.reading import CanonicalReader
from tests.support.builders import ALICE, TENANT, Store, new

NOTHING: dict[int, int] = {}


def texts(tail: reading.Tail) -> list[str]:
    return [record.text for record in tail.records]


def test_what_lies_above_the_lowest_watermark_is_the_tail(store: Store) -> None:
    """P7: newest first, each record once, in its present state, of any status."""
    writer, reader = store.writer(), CanonicalReader(store.api)
    written = [add(writer, new(f"text {n}")) for n in range(6)]
    served = reader.heads()
    assert texts(reader.tail(ALICE, [served], limit=10)) == []
    update(writer, written[2].memory_id, Change(text="changed"))
    delete(writer, written[4].memory_id)
    add(writer, new("bob's", user_id="bob"))
    add(writer, new("newest"))
    assert texts(reader.tail(ALICE, [served], limit=10)) == ["newest", "text 4", "changed"]
    assert len(reader.tail(ALICE, [served, NOTHING], limit=10).records) == 7
    assert len(reader.tail(ALICE, [], limit=10).records) == 7


def test_a_tail_that_is_too_long_says_so(store: Store) -> None:
    """P6: of the scope's records the newest are read."""
    writer, reader = store.writer(), CanonicalReader(store.api)
    for n in range(5):
        add(writer, new(f"text {n}"))
    for limit, truncated in ((4, True), (5, False)):
        tail = reader.tail(ALICE, [], limit=limit)
        assert (len(tail.records), tail.truncated) == (limit, truncated)
    assert texts(reader.tail(ALICE, [], limit=2)) == ["text 4", "text 3"]


def test_a_tail_whose_newest_events_are_all_of_others_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6, P7: a record behind more events than are looked at may be missing; that is told."""
    writer, reader = store.writer(), CanonicalReader(store.api)
    add(writer, new("alice's"))
    add_chunk(writer, Chunk([(n, new(f"{n}", user_id="bob")) for n in range(400)]))
    monkeypatch.setattr(reading, "TAIL_SCAN", 5)
    tail = reader.tail(ALICE, [], limit=10)
    assert (tail.records, tail.truncated) == ([], True)
    monkeypatch.setattr(reading, "TAIL_SCAN", 500)
    tail = reader.tail(ALICE, [], limit=10)
    assert (texts(tail), tail.truncated) == (["alice's"], False)


def test_a_position_that_is_not_there_yet_is_not_passed_over(store: Store) -> None:
    """P7: a replica that lags says so, and doesn't answer without the write."""
    written = add(store.writer(), new())
    read = partial(CanonicalReader(store.api).tail, ALICE, [], limit=10)
    assert len(read(must_reach={written.shard: written.pos}).records) == 1
    with pytest.raises(StoreUnavailableError):
        read(must_reach={written.shard: written.pos + 1})


def test_a_projection_that_is_late_says_since_when(store: Store) -> None:
    """P6: whosever the event is that waits; a search of another tenant is as late."""
    store.query("""INSERT INTO generation (projection, generation, state, schema_hash)
                   VALUES ('vector', 1, 'live', 'x')""")
    store.query("""INSERT INTO watermark (projection, generation, shard)
                   SELECT 'vector', 1, n FROM generate_series(0, 15) n""")
    reader = CanonicalReader(store.api)
    assert reader.served(["vector"])["vector"].oldest_unserved_seconds is None
    first = add(store.writer(), new())
    add(store.writer(), new())
    store.query("UPDATE outbox SET at = now() - interval '1 hour' WHERE pos = %s", first.pos)
    served = reader.served(["vector", "keyword"])
    assert served["vector"].lag[first.shard] >= 1
    assert served["vector"].oldest_unserved_seconds == pytest.approx(3600, abs=60)
    assert served["keyword"].state == "missing"
    store.query("UPDATE watermark w SET pos = s.pos FROM shard s WHERE s.shard = w.shard")
    assert reader.served(["vector"])["vector"].oldest_unserved_seconds is None


@pytest.mark.parametrize(
    ("states", "serves"),
    [
        (("lost",), (0, "missing")),
        (("lost", "building"), (2, "building")),
        (("live", "building"), (1, "live")),
        (("old", "live"), (2, "live")),
    ],
)
def test_of_a_projection_that_serves_nothing_the_one_that_is_being_built_is_told(
    store: Store, states: tuple[str, ...], serves: tuple[int, str]
) -> None:
    """P6, Q-08: a leg that is being built anew is not called lost."""
    for number, state in enumerate(states, 1):
        store.query(
            """INSERT INTO generation (projection, generation, state, schema_hash)
               VALUES ('vector', %s, %s, 'x')""",
            number,
            state,
        )
        store.query(
            """INSERT INTO watermark (projection, generation, shard)
               SELECT 'vector', %s, n FROM generate_series(0, 15) n""",
            number,
        )
    found = CanonicalReader(store.api).served(["vector"])["vector"]
    assert (found.generation, found.state) == serves
    assert len(found.marks) == (16 if found.generation else 0)


def test_a_scopes_records_are_counted_up_to_a_bound(store: Store) -> None:
    """S-17."""
    writer, reader = store.writer(), CanonicalReader(store.api)
    for n in range(4):
        add(writer, new(f"text {n}", agent_id="agent-7", run_id=f"r{n % 2}"))
    count = reader.scope_count
    assert [count(Scope(TENANT, agent_id="agent-7"), bound) for bound in (3, 10)] == [3, 4]
    assert count(Scope(TENANT, agent_id="agent-7", run_id="r1"), 10) == 2
    assert count(Scope(TENANT, agent_id="agnet-7"), 10) == 0
    assert count(Scope("t2", agent_id="agent-7"), 10) == 0
