"""Positions are dense and in the order of commits, whatever commits, rolls back, waits or dies."""

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import canonical
from canonical.domain import decide
from canonical.domain.answers import Written
from canonical.domain.commands import Change
from canonical.domain.ids import new_id
from canonical.errors import NotFoundError, StatusConflictError
from canonical.mutations.add import add
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.mutations.change import delete, supersede, update
from canonical.mutations.writer import Writer
from canonical.store import records
from canonical.store.database import Database, Role
from tests.support.builders import ARITHMETIC, NOW, TENANT, Store, at_once, key, new, until

SHARDS = 16
WAITING = """SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
              WHERE a.datname = current_database() AND NOT l.granted"""


def an_id(shard: int) -> UUID:
    """Make an id whose events go to `shard`."""
    return UUID(int=new_id().int >> 4 << 4 | shard)


def append(conn: psycopg.Connection, ids: Sequence[UUID]) -> list[tuple[int, int]]:
    """Write one event for each id; returns its shard and position."""
    n = len(ids)
    rows = conn.execute(
        "SELECT shard, pos FROM append_events(%s, %s::bigint[], %s::int[], %s) ORDER BY ord",
        (list(ids), [1] * n, [1] * n, ["add"] * n),
    ).fetchall()
    return [(row[0], row[1]) for row in rows]


def events(store: Store) -> list[tuple[int, int]]:
    rows = store.query("SELECT shard, pos FROM outbox ORDER BY shard, pos")
    return [(row["shard"], row["pos"]) for row in rows]


# One writer, any batches --------------------------------------------------------------------

BATCHES = st.lists(
    st.tuples(st.lists(st.integers(0, SHARDS - 1), min_size=1, max_size=12), st.booleans()),
    max_size=8,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batches=BATCHES)
def test_positions_count_what_was_committed(
    store: Store, batches: list[tuple[list[int], bool]]
) -> None:
    """P2, O-18: in the order of the events inside each shard; a roll-back gives back its places."""
    store.empty()
    counted: Counter[int] = Counter()
    for shards, commits in batches:
        placed: Counter[int] = Counter(counted)
        expected = []
        for shard in shards:
            placed[shard] += 1
            expected.append((shard, placed[shard]))
        with store.as_api() as conn:
            assert append(conn, [an_id(shard) for shard in shards]) == expected
            if commits:
                counted = placed
            else:
                raise psycopg.Rollback
    assert events(store) == [(s, p) for s in range(SHARDS) for p in range(1, counted[s] + 1)]
    heads = store.query("SELECT shard, pos FROM shard ORDER BY shard")
    assert {row["shard"]: row["pos"] for row in heads} == {s: counted[s] for s in range(SHARDS)}


def test_a_thousand_roll_backs_leave_no_trace(store: Store) -> None:
    """O-18: the ten commits between them are neighbours."""
    with store.api.raw() as conn:
        for n in range(1, 1_001):
            conn.execute("SELECT set_config('gnomon.tenant', 't1', true)")
            append(conn, [an_id(3)])
            if n % 100 == 0:
                conn.commit()
            else:
                conn.rollback()
    assert events(store) == [(3, n) for n in range(1, 11)]


def test_events_need_a_tenant_and_whole_arguments(store: Store) -> None:
    """O-19: what can't be announced leaves the counters where they stood."""
    before = store.rows()
    with pytest.raises(psycopg.errors.InsufficientPrivilege), store.as_api(None) as conn:
        append(conn, [new_id()])
    bad: list[tuple[Any, ...]] = [
        ([new_id()], [], [1], ["add"]),
        ([new_id(), new_id()], [1], [1, 1], ["add", "add"]),
        ([new_id(), None], [1, 1], [1, 1], ["add", "add"]),
        ([None], [1], [1], ["add"]),
        ([new_id()], [1], [1], [None]),
    ]
    for arguments in bad:
        with pytest.raises(psycopg.Error), store.as_api() as conn:
            conn.execute(
                "SELECT * FROM append_events(%s::uuid[], %s::bigint[], %s::int[], %s::text[])",
                arguments,
            )
    assert store.rows() == before


def test_ids_spread_over_the_shards(store: Store) -> None:
    """Of 16,000 ids each shard gets its thousand, within six standard deviations."""
    made = [new_id() for _ in range(SHARDS * 1_000)]
    rows = store.query(
        "SELECT shard_of(id) AS s, count(*) AS n FROM unnest(%s) id GROUP BY 1", made
    )
    assert {row["s"] for row in rows} == set(range(SHARDS))
    assert all(abs(row["n"] - 1_000) < 190 for row in rows)


# Many writers -------------------------------------------------------------------------------


@contextmanager
def held_open(store: Store, ids: Sequence[UUID]) -> Iterator[psycopg.Connection]:
    """Hold a write between the taking of its positions and its commit."""
    with store.as_api() as conn:
        append(conn, ids)
        yield conn


def test_a_slow_commit_holds_back_its_own_shard_only(store: Store) -> None:
    """O-01, O-02: no reader ever sees what lies behind the place that the slow one took."""
    slow, fast = an_id(5), [an_id(s) for s in range(SHARDS) if s != 5]
    waits: list[tuple[int, int]] = []

    def behind_the_slow_one() -> None:
        with store.as_api() as conn:
            waits.extend(append(conn, [an_id(4), an_id(5), an_id(6)]))

    with held_open(store, [slow]):
        for memory_id in fast:  # every other shard goes on
            with store.as_api() as conn:
                append(conn, [memory_id])
        thread = threading.Thread(target=behind_the_slow_one)
        thread.start()
        until(lambda: store.one(WAITING) > 0, "the bulk waits for the slow one's shard")
        assert events(store) == [(s, 1) for s in range(SHARDS) if s != 5]
    thread.join(20)
    assert waits == [(4, 2), (5, 2), (6, 2)]
    assert (5, 1) in events(store)
    assert store.one("SELECT memory_id FROM outbox WHERE shard = 5 AND pos = 1") == slow


def test_a_slow_write_that_is_rolled_back_gives_its_place_to_the_next(store: Store) -> None:
    """O-01, O-18."""
    waits: list[tuple[int, int]] = []

    def next_one() -> None:
        with store.as_api() as conn:
            waits.extend(append(conn, [an_id(5)]))

    with held_open(store, [an_id(5)] * 7):
        thread = threading.Thread(target=next_one)
        thread.start()
        until(lambda: store.one(WAITING) > 0, "the next one waits")
        give_up()
    thread.join(20)
    assert waits == [(5, 1)]


def give_up() -> None:
    raise psycopg.Rollback


class Follower:
    """Reads each shard above where it came, as a projector does, and stops at a hole."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.reached = dict.fromkeys(range(SHARDS), 0)
        self.seen: list[tuple[UUID, int]] = []
        self.reads = 0

    def read(self) -> None:
        for shard, reached in self.reached.items():
            with self.database.raw() as conn, conn.transaction():
                rows = conn.execute(
                    "SELECT pos, memory_id, version FROM outbox"
                    " WHERE shard = %s AND pos > %s ORDER BY pos LIMIT 50",
                    (shard, reached),
                ).fetchall()
            assert [row[0] for row in rows] == list(range(reached + 1, reached + 1 + len(rows)))
            self.reached[shard] += len(rows)
            self.seen += [(row[1], row[2]) for row in rows]
        self.reads += 1

    def follow(self, until_done: threading.Event) -> None:
        while not until_done.is_set():
            self.read()


def write_at_random(store: Store, tenant: str, seed: int) -> None:
    """Write as callers do, with roll-backs after the counter in between."""
    dice, writer = random.Random(seed), store.writer(tenant)
    caller, mine = writer.caller, list[Written]()
    for n in range(40):
        memory = new(f"{seed}/{n}", caller=caller)
        match dice.randrange(7):
            case 0 | 1:
                mine.append(add(writer, memory))
            case 2:
                lines = [(i, new(f"{seed}/{n}/{i}", caller=caller)) for i in range(20)]
                mine.extend(add_chunk(writer, Chunk(lines)).written.values())
            case 3:
                roll_back(store, writer, memory, dice)
            case 4 if mine:
                refusing(partial(update, writer, dice.choice(mine).memory_id, Change(text="x")))
            case 5 if mine:
                refusing(partial(delete, writer, dice.choice(mine).memory_id))
            case 6 if mine:
                refusing(partial(supersede, writer, dice.choice(mine).memory_id, memory))


def refusing(command: Callable[[], object]) -> None:
    try:
        command()
    except (NotFoundError, StatusConflictError):
        return


def roll_back(store: Store, writer: Writer, memory: Any, dice: random.Random) -> None:
    """Take positions, of one record or of many, and give them back."""
    with store.as_api(writer.tenant) as conn:
        if dice.random() < 0.5:
            record = decide.add(memory, new_id(), NOW)
            records.add(conn.cursor(), record, None)()
        else:
            append(conn, [new_id() for _ in range(dice.randrange(2, 30))])
        raise psycopg.Rollback


def test_readers_of_the_tail_never_meet_a_hole(store: Store) -> None:
    """O-01, O-18: 6 writers with roll-backs, 2 readers that follow them; compared by sets."""
    done = threading.Event()
    database = Database(store.url, Role.PROJECTOR, connections=2)
    followers = [Follower(database), Follower(database)]
    readers = [threading.Thread(target=partial(hold_error, f, done)) for f in followers]
    for reader in readers:
        reader.start()
    tenants = [TENANT, "t2"] * 3
    answers = at_once([partial(write_at_random, store, t, n) for n, t in enumerate(tenants)])
    done.set()
    for reader in readers:
        reader.join(20)
    assert answers == [None] * 6
    versions = store.query("SELECT memory_id, version FROM memory_version")
    for follower in followers:
        assert follower.reads > 0
        while len(follower.seen) < len(versions):
            before = len(follower.seen)
            follower.read()
            assert len(follower.seen) > before
        assert Counter(follower.seen) == Counter((v["memory_id"], v["version"]) for v in versions)
    database.close()
    store.check()


def hold_error(follower: Follower, done: threading.Event) -> None:
    """Stop at a hole; the reader then lacks events, and its next read fails in the test itself."""
    try:
        follower.follow(done)
    except AssertionError:
        follower.reads = 0


# The laws themselves ------------------------------------------------------------------------

DAMAGE = {
    "a hole at 1": "DELETE FROM outbox WHERE pos = 1",
    "the newest event gone": "DELETE FROM outbox WHERE pos = 2",
    "a counter ahead": "UPDATE shard SET pos = pos + 1",
    "an event without a version": """
        INSERT INTO outbox (segment, shard, pos, memory_id, rev, version, op, tenant)
        SELECT segment, shard, pos + 1, gen_random_uuid(), 1, 1, 'add', 't1' FROM shard;
        UPDATE shard SET pos = pos + 1""",
    "a version without an event": """
        INSERT INTO memory_version (tenant, memory_id, version, op, status, text, text_mac,
                                    metadata, shard, pos)
        SELECT tenant, memory_id, 3, op, status, text, text_mac, metadata, shard, pos + 1000
          FROM memory_version WHERE version = 2;
        UPDATE memory SET version = 3, rev = 3""",
    "a record without a version": "DELETE FROM memory_version WHERE version = 1",
    "another text than the version's": "UPDATE memory SET text = text || '!'",
    "another version than the newest": "UPDATE memory SET version = version + 1, rev = rev + 1",
    "an event of another tenant": "UPDATE outbox SET tenant = 't2'",
    "an event of another record": "UPDATE outbox SET memory_id = gen_random_uuid()",
    "a version's place taken twice": "UPDATE memory_version SET shard = 0, pos = 1",
    "a rev out of order": "UPDATE outbox SET rev = 3 - rev",
    "a key's answer gone": "UPDATE mutation SET versions = ARRAY[9]",
    "an event's record gone": "UPDATE source_event SET memory_id = gen_random_uuid()",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_arithmetic_finds_each_kind_of_damage(store: Store, damage: str) -> None:
    """O-03, O-19: what every test of this store is checked by can fail."""
    written = add(store.writer(), new(event_id="e1"), key("m", "add", 1))
    update(store.writer(), written.memory_id, Change(text="two"))
    store.check()
    for statement in DAMAGE[damage].split(";"):
        store.query(statement)
    assert any(store.query(law) for law in ARITHMETIC.values())


def test_nothing_in_the_write_path_notifies(store: Store) -> None:
    """E-18."""
    folder = Path(canonical.__file__).parent
    for path in folder.rglob("*"):
        if path.suffix in (".py", ".sql") and "store/embedded" not in str(path):
            assert not re.search(r"\b(NOTIFY|pg_notify)\b", path.read_text()), path
    sources = store.query(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    )
    assert "append_events" in {row["proname"] for row in sources}
    assert not [row["proname"] for row in sources if "notify" in row["prosrc"].lower()]
    assert store.query("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal") == []
