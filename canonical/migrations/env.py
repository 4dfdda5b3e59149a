"""How Alembic runs here: on the connection, and in the transaction, that `store.migrate` opened."""

from alembic import context

from canonical.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
