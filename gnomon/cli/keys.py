"""`gnomon keys`: API keys, made and revoked by whoever has the store, without a server."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canonical.domain.records import Trust
from gnomon.cli import screen, store
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.session import StoreOutput, command

if TYPE_CHECKING:
    from canonical.store.api_keys import ApiKey

app = typer.Typer(help="API keys; needs the store, not a server.", no_args_is_help=True)

RIGHTS = ("read", "write", "admin")


@command(app)
def create(
    output: StoreOutput,
    name: Annotated[str, typer.Argument(help="Who uses it; the history of writes shows it.")],
    rights: Annotated[
        list[str], typer.Option("--right", help="read, write or admin; may be repeated.")
    ] = ["read", "write"],  # noqa: B006 - typer copies it
    tenant: Annotated[
        str | None, typer.Option(help="The tenant it is bound to.", show_default="default")
    ] = None,
    max_trust: Annotated[
        Trust, typer.Option(help="The most that it may claim as source_trust.")
    ] = Trust.USER,
) -> None:
    """Make a key, and print its secret this once."""
    from canonical.domain import door  # noqa: PLC0415
    from canonical.store import api_keys  # noqa: PLC0415

    given = frozenset(api_keys.Right(right) for right in _checked(rights))
    whose = door.identifier(output.settings.tenant if tenant is None else tenant, "tenant")
    with store.opened(output.settings, make=True) as owner:
        key, secret = api_keys.create(owner, whose, door.identifier(name, "name"), given, max_trust)
    document = {**_document(key), "key": secret}
    shown = [(name, document[name]) for name in ("key", "id", "name", "tenant", "rights")]
    output.screen.show(document, screen.facts(shown))
    output.screen.note(
        f"It is for {store.named(output.settings)}, and is not shown again. GNOMON_KEY hands it to "
        "this command line."
    )


@command(app, "list")
def list_(
    output: StoreOutput,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
) -> None:
    """List the keys, revoked ones included."""
    from canonical.store import api_keys  # noqa: PLC0415

    with store.opened(output.settings) as owner:
        keys = [_document(key) for key in api_keys.listed(owner, tenant)]
    columns = ("id", "name", "tenant", "rights", "max_trust", "created_at", "revoked_at")
    rows = [[key[column] for column in columns] for key in keys]
    none = f"No key was made in {store.named(output.settings)}."
    output.screen.show({"items": keys}, screen.table(columns, rows) if rows else none)


@command(app)
def revoke(
    output: StoreOutput, key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")]
) -> None:
    """End a key's life; a running server refuses it within 2 seconds."""
    from canonical.store import api_keys  # noqa: PLC0415

    with store.opened(output.settings) as owner:
        key = _document(api_keys.revoke(owner, key_id))
    output.screen.show(key, f"revoked {key['id']} ({key['name']})")


def _checked(rights: list[str]) -> list[str]:
    wrong = [right for right in rights if right not in RIGHTS]
    if wrong:
        raise CommandError(
            "usage",
            f"--right {wrong[0]!r} is no right.",
            f"One of {', '.join(RIGHTS)}.",
            Exit.USAGE,
        )
    return rights


def _document(key: "ApiKey") -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "rights": sorted(key.rights),
        "max_trust": key.max_trust.value,
        "created_at": _moment(key.created_at),
        "revoked_at": None if key.revoked_at is None else _moment(key.revoked_at),
    }


def _moment(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
