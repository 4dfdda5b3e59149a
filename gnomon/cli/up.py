"""`gnomon up`: the whole of Gnomon in one process, from its start to a clean end."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gnomon.cli import screen
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.session import Output, command, read_settings
from gnomon.cli.version import program_version

if TYPE_CHECKING:
    import uvicorn

    from gnomon.settings import Settings

app = typer.Typer()

BACKLOG: Final = 2048
GC_THRESHOLD: Final = 10_000  # new objects: a search has some thousands at a time
KEEP_ALIVE_S: Final = 75  # above what clients keep idle connections for
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
OPEN: Final = "none was made: whoever is on this machine may do anything as this tenant"
CLOSED: Final = "each request needs one"
GRACE_S: Final = 10  # requests at work when the server is told to stop


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
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    settings = options.settings()
    if options.until_stdin_ends:
        threading.Thread(target=_stop_when_stdin_ends, daemon=True).start()
    output.screen.note("starting …")
    _serve(output, settings, stop, started)
    output.screen.note("stopped")


class Stop:
    """The wish to stop, by Ctrl-C or SIGTERM: heard at once, obeyed where nothing is half open.

    Raised as an exception wherever the start or the stop happens to be, it could leave behind a
    Postgres that was just made and that nobody knows of yet, or that was about to be stopped. So a
    signal is never raised, and a second one changes nothing: requests at work have their grace.
    """

    def __init__(self) -> None:
        """Nothing is wished for yet."""
        self.asked = False
        self.server: uvicorn.Server | None = None

    def listen(self) -> None:
        """Hear signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self.hear)

    def hear(self, sig: int, frame: object) -> None:  # noqa: ARG002 - as uvicorn names them
        """Note the wish; the server, if there is one yet, ends when it comes to it."""
        self.asked = True
        if self.server is not None:
            self.server.should_exit = True

    def end(self) -> None:
        """Let no further signal cut the closing of the engines short."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _serve(output: Output, settings: "Settings", stop: Stop, started: float) -> None:
    import uvicorn  # noqa: PLC0415 - only this command serves

    from canonical.store.state_lock import StateLock  # noqa: PLC0415
    from gnomon import serving  # noqa: PLC0415
    from gnomon.api.wire import Wire  # noqa: PLC0415

    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    with StateLock(settings.folder()):
        pass  # says who runs, before it can be taken for a port in use
    with _listening(settings) as listener, serving.open_embedded(settings) as running:
        stop.server = uvicorn.Server(
            uvicorn.Config(
                running.app,
                http=Wire,
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
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


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Leave out the traceback of a request that the end of the grace cuts off."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _facts(settings: "Settings", listener: socket.socket, *, is_open: bool) -> dict[str, Any]:
    """Return where it answers, and whom."""
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
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


@contextmanager
def _listening(settings: "Settings") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (settings.host, settings.port), family=family, backlog=BACKLOG
        )
    except OSError as exc:
        raise CommandError(
            "cannot_listen",
            f"{settings.host}, port {settings.port}: {_why(exc)}",
            "Stop what listens there, or choose another --port (0: any free one) or --host.",
            Exit.REFUSED,
        ) from None
    with listener:
        yield listener


def _why(error: OSError) -> str:
    """Return the reason; `create_server` says the place once more behind it."""
    return (error.strerror or "").partition(" (while ")[0]


def _stop_when_stdin_ends() -> None:
    """Stop with whoever started us and holds the other end, however that one ends."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
