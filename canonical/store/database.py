"""Connections to Postgres: the role they serve as, and how a transaction begins and ends."""

import random
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

import orjson
import psycopg
from psycopg import errors as pg
from psycopg import generators
from psycopg.abc import PQGen, QueryNoTemplate
from psycopg.pq import Format
from psycopg.pq.abc import PGresult
from psycopg.rows import dict_row
from psycopg.types.json import set_json_dumps, set_json_loads
from sqlalchemy import Connection, Dialect, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool

from canonical.errors import StoreUnavailableError, UnsafeStoreError
from canonical.store import jsonb
from canonical.store.urls import driver_url

T = TypeVar("T")

LOCK_TIMEOUT = "2s"  # a counter is held for one commit; longer means trouble elsewhere
STATEMENT_TIMEOUT = "30s"
IDLE_TIMEOUT = "60s"  # bounds how long a lost client holds locks and snapshots
SESSION = {
    "TimeZone": "UTC",
    "lock_timeout": LOCK_TIMEOUT,
    "statement_timeout": STATEMENT_TIMEOUT,
    "idle_in_transaction_session_timeout": IDLE_TIMEOUT,
    "client_min_messages": "warning",
    "jit": "off",
    # Planning over the partitions costs more than any of our statements' best plan saves;
    # statements are prepared at their first use.
    "plan_cache_mode": "force_generic_plan",
}
ATTEMPTS = 6
BACKOFF_S = 0.02  # doubled each time, with jitter: about 1.3 s in all
CONTENTION = (
    pg.SerializationFailure,  # 40001
    pg.DeadlockDetected,  # 40P01
    pg.LockNotAvailable,  # 55P03
)
ABSENCE = (
    psycopg.OperationalError,  # no connection, or it broke
    pg.AdminShutdown,
    pg.QueryCanceled,
    pg.IdleInTransactionSessionTimeout,
    pg.ReadOnlySqlTransaction,  # a standby, or a primary that has just become one
)


class Role(StrEnum):
    """What a connection may do; see the privileges in the migrations."""

    API = "gnomon_api"  # one tenant at a time
    PROJECTOR = "gnomon_projector"  # reads every tenant, writes projections
    OWNER = "gnomon_owner"  # migrations and keys, never a request


class Database:
    """A pool of connections that all serve as one role.

    No transaction is held open across a call to anything but Postgres.
    """

    def __init__(self, url: str, role: Role, *, connections: int = 8, pooled: bool = False) -> None:
        """Prepare the pool; nothing is connected yet.

        `pooled`: a pooler lends a server's connection for one transaction only, so that role and
        settings go with each, and no statement is prepared.
        """
        self.role, self._pooled = role, pooled
        self.engine: Engine = create_engine(
            driver_url(url),
            pool_size=connections,
            max_overflow=0,
            pool_timeout=5,
            pool_use_lifo=True,  # a few connections stay warm, with their plans
            pool_reset_on_return="rollback",
            connect_args={"prepare_threshold": None if pooled else 0},
        )
        if pooled:
            event.listen(self.engine, "do_connect", _connect_pooled)
        event.listen(self.engine, "connect", self._serve_as_role)
        event.listen(self.engine, "checkout", _replace_if_ended)

    def _serve_as_role(self, raw: psycopg.Connection, _entry: ConnectionPoolEntry) -> None:
        settings = {"role": self.role.value, **SESSION}
        local = "true" if self._pooled else "false"
        calls = ", ".join(
            f"set_config('{name}', '{value}', {local})" for name, value in settings.items()
        )
        set_json_loads(jsonb.loads, raw)
        set_json_dumps(orjson.dumps, raw)
        if isinstance(raw, PooledConnection):
            raw.opening = f"SELECT {calls}".encode()
            return
        cursor = raw.cursor()
        cursor.execute(f"SELECT {calls}".encode())
        cursor.close()
        raw.commit()

    @contextmanager
    def transaction(self, tenant: str | None = None) -> Iterator[Connection]:
        """Open a transaction, of one tenant if the role is API; commit at the end, or roll back.

        The tenant's setting ends with the transaction, so a pooled connection carries it nowhere.
        Raises: StoreUnavailableError, when Postgres is away or refused under contention.
        """
        with in_our_terms(), self.engine.begin() as conn:
            if tenant is not None:
                driver = _driver(conn)
                with driver.pipeline():  # with the BEGIN, in one round trip
                    driver.execute(SET_TENANT, {"tenant": tenant})
            yield conn

    @contextmanager
    def raw(self) -> Iterator[psycopg.Connection]:
        """Lend the driver's own connection, for pipelines and COPY; it doesn't commit."""
        with in_our_terms(), closing(self.engine.raw_connection()) as lent:
            driver = lent.driver_connection
            assert isinstance(driver, psycopg.Connection)
            yield driver

    def read(
        self,
        *asked: tuple[bytes, Mapping[str, Any]],
        tenant: str | None = None,
        timeout: timedelta | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Run statements that only read, in one transaction; return the rows of each.

        Guarantee: bound to a tenant as by `transaction`. A statement that takes longer than
                   `timeout` is given up. A later one sees what an earlier one saw, or more.
        Cost:      one round trip, however many statements; by the driver alone and in binary, so
                   that a page of thousands of rows takes half of what `transaction` would.
        Raises:    StoreUnavailableError.
        """
        with self.raw() as conn:
            with one_trip(conn) as cursor:
                if tenant is not None:
                    cursor.execute(SET_TENANT, {"tenant": tenant})
                if timeout is not None:
                    cursor.execute(SET_TIMEOUT, {"timeout": _milliseconds(timeout)})
                cursors = [conn.cursor(binary=True, row_factory=dict_row) for _ in asked]
                for one, (statement, parameters) in zip(cursors, asked, strict=True):
                    one.execute(statement, parameters)
            return [one.fetchall() for one in cursors]

    def run(self, work: Callable[[], T]) -> T:
        """Do `work`, which opens its own transaction, again while contention makes it fail.

        Guarantee: at most one run of `work` committed, if it commits as its last step.
        Raises:    StoreUnavailableError, when it still fails after some 1.3 s, not counting what
                   each attempt waited for a lock.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return work()
            except ContentionError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(BACKOFF_S * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        raise AssertionError

    def connections(self) -> tuple[int, int, int]:
        """Return how many connections are in use, how many lie idle, and how many there may be."""
        pool = self.engine.pool
        assert isinstance(pool, QueuePool)
        return pool.checkedout(), pool.checkedin(), pool.size()

    def close(self) -> None:
        """Close the pool's connections."""
        self.engine.dispose()


class PooledConnection(psycopg.Connection):
    """A connection by way of a pooler: what a session would keep is set in each transaction.

    The next transaction may run on a server's connection on which another role was served last: as
    a setting of the session, a role would be somebody else's, and with it the sight of all tenants.
    """

    opening = b""  # follows each BEGIN

    # typing has `override` from Python 3.12 on.
    def _exec_command(  # type: ignore[explicit-override]
        self, command: QueryNoTemplate, result_format: Format = Format.TEXT
    ) -> PQGen[PGresult | None]:
        result = yield from super()._exec_command(command, result_format)
        if self.opening and isinstance(command, bytes) and command.startswith(b"BEGIN"):
            yield from super()._exec_command(self.opening)
        return result


def _connect_pooled(
    _dialect: Dialect, _entry: ConnectionPoolEntry, arguments: list[Any], named: dict[str, Any]
) -> PooledConnection:
    return PooledConnection.connect(*arguments, **named)


def _replace_if_ended(
    raw: psycopg.Connection, _entry: ConnectionPoolEntry, _lent: PoolProxiedConnection
) -> None:
    """Have the pool connect anew when the server has ended a connection while it lay idle.

    Postgres sends nothing to who waits for nothing but its farewell: one look at the socket finds
    it, where a ping would cost every request a round trip.
    """
    looked = select.poll()
    looked.register(raw.fileno(), select.POLLIN)
    if looked.poll(0):
        raise DisconnectionError


SET_TENANT = b"SELECT set_config('gnomon.tenant', %(tenant)s, true)"
SET_TIMEOUT = b"SELECT set_config('statement_timeout', %(timeout)s, true)"


def _milliseconds(timeout: timedelta) -> str:
    return str(max(1, round(timeout.total_seconds() * 1_000)))


def _driver(conn: Connection) -> psycopg.Connection:
    driver = conn.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


@contextmanager
def gathered(conn: psycopg.Connection) -> Iterator[None]:
    """Send all that the block executes in one round trip; its results are there after the block."""
    conn._pipeline = Gathering(conn)  # noqa: SLF001 - the one that pipeline() enters
    with conn.pipeline():
        yield


@contextmanager
def one_trip(conn: psycopg.Connection) -> Iterator[psycopg.Cursor[Any]]:
    """Send all that the block executes, and the commit, in one round trip.

    Guarantee: after the block it is committed, and the cursor holds the results of what it executed
               last. An error of any part rolls all of it back.
    """
    cursor = conn.cursor()
    with ExitStack() as undo:
        undo.callback(conn.rollback)
        with gathered(conn), ExitStack() as undo_queued:
            undo_queued.callback(_forget_queued, conn)
            yield cursor
            # Not conn.commit(): in a pipeline that is a round trip of its own.
            conn.cursor().execute(b"COMMIT")
            undo_queued.pop_all()
        undo.pop_all()


def _forget_queued(conn: psycopg.Connection) -> None:
    with suppress(pg.PipelineAborted):  # what was queued behind the error
        conn.rollback()


class Gathering(psycopg.Pipeline):
    """A pipeline that sends everything at once, at its end.

    psycopg's own waits for the answer to BEGIN, then sends each statement as it is executed and
    looks for answers that can't be there yet: both processes wake up again and again. What is
    gathered must be small enough to be sent while nobody reads answers; libpq itself sends from
    64 KiB on.
    """

    # typing has `override` from Python 3.12 on.
    def _communicate_gen(self) -> PQGen[None]:  # type: ignore[explicit-override]
        """Hand what is queued to libpq, which keeps it until the pipeline's sync."""
        while self.command_queue:
            self.command_queue.popleft()()
        yield from ()

    def _sync_gen(self) -> PQGen[None]:  # type: ignore[explicit-override]
        """Go on without the answer to BEGIN: the only sync is the one at the end."""
        yield from self._communicate_gen()

    def _exit_gen(self) -> PQGen[None]:  # type: ignore[explicit-override]
        """Send all, and fetch all results: after a sync no request to flush is needed."""
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
            yield from generators.send(self.pgconn)
        finally:
            yield from self._fetch_gen(flush=False)


class ContentionError(StoreUnavailableError):
    """Postgres refused under contention, and nothing was written: worth an immediate retry."""

    code = "store_contention"


@contextmanager
def in_our_terms() -> Iterator[None]:
    """Re-raise the driver's errors as what a caller should do about them."""
    try:
        yield
    except DBAPIError as exc:
        raise _translated(exc.orig, exc) from exc
    except PoolTimeoutError as exc:
        raise StoreUnavailableError("all connections to Postgres are busy") from exc
    except psycopg.Error as exc:
        raise _translated(exc, exc) from exc


def _translated(cause: BaseException | None, otherwise: Exception) -> Exception:
    if isinstance(cause, CONTENTION):
        return ContentionError(f"Postgres refused under contention: {_first_line(cause)}")
    if isinstance(cause, ABSENCE):
        return StoreUnavailableError(f"Postgres doesn't answer: {_first_line(cause)}")
    return otherwise


def _first_line(exc: BaseException) -> str:
    lines = str(exc).splitlines()
    return lines[0] if lines else type(exc).__name__


def refuse_unsafe(database: Database, *, durable: bool = True) -> None:
    """Check at the start that Postgres can keep what it acknowledges, and that walls hold.

    Raises: UnsafeStoreError, when fsync or synchronous_commit is off (unless not `durable`: a
            test's server), or when a connection serves as superuser or past row-level security.
    """
    with database.transaction() as conn:
        row = conn.execute(
            text(
                "SELECT current_setting('fsync') AS fsync,"
                " current_setting('synchronous_commit') AS commits,"
                " bool_or(r.rolsuper) AS super, bool_or(r.rolbypassrls) AS bypass"
                " FROM pg_roles r WHERE r.rolname IN (current_user, session_user)"
            )
        ).one()
    if durable and (row.fsync == "off" or row.commits == "off"):
        raise UnsafeStoreError(
            f"fsync is {row.fsync}, synchronous_commit is {row.commits}: a crash would lose "
            "acknowledged memories; set both on"
        )
    if row.super or row.bypass:
        raise UnsafeStoreError(
            "the login is a superuser or bypasses row-level security: use a plain login that is "
            "a member of gnomon_api and gnomon_projector"
        )
