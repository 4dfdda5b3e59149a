"""`gnomon status`: how far each projection is behind the log, and what stands still."""

import itertools
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import typer

from gnomon.cli import progress, screen
from gnomon.cli.answers import Listed
from gnomon.cli.session import Session, command

app = typer.Typer()

INTERVAL_S: Final = 1.0
SPARSE: Final = ("oldest waits", "error")
COLORS: Final = {  # what is not named stands still: red
    **dict.fromkeys(("current", "live"), "green"),
    **dict.fromkeys(("lagging", "building", "paused"), "yellow"),
}


@command(app)
def status(
    session: Session,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew each second.", show_default=False)
    ] = False,
) -> None:
    """Show each projection's state, lag and parked memories."""
    if not watch:
        found = session.client.projections()
        session.screen.show(found, table(found))
    elif session.as_json:
        for found in _each_second(session):
            session.screen.line_document(found)
    elif sys.stdout.isatty():
        _live(session, _each_second(session))
    else:  # a pipe shows no picture that changes: one table below the other
        for found in _each_second(session):
            session.screen.show(found, table(found))


def table(found: Listed) -> Any:
    """Make the table of all projections."""
    from rich.text import Text  # noqa: PLC0415 - for people only

    columns = ("projection", "state", "applied", "lag", "oldest waits", "parked", "error")
    rows = [
        (
            line.projection,
            Text(line.state, COLORS.get(line.state, "red")),
            line.applied,
            line.lag,
            "" if line.waiting_s is None else f"{line.waiting_s:.1f} s",
            line.parked,
            line.error,
        )
        for line in progress.lines(found["items"])
    ]
    filled = [number for number, name in enumerate(columns) if _shown(name, rows, number)]
    return screen.table(
        [columns[number] for number in filled], [[row[number] for number in filled] for row in rows]
    )


def _shown(column: str, rows: Sequence[Sequence[object]], number: int) -> bool:
    """Leave a column out if it would say nothing: the rest then fits a small terminal."""
    return column not in SPARSE or any(row[number] for row in rows)


def _each_second(session: Session) -> Iterable[Listed]:
    for turn in itertools.count():
        if turn:
            time.sleep(INTERVAL_S)
        yield session.client.projections()


def _live(session: Session, states: Iterable[Listed]) -> None:
    from rich.live import Live  # noqa: PLC0415

    with Live(console=session.screen.out, auto_refresh=False) as shown:
        for found in states:
            shown.update(table(found), refresh=True)
