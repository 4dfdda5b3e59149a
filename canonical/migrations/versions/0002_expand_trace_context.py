"""An event knows the trace of the write that made it, so that a page can be linked to it."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column, then its default: the rows that are there stay as they are.

    The default reads a setting of the writer's transaction. Code that doesn't know of it sets none,
    and its events have no trace.
    """
    op.execute("ALTER TABLE outbox ADD COLUMN trace text")
    op.execute(
        "ALTER TABLE outbox ALTER COLUMN trace "
        "SET DEFAULT nullif(current_setting('gnomon.trace', true), '')"
    )
