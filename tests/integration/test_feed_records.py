"""A page as the driver reads it in binary, against the same rows read by SQLAlchemy."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
from sqlalchemy import text

from canonical.domain.commands import Change, new_memory
from canonical.domain.records import Kind, Op, Status
from canonical.mutations import change
from canonical.store import rows
from canonical.store.caches import EmbeddingCache, NameCache, text_key
from canonical.store.database import Database, Role
from canonical.store.feed import FeedSettings, LogFeed
from projectors.loop import run_page
from projectors.protocol import Applied, Page
from projectors.vector.vectors import CacheRow
from tests.support.casting import SHARDS, Casting

WHEN = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
NONE = timedelta(0)


def test_a_page_reads_every_column_into_its_own_field(
    open_database: Callable[[Role], Database],
) -> None:
    """Full and bare records, changed and deleted ones; every field of its own value."""
    casting = Casting(open_database, "vector")
    full = casting.add(
        "full",
        user_id="user",
        agent_id="agent",
        run_id="run",
        actor_id="actor",
        role="assistant",
        attributed_to="user",
        metadata={"n": 1e308, "list": ["a", None, {"b": True}]},
        source_message_ids=["m1", "m2"],
        event_id="event",
        valid_from=WHEN.isoformat(),
        valid_to=WHEN.replace(year=2027).isoformat(),
        expires_at=WHEN.replace(year=2028).isoformat(),
    )
    gone, old = casting.add("gone"), casting.add("old")
    change.update(casting.writer(), full, Change(text="changed"))
    change.delete(casting.writer(), gone, why="because")
    _, newer = change.supersede(
        casting.writer(),
        old,
        new_memory({"user_id": "alice", "text": "new"}, casting.writer().caller),
    )
    with casting.projector.transaction() as conn:
        found = conn.execute(text("SELECT * FROM memory")).mappings().all()
        expected = {row["id"]: rows.to_record(dict(row)) for row in found}
    page = casting.next_page()
    assert page.records == expected
    assert set(page.records) == {full, gone, old, newer.memory_id}
    assert page.records[full].version == 2
    assert page.records[old].superseded_by == newer.memory_id
    assert page.records[full].metadata == {"n": 1e308, "list": ["a", None, {"b": True}]}


def test_a_page_has_the_types_that_a_record_and_an_event_promise(
    open_database: Callable[[Role], Database],
) -> None:
    """Whole numbers are int and moments say UTC, whatever form they came in."""
    casting = Casting(open_database, "vector")
    casting.add("one", expires_at=WHEN.isoformat())
    page = casting.next_page()
    (event,), (record,) = page.events, page.records.values()
    numbers = (event.shard, event.pos, event.rev, event.version, record.rev, record.version)
    assert {type(number) for number in numbers} == {int}
    assert type(event.op) is Op
    assert type(record.status) is Status
    assert type(record.kind) is Kind
    assert (type(event.memory_id), type(record.id)) == (UUID, UUID)
    assert {m.utcoffset() for m in (event.at, record.created_at, record.updated_at)} == {NONE}
    assert record.expires_at == WHEN


def test_cached_vectors_and_names_come_back_as_they_were_kept(
    open_database: Callable[[Role], Database],
) -> None:
    """To the bit, under keys that are looked up as they were put; names as pairs of texts."""
    casting = Casting(open_database, "vector")
    casting.add("one")
    (record,) = casting.next_page().records.values()
    vector = np.array([0.1, -1e-38, 3.4e38, 0.0], dtype="<f4")
    vectors, names = EmbeddingCache(casting.projector, "m"), NameCache(casting.projector)
    vectors.put([CacheRow(record.id, *text_key(record), vector)])
    names.put("m", [(record, [("Zoë", "PERSON")])])
    found = vectors.get([text_key(record)])
    assert list(found) == [text_key(record)]
    assert found[text_key(record)].dtype == vector.dtype
    assert found[text_key(record)].tobytes() == vector.tobytes()
    assert names.get("m", [record]) == {record.id: (("Zoë", "PERSON"),)}
    assert vectors.get([]) == {}


def test_a_projection_that_looks_at_no_records_moves_on_without_them(
    open_database: Callable[[Role], Database],
) -> None:
    """Its pages hold every event; what other projections park is nothing to it."""
    casting = Casting(open_database, "audit")
    written = {casting.add("one"), casting.add("two")}
    settings = FeedSettings(
        projection="audit", generation=casting.generation, epoch=1, owner="one", records=False
    )
    feed = LogFeed(casting.projector, settings)
    projector = Looking()
    progress = run_page(feed, projector, feed.claim(SHARDS), limit=500)
    assert progress.events == 2
    assert {event.memory_id for event in projector.pages[0].events} == written
    assert projector.pages[0].records == {}
    assert casting.execute("SELECT * FROM parked") == []
    assert run_page(feed, projector, progress.leases, limit=500).events == 0


class Looking:
    """A projection that keeps the pages it was given."""

    def __init__(self) -> None:
        self.pages: list[Page] = []

    def apply(self, page: Page) -> Applied:
        self.pages.append(page)
        return Applied()
