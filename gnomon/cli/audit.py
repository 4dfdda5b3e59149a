"""`gnomon audit`: the chain of every version, proved link by link, without a server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canonical.errors import NotFoundError
from gnomon.cli import heads, screen, store
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.session import StoreOutput, command

if TYPE_CHECKING:
    from gnomon.settings import Settings
    from projectors.audit.verify import Head

app = typer.Typer(help="The audit chain; needs the store, not a server.", no_args_is_help=True)


@command(app)
def verify(
    output: StoreOutput,
    compared: Annotated[
        Path | None,
        typer.Option("--heads", help="Compare with the heads that --export wrote earlier."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the chains' heads here, if all holds; keep the file elsewhere."),
    ] = None,
) -> None:
    """Prove the audit: every link, the heads, and one entry per version; exit 1 if not.

    Whoever has both the database and the key can make the chains anew; only heads that were
    exported before and kept elsewhere show it.
    """
    exported = () if compared is None else heads.read(compared)
    report = verified(output.settings, exported)
    columns = ("shard", "pos", "problem")
    rows = [[one[column] for column in columns] for one in report["problems"]]
    shown = [screen.table(columns, rows)] if rows else []
    said = f"{sentence(report)} ({store.named(output.settings)})"
    output.screen.show(report, said, *shown)
    if not report["ok"]:
        raise _broken(report, compared)
    if export is not None:
        heads.write(export, report)


def _broken(report: dict[str, Any], compared: Path | None) -> CommandError:
    places = f"{len(report['problems'])} places don't hold"
    hint = "Keep the database as it is, and look at the places that are named."
    if compared is None:
        hint += " `gnomon audit verify --heads FILE` compares with heads that were exported."
    return CommandError("chain_broken", places, hint, Exit.REFUSED)


def verified(settings: "Settings", exported: "Sequence[Head]" = ()) -> dict[str, Any]:
    """Verify the live generation, and return the report as a document.

    Raises: StateInUseError; StoreUnavailableError; CommandError, when there is none yet.
    """
    from canonical.store import projections  # noqa: PLC0415 - 0.5 s that help doesn't need
    from gnomon.settings import AUDIT_KEY  # noqa: PLC0415
    from projectors.audit.signing import Signer  # noqa: PLC0415
    from projectors.audit.verify import verify as prove  # noqa: PLC0415

    path, key = settings.folder() / AUDIT_KEY, settings.audit_key
    signer: Signer | None
    if key is not None:
        signer = Signer(key.get_secret_value().encode())
    else:
        signer = Signer.at(path) if path.exists() else None
    with store.opened(settings) as owner, owner.transaction() as conn:
        with _said_if_missing():
            generation = projections.live(conn, "audit")
        report = prove(conn, generation, signer, exported=exported)
    return {
        "ok": report.ok,
        "generation": report.generation,
        "entries": report.entries,
        "signed_heads": report.heads,
        "unchecked_heads": report.unchecked_heads,
        "exported_heads": report.exported_heads,
        "heads": heads.document(report.newest),
        "problems": [
            {"shard": one.shard, "pos": one.pos, "problem": one.problem} for one in report.problems
        ],
    }


@contextmanager
def _said_if_missing() -> Iterator[None]:
    try:
        yield
    except NotFoundError:
        hint = "Start `gnomon up` once, on this state folder."
        raise CommandError("not_found", "there is no audit yet", hint, Exit.REFUSED) from None


def sentence(document: dict[str, Any]) -> str:
    """Say what a verification saw."""
    shards = len(document["heads"])
    unchecked = document["unchecked_heads"]
    without = f", {unchecked} signed with a key that is not here" if unchecked else ""
    exported = f"{document['exported_heads']} exported heads, " * (document["exported_heads"] > 0)
    verdict = "hold" if document["ok"] else "do NOT hold"
    return (
        f"{document['entries']} entries in {shards} chains {verdict}: links, "
        f"{document['signed_heads']} signed heads{without}, {exported}one entry per version"
    )
