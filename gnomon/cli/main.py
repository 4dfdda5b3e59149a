"""The command `gnomon`: its nouns put together, and how it is run."""

import typer

from gnomon.cli import audit, demo, imports, keys, memories, park, search, status, up, version

app = typer.Typer(
    name="gnomon",
    help="Gnomon, a memory backend for LLM agents.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help comes in half the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for noun in (up, memories, imports, search, status, demo, version):
    app.add_typer(noun.app)
for name, group in (("park", park), ("keys", keys), ("audit", audit)):
    app.add_typer(group.app, name=name)


def run() -> None:
    """Run the command line that this process was started with."""
    app(prog_name="gnomon")
