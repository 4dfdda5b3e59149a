"""`gnomon version`: which program this is."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import typer

from gnomon.cli.session import Output, command

app = typer.Typer()


def program_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return installed_version("gnomon")
    except PackageNotFoundError:
        return "0 (not installed)"


@command(app)
def version(output: Output) -> None:
    """Show the version of this program and of the schema it needs."""
    from canonical.store import migrate  # noqa: PLC0415 - Alembic takes 0.3 s

    facts = {
        "gnomon": program_version(),
        "schema": migrate.head(),
        "python": platform.python_version(),
    }
    output.screen.show(facts, "\n".join(f"{name} {value}" for name, value in facts.items()))
