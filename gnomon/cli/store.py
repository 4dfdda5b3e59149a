"""Gnomon's Postgres for commands that need no server: found running, or started for a moment."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from canonical.errors import StateInUseError

if TYPE_CHECKING:
    from canonical.store.database import Database
    from gnomon.settings import Settings


@contextmanager
def opened(settings: "Settings") -> Iterator["Database"]:
    """Yield Gnomon's database as its owner, at the schema's head.

    It is the configured one, or the embedded one: as `gnomon up` runs it at this moment, else
    started, and stopped again at the end.
    Raises: StateInUseError, when another process is just starting or stopping it.
    """
    from canonical.store import migrate  # noqa: PLC0415 - 0.5 s that most commands don't need
    from canonical.store.database import Database, Role  # noqa: PLC0415

    with ExitStack() as stack:
        url = _url(settings, stack)
        migrate.upgrade(url)
        database = Database(url, Role.OWNER, connections=1)
        stack.callback(database.close)
        yield database


def _url(settings: "Settings", stack: ExitStack) -> str:
    from canonical.store.embedded import EmbeddedPostgres  # noqa: PLC0415
    from canonical.store.state_lock import StateLock  # noqa: PLC0415

    if settings.postgres_url is not None:
        return settings.postgres_url.get_secret_value()
    server = EmbeddedPostgres(settings.folder() / "postgres")
    try:
        stack.enter_context(StateLock(settings.folder()))
    except StateInUseError:
        if (url := server.find()) is None:
            raise
        return url
    stack.enter_context(server)
    return server.url("gnomon", "gnomon")
