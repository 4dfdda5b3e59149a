"""The embedded Postgres keeps what it acknowledged, whatever ends the processes around it."""

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from canonical.errors import StoreNotStartedError, StoreUnavailableError
from canonical.store import embedded
from canonical.store.embedded import BINARIES, BOOTSTRAP, EmbeddedPostgres
from canonical.store.pid_file import left_behind
from canonical.store.system_user import ENVIRONMENT, system_user
from tests.support.binaries import wheel
from tests.support.holders import HOLD_SERVER, holding


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "postgres"


def write_one(url: str) -> None:
    with psycopg.connect(url) as conn:
        conn.execute("SET ROLE gnomon_owner")
        conn.execute("CREATE TABLE kept AS SELECT 1 AS n")


def read_one(url: str) -> tuple[int, ...] | None:
    with psycopg.connect(url) as conn:
        conn.execute("SET ROLE gnomon_owner")
        return conn.execute("SELECT n FROM kept").fetchone()


@pytest.fixture
def stranger(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the server's own user that is no Postgres."""
    folder.mkdir(exist_ok=True)
    with (folder.parent / "said").open("wb") as output:
        process = system_user(folder, BINARIES / "postgres").spawn(["sleep", "600"], output)
    yield process
    process.kill()
    process.wait()


def put_pid(folder: Path, pid: int) -> None:
    for file in (folder / "data" / "postmaster.pid", folder / "socket" / ".s.PGSQL.5432.lock"):
        lines = file.read_text().splitlines()
        file.write_text("\n".join([str(pid), *lines[1:]]) + "\n")


def test_it_is_set_to_keep_what_it_acknowledges_and_serves_no_superuser(folder: Path) -> None:
    asked = (
        "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
        "current_setting('full_page_writes'), current_setting('data_checksums'), "
        "current_setting('server_encoding'), "
        "(SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user)"
    )
    with (
        EmbeddedPostgres(folder) as server,
        psycopg.connect(server.url("gnomon", "gnomon")) as conn,
    ):
        assert conn.execute(asked).fetchone() == ("on", "on", "on", "on", "UTF8", False)


def test_no_one_gets_in_without_the_password_and_no_file_of_it_is_open_to_others(
    folder: Path,
) -> None:
    with EmbeddedPostgres(folder, durable=False) as server:
        for login in ("postgres", "gnomon"):
            stolen = server.url(login, login).replace(":", ":wrong", 2).replace(":wrong", ":", 1)
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(stolen)
    for path in (folder / "data", folder / "socket", *folder.glob("*.password")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert folder.stat().st_mode & 0o066 == 0  # as root, the server's user passes through


def test_a_stop_is_clean_and_may_be_repeated_and_a_later_start_finds_everything(
    folder: Path,
) -> None:
    with EmbeddedPostgres(folder, durable=False) as server:
        write_one(server.url("gnomon", "gnomon"))
        server.close()
        server.close()
        assert server.pid is None
        assert not (folder / "data" / "postmaster.pid").exists()
        assert read_one(server.start()) == (1,)
    assert "not properly shut down" not in (folder / "log").read_text()


def test_a_server_that_outlived_its_killed_process_is_stopped_and_nothing_is_lost(
    folder: Path,
) -> None:
    with holding(HOLD_SERVER, folder) as (process, (url, pid)):
        write_one(url)
        process.kill()
        process.wait()
    assert left_behind(folder / "data") == int(pid)
    assert "shutdown request" not in (folder / "log").read_text()
    with EmbeddedPostgres(folder) as server:
        assert left_behind(folder / "data") == server.pid != int(pid)
        assert read_one(server.url("gnomon", "gnomon")) == (1,)
        assert "received fast shutdown request" in (folder / "log").read_text()
        assert "not properly shut down" not in (folder / "log").read_text()


@contextmanager
def busy_connection(url: str) -> Iterator[None]:
    """A connection whose process computes for a while and, as it doesn't wait, notices nothing."""
    conn = psycopg.pq.PGconn.connect(url.encode())
    conn.send_query(
        b"DO $$ BEGIN RAISE NOTICE 'begun'; "
        b"PERFORM count(*) FROM generate_series(1, 8000000); END $$"
    )
    assert select.select([conn.socket], [], [], 10)[0]  # the notice is here: it computes
    yield
    conn.finish()


def test_a_killed_server_with_a_busy_connection_recovers_at_the_next_start(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        url = server.url("gnomon", "gnomon")
        write_one(url)
        assert server.pid is not None
        with busy_connection(url):
            os.kill(server.pid, signal.SIGKILL)
            with EmbeddedPostgres(folder) as again:
                assert read_one(again.url("gnomon", "gnomon")) == (1,)
    log = (folder / "log").read_text()
    assert "pre-existing shared memory block" in log
    assert "was not properly shut down" in log


def test_a_pid_that_belongs_to_a_stranger_by_now_stops_no_start(
    folder: Path, stranger: subprocess.Popen[bytes]
) -> None:
    with EmbeddedPostgres(folder) as server:
        write_one(server.url("gnomon", "gnomon"))
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
    put_pid(folder, stranger.pid)
    with EmbeddedPostgres(folder) as again:
        assert read_one(again.url("gnomon", "gnomon")) == (1,)
    assert stranger.poll() is None


def test_a_second_server_never_runs_on_the_same_files_even_if_the_pid_file_lies(
    folder: Path, stranger: subprocess.Popen[bytes]
) -> None:
    with EmbeddedPostgres(folder, durable=False) as first:
        put_pid(folder, stranger.pid)
        with pytest.raises(StoreUnavailableError, match="shared memory block"):
            EmbeddedPostgres(folder, durable=False, start_within=timedelta(seconds=1)).start()
        write_one(first.url("gnomon", "gnomon"))


def test_an_initdb_that_was_cut_off_is_begun_again(folder: Path) -> None:
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(folder, durable=False) as server:
        write_one(server.url("gnomon", "gnomon"))


def test_a_failed_start_shows_the_end_of_the_servers_own_log(folder: Path) -> None:
    with EmbeddedPostgres(folder, durable=False):
        pass
    (folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(StoreNotStartedError, match="initialized by PostgreSQL version 17"):
        EmbeddedPostgres(folder, durable=False).start()


@pytest.mark.parametrize("name", ["x" * 100, "a, b"])
def test_a_path_that_fits_no_socket_is_served_on_loopback_only(tmp_path: Path, name: str) -> None:
    with EmbeddedPostgres(tmp_path / name / "postgres", durable=False) as server:
        assert "host=127.0.0.1" in server.url()
        with psycopg.connect(server.url()) as conn:
            assert conn.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)


def test_a_folder_that_is_closed_to_the_servers_user_is_used_and_stays_closed(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "记忆 closed"
    closed.mkdir(mode=0o700)
    with EmbeddedPostgres(closed / "postgres", durable=False) as server:
        write_one(server.url("gnomon", "gnomon"))
    assert closed.stat().st_mode & 0o777 == 0o700


def test_programs_in_a_folder_that_is_closed_to_the_servers_user_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a virtual environment under /root."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(embedded, "BINARIES", wheel(closed, {}))
    with EmbeddedPostgres(tmp_path / "postgres", durable=False) as server:
        write_one(server.url("gnomon", "gnomon"))


def test_no_text_of_a_refused_row_gets_into_the_log(folder: Path) -> None:
    with (
        EmbeddedPostgres(folder, durable=False) as server,
        psycopg.connect(server.url("gnomon", "gnomon"), autocommit=True) as conn,
    ):
        conn.execute("SET ROLE gnomon_owner")
        conn.execute("CREATE TABLE one (t text UNIQUE)")
        conn.execute("INSERT INTO one VALUES ('a-secret')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            conn.execute("INSERT INTO one VALUES ('a-secret')")
        with pytest.raises(psycopg.errors.SyntaxError):
            conn.execute("SELEC 'a-secret'")
    assert "a-secret" not in (folder / "log").read_text()


def test_an_operator_without_superuser_can_make_roles_and_database_and_repeat_it(
    folder: Path,
) -> None:
    with EmbeddedPostgres(folder, durable=False) as server:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute("DROP DATABASE gnomon")
            for role in ("gnomon", "gnomon_owner", "gnomon_api", "gnomon_projector"):
                conn.execute(f"DROP ROLE {role}".encode())
            conn.execute("CREATE ROLE operator LOGIN CREATEROLE CREATEDB PASSWORD 'p'")
        place = server.url().partition("?")[2]
        url = f"postgresql://operator:p@/postgres?{place}"
        for _ in range(2):
            said = subprocess.run(
                [BINARIES / "psql", "-X", "-q", "-f", BOOTSTRAP, url],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (said.returncode, said.stderr) == (0, "")
        with psycopg.connect(url) as conn:
            made = conn.execute(
                "SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname LIKE 'gnomon%'"
                " AND NOT rolsuper AND NOT rolbypassrls AND NOT rolcreaterole ORDER BY 1"
            )
            assert made.fetchall() == [
                ("gnomon", True),
                ("gnomon_api", False),
                ("gnomon_owner", False),
                ("gnomon_projector", False),
            ]
