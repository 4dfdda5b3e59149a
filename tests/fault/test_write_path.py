"""A write that fails anywhere leaves nothing; what passes on a second try is tried again."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest

from canonical.domain.answers import Written
from canonical.domain.commands import Caller, Change
from canonical.domain.scope import Scope
from canonical.errors import GnomonError, StoreUnavailableError
from canonical.mutations.add import add
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.mutations.change import delete, delete_scope, supersede, update
from canonical.mutations.writer import Writer
from canonical.store import database as database_module
from canonical.store.database import ATTEMPTS, ContentionError, Database, Role, one_trip
from canonical.store.reading import CanonicalReader
from tests.support.builders import TENANT, StepClock, Store, at_once, key, new, until

Command = Callable[[], Any]
_numbers = count(1)

FAULT = """
    CREATE SEQUENCE injected;
    -- Fails the first TG_ARGV[1] times; a sequence counts also what is rolled back.
    CREATE FUNCTION inject() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF nextval('injected') <= TG_ARGV[1]::bigint THEN
            IF TG_ARGV[0] = 'wait' THEN
                PERFORM pg_advisory_xact_lock(4711);
            ELSE
                RAISE EXCEPTION 'injected' USING ERRCODE = TG_ARGV[0];
            END IF;
        END IF;
        RETURN NULL;
    END $$"""
WAITING = """SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
ALWAYS = 1_000_000


@pytest.fixture
def fallible(own_store: Store) -> Store:
    own_store.query(FAULT)
    return own_store


@contextmanager
def fault(store: Store, table: str, when: str, what: str, times: int = ALWAYS) -> Iterator[None]:
    """Make every statement that writes `table` fail, before it, after it, or at the commit."""
    store.query("SELECT setval('injected', 1, false)")
    kind = "CONSTRAINT TRIGGER" if when == "COMMIT" else "TRIGGER"
    timing = "AFTER" if when == "COMMIT" else when
    level = "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW" if when == "COMMIT" else ""
    leaves = leaves_of(store, table) if when == "COMMIT" else [table]
    for leaf in leaves:
        store.query(
            f"CREATE {kind} fault {timing} INSERT OR UPDATE OR DELETE ON {leaf} {level} "
            f"EXECUTE FUNCTION inject('{what}', {times})"
        )
    try:
        yield
    finally:
        for leaf in leaves:
            store.query(f"DROP TRIGGER fault ON {leaf}")


def leaves_of(store: Store, table: str) -> list[str]:
    found = store.query("SELECT relid::text AS leaf FROM pg_partition_tree(%s) WHERE isleaf", table)
    return [row["leaf"] for row in found] or [table]


def attempts(store: Store) -> int:
    return int(store.one("SELECT last_value FROM injected"))


# Each makes a command that can be sent again as it is, on records of its own.


def an_add(writer: Writer) -> Command:
    n = next(_numbers)
    return partial(add, writer, new(f"text {n}", event_id=f"e-{n}"), key(f"m-{n}", "add", n))


def a_bulk(writer: Writer) -> Command:
    n = next(_numbers)
    chunk = Chunk([(i, new(f"{n}/{i}", event_id=f"e-{n}/{i}")) for i in range(40)])
    return partial(add_chunk, writer, chunk, key(f"m-{n}", "bulk", n))


def an_update(writer: Writer) -> Command:
    n, held = next(_numbers), add(writer, new())
    return partial(update, writer, held.memory_id, Change(text=f"{n}"), key(f"m-{n}", "update", n))


def a_delete(writer: Writer) -> Command:
    n, held = next(_numbers), add(writer, new())
    return partial(delete, writer, held.memory_id, key(f"m-{n}", "delete", n), why="asked")


def a_supersede(writer: Writer) -> Command:
    n, held = next(_numbers), add(writer, new())
    newer = new(f"text {n}", event_id=f"e-{n}")
    return partial(supersede, writer, held.memory_id, newer, key(f"m-{n}", "supersede", n))


def a_scopes_delete(writer: Writer) -> Command:
    n = next(_numbers)
    scope = Scope(TENANT, user_id=f"user-{n}")
    add_chunk(writer, Chunk([(i, new(f"text {i}", user_id=scope.user_id)) for i in range(40)]))
    return partial(delete_scope, writer, scope, key(f"m-{n}", "delete_scope", n))


VERBS: list[Callable[[Writer], Command]] = [
    an_add,
    a_bulk,
    an_update,
    a_delete,
    a_supersede,
    a_scopes_delete,
]


def tables_written(store: Store, verb: Callable[[Writer], Command]) -> list[str]:
    """Learn from a run that succeeds, so that a table added later is covered as well."""
    command = verb(store.writer())
    before = store.rows()
    command()
    changed = store.rows().changed_since(before)
    assert {"shard", "outbox", "memory", "memory_version"} <= changed
    return sorted(changed)


@pytest.mark.parametrize("verb", VERBS)
def test_a_failure_at_any_table_leaves_nothing(
    fallible: Store, verb: Callable[[Writer], Command]
) -> None:
    """P1, L-13: a full disk, say, before, after and at the commit; a repeat has its effect."""
    tables = tables_written(fallible, verb)
    for table, when in itertools.product(tables, ["BEFORE", "AFTER", "COMMIT"]):
        command = verb(fallible.writer())
        before = fallible.rows()
        with fault(fallible, table, when, "53100"):
            said = told(command)
        assert isinstance(said, StoreUnavailableError), (table, when)
        assert said.status == 503
        assert attempts(fallible) > 0
        assert fallible.rows() == before, (table, when)
        command()
        assert "outbox" in fallible.rows().changed_since(before)
    fallible.check()


@pytest.mark.parametrize("verb", VERBS)
def test_a_connection_that_is_cut_in_the_middle_leaves_nothing(
    fallible: Store, verb: Callable[[Writer], Command]
) -> None:
    """W-18: the caller is told to try again; the same mutation_id then has its effect once."""
    for table in tables_written(fallible, verb):
        command = verb(fallible.writer())
        before = fallible.rows()
        with psycopg.connect(fallible.url, autocommit=True) as killer:
            killer.execute("SELECT pg_advisory_lock(4711)")
            with fault(fallible, table, "AFTER", "wait", 1):
                answers: list[Any] = []
                thread = threading.Thread(target=lambda a=answers, c=command: a.append(told(c)))
                thread.start()
                until(lambda: bool(fallible.query(WAITING)), "the command stands in the middle")
                killer.execute(f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) w".encode())
                thread.join(20)
        assert [type(answer) for answer in answers] == [StoreUnavailableError], table
        assert fallible.rows() == before, table
        command()
        assert "outbox" in fallible.rows().changed_since(before)
    fallible.check()


def told(command: Command) -> Any:
    try:
        return command()
    except GnomonError as exc:
        return exc


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
def test_contention_is_tried_again_inside_the_request(fallible: Store, code: str) -> None:
    """W-11: whichever the command, it has its effect once."""
    for verb in VERBS:
        command = verb(fallible.writer())
        events = fallible.one("SELECT count(*) FROM outbox")
        with fault(fallible, "memory_version", "AFTER", code, times=2):
            command()
        assert attempts(fallible) == 3, verb
        once = {"a_bulk": 40, "a_scopes_delete": 40, "a_supersede": 2}.get(verb.__name__, 1)
        assert fallible.one("SELECT count(*) FROM outbox") == events + once
    fallible.check()


def test_contention_without_end_is_told_as_transient(
    fallible: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-11: 503 after a bounded number of tries, with nothing left."""
    monkeypatch.setattr(database_module, "BACKOFF_S", 0.0001)
    for verb, code in itertools.product(VERBS, ["40001", "40P01", "55P03"]):
        command = verb(fallible.writer())
        before = fallible.rows()
        with fault(fallible, "memory_version", "AFTER", code):
            said = told(command)
        assert isinstance(said, ContentionError), (verb, code)
        assert said.status == 503
        assert attempts(fallible) == ATTEMPTS
        assert fallible.rows() == before


def test_an_error_of_another_class_is_not_tried_again(fallible: Store) -> None:
    """W-11: nor is a unique key that is none of the callers' taken for one of theirs."""
    for code in ("23503", "23505", "P0001", "XX000"):
        command = an_add(fallible.writer())
        before = fallible.rows()
        with fault(fallible, "memory_version", "AFTER", code), pytest.raises(psycopg.Error):
            command()
        assert attempts(fallible) == 1, code
        assert fallible.rows() == before


def test_a_server_that_cannot_write_now_is_told_as_transient(fallible: Store) -> None:
    """L-18: full, going down, coming up, a standby, or out of time."""
    for code in ("53300", "57P01", "57P03", "25006", "57014"):
        command = an_update(fallible.writer())
        with fault(fallible, "memory_version", "AFTER", code):
            said = told(command)
        assert isinstance(said, StoreUnavailableError), code
        assert not isinstance(said, ContentionError)
        assert attempts(fallible) == 1, code
        command()


def test_a_shard_without_its_counter_takes_no_record(own_store: Store) -> None:
    """P1: a record whose event can't be written isn't written either."""
    own_store.query("DELETE FROM shard")
    before = own_store.rows()
    writer = own_store.writer()
    lines = [(n, new(f"text {n}")) for n in range(20)]
    for command in (partial(add, writer, new()), partial(add_chunk, writer, Chunk(lines))):
        with pytest.raises(psycopg.Error):
            command()
    assert own_store.rows() == before


def test_a_held_record_is_waited_for_and_then_changed(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-11: beyond the lock's time-out, which a request may meet more than once."""
    monkeypatch.setitem(database_module.SESSION, "lock_timeout", "20ms")
    met = contention_met(monkeypatch)
    database = Database(own_store.url, Role.API)
    writer = Writer(database, Caller(TENANT), StepClock())
    held = add(writer, new())
    with own_store.as_owner() as conn:
        conn.execute("SELECT FROM memory FOR UPDATE")
        answers: list[Any] = []
        command = partial(update, writer, held.memory_id, Change(text="x"))
        thread = threading.Thread(target=lambda: answers.append(told(command)))
        thread.start()
        until(lambda: len(met) >= 2, "the update has met the lock's time-out twice")
    thread.join(20)
    database.close()
    assert [answer.version for answer in answers] == [2]
    own_store.check()


def contention_met(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Keep each error of contention that any transaction meets from here on."""
    met: list[Exception] = []
    plain = database_module._translated

    def translated(cause: BaseException | None, otherwise: Exception) -> Exception:
        said = plain(cause, otherwise)
        if isinstance(said, ContentionError):
            met.append(said)
        return said

    monkeypatch.setattr(database_module, "_translated", translated)
    return met


def test_many_adds_at_once_are_all_stored(store: Store) -> None:
    """W-11: 225 for one user."""
    writer = store.writer()

    def some(share: range) -> list[Written]:
        return [add(writer, new(f"text {n}")) for n in share]

    answers = at_once([partial(some, range(n, 225, 8)) for n in range(8)])
    written = [one for answer in answers if isinstance(answer, list) for one in answer]
    assert len({one.memory_id for one in written}) == 225
    store.check()


def test_crossed_writers_of_many_shards_never_wait_in_a_circle(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-11: counters are locked in ascending order, whatever the order of the records."""
    met = contention_met(monkeypatch)
    writer = store.writer()

    def bulks(n: int) -> None:
        for round_ in range(6):
            add_chunk(writer, Chunk([(i, new(f"{n}/{round_}/{i}")) for i in range(60)]))

    answers = at_once([partial(bulks, n) for n in range(6)])
    assert answers == [None] * 6
    assert met == []
    assert store.one("SELECT count(*) FROM memory") == 6 * 6 * 60
    store.check()


def test_crossed_deletes_of_the_same_records_never_wait_in_a_circle(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-11: records are locked in the order of their ids; each is deleted once."""
    met = contention_met(monkeypatch)
    writer = store.writer()
    for _ in range(8):
        lines = [(n, new(f"text {n}", user_id="u1", run_id="r1")) for n in range(150)]
        add_chunk(writer, Chunk(lines))
        scopes = [Scope(TENANT, user_id="u1"), Scope(TENANT, run_id="r1")] * 2
        answers = at_once([partial(delete_scope, writer, scope) for scope in scopes])
        assert sum(a.count for a in answers if not isinstance(a, Exception)) == 150
    assert met == []
    store.check()


class TestConnections:
    def test_connections_that_the_server_ended_are_replaced(self, store: Store) -> None:
        """W-18: no request meets one; without a restart, and without a ping for each request."""
        database = Database(store.url, Role.API, connections=4)
        writer = Writer(database, Caller(TENANT), StepClock())
        many = [partial(add, writer, new(f"text {n}")) for n in range(4)]
        for _ in range(3):
            assert all(isinstance(answer, Written) for answer in at_once(many))
            with psycopg.connect(store.url, autocommit=True) as killer:
                killer.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        assert all(isinstance(answer, Written) for answer in at_once(many))
        with database.transaction(TENANT) as conn:
            assert conn.exec_driver_sql("SELECT count(*) FROM memory").scalar_one() == 16
        database.close()

    def test_a_pool_that_is_empty_says_so(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        database = Database(store.url, Role.API, connections=1)
        monkeypatch.setattr(database.engine.pool, "_timeout", 0.05)
        with database.raw(), pytest.raises(StoreUnavailableError, match="busy"):
            add(Writer(database, Caller(TENANT), StepClock()), new())
        database.close()

    def test_a_server_that_is_not_there_is_told_as_transient(self) -> None:
        """L-18."""
        database = Database("postgresql://nobody@127.0.0.1:1/nothing", Role.API)
        with pytest.raises(StoreUnavailableError):
            add(Writer(database, Caller(TENANT), StepClock()), new())
        with pytest.raises(StoreUnavailableError):
            CanonicalReader(database).heads()

    def test_an_error_in_a_request_leaves_its_connection_fit_for_the_next(
        self, store: Store
    ) -> None:
        """S-07, W-18."""
        database = Database(store.url, Role.API, connections=1)
        writer = Writer(database, Caller(TENANT), StepClock())
        for _ in range(3):
            with pytest.raises(psycopg.Error), database.raw() as conn:
                conn.execute("SELECT 1 / 0")
            with pytest.raises(psycopg.Error), database.raw() as conn, one_trip(conn) as cursor:
                cursor.execute("INSERT INTO nothing VALUES (1)")
            assert add(writer, new()).version == 1
        database.close()
        store.check()
