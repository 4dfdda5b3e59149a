"""Searches over HTTP, one after the other, in 100 scopes of 100 and then of 1,000 records.

Each answer says in its `Server-Timing` header how long its own parts took, so the ratio is taken
search by search: the whole, as the client waited for it, to the slowest leg and the re-check. No
projection works meanwhile: every record is drained first. Names are found some 300 times a second,
so each text stands in several scopes: its names are found once and come from the cache later.
Nearly every name is shared by a third of its scope, which is the worst that the entity leg meets.
"""

import argparse
import random
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx

from bench import report, server, texts
from bench.server import Server

SCOPES = 100
STEPS = (10_000, 100_000)
DISTINCT = 4_000  # texts; a scope of 1,000 has none of them twice
SEARCHES = 600
WARM = 100
LEGS = ("vector", "keyword", "entity")
UPLOAD = 10_000
_METRIC = re.compile(r"(\w+);dur=([\d.]+)")


@dataclass(frozen=True)
class Asked:
    """One search: how long its client waited, and how long each part took by its own account."""

    whole_ms: float
    parts_ms: Mapping[str, float]

    @property
    def needed_ms(self) -> float:
        """Return what can't be had at the same time: the slowest leg, then the re-check."""
        slowest = max(self.parts_ms.get(leg, 0.0) for leg in LEGS)
        return slowest + self.parts_ms["recheck"]


def memories(count: int, first: int) -> Iterator[dict[str, object]]:
    """Yield records `first` to `first + count`, evenly over the scopes; no scope repeats a text."""
    pool = texts.memories(DISTINCT)
    for n in range(first, first + count):
        scope, place = n % SCOPES, n // SCOPES
        said = pool[(scope * 37 + place) % DISTINCT]
        yield {**said, "user_id": f"user-{scope}"}


def questions(count: int, seed: int) -> list[dict[str, object]]:
    """Return questions as people ask them: a name, a thing, some words around them."""
    dice = random.Random(seed)
    return [
        {
            "query": f"What does {dice.choice(texts.PEOPLE)} say about "
            f"{dice.choice(texts.THINGS)} in {dice.choice(texts.PLACES)}?",
            "user_id": f"user-{dice.randrange(SCOPES)}",
        }
        for _ in range(count)
    ]


def ask(client: httpx.Client, question: Mapping[str, object]) -> Asked:
    """Search once."""
    began = time.perf_counter()
    answer = client.post("/v1/search", json=question)
    took = time.perf_counter() - began
    found = answer.raise_for_status().json()
    assert len(found["items"]) == 10, found
    assert not found["degraded"], found["degraded"]
    parts = {name: float(ms) for name, ms in _METRIC.findall(answer.headers["Server-Timing"])}
    return Asked(took * 1_000, parts)


def run(steps: Sequence[int] = STEPS, searches: int = SEARCHES) -> list[report.Row]:
    """Measure at each size."""
    rows: list[report.Row] = []
    medians: list[float] = []
    with server.started() as up:
        rows.append(report.figure("process and NER child, empty: RSS", "MiB", _rss(up)))
        loaded = 0
        for size in steps:
            _load(up, size, loaded)
            loaded = size
            for question in questions(WARM, seed=1):
                ask(up.client, question)
            asked = [ask(up.client, one) for one in questions(searches, seed=2)]
            rows += _rows(size, asked)
            rows += _memory(up, size)
            medians.append(statistics.median(a.whole_ms for a in asked))
    grown = f"p50 at {steps[-1]:,} records to p50 at {steps[0]:,}"
    rows.append(report.figure(grown, "ratio", medians[-1] / medians[0]))
    return rows


def _load(up: Server, size: int, loaded: int) -> None:
    for first in range(loaded, size, UPLOAD):
        up.load(memories(min(UPLOAD, size - first), first))
    up.drain()
    with up.superuser_connection() as conn:  # what autovacuum does within a minute or so
        conn.execute("VACUUM (ANALYZE)")


def _rows(size: int, asked: Sequence[Asked]) -> list[report.Row]:
    whole, needed = [a.whole_ms for a in asked], [a.needed_ms for a in asked]
    name = f"search, {size:,} records"
    parts = sorted({part for a in asked for part in a.parts_ms})
    return [
        report.row(
            f"{name}, p50: slowest leg and re-check", "ms", whole, needed, 1.5, lower_is_better=True
        ),
        report.figure(f"{name}, p99", "ms", statistics.quantiles(whole, n=100)[98]),
        *(
            report.figure(
                f"{name}, p50 of {part}",
                "ms",
                statistics.median(a.parts_ms.get(part, 0.0) for a in asked),
            )
            for part in parts
        ),
    ]


def _memory(up: Server, size: int) -> list[report.Row]:
    used = up.memory_mib()
    return [
        report.figure(f"process and NER child, {size:,} records: {part}", "MiB", used[part])
        for part in ("Rss", "Pss")
    ]


def _rss(up: Server) -> float:
    return up.memory_mib()["Rss"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=list(STEPS))
    parser.add_argument("--searches", type=int, default=SEARCHES)
    options = parser.parse_args()
    report.show("search", run(options.records, options.searches))
