"""The walls between tenants, and around the log, as Postgres itself holds them."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import sql

from canonical.domain.commands import Caller, Change
from canonical.domain.scope import Scope
from canonical.errors import NotFoundError
from canonical.mutations.add import add
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.mutations.change import delete, delete_scope, supersede, update
from canonical.mutations.writer import Writer
from canonical.store.database import Database, Role
from canonical.store.reading import CanonicalReader
from canonical.store.statements import FOLDER
from tests.support.builders import StepClock, Store, at_once, key, new

# Tables without a tenant's rows: what the log and the projections are. A new table that is not
# here has to be walled off.
OF_NO_TENANT = {
    "alembic_version",
    "audit_head",
    "generation",
    "log_epoch",
    "projection",
    "shard",
    "watermark",
}
# Unique keys of tenants' tables that don't begin with the tenant, and why that tells nobody
# anything about another tenant.
NO_TENANT_FIRST = {
    "outbox_pkey": "a position is given by the log, never by a caller",
    "audit_pkey": "written by the projector, from the log's own positions",
    "api_key_key_hash_key": "the hash says whose the key is; a random one tells nothing",
}
MARKER = "MARKER-7Q2X"
OF_TENANTS = (
    r"\b(memory|memory_version|link|mutation|source_event|parked|outbox|message|conversation|audit"
    r"|entity|entity_key|entity_link|entity_degree|api_key|query_event|embedding_cache|name_cache)\b"
)
_numbers = count(1_000)


@pytest.fixture
def filled(store: Store) -> Store:
    """A store in which every table of tenants has rows of t1 and of t2."""
    for tenant in ("t1", "t2"):
        writer = store.writer(tenant)
        caller = writer.caller
        old = add(writer, new(MARKER, caller=caller, event_id="e"), key("m", "add", 1))
        supersede(writer, old.memory_id, new(MARKER, caller=caller))
        for table in tenant_tables(store):
            if not store.query(f"SELECT 1 FROM {table} WHERE tenant = %s", tenant):
                insert_any(store, table, tenant)
    return store


def tenant_tables(store: Store) -> list[str]:
    return [table for table in store.tables() if table not in OF_NO_TENANT]


def insert_any(store: Store, table: str, tenant: str) -> None:
    """Insert one row of a tenant that the table's checks let through."""
    values = {"tenant": tenant, **any_values(store, table)}
    names = sql.SQL(", ").join(map(sql.Identifier, values))
    marks = sql.SQL(", ").join(map(sql.Placeholder, values))
    with store.as_owner() as conn:
        conn.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table), names, marks),
            values,
        )


FITTING: dict[str, Any] = {
    "uuid": "gen",
    "text": "x",
    "character varying": "x",
    "integer": 1,
    "bigint": 1,
    "smallint": 1,
    "real": 1.0,
    "boolean": False,
    "jsonb": "{}",
    "bytea": b"x",
    "ARRAY": [],
    "timestamp with time zone": "2026-01-01T00:00:00Z",
}

# what the tables' checks ask for beyond a value of the type
SPECIAL: dict[str, dict[str, Any]] = {
    "conversation": {"user_id": "alice"},
    "memory": {"user_id": "alice", "status": "active", "content_hash": b"x"},
}


def any_values(store: Store, table: str) -> dict[str, Any]:
    columns = store.query(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s"
        " AND is_nullable = 'NO' AND column_default IS NULL AND column_name <> 'tenant'",
        table,
    )
    values = {c["column_name"]: FITTING[c["data_type"]] for c in columns}
    made = store.one("SELECT gen_random_uuid()")
    values = {name: made if value == "gen" else value for name, value in values.items()}
    if table == "audit":
        values["pos"] = next(_numbers)
    if "key_hash" in values:
        values["key_hash"] = made.bytes
    return {**values, **SPECIAL.get(table, {})}


def rights(store: Store, role: Role, table: str) -> set[str]:
    """Name what a role may do with a table, or with some column of it."""
    words = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
    found = set()
    for word in words:
        any_column = f"has_any_column_privilege('{role}', '{table}', '{word}')"
        has = any_column if word in ("SELECT", "INSERT", "UPDATE", "REFERENCES") else "false"
        if store.one(f"SELECT has_table_privilege('{role}', '{table}', '{word}') OR {has}"):
            found.add(word)
    return found


# How the tables are made --------------------------------------------------------------------


def test_every_table_of_tenants_is_walled_off(store: Store) -> None:
    """P5, S-13: a table that is added without its wall fails here."""
    rows = store.query("""
        SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, r.rolname AS owner,
               EXISTS (SELECT FROM pg_attribute a
                        WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND a.attnotnull) AS has
          FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
           AND NOT c.relispartition""")
    for row in rows:
        assert row["owner"] == "gnomon_owner"
        if row["relname"] in OF_NO_TENANT:
            assert not row["has"], f"{row['relname']} has rows of tenants"
        else:
            assert row["has"], f"{row['relname']} needs a tenant, or a place in OF_NO_TENANT"
            assert row["relrowsecurity"], row["relname"]
            assert row["relforcerowsecurity"], row["relname"]


def test_every_unique_key_of_tenants_begins_with_the_tenant(store: Store) -> None:
    """S-16: else a refusal would tell one tenant what another one holds."""
    rows = store.query("""
        SELECT c.relname AS table, i.relname AS key, a.attname AS first
          FROM pg_index x
          JOIN pg_class i ON i.oid = x.indexrelid
          JOIN pg_class c ON c.oid = x.indrelid
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]
         WHERE x.indisunique AND c.relnamespace = 'public'::regnamespace
           AND NOT c.relispartition""")
    others = {
        row["key"] for row in rows if row["table"] not in OF_NO_TENANT and row["first"] != "tenant"
    }
    assert others == set(NO_TENANT_FIRST)


def test_policies_are_the_four_that_there_are(store: Store) -> None:
    """P5: a policy that is added beside them would widen the wall, as policies are ORed."""
    rows = store.query("SELECT * FROM pg_policies WHERE schemaname = 'public'")
    tenant = "(tenant = NULLIF(current_setting('gnomon.tenant'::text, true), ''::text))"
    presented = "(key_hash = decode(current_setting('gnomon.key_hash'::text, true), 'hex'::text))"
    expected = {
        ("owner", "gnomon_owner", "true"),
        ("every_tenant", "gnomon_projector", "true"),
        ("tenant", "gnomon_api", tenant),
        ("presented", "gnomon_api", presented),
    }
    for row in rows:
        assert (row["policyname"], *row["roles"], row["qual"]) in expected, row
        assert (row["permissive"], row["cmd"], row["with_check"]) == ("PERMISSIVE", "ALL", None)
    for table in tenant_tables(store):
        to_api = [r for r in rows if r["tablename"] == table and r["roles"] == ["gnomon_api"]]
        assert len(to_api) == 1, table


def test_roles_have_no_power_beyond_their_grants(store: Store) -> None:
    """S-13: the application's roles own nothing, and pass no wall."""
    rows = store.query("""
        SELECT rolname, rolsuper, rolbypassrls, rolcreaterole, rolreplication
          FROM pg_roles WHERE rolname LIKE 'gnomon%'""")
    assert {row["rolname"] for row in rows} == {"gnomon", "gnomon_owner", *Role}
    for row in rows:
        assert not any(value is True for value in row.values()), row
    owned = store.query("""
        SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
           AND relowner IN (SELECT oid FROM pg_roles
                             WHERE rolname IN ('gnomon_api', 'gnomon_projector', 'gnomon'))""")
    assert owned == []


@pytest.mark.parametrize("role", [Role.API, Role.PROJECTOR])
def test_partitions_are_reached_through_their_table_only(store: Store, role: Role) -> None:
    """P5: a partition has no policy of its own."""
    rows = store.query("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")
    leaves = [row["relname"] for row in rows]
    assert len(leaves) >= 25
    assert {leaf: rights(store, role, leaf) for leaf in leaves} == {leaf: set() for leaf in leaves}


def test_functions_of_the_owner_cannot_be_led_astray(store: Store) -> None:
    """O-19, P5: a fixed search path with pg_temp last, and nobody else may call them."""
    rows = store.query("""
        SELECT proname, prosecdef, proconfig,
               has_function_privilege('gnomon_projector', oid, 'EXECUTE') AS projector,
               coalesce(proacl::text ~ '[{,]=X', true) AS public
          FROM pg_proc WHERE pronamespace = 'public'::regnamespace""")
    definers = [row for row in rows if row["prosecdef"]]
    # One writes the log, the other tells the time of an event and nothing else of it.
    assert {row["proname"] for row in definers} == {"append_events", "event_time"}
    for row in definers:
        assert row["proconfig"] == ["search_path=public, pg_temp"]
        assert not row["projector"]
        assert not row["public"]


def test_a_temporary_table_in_the_way_changes_nothing(store: Store) -> None:
    """The API role may make temporary tables, which else would come first."""
    with store.as_api() as conn:
        conn.execute("CREATE TEMPORARY TABLE shard (shard smallint, segment int, pos bigint)")
        conn.execute("CREATE TEMPORARY TABLE outbox (LIKE public.outbox)")
        conn.execute("INSERT INTO pg_temp.shard SELECT n, 1, 1000 FROM generate_series(0, 15) n")
        row = conn.execute(
            "SELECT pos FROM append_events(ARRAY[gen_random_uuid()], ARRAY[1::bigint], ARRAY[1],"
            " ARRAY['add'])"
        ).fetchone()
        assert row == (1,)
        raise psycopg.Rollback


@pytest.mark.parametrize("role", [Role.API, Role.PROJECTOR])
def test_a_role_makes_nothing_in_the_schema(store: Store, role: Role) -> None:
    statements = [
        "CREATE TABLE public.mine (x int)",
        "CREATE FUNCTION public.shard_of(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA mine",
        "ALTER TABLE memory DISABLE ROW LEVEL SECURITY",
        "CREATE POLICY mine ON memory USING (true)",
        "DROP TABLE outbox",
        "TRUNCATE memory",
        "LOCK TABLE shard IN ACCESS EXCLUSIVE MODE",
    ]
    for statement in statements:
        with as_role(store, role) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement.encode())


@contextmanager
def as_role(store: Store, role: Role) -> Iterator[psycopg.Connection]:
    database = Database(store.url, role, connections=1)
    try:
        with database.raw() as conn:
            yield conn
    finally:
        database.close()


# The log ------------------------------------------------------------------------------------

LOG_WRITES = [
    "INSERT INTO outbox SELECT * FROM outbox",
    "UPDATE outbox SET pos = pos + 1",
    "DELETE FROM outbox",
    "TRUNCATE outbox",
    "UPDATE shard SET pos = 0",
    "INSERT INTO shard VALUES (16, 1, 0)",
    "DELETE FROM shard",
    "INSERT INTO outbox_s1 SELECT * FROM outbox",
    "ALTER TABLE outbox DETACH PARTITION outbox_s1",
    "UPDATE log_epoch SET epoch = epoch + 1",
    "SELECT FROM shard FOR UPDATE",
]


@pytest.mark.parametrize("role", [Role.API, Role.PROJECTOR])
@pytest.mark.parametrize("statement", LOG_WRITES)
def test_nobody_writes_the_log_but_its_one_function(
    filled: Store, role: Role, statement: str
) -> None:
    """O-19."""
    with as_role(filled, role) as conn:
        conn.execute("SELECT set_config('gnomon.tenant', 't1', true)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement.encode())


WRITES = {"INSERT", "UPDATE", "DELETE", "TRUNCATE"}
# Beyond this nobody but the owner writes. Each is needed: see the migration.
PROJECTORS_WRITES = {
    "audit": {"INSERT"},
    "audit_head": {"INSERT"},
    "embedding_cache": {"INSERT", "DELETE"},
    "entity": {"INSERT", "UPDATE", "DELETE"},
    "entity_degree": {"INSERT", "UPDATE", "DELETE"},
    "entity_key": {"INSERT", "UPDATE", "DELETE"},
    "entity_link": {"INSERT", "UPDATE", "DELETE"},
    "generation": {"INSERT", "UPDATE"},
    "memory": {"UPDATE"},  # of the salt alone: a row lock needs it
    "mutation": {"DELETE"},
    "name_cache": {"INSERT", "DELETE"},
    "parked": {"INSERT", "UPDATE", "DELETE"},
    "query_event": {"DELETE"},
    "source_event": {"DELETE"},
    "watermark": {"INSERT", "UPDATE"},
}
APIS_WRITES = {
    "conversation": {"INSERT"},
    "link": {"INSERT", "DELETE"},
    "memory": {"INSERT", "UPDATE"},
    "memory_version": {"INSERT"},
    "message": {"INSERT"},
    "mutation": {"INSERT"},
    "parked": {"UPDATE"},
    "projection": {"UPDATE"},
    "query_event": {"INSERT", "UPDATE"},
    "source_event": {"INSERT"},
}


@pytest.mark.parametrize(
    ("role", "granted"), [(Role.API, APIS_WRITES), (Role.PROJECTOR, PROJECTORS_WRITES)]
)
def test_a_role_writes_what_it_has_to_and_no_more(
    store: Store, role: Role, granted: dict[str, set[str]]
) -> None:
    """P1, O-19: history and log can be appended to by requests, and changed by nobody."""
    held = {table: rights(store, role, table) for table in store.tables()}
    assert {t: words & WRITES for t, words in held.items() if words & WRITES} == granted
    assert not any({"REFERENCES", "TRIGGER"} & words for words in held.values())


def test_a_projector_changes_no_record(filled: Store) -> None:
    """P3: what it may update of one is the column that its lock needs, which no trust rests on."""
    for column in ("text", "status", "version", "rev", "tenant", "user_id", "expires_at"):
        with (
            as_role(filled, Role.PROJECTOR) as conn,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            conn.execute(f"UPDATE memory SET {column} = {column}".encode())
    with as_role(filled, Role.PROJECTOR) as conn:
        assert len(conn.execute("SELECT id FROM memory FOR SHARE").fetchall()) == 4


# What a connection sees ---------------------------------------------------------------------

Open = Callable[[Store], AbstractContextManager[psycopg.Connection]]


@contextmanager
def after_a_tenant(store: Store) -> Iterator[psycopg.Connection]:
    """A connection whose last transaction was a tenant's: the setting is '' there, not NULL."""
    with store.api.raw() as conn:
        conn.execute("SELECT set_config('gnomon.tenant', 't1', true)")
        conn.commit()
        yield conn
        conn.rollback()


NO_TENANT: dict[str, Open] = {
    "never set": lambda store: store.as_api(None),
    "empty": lambda store: store.as_api(""),
    "set in the transaction before": after_a_tenant,
    "unknown": lambda store: store.as_api("t3"),
    "a wildcard": lambda store: store.as_api("%"),
    "padded": lambda store: store.as_api("t1 "),
    "in capitals": lambda store: store.as_api("T1"),
}


@pytest.mark.parametrize("opened", NO_TENANT.values(), ids=NO_TENANT)
def test_without_a_tenant_no_row_is_seen(filled: Store, opened: Open) -> None:
    """S-13, S-07: each table is read; one that is added is read without a change here."""
    for table in tenant_tables(filled):
        assert filled.one(f"SELECT count(*) FROM {table}") >= 2, f"fill {table}"
        if "SELECT" in rights(filled, Role.API, table):
            with opened(filled) as conn:
                assert conn.execute(f"SELECT * FROM {table}".encode()).fetchall() == [], table


def test_without_a_tenant_nothing_is_written(filled: Store) -> None:
    """S-13."""
    before = filled.rows()
    for opened in (NO_TENANT["never set"], NO_TENANT["empty"], after_a_tenant):
        for table in tenant_tables(filled):
            for statement in writes_of(filled, table, "t1"):
                with opened(filled) as conn:
                    refused_or_nothing(conn, statement)
    assert filled.rows() == before


def test_of_another_tenant_nothing_is_seen_or_changed(filled: Store) -> None:
    """P5, S-03, S-13: as t1, every statement that the API's role may make, on rows of t2."""
    before = filled.rows()
    for table in tenant_tables(filled):
        if "SELECT" in rights(filled, Role.API, table) and table != "api_key":
            with filled.as_api("t1") as conn:
                seen = conn.execute(f"SELECT DISTINCT tenant FROM {table}".encode()).fetchall()
                assert seen == [("t1",)], table
        for statement in writes_of(filled, table, "t2"):
            with filled.as_api("t1") as conn:
                refused_or_nothing(conn, statement)
    assert filled.rows() == before


def writes_of(store: Store, table: str, tenant: str) -> Iterator[sql.Composed]:
    """Write every statement on rows of `tenant` that the API's role has a right to."""
    held, name, whose = rights(store, Role.API, table), sql.Identifier(table), sql.Literal(tenant)
    if "INSERT" in held:
        values = {"tenant": tenant, **any_values(store, table)}
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        row = sql.SQL(", ").join(map(sql.Literal, values.values()))
        yield sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(name, names, row)
    if "UPDATE" in held:
        yield sql.SQL("UPDATE {} SET tenant = tenant WHERE tenant = {}").format(name, whose)
        yield sql.SQL("UPDATE {} SET tenant = {}").format(name, whose)
    if "DELETE" in held:
        yield sql.SQL("DELETE FROM {} WHERE tenant = {}").format(name, whose)


def refused_or_nothing(conn: psycopg.Connection, statement: sql.Composed) -> None:
    """Check that the policy refuses a statement, or that it finds no row; what it did stays."""
    try:
        with conn.transaction():
            assert conn.execute(statement, prepare=False).rowcount == 0, statement
    except psycopg.errors.InsufficientPrivilege as exc:
        assert "row-level security" in str(exc), (statement, exc)  # noqa: PT017


def test_an_own_row_cannot_be_given_to_another_tenant(filled: Store) -> None:
    """P5: the policy is checked on the row as it will be."""
    with filled.as_api("t1") as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("UPDATE memory SET tenant = 't2'")


def test_an_event_is_of_the_transactions_tenant(store: Store) -> None:
    """O-19: a caller of the function can't name another one."""
    with store.as_api("t1") as conn:
        conn.execute(
            "SELECT append_events(ARRAY[gen_random_uuid()], ARRAY[1::bigint], ARRAY[1],"
            " ARRAY['add'])"
        )
    assert store.one("SELECT tenant FROM outbox") == "t1"


def test_an_api_key_is_seen_by_who_presents_it(filled: Store) -> None:
    """S-14: through the tenant by nobody; of two keys only the one whose hash is set."""
    held = {r["tenant"]: r["key_hash"] for r in filled.query("SELECT * FROM api_key")}
    with filled.as_api("t1") as conn:
        assert conn.execute("SELECT FROM api_key").fetchall() == []
        conn.execute("SELECT set_config('gnomon.key_hash', %s, true)", (held["t2"].hex(),))
        assert conn.execute("SELECT tenant FROM api_key").fetchall() == [("t2",)]
    with filled.as_api("t1") as conn:  # ended with its transaction, too
        assert conn.execute("SELECT FROM api_key").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("UPDATE api_key SET rights = '{admin}'")


def test_statistics_tell_nothing_of_a_text(filled: Store) -> None:
    """P5: most common values are samples of every tenant's rows."""
    with filled.as_owner() as conn:
        conn.execute("ANALYZE memory, memory_version, message")
    assert filled.query("SELECT FROM pg_stats WHERE tablename ~ '^memory_p'")
    for role in (Role.API, Role.PROJECTOR):
        with as_role(filled, role) as conn:
            shown = conn.execute(
                "SELECT * FROM pg_stats WHERE schemaname = 'public' AND tablename ~ %s",
                ("^(memory|message)",),
            ).fetchall()
        assert MARKER not in repr(shown)
        if role is Role.API:
            assert shown == []


# Commands -----------------------------------------------------------------------------------


def test_no_command_reaches_another_tenants_record(filled: Store) -> None:
    """S-06, S-13: by its id, by its scope, by its keys; the answer is that of a missing one."""
    theirs = filled.query("SELECT id FROM memory WHERE tenant = 't2'")[0]["id"]
    writer, reader = filled.writer("t1"), CanonicalReader(filled.api)
    before = filled.query("SELECT * FROM memory WHERE tenant = 't2' ORDER BY id")
    commands: list[Callable[[], object]] = [
        partial(update, writer, theirs, Change(text="mine")),
        partial(delete, writer, theirs),
        partial(supersede, writer, theirs, new()),
        partial(reader.get, "t1", theirs),
        partial(reader.history, "t1", theirs),
    ]
    for command in commands:
        with pytest.raises(NotFoundError) as caught:
            command()
        assert MARKER not in str(caught.value)
    assert reader.current("t1", [theirs]) == {}
    delete_scope(writer, Scope("t1", user_id="alice"))
    assert filled.query("SELECT * FROM memory WHERE tenant = 't2' ORDER BY id") == before


def test_a_record_cannot_be_written_into_another_tenant(store: Store) -> None:
    """P5: a memory whose scope names t2, written by a caller of t1."""
    foreign = new("x", caller=Caller("t2"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        add(store.writer("t1"), foreign)
    written = add_chunk(store.writer("t1"), Chunk([(1, foreign)])).written[1]
    held = store.query("SELECT tenant FROM memory WHERE id = %s", written.memory_id)
    assert held == [{"tenant": "t1"}]  # a bulk goes by its writer alone


def test_a_pool_carries_no_tenant_over(store: Store) -> None:
    """S-07: 64 threads of two tenants on 4 connections, with failures in mid transaction."""
    database = Database(store.url, Role.API, connections=4)
    database.engine.pool._timeout = 60  # type: ignore[attr-defined]
    reader = CanonicalReader(database)

    def work(n: int) -> None:
        tenant = f"t{n % 2}"
        writer = Writer(database, Caller(tenant), StepClock())
        written = add(writer, new(f"{tenant}/{n}", caller=writer.caller))
        fail_midway(database, tenant)
        held = reader.get(tenant, written.memory_id)
        assert held.scope.tenant == tenant
        with database.transaction(tenant) as conn:
            texts = conn.exec_driver_sql("SELECT text FROM memory").scalars().all()
        assert {text.split("/")[0] for text in texts} == {tenant}
        with pytest.raises(NotFoundError):
            reader.get("other", written.memory_id)

    answers = at_once([partial(work, n) for n in range(64)])
    assert answers == [None] * 64
    with database.raw() as conn:
        assert conn.execute("SELECT FROM memory").fetchall() == []
    database.close()
    store.check()


def fail_midway(database: Database, tenant: str) -> None:
    with pytest.raises(psycopg.Error), database.raw() as conn:  # noqa: PT012 - the second fails
        conn.execute("SELECT set_config('gnomon.tenant', %s, true)", (tenant,))
        conn.execute("SELECT 1 / 0")


# Of every tenant, and run by projectors.
OF_EVERY_TENANT = {
    *("count_parked", "hold_shards", "projection_status", "purge_old"),
    *("unknown_marks", "waiting_shards"),
}
# An administrator's own view, which row-level security alone narrows to the key's tenant.
BY_POLICY_ALONE = {"list_parked", "redrive"}


def test_every_statement_on_tenants_rows_names_the_tenant() -> None:
    """P5: row-level security is the second wall; one that is added without the first fails here."""
    found = set()
    for path in FOLDER.glob("*.sql"):
        body = re.sub(r"--[^\n]*", "", path.read_text())
        if re.search(OF_TENANTS, body) and "tenant" not in body:
            found.add(path.stem)
    assert found == OF_EVERY_TENANT | BY_POLICY_ALONE
