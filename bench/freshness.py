"""How long after its acknowledgement a memory is found by each leg, under a steady load.

Lists of 50 are written ten times a second by one client, each text a new one, with everything at
work in the server. A leg serves a memory from when its projection's watermark has passed the
memory's event: an engine's page is committed and open to searches before the watermark moves, so
what is measured is an upper bound. Watermarks are read from Postgres by their key every 20 ms,
64 rows in under a millisecond, for all records; asking by searches would cost the server more
than the writes do. That the watermark tells the truth is checked by a search once a second: as
soon as vector and keyword watermark have passed a record, both legs must name it themselves.
A record whose leg had not come to it by the end counts with the time until then; the run says how
many. Names are found at some 100 to 460 texts a second and core, so the entity leg falls behind.
"""

import argparse
import heapq
import queue
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import psycopg

from bench import report, server, texts
from bench.server import PROJECTIONS, Server
from canonical.domain.positions import from_token

RATE = 500
LIST = 50
SECONDS = 60
LOOK_S = 0.02
CATCH_UP_S = 10.0  # for the content legs after the last write
CONTENT = ("vector", "keyword")
AIM_S = 1.0
WATERMARKS = (
    "SELECT w.projection, w.shard, w.pos FROM watermark w"
    " JOIN generation g USING (projection, generation) WHERE g.state = 'live'"
)


@dataclass
class Watch:
    """Records on their way: acknowledged, and not passed yet by some watermark."""

    waiting: dict[tuple[str, int], list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    marks: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    lock: threading.Condition = field(default_factory=threading.Condition)

    def acknowledged(self, shard: int, pos: int, at: float) -> None:
        """Begin to wait for a record."""
        with self.lock:
            for name in PROJECTIONS:
                heapq.heappush(self.waiting[name, shard], (pos, at))

    def passed(self, name: str, shard: int, pos: int, at: float) -> None:
        """Take note of a watermark that was read at `at`."""
        with self.lock:
            self.marks[name, shard] = pos
            self.lock.notify_all()
            held = self.waiting[name, shard]
            while held and held[0][0] <= pos:
                self.took_s[name].append(max(at - heapq.heappop(held)[1], 0.0))

    def wait_for(self, shard: int, pos: int) -> bool:
        """Return once the content legs have passed a record, or after `CATCH_UP_S`: False."""

        def is_passed() -> bool:
            return all(self.marks[name, shard] >= pos for name in CONTENT)

        with self.lock:
            return self.lock.wait_for(is_passed, CATCH_UP_S)

    def left(self, names: Sequence[str]) -> int:
        """Return how many records these projections have not come to."""
        with self.lock:
            return sum(len(held) for (name, _), held in self.waiting.items() if name in names)

    def give_up(self, name: str, at: float) -> int:
        """Count what still waits with its time so far; return how many those are."""
        with self.lock:
            queues = [held for (of, _), held in self.waiting.items() if of == name]
            waits = [at - since for held in queues for _, since in held]
            self.took_s[name] += waits
            return len(waits)


@dataclass
class Load:
    """What was sent, and what became of the samples."""

    written: int = 0
    late_s: float = 0.0
    checked: int = 0
    samples: "queue.SimpleQueue[Sample | None]" = field(default_factory=queue.SimpleQueue)


@dataclass(frozen=True)
class Sample:
    """A record to search for once its watermarks have passed it."""

    question: Mapping[str, object]
    memory_id: str
    shard: int
    pos: int


def run(seconds: int = SECONDS, rate: int = RATE) -> list[report.Row]:
    """Measure."""
    with server.started() as up:
        _warm(up)
        watch, load, done = Watch(), Load(), threading.Event()
        with ThreadPoolExecutor(2) as pool:
            looking = pool.submit(_look, up.superuser, watch, done)
            checking = pool.submit(_check, up, watch, load)
            try:
                _write(up, watch, load, seconds, rate)
                _await(watch, CATCH_UP_S)
            finally:
                load.samples.put(None)
                checking.result()
                done.set()
                looking.result()
        ended = time.perf_counter()
        missing = {name: watch.give_up(name, ended) for name in PROJECTIONS}
        late_s = up.drain()
    print(f"{load.written} records, {load.checked} searched for; missing at the end: {missing}")
    return [
        report.figure("load that was kept up", "records/s", load.written / seconds),
        report.figure("the latest list was sent behind time by", "s", load.late_s),
        *(row for name in PROJECTIONS for row in _rows(name, watch.took_s[name])),
        report.figure("all projections drained after the content legs by", "s", late_s),
    ]


def _rows(name: str, took_s: Sequence[float]) -> list[report.Row]:
    aim = AIM_S if name in CONTENT else None
    p99 = statistics.quantiles(took_s, n=100)[98]
    return [
        report.figure(f"freshness of {name}, p50", "s", statistics.median(took_s)),
        report.figure(f"freshness of {name}, p99", "s", p99, aim),
    ]


def _warm(up: Server) -> None:
    """Let every projection load what it loads with its first page."""
    up.load(texts.memories(200, seed=3))
    up.drain()


def _look(url: str, watch: Watch, done: threading.Event) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        while not done.wait(LOOK_S):
            read = conn.execute(WATERMARKS, prepare=True).fetchall()
            at = time.perf_counter()
            for name, shard, pos in read:
                watch.passed(name, shard, pos, at)


def _check(up: Server, watch: Watch, load: Load) -> None:
    """Search for each sample as soon as the watermarks say that it can be found."""
    headers = up.client.headers
    with httpx.Client(base_url=up.up.url, headers=headers, timeout=30) as client:
        while (sample := load.samples.get()) is not None:
            assert watch.wait_for(sample.shard, sample.pos), sample
            answer = client.post("/v1/search", json=sample.question).raise_for_status().json()
            (seen,) = [one for one in answer["candidates"] if one["id"] == sample.memory_id]
            assert set(CONTENT) <= set(seen["sources"]), seen
            load.checked += 1


def _write(up: Server, watch: Watch, load: Load, seconds: int, rate: int) -> None:
    """Keep the load up for so long."""
    lists = list(server.chunks(texts.memories(rate * seconds, seed=4), LIST))
    began = time.perf_counter()
    for n, some in enumerate(lists):
        due = began + n * LIST / rate
        time.sleep(max(due - time.perf_counter(), 0.0))
        load.late_s = max(load.late_s, time.perf_counter() - due)
        answer = up.client.post("/v1/memories", json={"memories": some})
        at = time.perf_counter()
        items = answer.raise_for_status().json()["items"]
        load.written += len(items)
        for one in items:
            watch.acknowledged(*_place(one), at)
        if n % (rate // LIST) == 0:
            load.samples.put(_sample(some[0], items[0]))


def _sample(raw: Mapping[str, object], written: Mapping[str, Any]) -> Sample:
    question = {"query": raw["text"], "user_id": raw["user_id"], "explain": True}
    return Sample(question, written["id"], *_place(written))


def _place(written: Mapping[str, Any]) -> tuple[int, int]:
    ((shard, pos),) = from_token(written["position"]).shards.items()
    return shard, pos


def _await(watch: Watch, most_s: float) -> None:
    ends = time.perf_counter() + most_s
    while watch.left(CONTENT) and time.perf_counter() < ends:
        time.sleep(LOOK_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--rate", type=int, default=RATE)
    options = parser.parse_args()
    report.show("freshness", run(options.seconds, options.rate))
