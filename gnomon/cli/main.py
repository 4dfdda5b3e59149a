"""The command `gnomon`: its nouns put together, and how it is run."""

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from gnomon.cli import (
    audit,
    demo,
    imports,
    keys,
    memories,
    park,
    rebuild,
    search,
    serve,
    status,
    up,
    version,
    worker,
)
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.screen import Screen

# The base of what the parser raises; typer itself doesn't export it.
USAGE_ERROR: Final[type[Any]] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError"
)


class Commands(TyperGroup):
    """The commands; with `--json` also what the parser refuses is a JSON error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # type: ignore[explicit-override]  # new in Python 3.12
        """Remember whether JSON is asked for, which no command has read yet."""
        ctx.meta[__name__] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # type: ignore[explicit-override]  # new in Python 3.12
        """Run the command that is named."""
        try:
            return super().invoke(ctx)
        except USAGE_ERROR as exc:
            if not ctx.meta[__name__]:
                raise
            hint = "`gnomon COMMAND --help` shows what it takes."
            Screen(as_json=True).failure(
                CommandError("usage", exc.format_message(), hint, Exit.USAGE)
            )
            raise typer.Exit(Exit.USAGE) from None


def _show_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if asked:
        print(f"gnomon {version.program_version()}")
        raise typer.Exit


app = typer.Typer(
    name="gnomon",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help comes in half the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    *,
    shown: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Gnomon, a memory backend for LLM agents."""


for noun in (up, serve, worker, rebuild, memories, imports, search, status, demo, version):
    app.add_typer(noun.app)
for name, group in (("park", park), ("keys", keys), ("audit", audit)):
    app.add_typer(group.app, name=name)


def run() -> None:
    """Run the command line that this process was started with."""
    app(prog_name="gnomon")
