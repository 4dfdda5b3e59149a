"""Memories, callers and clocks in one line, and a canonical store that can be looked through."""

import itertools
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from canonical.domain import commands
from canonical.domain.commands import Caller, MutationKey, NewMemory
from canonical.domain.records import Kind, Record, Status, Trust
from canonical.domain.scope import Scope
from canonical.mutations.writer import Writer
from canonical.store.database import Database, Role
from canonical.store.tables import metadata
from tests.support.postgres import Server

T = TypeVar("T")

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TENANT = "t1"
ALICE = Scope(TENANT, user_id="alice")
CALLER = Caller(TENANT, name="tester")
WAIT_S = 20

_numbers = itertools.count(1)


class StepClock:
    """A clock that moves on by a second at each look."""

    def __init__(self, start: datetime = NOW) -> None:
        self._seconds = itertools.count()
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=next(self._seconds))


class FixedClock:
    """A clock that stands."""

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


def record(text: str = "Mara swims", **changes: Any) -> Record:
    """Make an active record of Alice's, as canonical state would hold it."""
    plain = Record(
        id=UUID(int=next(_numbers)),
        scope=ALICE,
        version=1,
        rev=1,
        status=Status.ACTIVE,
        kind=Kind.RAW,
        text=text,
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(plain, **changes)


def new(text: str = "Mara swims", *, caller: Caller = CALLER, **fields: Any) -> NewMemory:
    """Make a new memory through the door; Alice's, unless a scope is named."""
    if not commands.SCOPE_FIELDS & fields.keys():
        fields["user_id"] = "alice"
    return commands.new_memory({"text": text, **fields}, caller)


def key(mutation_id: str, command: str, body: object, *, chunk: int = 0) -> MutationKey:
    """Make a mutation's key."""
    made = commands.mutation_key(mutation_id, command, body)
    assert made is not None
    return replace(made, chunk=chunk)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that another thread or process brings about, up to a deadline."""
    deadline = threading.Event()
    timer = threading.Timer(WAIT_S, deadline.set)
    timer.daemon = True
    timer.start()
    try:
        while not condition():
            assert not deadline.wait(0.005), f"waited {WAIT_S} s in vain: {what}"
    finally:
        timer.cancel()


def at_once(works: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Run all works at the same moment, each in a thread; returns or errors in their order."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T | Exception:
        barrier.wait(WAIT_S)
        try:
            return work()
        except Exception as exc:  # noqa: BLE001 - the test judges it
            return exc

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


@dataclass(frozen=True)
class Rows:
    """All rows of every table: what a refused command must leave as it was."""

    tables: dict[str, tuple[str, ...]]

    def changed_since(self, before: "Rows") -> set[str]:
        """Name the tables whose rows differ."""
        return {name for name, held in self.tables.items() if held != before.tables[name]}


class Store:
    """One test's canonical store, seen as each of its roles."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.api = Database(url, Role.API)
        self.owner = Database(url, Role.OWNER, connections=2)

    def close(self) -> None:
        self.api.close()
        self.owner.close()

    def empty(self) -> None:
        """Bring the store back to how a migration leaves it: ten times as fast as a clone."""
        kept = {"log_epoch", "projection", "shard"}
        with self.as_owner() as conn:
            for table in reversed(metadata.sorted_tables):
                if table.name not in kept:
                    conn.execute(f"DELETE FROM {table.name}".encode())
            conn.execute("UPDATE shard SET pos = 0 WHERE pos > 0")
            conn.execute("UPDATE projection SET paused = false WHERE paused")

    def writer(self, tenant: str = TENANT, *, name: str | None = "tester") -> Writer:
        return Writer(self.api, Caller(tenant, name, Trust.USER), StepClock())

    def query(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        """Read as the owner, past the walls between tenants."""
        with self.as_owner() as conn, conn.cursor(row_factory=dict_row) as cursor:
            cursor.execute(statement.encode(), parameters or None, prepare=False)
            return cursor.fetchall() if cursor.description is not None else []

    def one(self, statement: str, *parameters: object) -> Any:
        """Read one value as the owner."""
        (row,) = self.query(statement, *parameters)
        (value,) = row.values()
        return value

    @contextmanager
    def as_owner(self) -> Iterator[psycopg.Connection]:
        with self.owner.raw() as conn, conn.transaction():
            yield conn

    @contextmanager
    def as_api(self, tenant: str | None = TENANT) -> Iterator[psycopg.Connection]:
        """Open a transaction of a tenant, or of none, as the API role."""
        with self.api.raw() as conn, conn.transaction():
            if tenant is not None:
                conn.execute("SELECT set_config('gnomon.tenant', %s, true)", (tenant,))
            yield conn

    def tables(self) -> list[str]:
        """Name every table; a partitioned one counts once."""
        rows = self.query(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"
        )
        return [row["relname"] for row in rows]

    def rows(self) -> Rows:
        """Read all rows of every table in one snapshot."""
        tables = self.tables()
        with self.as_owner() as conn:
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            held = {
                name: tuple(
                    row[0] for row in conn.execute(f"SELECT t::text FROM {name} t ORDER BY 1")
                )
                for name in tables
            }
        return Rows(held)

    def check(self) -> None:
        """Check what holds of records, versions and events after whatever has committed."""
        for name, statement in ARITHMETIC.items():
            assert self.query(statement) == [], name


# Each returns the rows that break the law which names it (P1 and P2).
ARITHMETIC = {
    "positions are dense: max - min + 1 = count, from 1 to the shard's counter": """
        SELECT s.shard, s.pos, count(o.pos), min(o.pos), max(o.pos)
          FROM shard s LEFT JOIN outbox o USING (shard) GROUP BY s.shard, s.pos
        HAVING count(o.pos) <> s.pos
            OR count(o.pos) > 0 AND (min(o.pos) <> 1 OR max(o.pos) <> s.pos)""",
    "each version has its event, and each event its version": """
        SELECT v.*, o.* FROM memory_version v
          FULL JOIN outbox o ON (o.shard, o.pos) = (v.shard, v.pos)
         WHERE (v.tenant, v.memory_id, v.version, v.op)
            IS DISTINCT FROM (o.tenant, o.memory_id, o.version, o.op)""",
    "each version has an event of its own": """
        SELECT shard, pos FROM memory_version GROUP BY 1, 2 HAVING count(*) > 1""",
    "a record has each of its versions, and no other": """
        SELECT m.id, v.memory_id FROM memory m
          FULL JOIN (SELECT tenant, memory_id, count(*) AS n, min(version) AS low,
                            max(version) AS high FROM memory_version GROUP BY 1, 2) v
            ON v.tenant = m.tenant AND v.memory_id = m.id
         WHERE (m.version, 1, m.version) IS DISTINCT FROM (v.n, v.low, v.high)""",
    "a record has an event of each rev, in the order of positions": """
        SELECT m.id FROM memory m
          JOIN LATERAL (SELECT array_agg(rev ORDER BY pos) AS revs, count(DISTINCT shard) AS shards
                          FROM outbox o WHERE o.tenant = m.tenant AND o.memory_id = m.id) o ON true
         WHERE o.shards <> 1
            OR o.revs IS DISTINCT FROM ARRAY(SELECT generate_series(1::bigint, m.rev))""",
    "a record is as its newest version says": """
        SELECT m.id FROM memory m
          JOIN memory_version v ON (v.tenant, v.memory_id, v.version) = (m.tenant, m.id, m.version)
         WHERE (v.status, v.text, v.metadata, v.valid_from, v.valid_to, v.expires_at)
            IS DISTINCT FROM
               (m.status, m.text, m.metadata, m.valid_from, m.valid_to, m.expires_at)""",
    "a key's answer names versions that there are": """
        SELECT m.mutation_id, a.id FROM mutation m,
               unnest(m.memory_ids, m.versions) AS a(id, version)
         WHERE NOT EXISTS (SELECT FROM memory_version v
                            WHERE (v.tenant, v.memory_id, v.version) = (m.tenant, a.id, a.version))
        """,
    "a source event names a record that there is": """
        SELECT e.event_id FROM source_event e
         WHERE NOT EXISTS (SELECT FROM memory m WHERE (m.tenant, m.id) = (e.tenant, e.memory_id))
        """,
}


@pytest.fixture(scope="session")
def _shared_store(postgres: Server, template: str) -> Iterator[Store]:
    name = f"gnomon_test_{secrets.token_hex(6)}"
    held = Store(postgres.create(name, template=template))
    yield held
    held.close()
    postgres.drop(name)


@pytest.fixture
def store(_shared_store: Store) -> Store:
    """An empty canonical store; its tables and functions are not to be altered."""
    _shared_store.empty()
    return _shared_store


@pytest.fixture
def own_store(database_url: str) -> Iterator[Store]:
    """A canonical store in a database of this test's own, to be altered at will."""
    held = Store(database_url)
    yield held
    held.close()
