"""Behind a pooler that lends connections by transaction: roles, tenants, bulks, the whole loop."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from sqlalchemy import text

from canonical.domain.clock import SystemClock
from canonical.domain.commands import Caller, Change, new_memory
from canonical.mutations import add, change
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.mutations.writer import Writer
from canonical.store import projections
from canonical.store.database import Database, Role
from canonical.store.feed import FeedSettings, LogFeed
from canonical.store.reading import CanonicalReader
from canonical.store.system_user import system_user
from projectors.loop import run_page
from tests.support.recording import RecordingProjector
from tests.support.redis import free_port

START_S = 20
TENANTS = ("t1", "t2")


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    """URL of the same database behind PgBouncer, which has two connections for all."""
    if shutil.which("pgbouncer") is None:
        told = "there is no pgbouncer on the PATH"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(told)
    folder = Path(tempfile.mkdtemp(prefix="gnomon-pgbouncer-"))  # beside pytest's, which are closed
    port, config, log = free_port(), folder / "pgbouncer.ini", folder / "pgbouncer.log"
    parts = urlsplit(database_url)
    host = parts.hostname or parse_qs(parts.query)["host"][0]
    config.write_text(settings(database_url, host, port))
    # PgBouncer refuses to be root, and must get to the socket: as whoever Postgres runs as.
    user = system_user(Path(host).parent, Path("/bin/true"))
    user.own(folder)
    user.own(config)
    with log.open("wb") as said:
        process = user.spawn(["pgbouncer", config], said)
    try:
        wait_for(port, process, log)
        yield f"postgresql://gnomon:x@127.0.0.1:{port}/pooled"
    finally:
        process.terminate()
        process.wait(START_S)
        shutil.rmtree(folder)


def settings(url: str, host: str, port: int) -> str:
    parts = urlsplit(url)
    place = f"host={host} dbname={parts.path.lstrip('/')} user={parts.username}"
    return f"""[databases]
pooled = {place} password={parts.password} port={parts.port or 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
"""


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(START_S * 20):
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            probe.settimeout(0.05)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        Event().wait(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def pooled(pooled_url: str) -> Iterator[dict[Role, Database]]:
    opened = {role: Database(pooled_url, role, connections=8, pooled=True) for role in Role}
    yield opened
    for database in opened.values():
        database.close()


def test_each_transaction_serves_as_its_own_role_whoever_had_the_connection_before(
    pooled: dict[Role, Database],
) -> None:
    """S: a role that was left behind would show one tenant the records of all."""

    def asked(n: int) -> None:
        role = list(Role)[n % 3]
        with pooled[role].transaction() as conn:
            found = conn.execute(text("SELECT current_user, current_setting('plan_cache_mode')"))
            assert found.one() == (role.value, "force_generic_plan")
        (seen,) = pooled[role].read((b"SELECT current_user AS who", {}))
        assert seen == [{"who": role.value}]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(asked, range(300)))


def test_nothing_of_a_transaction_stays_on_the_connection(
    pooled: dict[Role, Database], pooled_url: str
) -> None:
    for database in pooled.values():
        with database.transaction() as conn:
            conn.execute(text("SELECT 1"))
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as plain:
        for _ in range(8):
            found = plain.execute(
                "SELECT current_user, current_setting('plan_cache_mode'),"
                " coalesce(current_setting('gnomon.tenant', true), ''),"
                " (SELECT count(*) FROM pg_prepared_statements)"
            )
            assert found.fetchone() == ("gnomon", "auto", "", 0)


def test_writes_bulks_reads_and_the_loop_go_through_a_pooler(
    pooled: dict[Role, Database],
) -> None:
    """P1, P5: many threads of two tenants on two connections."""
    reader = CanonicalReader(pooled[Role.API])

    def write(n: int) -> None:
        tenant = TENANTS[n % 2]
        writer = Writer(pooled[Role.API], Caller(tenant, "tester"), SystemClock())
        made = add.add(writer, new_memory({"text": f"note {n}", "user_id": "alice"}, writer.caller))
        change.update(writer, made.memory_id, Change(text=f"note {n}, changed"))
        new = new_memory({"text": f"bulk {n}", "user_id": "alice"}, writer.caller)
        add_chunk(writer, Chunk([(0, new), (1, new)]))
        assert reader.get(tenant, made.memory_id).text == f"note {n}, changed"
        other = TENANTS[(n + 1) % 2]
        assert reader.current(other, [made.memory_id]) == {}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(60)))
    projector, recorded = pooled[Role.PROJECTOR], RecordingProjector()
    with projector.transaction() as conn:
        number = projections.begin_generation(conn, "keyword", "schema", live=True).number
    feed = LogFeed(
        projector, FeedSettings(projection="keyword", generation=number, epoch=1, owner="one")
    )
    leases = feed.claim(range(16))
    while (progress := run_page(feed, recorded, leases, limit=50)).events:
        leases = progress.leases
    assert len(recorded.held) == 180
    with projector.transaction() as conn:
        assert projections.lag(conn, "keyword", number) == 0
