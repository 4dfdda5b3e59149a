"""`gnomon demo`: a guided tour on real conversations, in a server that leaves nothing behind."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from gnomon.cli import screen
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.session import Output, command

app = typer.Typer()

START_S: Final = 120.0
STOP_S: Final = 60.0
LOG_LINES: Final = 20


@command(app)
def demo(output: Output) -> None:
    """Take a tour: import real conversations, search, change and delete, and check each promise.

    Runs a server of its own in a temporary folder, needs no network, and leaves nothing behind. The
    exit code is 1 when something is not as promised.
    """
    from gnomon.cli.tour import Tour  # noqa: PLC0415 - httpx takes 0.2 s

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gnomon-demo-") as folder, running(Path(folder)) as it:
        checked = Tour(output.screen, it).take()
    seconds = time.monotonic() - started
    output.screen.show(
        {"ok": True, "checked": checked, "seconds": round(seconds, 1)},
        f"\nEverything was as promised: {len(checked)} checks, {seconds:.0f} s, nothing left over."
        f"\nNow with your own data: `{screen.program()} up`.",
    )


@dataclass(frozen=True)
class Running:
    """A server that was started for the tour."""

    url: str
    state: Path
    started_in_s: float


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Run `gnomon up` on `folder` and a free port, in a process of its own, until the end.

    Guarantee: the server is gone afterwards; if this process is killed, it ends by itself, since it
               holds the other end of its standard input.
    Raises:    CommandError, with the end of its log, when it doesn't start.
    """
    log = folder / "up.log"
    with log.open("wb") as errors:
        server = subprocess.Popen(  # noqa: S603 - our own program
            [*PROGRAM, "--state", str(folder / "state")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # a Ctrl-C is ours: we stop it in order
        )
    try:
        said = _first_line(server, log)
        yield Running(said["address"], folder / "state", said["started_in_s"])
    finally:
        _stop(server)


PROGRAM: Final = (
    *(sys.executable, "-m", "gnomon.cli", "up", "--json", "--no-env", "--port", "0"),
    "--until-stdin-ends",
)


def _first_line(server: subprocess.Popen[bytes], log: Path) -> Any:
    assert server.stdout is not None
    patience = threading.Timer(START_S, server.kill)
    patience.start()
    try:
        line = server.stdout.readline()
    finally:
        patience.cancel()
    if not line:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        raise CommandError("no_start", f"the server did not start:\n{end}", "", Exit.HALT)
    return json.loads(line)


def _stop(server: subprocess.Popen[bytes]) -> None:
    with server:
        assert server.stdin is not None
        with suppress(BrokenPipeError):
            server.stdin.close()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
