"""`gnomon serve`: HTTP processes over a Postgres of one's own, beside workers."""

import os
from typing import Annotated, Any

import typer

from gnomon.cli import doors
from gnomon.cli.session import Output, command, read_settings
from gnomon.cli.version import program_version

app = typer.Typer()


@command(app)
def serve(
    output: Output,
    host: Annotated[str | None, typer.Option(help="Address.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 is a free one.", show_default="7377")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many processes answer.")] = 1,
) -> None:
    """Run the HTTP API alone, on a Postgres of your own; `gnomon worker` does the rest.

    A process that dies is replaced. Ctrl-C or SIGTERM stops all after the requests at work.
    """
    from uvicorn.supervisors import Multiprocess  # noqa: PLC0415 - only this command serves so

    from gnomon import logs, wiring  # noqa: PLC0415
    from gnomon.settings import hand_down  # noqa: PLC0415

    given: dict[str, Any] = {"host": host, "port": port}
    settings = read_settings(**{name: value for name, value in given.items() if value is not None})
    logs.configure(settings)
    wiring.require_ready(settings)  # said once and here, not by each process again and again
    with doors.listening(settings) as listener:
        hand_down(settings)
        config = doors.uvicorn_config("gnomon.serving:application", factory=True, workers=processes)
        supervisor = Multiprocess(config, sockets=[listener])
        _announce(output, doors.address(listener), processes)
        supervisor.run()
    output.screen.note("stopped")


def _announce(output: Output, address: str, processes: int) -> None:
    facts: dict[str, Any] = {
        "address": address,
        "processes": processes,
        "pid": os.getpid(),
        "version": program_version(),
    }
    if output.as_json:
        output.screen.line_document(facts)
    else:
        output.screen.note(f"{address} answers, with {processes} processes; Ctrl-C stops it")
