"""Entities in a real Postgres: exactly once, one per scope and name, no link lost or left over."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from canonical.domain import filters
from canonical.domain.commands import new_memory
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.errors import (
    LeaseLostError,
    StoreUnavailableError,
)
from canonical.mutations import change
from canonical.store.caches import NameCache
from canonical.store.database import Database, Role
from inference.spacy_recogniser import SpacyRecogniser
from projectors.entity import writer
from projectors.entity.reader import EntityReader, Inconsistency, verify
from projectors.entity.writer import EntityProjector
from projectors.loop import retry_parked
from projectors.protocol import Applied, Step
from tests.support.builders import NOW, at_once, until
from tests.support.casting import SHARDS, TENANT, Casting, Lexicon

ALICE = Scope(TENANT, user_id="alice")
KNOWN = ("Mara Lind", "Lisbon", "Acme", "KVTA", "Noah")


class Entities(Casting):
    """The entity projection with names that tests know."""

    def __init__(self, open_database: Callable[[Role], Database]) -> None:
        super().__init__(open_database, "entity")
        self.names = Lexicon(*KNOWN)

    def worker(self, generation: int | None = None) -> EntityProjector:
        cache = NameCache(self.projector)
        return EntityProjector(self.names, cache, generation=generation or self.generation)

    def cast(self, **options: object) -> int:
        return self.drain(self.worker(), **options)  # type: ignore[arg-type]

    def verify(self, generation: int | None = None) -> list[Inconsistency]:
        with self.projector.transaction() as conn:
            return verify(conn, generation or self.generation)

    def degrees(self) -> dict[str, int]:
        """Read each entity's degree; one name in several scopes is several lines."""
        assert self.verify() == []
        rows = self.execute(
            "SELECT concat_ws('/', e.tenant, e.user_id, e.agent_id, e.run_id, e.name),"
            " (SELECT sum(degree) FROM entity_degree d WHERE d.tenant = e.tenant"
            "   AND d.generation = e.generation AND d.entity_id = e.id)"
            " FROM entity e WHERE e.generation = :generation",
            generation=self.generation,
        )
        return {str(name): int(str(degree)) for name, degree in rows}

    def find(
        self, query: str, scope: Scope = ALICE, *, limit: int = 60, **seen: object
    ) -> list[UUID]:
        reader = EntityReader(self.api, self.generation)
        visible = replace(Visible(scope=scope, now=NOW, as_of=NOW), **seen)  # type: ignore[arg-type]
        return [hit.memory_id for hit in reader.linked(reader.names_in(query), visible, limit)]


@pytest.fixture
def entities(open_database: Callable[[Role], Database]) -> Entities:
    return Entities(open_database)


# What the tables hold ------------------------------------------------------------------------


def test_spellings_of_a_name_are_one_entity_per_scope(entities: Entities) -> None:
    """O-16."""
    for said in ("KVTA is on", "I heard KVTA", "kvta again", "the KVTA tower"):
        entities.add(said)
    for said in ("Acme sells", "an ACME thing", "at  acme ."):
        entities.add(said)
    entities.add("Acme sells", user_id="alice", run_id="r1")
    entities.add("Acme sells", user_id="bob")
    entities.cast()
    assert entities.degrees() == {
        "t1/alice/kvta": 4,
        "t1/alice/acme": 3,
        "t1/alice/r1/acme": 1,
        "t1/bob/acme": 1,
    }


def test_links_follow_the_text_and_end_with_the_record(entities: Entities) -> None:
    """L-01, L-04: no link, no degree, no entity, and no word of its name is left."""
    memory = entities.add("Mara Lind lives in Lisbon")
    entities.cast()
    assert entities.degrees() == {"t1/alice/mara lind": 1, "t1/alice/lisbon": 1}
    entities.say(memory, "Mara Lind moved")
    entities.cast()
    assert entities.degrees() == {"t1/alice/mara lind": 1}
    entities.delete(memory)
    entities.cast()
    for table in ("entity", "entity_key", "entity_link", "entity_degree"):
        assert entities.execute(f"SELECT count(*) FROM {table}") == [(0,)], table


def test_a_fresh_process_cleans_up_what_another_one_made(
    entities: Entities, open_database: Callable[[Role], Database]
) -> None:
    """L-04."""
    memories = [entities.add(f"Lisbon, part {n}") for n in range(3)]
    entities.cast()
    for left, memory in zip((2, 1, 0), memories, strict=True):
        entities.delete(memory)
        cache = NameCache(open_database(Role.PROJECTOR))
        entities.drain(EntityProjector(Lexicon(), cache, generation=entities.generation))
        assert entities.degrees() == ({"t1/alice/lisbon": left} if left else {})


def test_a_link_keeps_the_newest_rev(entities: Entities) -> None:
    memory = entities.add("Mara Lind sings")
    entities.cast()
    entities.say(memory, "Mara Lind dances")
    entities.cast()
    assert entities.execute("SELECT rev FROM entity_link") == [(2,)]
    assert entities.degrees() == {"t1/alice/mara lind": 1}


def test_deleting_one_scope_leaves_what_others_share(entities: Entities) -> None:
    """S-15."""
    kept = entities.add("Acme is ours", agent_id="g")
    entities.add("Acme pays me", user_id="alice", agent_id="g")
    entities.cast()
    entities.delete_scope(Scope(TENANT, user_id="alice"))
    entities.cast()
    assert entities.degrees() == {"t1/g/acme": 1}
    assert entities.find("Acme", Scope(TENANT, agent_id="g")) == [kept]


def test_tenants_count_and_see_their_own(entities: Entities) -> None:
    """S-16."""
    for n in range(50):
        entities.add(f"Acme {n}")
    other = entities.add("Acme once", "t2")
    entities.cast()
    assert entities.degrees() == {"t1/alice/acme": 50, "t2/alice/acme": 1}
    reader = EntityReader(entities.api, entities.generation)
    theirs = Visible(scope=Scope("t2", user_id="alice"), now=NOW, as_of=NOW)
    (hit,) = reader.linked(["acme"], theirs, 10)
    assert (hit.memory_id, hit.degree, hit.penalty) == (other, 1, 1.0)
    assert type(hit.degree) is int  # a sum is a decimal, which no answer can be written from
    assert other not in entities.find("Acme", limit=200)


def test_languages_that_the_model_does_not_know_pass_without_names(entities: Entities) -> None:
    """Q-20, with the real model."""
    for said in ("我喜欢喝绿茶", "昨日は東京へ", "ذهبت مريم", "🎈🎉", "Mara Lind is here"):
        entities.add(said)
    with SpacyRecogniser() as recogniser:
        cache = NameCache(entities.projector)
        worker = EntityProjector(recogniser, cache, generation=entities.generation)
        assert entities.drain(worker) == 5
    assert entities.degrees() == {"t1/alice/mara lind": 1}
    assert entities.execute("SELECT count(*) FROM parked") == [(0,)]


def test_a_rebuild_asks_the_model_nothing_and_stands_beside_the_old_one(entities: Entities) -> None:
    entities.add("Mara Lind lives in Lisbon")
    entities.add("Mara Lind lives in Lisbon")
    entities.add("nothing")
    entities.cast()
    assert sorted(entities.names.asked) == ["Mara Lind lives in Lisbon", "nothing"]
    second = entities.begin(live=False)
    entities.drain(entities.worker(second), generation=second)
    assert len(entities.names.asked) == 2
    assert entities.verify(second) == []
    links = (
        "SELECT memory_id, entity_id, shard, rev FROM entity_link"
        " WHERE generation = :generation ORDER BY 1, 2"
    )
    first = entities.execute(links, generation=entities.generation)
    assert first == entities.execute(links, generation=second)
    assert len(first) == 4


# Once, whatever happens ----------------------------------------------------------------------


class Killed(BaseException):
    """The worker's process is gone."""


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.CLAIMED])
def test_a_crash_at_any_step_leaves_each_link_once(entities: Entities, step: Step) -> None:
    """O-07."""
    memories = [entities.add(f"Mara Lind and Acme, {n}") for n in range(20)]
    entities.delete(memories[0])

    def die(at: Step) -> None:
        if at is step:
            raise Killed

    for n in range(3):
        with pytest.raises(Killed):
            entities.cast(owner=f"victim {n}", limit=4, at=die)
        entities.end_leases()
    entities.cast(owner="heir")
    assert entities.degrees() == {"t1/alice/mara lind": 19, "t1/alice/acme": 19}


def test_a_zombie_changes_nothing(entities: Entities) -> None:
    """O-06: a step that was made before the delete comes after it."""
    memory = entities.add("Mara Lind lives in Lisbon")
    zombie = entities.feed("zombie")
    leases = zombie.claim(SHARDS)
    page = zombie.page(zombie.read(leases, limit=10).events)
    late = entities.worker().apply(page)
    entities.end_leases()
    entities.delete(memory)
    entities.cast(owner="heir")
    touched = {mark.shard for mark in page.marks}
    with pytest.raises(LeaseLostError):
        zombie.advance([lease for lease in leases if lease.shard in touched], page, late)
    assert entities.degrees() == {}


def test_an_older_state_never_replaces_a_newer_one(entities: Entities) -> None:
    """O-06, even where no watermark would stop it."""
    memory = entities.add("Mara Lind lives in Lisbon")
    old = entities.worker().apply(entities.next_page())
    entities.say(memory, "Acme called Noah")
    entities.end_leases()
    entities.cast(owner="heir")
    entities.write(old)
    assert entities.degrees() == {"t1/alice/acme": 1, "t1/alice/noah": 1}


def test_the_same_page_twice_is_the_same(entities: Entities) -> None:
    """O-16: twice in one process, and a second time after a commit."""
    entities.add("Mara Lind lives in Lisbon")
    page = entities.next_page()
    for _ in range(3):
        entities.write(entities.worker().apply(page))
    assert entities.degrees() == {"t1/alice/mara lind": 1, "t1/alice/lisbon": 1}


def test_two_workers_on_one_shard_do_not_both_write(entities: Entities) -> None:
    """Without the watermark's row to stop the second, the tables themselves do."""
    entities.add("Mara Lind lives in Lisbon")
    page = entities.next_page()
    first, second = entities.worker().apply(page), entities.worker().apply(page)
    with holding(entities, first) as outcome:
        late = threading.Thread(target=outcome.run, args=(lambda: entities.write(second),))
        late.start()
        until(entities.waits_for_lock, "the second worker to wait for the first")
    late.join()
    assert isinstance(outcome.error, LeaseLostError)
    assert entities.degrees() == {"t1/alice/mara lind": 1, "t1/alice/lisbon": 1}


def test_what_the_model_refuses_is_parked_alone_and_comes_back(entities: Entities) -> None:
    good = entities.add("Mara Lind is fine")
    entities.add("Acme breaks the model")
    entities.names = Lexicon(*KNOWN, refused="Acme breaks the model")
    entities.cast()
    assert entities.degrees() == {"t1/alice/mara lind": 1}
    assert entities.execute("SELECT error_code FROM parked") == [("model_refused",)]
    entities.names = Lexicon(*KNOWN)
    entities.execute("UPDATE parked SET next_try = now()")
    feed = entities.feed()
    assert retry_parked(feed, entities.worker(), feed.claim(SHARDS)) == 1
    assert entities.degrees() == {"t1/alice/mara lind": 1, "t1/alice/acme": 1}
    assert entities.find("Mara Lind") == [good]


# Several workers, one entity -----------------------------------------------------------------


class Outcome:
    """What a thread came to."""

    error: Exception | None = None

    def run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as exc:  # noqa: BLE001 - the test judges it
            self.error = exc


@contextmanager
def holding(entities: Entities, applied: Applied) -> Iterator[Outcome]:
    """Let a worker write a page, and commit only when the block ends."""
    assert applied.in_transaction is not None
    with entities.projector.transaction() as conn:
        applied.in_transaction(conn)
        yield Outcome()


def in_shards(entities: Entities, said: str) -> Iterator[UUID]:
    """Add the same text until two shards have it; yields one memory of each."""
    seen: set[int] = set()
    while len(seen) < 2:
        memory = entities.add(said)
        if (shard := memory.bytes[15] & 15) not in seen:
            seen.add(shard)
            yield memory
        else:
            entities.delete(memory)


def page_of(entities: Entities, memory: UUID) -> Applied:
    """Let a worker of its own prepare the page of one shard."""
    feed = entities.feed(f"worker of {memory}")
    leases = feed.claim([memory.bytes[15] & 15])
    return entities.worker().apply(feed.page(feed.read(leases, limit=500).events))


def beside(entities: Entities, first: Applied, second: Applied) -> None:
    """Write two pages of two shards, the second while the first is not committed yet."""
    with holding(entities, first) as outcome:
        late = threading.Thread(target=outcome.run, args=(lambda: entities.write(second),))
        late.start()
        until(lambda: entities.waits_for_lock() or not late.is_alive(), "the second worker")
    late.join()
    assert outcome.error is None


def test_an_entity_is_not_dropped_from_under_a_new_link(entities: Entities) -> None:
    """O-15: one shard removes the last link while another one adds a link."""
    one, other = in_shards(entities, "Acme")
    entities.drain(entities.worker(), "setup", shards=[one.bytes[15] & 15])
    entities.delete(one)
    entities.end_leases()
    beside(entities, page_of(entities, one), page_of(entities, other))
    assert entities.degrees() == {"t1/alice/acme": 1}


def test_a_new_link_holds_its_entity(entities: Entities) -> None:
    """O-15: the same, the other way round."""
    one, other = in_shards(entities, "Acme")
    entities.drain(entities.worker(), "setup", shards=[one.bytes[15] & 15])
    entities.delete(one)
    entities.end_leases()
    beside(entities, page_of(entities, other), page_of(entities, one))
    assert entities.degrees() == {"t1/alice/acme": 1}


def test_the_last_two_links_may_go_at_once(entities: Entities) -> None:
    """L-04: neither worker sees the other's delete, and still nothing is left."""
    one, other = in_shards(entities, "Acme")
    entities.cast(owner="setup")
    entities.delete(one)
    entities.delete(other)
    entities.end_leases()
    beside(entities, page_of(entities, one), page_of(entities, other))
    assert entities.degrees() == {}


def test_two_shards_may_make_one_entity_at_once(entities: Entities) -> None:
    """O-15."""
    one, other = in_shards(entities, "Acme")
    beside(entities, page_of(entities, one), page_of(entities, other))
    assert entities.degrees() == {"t1/alice/acme": 2}


def test_an_entity_that_is_made_and_dropped_between_two_looks_is_made_again(
    entities: Entities, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-15: it was missing at our lock, there at our insert, and gone after it."""
    one, other = in_shards(entities, "Acme")
    made = page_of(entities, one)
    entities.delete(one)
    entities.end_leases()
    dropped, ours = page_of(entities, one), page_of(entities, other)
    execute, waiting = writer._Writing._execute, [made, dropped]

    def interrupted(self: object, name: str, *rows: object) -> int:
        if name != "insert_entities" or len(waiting) < 2:
            return execute(self, name, *rows)  # type: ignore[arg-type]
        entities.write(waiting.pop(0))
        count = execute(self, name, *rows)  # type: ignore[arg-type]
        entities.write(waiting.pop(0))
        return count

    monkeypatch.setattr(writer._Writing, "_execute", interrupted)
    entities.write(ours)
    assert waiting == []
    assert entities.degrees() == {"t1/alice/acme": 1}


def test_many_writers_and_workers_lose_no_link(entities: Entities) -> None:
    """O-15: mem0's case, by 8 writers and 4 workers that share the shards."""
    entities.add("Mara Lind lives in Lisbon")
    done = at_once([partial(entities.add, f"Mara Lind bought seat number {n}") for n in range(8)])
    assert not [one for one in done if isinstance(one, Exception)]
    cast_by(entities, 4)
    assert entities.degrees() == {"t1/alice/mara lind": 9, "t1/alice/lisbon": 1}


def cast_by(entities: Entities, workers: int) -> None:
    works: list[Callable[[], int]] = [
        partial(entities.drain, entities.worker(), f"worker {n}", shards=SHARDS[n::workers])
        for n in range(workers)
    ]
    failed = [one for one in at_once(works) if isinstance(one, Exception)]
    assert failed == []


def test_names_that_come_and_go_in_many_shards_at_once_leave_nothing_wrong(
    entities: Entities,
) -> None:
    """O-15, L-04: every round all workers make and drop the same few entities."""
    memories = [entities.add("Mara Lind in Lisbon") for _ in range(40)]
    for round_ in range(6):
        for n, memory in enumerate(memories):
            said = ("Acme", "Noah", "KVTA and Acme", "no one")[(n + round_) % 4]
            entities.say(memory, f"{said}, {round_}")
        cast_by(entities, 4)
        assert entities.verify() == []
    for memory in memories:
        entities.delete(memory)
    cast_by(entities, 4)
    assert entities.degrees() == {}


# What a query finds --------------------------------------------------------------------------


def test_a_query_finds_names_whole_or_by_a_word(entities: Entities) -> None:
    whole = entities.add("Mara Lind sings")
    entities.add("Noah swims")
    entities.cast()
    reader = EntityReader(entities.api, entities.generation)
    visible = Visible(scope=ALICE, now=NOW, as_of=NOW)
    (hit,) = reader.linked(reader.names_in("what does mara lind sing?"), visible, 10)
    assert (hit.memory_id, hit.name, hit.similarity, hit.score) == (whole, "mara lind", 1.0, 1.0)
    (part,) = reader.linked(reader.names_in("Lind"), visible, 10)
    assert part.memory_id == whole
    assert part.similarity == pytest.approx(0.4)
    assert reader.linked(reader.names_in("nobody at all"), visible, 10) == []
    assert reader.linked([], visible, 10) == []
    assert reader.linked(["mara lind"], visible, 0) == []


def test_a_hub_does_not_lift_its_records_over_a_rare_one(entities: Entities) -> None:
    hub = [entities.add(f"Mara Lind says {n}") for n in range(300)]
    rare = entities.add("Noah was there")
    entities.cast(limit=1000)
    found = entities.find("what did Mara Lind and Noah say", limit=50)
    assert found[0] == rare
    assert found[1:] == sorted(hub, reverse=True)[:49], "the newest of the hub"


def test_a_name_in_many_small_scopes_is_a_hub_of_the_scope_that_holds_them(
    entities: Entities,
) -> None:
    for n in range(60):
        entities.add("Acme again", user_id="alice", run_id=f"run {n}")
    entities.cast()
    reader = EntityReader(entities.api, entities.generation)
    everywhere = Visible(scope=ALICE, now=NOW, as_of=NOW)
    assert {hit.degree for hit in reader.linked(["acme"], everywhere, 100)} == {60}
    one_run = replace(everywhere, scope=replace(ALICE, run_id="run 7"))
    assert [hit.degree for hit in reader.linked(["acme"], one_run, 100)] == [1]


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"user_id": "alice"}, {"a", "ag", "ar", "agr"}),
        ({"agent_id": "g"}, {"g", "ag", "agr"}),
        ({"run_id": "r"}, {"ar", "agr"}),
        ({"user_id": "alice", "agent_id": "g"}, {"ag", "agr"}),
        ({"user_id": "alice", "run_id": "r"}, {"ar", "agr"}),
        ({"agent_id": "g", "run_id": "r"}, {"agr"}),
        ({"user_id": "alice", "agent_id": "g", "run_id": "r"}, {"agr"}),
        ({"user_id": "nobody"}, set()),
    ],
)
def test_a_scope_reaches_every_triple_that_it_covers(
    entities: Entities, scope: dict[str, str], found: set[str]
) -> None:
    """P5."""
    owners = {
        "a": {"user_id": "alice"},
        "g": {"agent_id": "g"},
        "ag": {"user_id": "alice", "agent_id": "g"},
        "ar": {"user_id": "alice", "run_id": "r"},
        "agr": {"user_id": "alice", "agent_id": "g", "run_id": "r"},
        "b": {"user_id": "bob"},
    }
    said = {entities.add("Acme", **ids): name for name, ids in owners.items()}
    entities.add("Acme", "t2", user_id="alice", agent_id="g", run_id="r")
    entities.cast()
    assert {said[m] for m in entities.find("Acme", Scope(TENANT, **scope))} == found


def test_what_may_not_be_seen_takes_no_place(entities: Entities) -> None:
    """P6: superseded, expired, not yet valid and filtered records, all newer than the one left."""
    kept = entities.add("Acme one", metadata={"project": "atlas"})
    past, ahead = (NOW - timedelta(days=1)).isoformat(), (NOW + timedelta(days=9)).isoformat()
    old = entities.add("Acme two", metadata={"project": "atlas"})
    us = entities.writer()
    newer = new_memory({"text": "no one", "user_id": "alice"}, us.caller)
    change.supersede(us, old, newer)
    expired = entities.add("Acme three", expires_at=past, metadata={"project": "atlas"})
    entities.add("Acme four", valid_from=ahead, metadata={"project": "atlas"})
    entities.add("Acme five", metadata={"project": "other"})
    entities.cast()
    where = filters.parse({"project": "atlas"})
    assert entities.find("Acme", limit=2, where=where) == [kept]
    assert set(entities.find("Acme", where=where, show_expired=True)) == {kept, expired}
    seen = entities.find("Acme", where=where, include_superseded=True)
    assert set(seen) == {kept, old}


def test_a_tenant_is_not_left_by_the_role_of_the_api(entities: Entities) -> None:
    """P5: row-level security on each table of the projection."""
    entities.add("Acme")
    entities.cast()
    for table in ("entity", "entity_key", "entity_link", "entity_degree"):
        with entities.api.transaction("t2") as conn:
            assert conn.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0
        with entities.api.transaction() as conn:
            assert conn.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0


def test_a_query_that_takes_too_long_is_given_up(entities: Entities) -> None:
    entities.add("Acme")
    entities.cast()
    reader = EntityReader(entities.api, entities.generation, timeout=timedelta(milliseconds=200))
    visible = Visible(scope=ALICE, now=NOW, as_of=NOW)
    with entities.owner.transaction() as conn:
        conn.exec_driver_sql("LOCK TABLE entity_key IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailableError, match="statement timeout"):
            reader.linked(["acme"], visible, 10)
    assert len(reader.linked(["acme"], visible, 10)) == 1


# The check itself ----------------------------------------------------------------------------


UNLINKED = """
    INSERT INTO entity_degree
    SELECT tenant, generation, gen_random_uuid(), 1, 0 FROM entity LIMIT 1"""


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("UPDATE entity_degree SET degree = degree + 1", "degree"),
        ("UPDATE entity_degree SET shard = 15 - shard", "degree"),
        ("DELETE FROM entity_degree", "degree"),
        (UNLINKED, "degree"),
        ("DELETE FROM entity_link", "orphan"),
        ("DELETE FROM entity", "dangling_link"),
        ("DELETE FROM entity", "dangling_key"),
        ("DELETE FROM entity_key WHERE key = 'mara lind'", "nameless"),
    ],
)
def test_the_check_finds_what_is_wrong(entities: Entities, damage: str, kind: str) -> None:
    entities.add("Mara Lind lives in Lisbon")
    entities.cast()
    assert entities.verify() == []
    entities.execute(damage)
    assert kind in {found.kind for found in entities.verify()}
