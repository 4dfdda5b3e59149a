"""The schema that migrations make: that of the code's tables, once, by one process at a time."""

import re
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint

from canonical.errors import UnsafeStoreError
from canonical.store import migrate
from canonical.store.tables import TEXT_PARTITIONS, metadata
from tests.support.builders import Store, at_once

VERSIONS = migrate.FOLDER / "versions"


def test_the_tables_of_the_code_are_those_of_the_head(store: Store) -> None:
    """Tables, columns, types, defaults, indexes, unique and foreign keys."""

    def ours(obj: Any, name: str | None, kind: str, reflected: bool, other: Any) -> bool:  # noqa: FBT001
        return not (kind == "table" and reflected and is_partition(name or ""))

    def is_partition(name: str) -> bool:
        return re.fullmatch(r"(memory|memory_version|message)_p\d|outbox_s\d+", name) is not None

    with store.owner.transaction() as conn:
        options = {"compare_type": True, "compare_server_default": True, "include_object": ours}
        context = MigrationContext.configure(conn, opts=options)
        assert compare_metadata(context, metadata) == []


def test_the_checks_of_the_code_are_those_of_the_head(store: Store) -> None:
    """Alembic doesn't compare them."""
    rows = store.query("""
        SELECT conname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
         WHERE contype = 'c' AND t.relnamespace = 'public'::regnamespace AND NOT relispartition""")
    declared = {
        constraint.name
        for table in metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }
    assert {row["conname"] for row in rows} == declared


def test_tables_with_text_are_cut_into_partitions(store: Store) -> None:
    """P10: an erase rewrites only those that it touched."""
    rows = store.query("""
        SELECT p.relname AS table, count(*) AS n, max(pg_get_partkeydef(p.oid)) AS key
          FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
         WHERE p.relkind = 'p' GROUP BY 1""")
    assert {row["table"]: (row["n"], row["key"]) for row in rows} == {
        "memory": (TEXT_PARTITIONS, "HASH (id)"),
        "memory_version": (TEXT_PARTITIONS, "HASH (memory_id)"),
        "message": (TEXT_PARTITIONS, "HASH (id)"),
        "outbox": (1, "LIST (segment)"),
    }


def test_a_new_log_begins_at_epoch_1_with_its_shards(store: Store) -> None:
    assert store.query("SELECT shard, segment, pos FROM shard ORDER BY shard") == [
        {"shard": n, "segment": 1, "pos": 0} for n in range(16)
    ]
    (row,) = store.query("SELECT * FROM log_epoch")
    identifier = store.one("SELECT system_identifier FROM pg_control_system()")
    assert (row["epoch"], row["system_identifier"], row["timeline"]) == (1, identifier, 1)


BAD_ROWS = {
    "no scope": "user_id = NULL",
    "no version": "version = 0",
    "rev behind version": "rev = 0",
    "no such status": "status = 'gone'",
    "deleted without a time": "status = 'deleted'",
    "active with a time": "deleted_at = now()",
    "erased with text": "status = 'erased', deleted_at = now(), content_hash = NULL",
    "erased with a hash": "status = 'erased', deleted_at = now(), text = ''",
    "active without a hash": "content_hash = NULL",
    "ends before it begins": "valid_from = now(), valid_to = now()",
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_a_record_that_cannot_be_is_refused(store: Store, what: str) -> None:
    """The states of a record are checks of its table."""
    store.query("""
        INSERT INTO memory (tenant, id, user_id, version, rev, status, kind, text, content_hash)
        VALUES ('t1', gen_random_uuid(), 'alice', 1, 1, 'active', 'raw', 'x', 'x')""")
    with pytest.raises(psycopg.errors.CheckViolation):
        store.query(f"UPDATE memory SET {BAD_ROWS[what]}")


def test_an_upgrade_at_the_head_changes_nothing(own_store: Store) -> None:
    before = schema(own_store)
    for _ in range(2):
        assert migrate.upgrade(own_store.url) == migrate.head()
    assert schema(own_store) == before


def schema(store: Store) -> list[dict[str, Any]]:
    """Read what the catalogue holds of tables, columns, policies, rights and functions."""
    return store.query("""
        SELECT relname AS name, relkind::text AS kind, relacl::text AS more FROM pg_class
         WHERE relnamespace = 'public'::regnamespace
         UNION ALL SELECT attrelid::regclass || '.' || attname, 'column',
                format('%s %s %s', atttypid::regtype, attnotnull, attacl::text)
           FROM pg_attribute WHERE attnum > 0 AND attrelid IN
                (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
         UNION ALL SELECT tablename || '.' || policyname, 'policy', qual FROM pg_policies
         UNION ALL SELECT proname, 'function', prosrc || proacl::text FROM pg_proc
                WHERE pronamespace = 'public'::regnamespace
         UNION ALL SELECT conrelid::regclass || '.' || conname, 'constraint',
                pg_get_constraintdef(oid) FROM pg_constraint
                WHERE connamespace = 'public'::regnamespace
         UNION ALL SELECT version_num, 'revision', '' FROM alembic_version
         ORDER BY 1, 2, 3""")


def test_of_two_processes_at_once_one_migrates(empty_database_url: str) -> None:
    """A-03: the other waits for it and finds the head."""
    heads = at_once([lambda: migrate.upgrade(empty_database_url)] * 4)
    assert heads == [migrate.head()] * 4
    made = Store(empty_database_url)
    assert made.one("SELECT count(*) FROM shard") == 16
    made.close()


def test_a_second_process_waits_until_the_first_has_committed(empty_database_url: str) -> None:
    """A-03: it serves nothing before."""
    done: list[str] = []
    with psycopg.connect(empty_database_url) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(%s)", (migrate.ONE_MIGRATION_AT_A_TIME,))
        thread = threading.Thread(target=lambda: done.append(migrate.upgrade(empty_database_url)))
        thread.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        with psycopg.connect(empty_database_url, autocommit=True) as other:
            while other.execute(waiting).fetchone() == (0,):
                assert thread.is_alive()
        assert done == []
    thread.join(20)
    assert done == [migrate.head()]


def test_a_schema_that_is_newer_than_the_code_is_refused(own_store: Store) -> None:
    """A-03: both revisions are named, and nothing is changed."""
    own_store.query("UPDATE alembic_version SET version_num = '9999'")
    before = schema(own_store)
    with pytest.raises(UnsafeStoreError, match=rf"9999.*{migrate.head()}"):
        migrate.upgrade(own_store.url)
    assert schema(own_store) == before


def test_a_migration_that_fails_leaves_the_schema_as_it_was(empty_database_url: str) -> None:
    """A-03: of many statements, the last one."""
    with psycopg.connect(empty_database_url) as conn:
        conn.execute("SET ROLE gnomon_owner")
        conn.execute(
            "CREATE FUNCTION append_events(uuid[], bigint[], integer[], text[])"
            " RETURNS int LANGUAGE sql AS 'SELECT 1'"
        )
    with pytest.raises(Exception, match="append_events"):
        migrate.upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as conn:
        conn.execute("SET ROLE gnomon_owner")
        tables = conn.execute("SELECT relname FROM pg_class WHERE relname ~ '^(memory|alembic)'")
        assert tables.fetchall() == []


def test_a_login_that_may_not_alter_changes_nothing(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-03: it is an error, not a completed migration."""
    begin = migrate._begin_as_owner

    def begin_as_the_api(conn: Any) -> None:
        begin(conn)
        conn.exec_driver_sql("SET LOCAL ROLE gnomon_api")

    monkeypatch.setattr(migrate, "_begin_as_owner", begin_as_the_api)
    with pytest.raises(Exception, match="permission denied"):
        migrate.upgrade(empty_database_url)


def test_migrations_are_one_line_and_say_what_they_do() -> None:
    """A-03: numbered without a gap, each an expansion or a contraction, one head."""
    scripts = list(ScriptDirectory(str(migrate.FOLDER)).walk_revisions())[::-1]
    assert [script.revision for script in scripts] == [
        f"{n:04}" for n in range(1, len(scripts) + 1)
    ]
    assert [script.down_revision for script in scripts] == [
        None,
        *(script.revision for script in scripts[:-1]),
    ]
    for script in scripts:
        name = Path(script.path).name
        assert re.fullmatch(rf"{script.revision}_(expand|contract)_[a-z0-9_]+\.py", name), name
    files = {path.name for path in VERSIONS.glob("*.py")}
    assert len(files) == len(scripts)


def test_what_is_released_does_not_change_with_the_code() -> None:
    """Once there is a second migration, the first one must say its tables itself: made from the
    code's, it would already hold what the second one adds.
    """
    files = sorted(VERSIONS.glob("*.py"))
    for path in files[:-1]:
        assert "canonical.store.tables" not in path.read_text(), path.name
