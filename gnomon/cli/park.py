"""`gnomon park`: memories that a projection couldn't take, and trying them again."""

from typing import Annotated, Any, Final

import typer

from gnomon.cli import screen
from gnomon.cli.session import Session, command

MOST: Final = 1_000  # of one projection; a halt comes before there are more

app = typer.Typer(
    help="Memories that a projection couldn't take: set aside, so that the rest goes on.",
    no_args_is_help=True,
)

Projection = Annotated[
    str | None, typer.Option(help="Only this projection.", show_default="all of them")
]


@command(app, "list")
def list_(session: Session, projection: Projection = None) -> None:
    """List parked memories with their error and next try."""
    items = [item for name in _names(session, projection) for item in _parked(session, name)]
    columns = ("id", "projection", "tries", "next try", "code", "error")
    keys = ("memory_id", "projection", "attempts", "next_try", "error_code", "error")
    rows = [[item.get(key) for key in keys] for item in items]
    shown = screen.table(columns, rows) if items else "Nothing is parked."
    session.screen.show({"items": items}, shown)


@command(app)
def redrive(
    session: Session,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Only these memories.")
    ] = None,
    projection: Projection = None,
) -> None:
    """Let parked memories be tried again at once; those that succeed leave the list."""
    body = {"ids": ids} if ids else {}
    done = {name: session.client.redrive(name, body) for name in _names(session, projection)}
    count = sum(answer["count"] for answer in done.values())
    session.screen.show({"projections": done, "count": count}, f"{count} will be tried again")


def _names(session: Session, projection: str | None) -> list[str]:
    if projection is not None:
        return [projection]
    return [one["name"] for one in session.client.projections()["items"]]


def _parked(session: Session, projection: str) -> list[dict[str, Any]]:
    page = session.client.parked(projection, {"limit": str(MOST)})
    return [{"projection": projection, **item} for item in page["items"]]
