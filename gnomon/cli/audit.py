"""`gnomon audit`: the chain of every version, proved link by link, without a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from canonical.errors import NotFoundError
from gnomon.cli import screen, store
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.session import Output, command

if TYPE_CHECKING:
    from gnomon.settings import Settings

app = typer.Typer(help="The audit chain; needs the store, not a server.", no_args_is_help=True)


@command(app)
def verify(output: Output) -> None:
    """Prove the audit: every link, the signed heads, and one entry per version; exit 1 if not."""
    report = verified(output.settings)
    columns = ("shard", "pos", "problem")
    rows = [[one[column] for column in columns] for one in report["problems"]]
    shown = [screen.table(columns, rows)] if rows else []
    output.screen.show(report, sentence(report), *shown)
    if report["ok"]:
        return
    raise CommandError(
        "chain_broken",
        f"{len(rows)} places don't hold",
        "Keep the database as it is and compare with the exported heads.",
        Exit.REFUSED,
    )


def verified(settings: "Settings") -> dict[str, Any]:
    """Verify the live generation, and return the report as a document.

    Raises: StateInUseError; StoreUnavailableError; CommandError, when there is none yet.
    """
    from canonical.store import projections  # noqa: PLC0415 - 0.5 s that help doesn't need
    from gnomon.settings import AUDIT_KEY  # noqa: PLC0415
    from projectors.audit.signing import Signer  # noqa: PLC0415
    from projectors.audit.verify import verify as prove  # noqa: PLC0415

    path = settings.folder() / AUDIT_KEY
    signer = Signer.at(path) if path.exists() else None
    with store.opened(settings) as owner, owner.transaction() as conn:
        with _said_if_missing():
            generation = projections.live(conn, "audit")
        report = prove(conn, generation, signer)
    return {
        "ok": report.ok,
        "generation": report.generation,
        "entries": report.entries,
        "signed_heads": report.heads,
        "unchecked_heads": report.unchecked_heads,
        "heads": [
            {"shard": shard, "pos": pos, "hash": digest}
            for shard, (pos, digest) in sorted(report.newest.items())
        ],
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
    verdict = "hold" if document["ok"] else "do NOT hold"
    return (
        f"{document['entries']} entries in {shards} chains {verdict}: links, "
        f"{document['signed_heads']} signed heads{without}, one entry per version"
    )
