"""`gnomon up`: the whole of Gnomon in one process, from its start to a clean end."""

import gc
import os
import socket
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gnomon.cli import doors, screen
from gnomon.cli.doors import Stop
from gnomon.cli.session import Output, command, read_settings
from gnomon.cli.version import program_version

if TYPE_CHECKING:
    from gnomon.settings import Settings

app = typer.Typer()

GC_THRESHOLD: Final = 10_000  # new objects: a search has some thousands at a time
OPEN: Final = "none was made: whoever is on this machine may do anything as this tenant"
CLOSED: Final = "each request needs one"


class Projection(StrEnum):
    """What can be built anew."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    ENTITY = "entity"
    AUDIT = "audit"


@dataclass(frozen=True)
class UpOptions:
    """Where the server keeps its state and where it listens; the settings' value if not named."""

    state: Annotated[
        Path | None, typer.Option(help="Folder of all data.", show_default="~/.gnomon")
    ] = None
    host: Annotated[str | None, typer.Option(help="Address.", show_default="127.0.0.1")] = None
    port: Annotated[
        int | None, typer.Option(help="Port; 0 is a free one.", show_default="7377")
    ] = None
    no_env: Annotated[
        bool,
        typer.Option(
            "--no-env", help="Read neither GNOMON_… variables nor .env.", show_default=False
        ),
    ] = False
    rebuild: Annotated[
        list[Projection] | None,
        typer.Option(help="Build this projection anew from canonical state; may be repeated."),
    ] = None
    until_stdin_ends: Annotated[bool, typer.Option("--until-stdin-ends", hidden=True)] = False

    def settings(self) -> "Settings":
        """Return the settings, with what is named put above them."""
        named = {
            "state": self.state,
            "host": self.host,
            "port": self.port,
            "rebuild": None if self.rebuild is None else frozenset(self.rebuild),
        }
        given = {name: value for name, value in named.items() if value is not None}
        return read_settings(environment=not self.no_env, **given)


@command(app)
def up(output: Output, options: UpOptions) -> None:
    """Run Gnomon in one process: Postgres, indexes, workers, HTTP API.

    Ctrl-C (or SIGTERM) stops it; what was acknowledged survives any end, also kill -9. One process
    at a time works on a state folder.
    """
    stop, started = Stop(), time.monotonic()
    stop.listen()
    settings = options.settings()
    if options.until_stdin_ends:
        threading.Thread(target=doors.stop_when_stdin_ends, daemon=True).start()
    output.screen.note("starting …")
    _serve(output, settings, stop, started)
    output.screen.note("stopped")


def _serve(output: Output, settings: "Settings", stop: Stop, started: float) -> None:
    import uvicorn  # noqa: PLC0415 - only this command serves

    from canonical.store.state_lock import StateLock  # noqa: PLC0415
    from gnomon import logs, serving  # noqa: PLC0415

    logs.configure(settings)
    with StateLock(settings.folder()):
        pass  # says who runs, before it can be taken for a port in use
    with doors.listening(settings) as listener, serving.open_embedded(settings) as running:
        stop.server = uvicorn.Server(doors.uvicorn_config(running.app))
        # uvicorn's own raises each signal again at its end, and lets a second Ctrl-C skip the end
        # of the application.
        stop.server.handle_exit = stop.hear  # type: ignore[method-assign]
        # What is there by now stays: 150,000 objects that each full collection would go through
        # again, for 150 ms in which no request is answered. What a search makes goes at its end.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        try:
            if not stop.asked:
                facts = _facts(settings, listener, is_open=running.is_open)
                _announce(output, facts, time.monotonic() - started)
                stop.server.run(sockets=[listener])
        finally:
            stop.end()


def _facts(settings: "Settings", listener: socket.socket, *, is_open: bool) -> dict[str, Any]:
    """Return where it answers, and whom."""
    address = doors.address(listener)
    return {
        "address": address,
        "openapi": f"{address}/openapi.json",
        "tenant": settings.tenant,
        "open": is_open,
        "state": str(settings.folder()),
        "pid": os.getpid(),
        "version": program_version(),
    }


def _announce(output: Output, facts: dict[str, Any], seconds: float) -> None:
    """Print where it answers and what to do next; a connection made now waits in the backlog."""
    facts = {**facts, "started_in_s": round(seconds, 2)}
    if output.as_json:
        output.screen.line_document(facts)
        return
    _welcome(output, facts)


def _welcome(output: Output, facts: dict[str, Any]) -> None:
    where = "" if facts["address"] == "http://127.0.0.1:7377" else f" --url {facts['address']}"
    out, gnomon = output.screen.out, screen.program()
    out.print(f"Gnomon {facts['version']} is up, after {facts['started_in_s']:.1f} s", style="bold")
    names = ("address", "openapi", "tenant", "state")
    shown = [(name, facts[name]) for name in names]
    out.print(screen.facts([*shown, ("keys", OPEN if facts["open"] else CLOSED)]))
    out.print("\nTry, in another terminal:", style="dim")
    out.print(
        f'  {gnomon} add "Mara is allergic to walnuts" --user mara{where}',
        markup=False,
        soft_wrap=True,
    )
    out.print(
        f'  {gnomon} search "what must Mara not eat?" --user mara{where}\n',
        markup=False,
        soft_wrap=True,
    )
    if facts["state"] != str(Path("~/.gnomon").expanduser()):
        output.screen.note(f"`gnomon keys` and `gnomon audit` for it: --state {facts['state']}")
    output.screen.note("Ctrl-C stops it.")
