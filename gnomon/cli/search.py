"""`gnomon search`: what a scope remembers about a question, and why."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gnomon.cli import screen
from gnomon.cli.answers import Found, Memory
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.options import ScopeOptions
from gnomon.cli.session import Session, command

app = typer.Typer()

LEGS = ("vector", "keyword", "entity")
TABLE_WIDTH = 110  # characters: an id and two numbers take 60


@dataclass(frozen=True)
class SearchOptions:
    """How a search looks and what it shows."""

    top_k: Annotated[
        int, typer.Option("--top-k", "-k", help="How many to show.", min=0, max=200)
    ] = 10
    threshold: Annotated[
        float, typer.Option(help="The least relevance of what is shown.", min=0, max=1)
    ] = 0.0
    where: Annotated[
        str | None,
        typer.Option("--filter", metavar="JSON", help='Metadata filter, such as {"lang": "en"}.'),
    ] = None
    after: Annotated[
        str | None,
        typer.Option(
            help="Position of a write that the answer must know of; --json of a write has it."
        ),
    ] = None
    as_of: Annotated[str | None, typer.Option(help="What was true at this time.")] = None
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Superseded ones as well.", show_default=False)
    ] = False
    expired: Annotated[
        bool, typer.Option("--expired", help="Expired ones as well.", show_default=False)
    ] = False
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where each hit comes from.", show_default=False)
    ] = False

    def fields(self) -> dict[str, Any]:
        """Return what is asked, as the HTTP API takes it."""
        optional = {"after": self.after, "as_of": self.as_of}
        return {
            "top_k": self.top_k,
            "threshold": self.threshold,
            "include_superseded": self.superseded,
            "show_expired": self.expired,
            "explain": self.explain,
            **({} if self.where is None else {"filter": _filter(self.where)}),
            **{name: value for name, value in optional.items() if value is not None},
        }


@command(app)
def search(
    session: Session,
    scope: ScopeOptions,
    options: SearchOptions,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="What to look for, in any language.")
    ],
) -> None:
    """Search the memories of a scope."""
    found = session.client.search({**scope.required(), **options.fields(), "query": query})
    session.screen.show(found, *shown(found, width=session.screen.out.width))


def shown(found: Found, *, width: int) -> Sequence[Any]:
    """Show what a search found to people: a table, or blocks where a table would crush the text."""
    hits = found["items"]
    parts: list[Any] = []
    if hits:
        explained = "explain" in hits[0]
        parts += _blocks(hits) if explained or width < TABLE_WIDTH else [_plain(hits)]
    elif found.get("scope_records") == 0:
        parts.append("Nothing: this scope has no memories. Is it spelt as it was written?")
    else:
        parts.append("Nothing found.")
    parts += [f"degraded: {_shortfall(part)}" for part in found.get("degraded", ())]
    return parts


def _plain(hits: Sequence[Memory]) -> Any:
    rows = [
        (hit["id"], f"{hit['score']:.3f}", f"{hit['relevance']:.2f}", screen.clipped(hit["text"]))
        for hit in hits
    ]
    return screen.table(("id", "score", "relevance", "text"), rows)


def _blocks(hits: Sequence[Memory]) -> list[Any]:
    """Show each hit over the whole width; explained, with each leg's rank, raw and normalised."""
    from rich.padding import Padding  # noqa: PLC0415 - for people only
    from rich.text import Text  # noqa: PLC0415

    lines: list[Any] = []
    for number, hit in enumerate(hits, 1):
        scores = f"score {hit['score']:.3f}  relevance {hit['relevance']:.2f}  {hit['id']}"
        lines.append(Text.assemble((f"{number:>2}  {scores}", "dim")))
        if (explain := hit.get("explain")) is not None:
            said = [_leg(explain, leg) for leg in LEGS if leg in explain["legs"]]
            lines.append(Text("    " + " · ".join([*said, *_entity(explain)]), "dim"))
        lines.append(Padding(Text(screen.clipped(hit["text"])), (0, 0, 0, 4)))
    return lines


def _leg(explain: Mapping[str, Any], leg: str) -> str:
    score = explain["legs"][leg]
    rank = "tail" if score["rank"] is None else f"#{score['rank']}"
    return f"{leg} {rank} {score['raw']:.2f} → {score['normalised']:.2f}"


def _entity(explain: Mapping[str, Any]) -> list[str]:
    factor = explain.get("entity")
    return [] if factor is None else [f"name {factor['name']} +{factor['boost']:.3f}"]


def _shortfall(part: Mapping[str, Any]) -> str:
    behind = "" if part.get("lag_positions") is None else f", {part['lag_positions']} behind"
    code = "" if part.get("code") is None else f" ({part['code']})"
    return f"{part['leg']} {part['reason']}{code}{behind}"


def _filter(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as exc:
        raise CommandError("usage", f"--filter is not JSON ({exc}).", "", Exit.USAGE) from None
