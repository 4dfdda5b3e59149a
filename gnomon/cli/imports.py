"""`gnomon import`: a file of memories, resumable, with what was refused in a file of its own."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import IO, Annotated, Any, Self

import typer

from canonical.domain.positions import Position
from gnomon.cli import formats, upload, waiting
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.formats import Format
from gnomon.cli.options import ScopeOptions
from gnomon.cli.session import Session, command
from gnomon.cli.upload import Tally
from gnomon.cli.waiting import Patience

app = typer.Typer()


@dataclass(frozen=True)
class ImportOptions:
    """How a file is read, and when the command is done."""

    form: Annotated[Format, typer.Option("--format", help="How the file is laid out.")] = (
        Format.JSONL
    )
    rejects: Annotated[
        Path | None,
        typer.Option(help="Where refused lines go.", show_default="FILE.rejects.jsonl"),
    ] = None
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Until every projection has all of it.", show_default=False),
    ] = False
    wait_s: Annotated[float, typer.Option(help="For how many seconds at most.", min=0)] = 600.0


@command(app, "import")
def import_(
    session: Session,
    scope: ScopeOptions,
    options: ImportOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of memories; - is stdin.")],
) -> None:
    """Add all memories of a file; run again, it adds only what is missing.

    --user, --agent and --run are put into memories that don't name them. What is refused is
    written to a file with its line and reason, and the rest goes on; the exit code is 1 then.
    """
    if options.form is not Format.JSONL and scope.user is not None:
        raise CommandError(
            "usage",
            f"--user has no effect: each memory of {options.form} names its user.",
            "Leave it out, or add an --agent or a --run.",
            Exit.USAGE,
        )
    rejects = Rejects(options.rejects or _beside(file))
    with _on_disk(file) as path, rejects:
        name = upload.import_id(path, options.form, scope.ids())
        tally = _send(session, Source(path, options.form, scope), name, rejects)
    if options.wait and tally.position is not None:
        _wait(session, tally.position, options.wait_s)
    _report(session, tally, rejects, {"import_id": name, "waited": options.wait})
    if tally.refused:
        raise typer.Exit(Exit.REFUSED)


@dataclass(frozen=True)
class Source:
    """What is imported."""

    path: Path
    form: Format
    scope: ScopeOptions

    def lines(self) -> tuple[Iterator[bytes], int]:
        """Return the lines, and how many there are."""
        lines = formats.lines(self.path, self.form, self.scope.ids())
        return lines, length_hint(lines) or formats.count_lines(self.path)


class Rejects:
    """The refused lines, in a file that is there only if there are some."""

    def __init__(self, path: Path) -> None:
        """Prepare; nothing is written yet."""
        self.path = path
        self.count = 0
        self._file: IO[str] | None = None

    def add(self, reject: dict[str, Any]) -> None:
        """Write down a refused line."""
        if self._file is None:
            self._file = self._opened()
        self._file.write(json.dumps(reject, ensure_ascii=False) + "\n")
        self.count += 1

    def _opened(self) -> IO[str]:
        try:
            return self.path.open("w", encoding="utf-8")
        except OSError as exc:
            hint = "Name a file that can be written with --rejects, and run the import again."
            said = f"{self.path}, for refused lines: {exc.strerror}"
            raise CommandError("no_file", said, hint, Exit.USAGE) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._file is not None:
            self._file.close()


def _send(session: Session, source: Source, name: str, rejects: Rejects) -> Tally:
    lines, total = source.lines()
    tally = Tally()
    with _progress(session, "importing", total) as advance:
        for tally in upload.send(session.client, name, upload.parts(lines), rejects.add):
            advance(tally.lines)
    return tally


def _wait(session: Session, position: Position, seconds: float) -> None:
    """Show how the projections come after, until they have."""
    most = 0
    with _progress(session, "projecting", None) as advance:
        for missing in waiting.wait(session.client, position, Patience(seconds)):
            most = max(most, *missing.values())
            advance(most - max(missing.values()), most)


def _report(session: Session, tally: Tally, rejects: Rejects, more: dict[str, Any]) -> None:
    path = str(rejects.path) if rejects.count else None
    counts = {
        name: getattr(tally, name) for name in ("lines", "blank", "written", "replayed", "refused")
    }
    said = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    shown = [said or "the file is empty"]
    if path is not None:
        shown.append(f"the refused lines and why: {path}")
    if tally.written and not more["waited"]:
        shown.append("The projections follow: `gnomon status`.")
    document = {**counts, "rejects": path, "position": tally.token(), **more}
    session.screen.show(document, *shown)


@contextmanager
def _progress(session: Session, what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar to people at a terminal; yield what moves it: `advance(done, total)`."""
    if session.as_json or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich import progress as bars  # noqa: PLC0415 - for people only

    moving = (bars.MofNCompleteColumn(), bars.TimeElapsedColumn())
    columns = (bars.TextColumn(what), bars.BarColumn(), *moving)
    with bars.Progress(*columns, console=session.screen.err, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done, of=total: progress.update(task, completed=done, total=of)


@contextmanager
def _on_disk(file: Path) -> Iterator[Path]:
    """Yield a file that can be read twice: stdin is copied to one first."""
    if str(file) != "-":
        try:
            with file.open("rb"):
                pass
        except OSError as exc:
            hint = "Name a file that can be read."
            raise CommandError("no_file", f"{file}: {exc.strerror}", hint, Exit.USAGE) from None
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="gnomon-import-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)


def _beside(file: Path) -> Path:
    return Path("stdin.rejects.jsonl") if str(file) == "-" else Path(f"{file}.rejects.jsonl")
