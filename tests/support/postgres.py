"""Real Postgres for tests: a server a run, a migrated template in it, a clone of that a test."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from canonical.store import migrate
from canonical.store.database import Database, Role
from canonical.store.embedded import EmbeddedPostgres

# What a clone doesn't take over from its template; the same as in sql/bootstrap.sql.
PRIVILEGES = (
    "REVOKE ALL ON DATABASE {} FROM PUBLIC",
    "GRANT CONNECT ON DATABASE {} TO gnomon",
    "GRANT TEMPORARY ON DATABASE {} TO gnomon_api, gnomon_projector",
)


@dataclass(frozen=True)
class Server:
    """A server that tests may make databases on."""

    admin: str  # URL of a login that may make databases
    url: Callable[[str], str]  # database → URL of the login that Gnomon's processes use

    def create(self, name: str, *, template: str | None = None) -> str:
        """Make a database, a clone of `template` if named, and return its URL."""
        make = "CREATE DATABASE {} OWNER gnomon_owner TEMPLATE {} STRATEGY FILE_COPY IS_TEMPLATE {}"
        made, source = sql.Identifier(name), sql.Identifier(template or "template0")
        with psycopg.connect(self.admin, autocommit=True) as conn:
            # Copying files takes 42 ms, writing them through the log 70 ms.
            conn.execute(sql.SQL(make).format(made, source, sql.Literal(template is None)))
            conn.execute("SET ROLE gnomon_owner")
            for privilege in PRIVILEGES:
                conn.execute(sql.SQL(privilege).format(made))
        return self.url(name)

    def drop(self, name: str) -> None:
        """Drop a database, and cut the connections that are still open."""
        with psycopg.connect(self.admin, autocommit=True) as conn:
            # A backend lives on for a moment after its client is gone, and is another role's: a
            # superuser may end it.
            if conn.info.parameter_status("is_superuser") != "on":
                conn.execute("SET ROLE gnomon_owner")
            database = sql.Identifier(name)
            conn.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE false").format(database))
            conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


def _name() -> str:
    return f"gnomon_test_{secrets.token_hex(6)}"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole run: GNOMON_TEST_POSTGRES_URL, or an embedded one of its own."""
    given = os.environ.get("GNOMON_TEST_POSTGRES_URL")
    if given is not None:
        yield _server_at(given)
        return
    folder: Path = tmp_path_factory.mktemp("postgres")
    with EmbeddedPostgres(folder / "pg", durable=False) as server:
        yield Server(server.url(), lambda name: server.url("gnomon", name))
    shutil.rmtree(folder)


def _server_at(given: str) -> Server:
    url = make_url(given)
    return Server(given, lambda name: url.set(database=name).render_as_string(hide_password=False))


@pytest.fixture(scope="session")
def template(postgres: Server) -> Iterator[str]:
    """Name a database at the schema's head, from which every test's own one is cloned."""
    name = _name()
    migrate.upgrade(postgres.create(name))
    yield name
    postgres.drop(name)


@pytest.fixture
def database_url(postgres: Server, template: str) -> Iterator[str]:
    """URL of a migrated, empty database of this test's own, for the login `gnomon`."""
    name = _name()
    yield postgres.create(name, template=template)
    postgres.drop(name)


@pytest.fixture
def empty_database_url(postgres: Server) -> Iterator[str]:
    """URL of a database of this test's own in which no migration has run."""
    name = _name()
    yield postgres.create(name)
    postgres.drop(name)


@pytest.fixture
def open_database(database_url: str) -> Iterator[Callable[[Role], Database]]:
    """Open this test's database as a role; closed at the test's end."""
    opened: list[Database] = []

    def open_as(role: Role) -> Database:
        opened.append(Database(database_url, role))
        return opened[-1]

    yield open_as
    for database in opened:
        database.close()
