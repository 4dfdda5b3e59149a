"""The fixtures that give each test a database of its own."""

from collections.abc import Callable

import psycopg
import pytest

from canonical.errors import UnsafeStoreError
from canonical.store import migrate
from canonical.store.database import Database, Role, refuse_unsafe


def test_the_database_is_at_the_schemas_head(database_url: str) -> None:
    assert migrate.upgrade(database_url) == migrate.head()
    with psycopg.connect(database_url) as conn:
        conn.execute("SET ROLE gnomon_owner")
        row = conn.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row == (migrate.head(),)


@pytest.mark.parametrize("turn", [1, 2])
def test_what_one_test_commits_another_does_not_see(database_url: str, turn: int) -> None:
    with psycopg.connect(database_url) as conn:
        conn.execute("SET ROLE gnomon_owner")
        conn.execute("CREATE TABLE left_behind (turn int)")  # fails, were the database shared


def test_a_connection_without_a_role_may_read_nothing(database_url: str) -> None:
    with psycopg.connect(database_url) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT FROM memory")


@pytest.mark.parametrize("role", Role)
def test_every_role_can_be_taken_on(role: Role, open_database: Callable[[Role], Database]) -> None:
    with open_database(role).raw() as conn:
        assert conn.execute("SELECT current_user, session_user").fetchone() == (role, "gnomon")


def test_a_server_for_tests_is_refused_as_a_real_one(
    open_database: Callable[[Role], Database],
) -> None:
    with pytest.raises(UnsafeStoreError, match="fsync is off"):
        refuse_unsafe(open_database(Role.API))
    refuse_unsafe(open_database(Role.API), durable=False)
