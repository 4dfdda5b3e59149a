"""Bring a database's schema to the code's head."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from canonical.errors import UnsafeStoreError
from canonical.store.database import in_our_terms
from canonical.store.urls import driver_url

ONE_MIGRATION_AT_A_TIME = 0x676E6F6D  # an advisory lock's key: "gnom"
FOLDER = Path(__file__).parent.parent / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config


def head() -> str:
    """Return the revision that this code needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def upgrade(url: str) -> str:
    """Migrate the database at `url` to the head, and return its revision.

    Guarantee: on return the schema is at the head; on an error it is as before. Of two processes
               at once one migrates and the other waits. The login must be able to SET ROLE
               gnomon_owner (sql/bootstrap.sql makes the roles).
    Raises:    UnsafeStoreError, when the database is ahead of this code; StoreUnavailableError.
    """
    engine = create_engine(driver_url(url))
    config = _config()
    try:
        with in_our_terms(), engine.begin() as conn:
            _begin_as_owner(conn)
            _refuse_unknown(MigrationContext.configure(conn).get_current_revision())
            config.attributes["connection"] = conn
            command.upgrade(config, "head")
            revision = MigrationContext.configure(conn).get_current_revision()
    finally:
        engine.dispose()
    if revision != head():
        raise UnsafeStoreError(f"the schema is at {revision} after the upgrade, not at {head()}")
    return head()


def _begin_as_owner(conn: Connection) -> None:
    for statement in (
        "SET LOCAL ROLE gnomon_owner",
        "SET LOCAL lock_timeout = '5s'",
        "SET LOCAL statement_timeout = '10min'",
        "SET LOCAL client_min_messages = warning",
    ):
        conn.execute(text(statement))
    conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ONE_MIGRATION_AT_A_TIME})


def _refuse_unknown(revision: str | None) -> None:
    known = {s.revision for s in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise UnsafeStoreError(
            f"the schema is at {revision}, which this code (at {head()}) doesn't know: "
            "run the newer code"
        )
