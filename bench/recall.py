"""Evidence recall on LoCoMo: hybrid, BM25 alone and vectors alone, from the same searches.

One memory a turn, imported through HTTP bulk, each conversation a tenant of its own. Each question
is asked once, with k = 100 and explained: the explanation has the rank of every candidate in each
leg, so the three rankings come from one answer. Recall is the mean over questions of the share of
evidence turns among the first k. The data are not ours to ship: see --data.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.report import RESULTS
from canonical.domain.records import Trust
from canonical.store import api_keys
from canonical.store.api_keys import Right
from gnomon.cli import formats, store
from gnomon.cli.formats import Format
from gnomon.settings import Settings
from inference.local import MODEL
from tests.support.server import Up

DATA = Path(os.environ.get("GNOMON_BENCH_LOCOMO", "../shared/data/locomo/locomo10.json"))
TUNED_ON = frozenset({"conv-26", "conv-30"})  # the only ones that weights were tried on
CUTS = (1, 5, 10, 20, 50, 100)
ANSWERABLE = (1, 2, 3, 4)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open domain", 4: "single-hop", 5: "adversarial"}
THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
DRAINED_S = 600


@dataclass(frozen=True)
class Question:
    """What is asked in a conversation, and the turns that answer it."""

    conversation: str
    text: str
    category: int
    evidence: frozenset[str]
    corrected: frozenset[str]


@dataclass(frozen=True)
class Asked:
    """A question with the turns that each ranker gave, best first, and their relevances."""

    question: Question
    hybrid: Sequence[str]
    bm25: Sequence[str]
    vector: Sequence[str]
    relevance: Mapping[str, float]


RANKERS: Mapping[str, Callable[[Asked], Sequence[str]]] = {
    "hybrid": lambda a: a.hybrid,
    "BM25 alone": lambda a: a.bm25,
    "vector alone": lambda a: a.vector,
}


def questions(data: Path) -> list[Question]:
    """Read the questions; those whose evidence names no turn of the conversation are left out."""
    samples = json.loads(data.read_bytes())
    errors = data.with_name("audit_errors.json")
    mended = _mended(json.loads(errors.read_bytes())) if errors.exists() else {}
    found = []
    for number, sample in enumerate(samples):
        turns = {t["dia_id"] for t in _turns(sample["conversation"])}
        for place, one in enumerate(sample["qa"]):
            evidence = _ids(one.get("evidence") or (), turns)
            corrected = _ids(mended.get(f"locomo_{number}_qa{place}", ()), turns) or evidence
            if evidence:
                found.append(
                    Question(
                        sample["sample_id"], one["question"], one["category"], evidence, corrected
                    )
                )
    return found


def _turns(conversation: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name, turns in conversation.items():
        if re.fullmatch(r"session_\d+", name):
            yield from turns or ()


def _ids(raw: Sequence[str], turns: set[str]) -> frozenset[str]:
    """Read references to turns: several in one string, leading zeros and stray colons occur."""
    named = re.findall(r"D:?(\d+):(\d+)", " ".join(raw))
    return frozenset(f"D{int(s)}:{int(t)}" for s, t in named) & turns


def _mended(errors: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[str]]:
    wrong = [e for e in errors if e.get("error_type") == "WRONG_CITATION"]
    return {e["question_id"]: e["correct_evidence"] for e in wrong if e.get("correct_evidence")}


@contextmanager
def server(names: Sequence[str]) -> Iterator[dict[str, httpx.Client]]:
    """Start a server of our own and make a tenant with a key for each name."""
    with tempfile.TemporaryDirectory(prefix="gnomon-recall-") as folder:
        state = Path(folder) / "state"
        with Up(state) as up, store.opened(Settings(state=state)) as owner:
            clients = {}
            for name in names:
                rights = frozenset(Right)
                _, secret = api_keys.create(owner, name, "bench", rights, Trust.USER)
                headers = {"Authorization": f"Bearer {secret}"}
                clients[name] = httpx.Client(base_url=up.url, headers=headers, timeout=120)
            yield clients
            for client in clients.values():
                client.close()


def load(client: httpx.Client, lines: Sequence[bytes]) -> dict[str, str]:
    """Import a conversation; return memory id -> turn."""
    answer = client.post(
        "/v1/memories:bulk",
        content=b"\n".join(lines) + b"\n",
        headers={"Content-Type": "application/x-ndjson"},
    )
    answer.raise_for_status()
    results = [json.loads(line) for line in answer.text.splitlines()]
    written = {r["line"]: r["id"] for r in results if "id" in r and "line" in r}
    assert len(written) == len(lines), f"{len(lines) - len(written)} turns were refused"
    return {
        written[n]: json.loads(line)["metadata"]["dia_id"] for n, line in enumerate(lines, start=1)
    }


def drain(client: httpx.Client) -> None:
    """Wait until every projection has come to the log's end."""
    ends = time.monotonic() + DRAINED_S
    while time.monotonic() < ends:
        items = client.get("/v1/projections").raise_for_status().json()["items"]
        if all(one["lag"] == 0 for one in items):
            return
        time.sleep(0.5)
    raise TimeoutError(f"not drained within {DRAINED_S} s")


def ask(
    client: httpx.Client, question: Question, turns: Mapping[str, str], user: str
) -> tuple[Asked, float]:
    """Ask one question; return the rankings and how long it took."""
    body = {"query": question.text, "user_id": user, "top_k": CUTS[-1], "explain": True}
    began = time.perf_counter()
    answer = client.post("/v1/search", json=body).raise_for_status().json()
    took = time.perf_counter() - began
    assert not answer["degraded"], answer["degraded"]
    live = [c for c in answer["candidates"] if c["rank"] is not None]
    assert [h["id"] for h in answer["items"]] == [c["id"] for c in live[: len(answer["items"])]]
    asked = Asked(
        question,
        hybrid=[turns[c["id"]] for c in live],
        bm25=_by_leg(live, turns, "keyword"),
        vector=_by_leg(live, turns, "vector"),
        relevance={turns[c["id"]]: c["relevance"] for c in live},
    )
    return asked, took


def _by_leg(live: Sequence[Mapping[str, Any]], turns: Mapping[str, str], leg: str) -> list[str]:
    ranked = [(c["legs"][leg]["rank"], turns[c["id"]]) for c in live if leg in c["legs"]]
    return [turn for _, turn in sorted(ranked)]


def recall(asked: Sequence[Asked], ranker: str, cut: int, *, corrected: bool = False) -> float:
    """Return the mean share of evidence among the first `cut`."""
    order = RANKERS[ranker]
    return statistics.mean(
        len(set(order(a)[:cut]) & wanted) / len(wanted)
        for a in asked
        for wanted in [a.question.corrected if corrected else a.question.evidence]
    )


def mrr(asked: Sequence[Asked], ranker: str) -> float:
    """Return the mean reciprocal rank of the first evidence turn."""
    order = RANKERS[ranker]

    def reciprocal(a: Asked) -> float:
        places = (n for n, turn in enumerate(order(a), start=1) if turn in a.question.evidence)
        return 1 / next(places, float("inf"))

    return statistics.mean(map(reciprocal, asked))


def show(title: str, asked: Sequence[Asked], *, corrected: bool = False) -> dict[str, Any]:
    """Print one table of recall; return it."""
    print(f"\n{title}: {len(asked)} questions")
    print(f"  {'':14}" + "".join(f"{f'R@{cut}':>8}" for cut in CUTS) + f"{'MRR':>8}")
    table = {}
    for ranker in RANKERS:
        figures = [recall(asked, ranker, cut, corrected=corrected) for cut in CUTS]
        figures.append(mrr(asked, ranker))
        print(f"  {ranker:14}" + "".join(f"{figure:8.3f}" for figure in figures))
        table[ranker] = dict(zip([*(f"R@{c}" for c in CUTS), "MRR"], figures, strict=True))
    return table


def show_categories(asked: Sequence[Asked]) -> dict[str, Any]:
    """Print recall at 10 for each category."""
    print("\nR@10 by category")
    table = {}
    for number, name in CATEGORIES.items():
        of = [a for a in asked if a.question.category == number]
        table[name] = {ranker: recall(of, ranker, 10) for ranker in RANKERS}
        figures = "".join(f"{ranker} {value:.3f}   " for ranker, value in table[name].items())
        print(f"  {name:12} {len(of):5}   {figures}")
    return table


def show_thresholds(asked: Sequence[Asked], foreign: Sequence[Asked]) -> list[dict[str, float]]:
    """Print what a threshold keeps of answerable questions, and what it lets through of others.

    `foreign`: the same questions asked in the next conversation, where nothing answers them.
    """
    print("\nthreshold: share of questions with any hit, and recall at 10 of what is left")
    print(f"  {'':6}{'answerable':>12}{'adversarial':>13}{'foreign':>10}{'R@10':>8}")
    table = []
    for threshold in THRESHOLDS:
        mine = [a for a in asked if a.question.category in ANSWERABLE]
        trick = [a for a in asked if a.question.category not in ANSWERABLE]
        shares = [_answered(of, threshold) for of in (mine, trick, foreign)]
        left = statistics.mean(_kept(a, threshold) for a in mine)
        print(f"  {threshold:6.2f}{shares[0]:12.3f}{shares[1]:13.3f}{shares[2]:10.3f}{left:8.3f}")
        names = ("threshold", "answerable", "adversarial", "foreign", "R@10")
        table.append(dict(zip(names, [threshold, *shares, left], strict=True)))
    return table


def _answered(asked: Sequence[Asked], threshold: float) -> float:
    return statistics.mean(max(a.relevance.values(), default=0.0) >= threshold for a in asked)


def _kept(asked: Asked, threshold: float) -> float:
    hits = [turn for turn in asked.hybrid if asked.relevance[turn] >= threshold][:10]
    return len(set(hits) & asked.question.evidence) / len(asked.question.evidence)


def measure(data: Path) -> dict[str, Any]:
    """Import, ask, print; return all figures."""
    sha256 = hashlib.sha256(data.read_bytes()).hexdigest()
    wanted = questions(data)
    lines: dict[str, list[bytes]] = {}
    for line in formats.lines(data, Format.LOCOMO, {}):
        lines.setdefault(json.loads(line)["user_id"], []).append(line)
    names = list(lines)
    following = dict(zip(names, [*names[1:], names[0]], strict=True))
    with server(names) as clients:
        turns = {name: load(clients[name], lines[name]) for name in names}
        drain(clients[names[0]])
        answers = [
            ask(clients[q.conversation], q, turns[q.conversation], q.conversation) for q in wanted
        ]
        foreign = [
            ask(clients[other], q, turns[other], other)[0]
            for q in wanted
            if q.category in ANSWERABLE
            for other in [following[q.conversation]]
        ]
    print(f"LoCoMo {data.name}, sha256 {sha256}")
    print(f"{sum(map(len, lines.values()))} turns, embedder {MODEL}")
    print(f"each search with k = {CUTS[-1]}, explained: median {_median_ms(answers):.1f} ms")
    asked = [one for one, _ in answers]
    mine = [a for a in asked if a.question.category in ANSWERABLE]
    held = [a for a in mine if a.question.conversation not in TUNED_ON]
    return {
        "sha256": sha256,
        "embedder": MODEL,
        "all": show("categories 1-4", mine),
        "corrected": show("the same, labels corrected by the audit", mine, corrected=True),
        "held_out": show("without the two conversations that weights were tried on", held),
        "categories": show_categories(asked),
        "thresholds": show_thresholds(asked, foreign),
    }


def _median_ms(answers: Sequence[tuple[Asked, float]]) -> float:
    return statistics.median(took for _, took in answers) * 1_000


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        default=DATA,
        help="LoCoMo's locomo10.json (CC BY-NC 4.0), with audit_errors.json beside it if at hand",
    )
    data = parser.parse_args().data
    if not data.is_file():
        parser.error(f"{data} is not there: name the data set by --data or GNOMON_BENCH_LOCOMO")
    figures = measure(data)
    RESULTS.mkdir(exist_ok=True)
    content = json.dumps(figures, indent=2) + "\n"
    (RESULTS / "recall.json").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
