"""What a command prints: documents for programs with `--json`, tables and lines for people."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from gnomon.cli.failures import CommandError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


PIPED_WIDTH = 160
MOST_CHARACTERS = 1000  # of one text in a table


class Screen:
    """Standard output and standard error of one command.

    With `as_json` standard output holds nothing but JSON documents. Colours and frames are left
    out where the output is no terminal or NO_COLOR is set.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        """Prepare; nothing is printed yet."""
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            _print_anything(stream)

    @cached_property
    def out(self) -> "Console":
        """Standard output for people."""
        return _console(sys.stdout)

    @cached_property
    def err(self) -> "Console":
        """Standard error for people: progress, warnings, errors."""
        return _console(sys.stderr)

    def document(self, document: object) -> None:
        """Print a JSON document, whatever the mode is."""
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
        sys.stdout.flush()

    def line_document(self, document: object) -> None:
        """Print a JSON document in one line: one of a stream of them."""
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def show(self, document: object, *shown: "RenderableType") -> None:
        """Print `document` with `--json`, else what is shown to people."""
        if self.as_json:
            self.document(document)
            return
        for one in shown:
            self.out.print(one)

    def note(self, text: str) -> None:
        """Tell people something on the side; not with `--json`."""
        if not self.as_json:
            self.err.print(text, style="dim", markup=False, highlight=False)

    def failure(self, error: CommandError) -> None:
        """Print how a command failed."""
        if self.as_json:
            sys.stderr.write(json.dumps(error.document(), ensure_ascii=False) + "\n")
            return
        from rich.text import Text  # noqa: PLC0415 - not needed by most commands

        self.err.print(Text.assemble((error.code, "bold red"), ": ", error.message), soft_wrap=True)
        if error.hint:
            self.err.print(Text.assemble(("hint", "cyan"), ": ", error.hint), soft_wrap=True)


def program() -> str:
    """Return how this program is started from here: `gnomon` if PATH has it, else with its path."""
    found, here = shutil.which("gnomon"), sys.argv[0]
    return here if found is None and Path(here).name == "gnomon" else "gnomon"


def clipped(text: str) -> str:
    """Cut a text that would push the others off the screen."""
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None
) -> "RenderableType":
    """Make a table for people; cells are plain text, never markup."""
    from rich.table import Table  # noqa: PLC0415 - not needed with --json
    from rich.text import Text  # noqa: PLC0415

    made = Table(title=title, title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(_cell(cell)) for cell in row))
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> "RenderableType":
    """Make a list of names and values for people; a value of None is left out."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            made.add_row(Text(name), Text(_cell(value)))
    return made


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False) if value else ""
        case _:
            return str(value)


def _console(stream: TextIO) -> "Console":
    from rich.console import Console  # noqa: PLC0415 - some 60 ms

    # Piped output is for `grep` and `less`: it has no styles, and rows aren't folded to a guess.
    at_terminal = stream.isatty()
    width = None if at_terminal else PIPED_WIDTH
    return Console(file=stream, force_terminal=at_terminal, width=width, highlight=False)


def _print_anything(stream: Any) -> None:
    """Keep text that a stream can't encode, such as a lone surrogate, from ending the command."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
