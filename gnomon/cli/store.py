"""Gnomon's Postgres for commands that need no server: found running, or started for a moment."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from canonical.errors import StateInUseError
from gnomon.cli.failures import CommandError, Exit

if TYPE_CHECKING:
    from canonical.store.database import Database
    from gnomon.settings import Settings


@contextmanager
def opened(settings: "Settings", *, make: bool = False) -> Iterator["Database"]:
    """Yield Gnomon's database as its owner, at the schema's head.

    It is the configured one, or the embedded one: as `gnomon up` runs it at this moment, else
    started, and stopped again at the end. `make`: one that is not there yet is made.
    Raises: CommandError, when there is none: a misspelt folder is no empty store.
            StateInUseError, when another process is just starting or stopping it.
    """
    from canonical.store import migrate  # noqa: PLC0415 - 0.5 s that most commands don't need
    from canonical.store.database import Database, Role  # noqa: PLC0415

    with ExitStack() as stack:
        url = _url(settings, stack, make=make)
        migrate.upgrade(url)
        database = Database(url, Role.OWNER, connections=1)
        stack.callback(database.close)
        yield database


def _url(settings: "Settings", stack: ExitStack, *, make: bool) -> str:
    from canonical.store.embedded import EmbeddedPostgres  # noqa: PLC0415
    from canonical.store.state_lock import StateLock  # noqa: PLC0415

    if settings.postgres_url is not None:
        return settings.postgres_url.get_secret_value()
    folder = settings.folder()
    server = EmbeddedPostgres(folder / "postgres")
    if not make and not server.data.exists() and (folder.is_dir() or not folder.exists()):
        raise CommandError(
            "no_store",
            f"there is no store in {folder}",
            "Name its folder with --state or GNOMON_STATE; `gnomon up` makes one.",
            Exit.REFUSED,
        )
    try:
        stack.enter_context(StateLock(folder))
    except StateInUseError:
        if (url := server.find()) is None:
            raise
        return url
    stack.enter_context(server)
    return server.url("gnomon", "gnomon")


def named(settings: "Settings") -> str:
    """Say which store it is, without a password."""
    if settings.postgres_url is None:
        return f"the store in {settings.folder()}"
    url = urlsplit(settings.postgres_url.get_secret_value())
    return f"the store {url.path.removeprefix('/')} at {url.hostname or 'a socket'}"
