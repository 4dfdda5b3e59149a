"""`gnomon rebuild`: a projection is cast anew beside the one that serves, by the workers."""

from typing import Annotated

import typer

from gnomon.cli.session import Output, command
from gnomon.cli.up import Projection

app = typer.Typer()


@command(app)
def rebuild(
    output: Output,
    projection: Annotated[Projection, typer.Argument(help="Which one.")],
) -> None:
    """Begin to build a projection anew from canonical state; the workers do it.

    The one that serves goes on until the new one has caught up. An embedded index is built anew by
    `gnomon up --rebuild`.
    """
    from gnomon import wiring  # noqa: PLC0415 - half a second that help doesn't need

    number = wiring.begin_rebuild(output.settings, projection.value)
    document = {"projection": projection.value, "generation": number, "state": "building"}
    output.screen.show(document, f"{projection.value}: generation {number} is being built")
