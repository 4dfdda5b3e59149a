"""`gnomon add, get, history, update, delete`: one memory at a time, or a scope's deletion."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gnomon.cli import screen
from gnomon.cli.answers import Memory, Write
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.options import ScopeOptions, TimeOptions
from gnomon.cli.session import Session, command

app = typer.Typer()

PAGE = 500  # memories in one request

Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id.", show_default=False)]
Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from stdin.")
]
Metadata = Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object.")]
MutationId = Annotated[
    str | None, typer.Option(help="Makes a repeat of this command harmless; made up if not given.")
]
Superseded = Annotated[
    bool, typer.Option("--superseded", help="Superseded ones as well.", show_default=False)
]
Expired = Annotated[
    bool, typer.Option("--expired", help="Expired ones as well.", show_default=False)
]
Expected = Annotated[
    int | None, typer.Option(help="Do it only if this is its present version.", min=1)
]


@dataclass(frozen=True)
class ChangeOptions:
    """What an update sets."""

    text: Annotated[
        str | None, typer.Option("--text", help="The new text; - reads it from stdin.")
    ] = None
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="A JSON object; replaces the whole of it.")
    ] = None
    expected_version: Expected = None
    mutation_id: MutationId = None

    def fields(self) -> dict[str, Any]:
        """Return what is named, as the HTTP API takes it."""
        return _given(
            text=None if self.text is None else _read(self.text),
            metadata=_object(self.metadata),
            expected_version=self.expected_version,
            mutation_id=self.mutation_id,
        )


@dataclass(frozen=True)
class DeleteOptions:
    """What a deletion may say beside what it deletes."""

    everything: Annotated[
        bool, typer.Option("--all", help="Delete all memories of the scope.", show_default=False)
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.", show_default=False)] = False
    why: Annotated[str | None, typer.Option(help="A reason, kept in the history.")] = None
    expected_version: Expected = None


@command(app)
def add(
    session: Session,
    scope: ScopeOptions,
    times: TimeOptions,
    text: Text,
    metadata: Metadata = None,
    mutation_id: MutationId = None,
) -> None:
    """Remember a text; at least one of --user, --agent and --run says whose."""
    memory = {
        **scope.required(),
        **times.fields(),
        "text": _read(text),
        **_given(metadata=_object(metadata), mutation_id=mutation_id),
    }
    _acknowledge(session, session.client.add(memory))


@command(app)
def get(
    session: Session,
    memory_id: Id,
    *,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Show a deleted one's tombstone.", show_default=False)
    ] = False,
) -> None:
    """Show a memory."""
    memory = session.client.get(memory_id, include_deleted=deleted)
    session.screen.show(memory, screen.facts(_facts(memory)))


@command(app)
def history(session: Session, memory_id: Id) -> None:
    """Show every version of a memory, also of a deleted one."""
    found = session.client.history(memory_id)
    said = ["why"] if any(version.get("why") for version in found["items"]) else []
    columns = ("version", "op", "status", "at", "by", *said, "text")
    rows = [[version.get(column) for column in columns] for version in found["items"]]
    session.screen.show(found, screen.table(columns, rows))


@command(app, "list")
def list_(
    session: Session,
    scope: ScopeOptions,
    *,
    limit: Annotated[int, typer.Option(help="How many to list.", min=1)] = 100,
    superseded: Superseded = False,
    expired: Expired = False,
) -> None:
    """List the memories of a scope, the newest first."""
    flags = {"include_superseded": superseded, "show_expired": expired}
    asked = {**scope.required(), **{name: "true" for name, asked in flags.items() if asked}}
    items: list[dict[str, Any]] = []
    more: dict[str, str] = {}
    while True:
        most = str(min(limit - len(items), PAGE))
        page = session.client.list_page({**asked, **more, "limit": most})
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None or len(items) == limit:
            break
        more = {"cursor": cursor}
    rows = [
        (one["id"], one["version"], one["status"], screen.clipped(one["text"])) for one in items
    ]
    shown = screen.table(("id", "version", "status", "text"), rows) if rows else "No memories."
    session.screen.show({"items": items, "next_cursor": cursor}, shown)
    if cursor is not None:
        session.screen.note(f"There are more than {limit}: --limit shows them.")


@command(app)
def update(session: Session, times: TimeOptions, options: ChangeOptions, memory_id: Id) -> None:
    """Change a memory; what is not named stays, "" clears a time."""
    cleared = {name: value or None for name, value in times.fields().items()}
    changes = {**cleared, **options.fields()}
    if not changes.keys() - {"expected_version", "mutation_id"}:
        raise _usage("Nothing to change: name --text, --metadata or a time.")
    write = session.client.update(memory_id, changes)
    _acknowledge(session, write)


@command(app)
def delete(
    session: Session,
    scope: ScopeOptions,
    options: DeleteOptions,
    memory_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The memory's id.", show_default=False)
    ] = None,
) -> None:
    """Delete a memory by its id, or all memories of a scope: `--user anna --all`."""
    if (memory_id is None) is not options.everything or (memory_id is not None and scope.ids()):
        raise _usage("Give either an ID, or a scope (--user, --agent, --run) with --all.")
    if memory_id is None:
        _delete_scope(session, scope, options)
        return
    version = None if options.expected_version is None else str(options.expected_version)
    parameters = _given(expected_version=version, why=options.why)
    _acknowledge(session, session.client.delete(memory_id, parameters))


def _delete_scope(session: Session, scope: ScopeOptions, options: DeleteOptions) -> None:
    if not scope.ids():
        raise _usage("--all needs a scope: at least one of --user, --agent and --run.")
    if not options.yes:
        _confirm(session, scope)
    gone = session.client.delete_scope(scope.ids(), _given(why=options.why))
    repeat = _repeat(replayed=gone["replayed"])
    session.screen.show(gone, f"deleted {gone['count']} memories{repeat}")


def _confirm(session: Session, scope: ScopeOptions) -> None:
    whose = ", ".join(f"{name} {value}" for name, value in scope.ids().items())
    if session.as_json or not sys.stdin.isatty():
        raise _usage(f"This deletes every memory of {whose}: say --yes.")
    if not typer.confirm(f"Delete every memory of {whose}?", err=True):
        session.screen.note("Nothing was deleted.")
        raise typer.Exit(Exit.REFUSED)


def _acknowledge(session: Session, write: Write) -> None:
    repeat = _repeat(replayed=write["replayed"])
    session.screen.show(
        write, f"{write['status']}  {write['id']}  version {write['version']}{repeat}"
    )


def _repeat(*, replayed: bool) -> str:
    return "  (as before: a repeat)" if replayed else ""


def _facts(memory: Memory) -> list[tuple[str, object]]:
    names = ("id", "version", "status", "text", "user_id", "agent_id", "run_id", "metadata")
    times = ("valid_from", "valid_to", "expires_at", "created_at", "updated_at", "tombstone")
    return [(name, memory.get(name) or None) for name in (*names, *times)]


def _read(text: str) -> str:
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as exc:
        raise _usage(
            f"stdin is not UTF-8: byte {exc.start} is {exc.object[exc.start]:#04x}."
        ) from None


def _object(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as exc:
        raise _usage(f"--metadata is not JSON ({exc}).") from None


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _usage(problem: str) -> CommandError:
    return CommandError("usage", problem, "", Exit.USAGE)
