"""`gnomon worker`: the projectors' loops, on a Postgres of one's own, without Celery."""

import os
import threading
import time
from typing import Annotated

import typer

from gnomon.cli import doors
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.session import Output, command
from gnomon.cli.up import Projection

app = typer.Typer()

LOOK_S = 0.1  # how late a wish to stop is obeyed


@command(app)
def worker(
    output: Output,
    projections: Annotated[
        str, typer.Option(help="Which, separated by commas; else all whose engine it reaches.")
    ] = "",
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="Loops of each projection.", show_default="1"),
    ] = None,
    stop_s: Annotated[
        float, typer.Option(min=0, help="Seconds for pages at hand when it is told to stop.")
    ] = 20.0,
    until_stdin_ends: Annotated[bool, typer.Option("--until-stdin-ends", hidden=True)] = False,  # noqa: FBT002 - an option
) -> None:
    """Cast projections from the log; run as many as you like, on as many machines.

    Ctrl-C or SIGTERM stops it after the pages at hand; a kill -9 loses nothing.
    """
    from gnomon import logs, traces, wiring  # noqa: PLC0415 - half a second that help doesn't need
    from gnomon.metrics import port  # noqa: PLC0415
    from gnomon.metrics.counters import Metrics  # noqa: PLC0415

    stop = doors.Stop()
    stop.listen()
    if until_stdin_ends:
        threading.Thread(target=doors.stop_when_stdin_ends, daemon=True).start()
    settings = output.settings
    plan = wiring.Plan(
        projections=_named(projections) or sorted(settings.projections),
        threads=threads or settings.threads,
        stop_s=stop_s,
    )
    logs.configure(settings)
    metrics = Metrics()
    with (
        traces.exported(settings),
        wiring.open_workers(settings, plan, metrics=metrics) as supervisor,
        port.scraped(settings, metrics.registry),
    ):
        facts = {"projections": supervisor.projections, "threads": plan.threads, "pid": os.getpid()}
        if output.as_json:
            output.screen.line_document(facts)
        else:
            output.screen.note(f"at work on {', '.join(supervisor.projections)}; Ctrl-C stops it")
        while not stop.asked:
            time.sleep(LOOK_S)
        stop.end()
    output.screen.note("stopped")


def _named(given: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    known = [one.value for one in Projection]
    for name in names:
        if name not in known:
            raise CommandError(
                "usage",
                f"--projections: there is no {name!r}",
                f"There are {', '.join(known)}.",
                Exit.USAGE,
            )
    return names
