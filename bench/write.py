"""Bulk adds against plain COPY of the same rows; single adds against a bare insert and commit."""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from bench import floors, report, texts
from canonical.domain.clock import SystemClock
from canonical.domain.commands import Caller, new_memory
from canonical.mutations import bulk
from canonical.mutations.add import add
from canonical.mutations.writer import Writer
from canonical.store import migrate
from canonical.store.database import Database, Role
from canonical.store.embedded import EmbeddedPostgres

CHUNK = 1_000
CALLER = Caller("default", "bench")


def bulk_rate(url: str, raws: list[dict[str, object]], writers: int) -> float:
    """Add records in process, from JSON values to commits; a process a writer; records a second."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    done = context.Queue()
    processes = [
        context.Process(target=_write, args=(url, raws[n::writers], ready, go, done))
        for n in range(writers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    began = time.perf_counter()
    go.set()
    for _ in processes:
        done.get()
    took = time.perf_counter() - began
    for process in processes:
        process.join()
    return len(raws) / took


def _write(url: str, raws: list[dict[str, object]], ready: Any, go: Any, done: Any) -> None:
    database = Database(url, Role.API, connections=2)
    writer = Writer(database, CALLER, SystemClock())
    with database.transaction():
        ready.release()
        go.wait()
    for _ in bulk.add_chunks(writer, _chunks(raws)):
        pass
    done.put(None)
    database.close()


def _chunks(raws: list[dict[str, object]]) -> Iterator[tuple[bulk.Chunk, None]]:
    for start in range(0, len(raws), CHUNK):
        lines = enumerate(raws[start : start + CHUNK], 1)
        items = [(line, new_memory(raw, CALLER)) for line, raw in lines]
        yield bulk.Chunk(items, size=CHUNK), None


def median_ms(work: Callable[[], object], times: int) -> float:
    """Return the median time of `work`, in milliseconds."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1_000


def bare_insert(url: str) -> Callable[[], object]:
    """Return what inserts one small row and commits, prepared, as fast as the driver can."""
    conn = psycopg.connect(url, autocommit=True)
    conn.execute("CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, text text)")
    said = "x" * 100
    return lambda: conn.execute("INSERT INTO bare (text) VALUES (%s)", (said,), prepare=True)


def run(records: int, repeats: int) -> list[report.Row]:
    """Measure, floor and ours in turn, and return the best of each side and the median ratio."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "pg") as server:
        url, admin = server.url("gnomon", "gnomon"), server.url(database="gnomon")
        migrate.upgrade(url)
        raws = texts.memories(records)
        for writers in (1, 4):
            ours, floor = [], []
            for _ in range(repeats):
                floors.empty(admin)
                ours.append(bulk_rate(url, raws, writers))
                dumped = floors.dump(url)
                floors.empty(admin)
                floor.append(floors.copy_rate(admin, dumped, writers))
            rows.append(
                report.row(f"bulk add in process, {writers} writers", "records/s", ours, floor, 0.6)
            )
        rows.append(_single(url, admin))
    return rows


def _single(url: str, admin: str) -> report.Row:
    floors.empty(admin)
    database = Database(url, Role.API, connections=2)
    writer = Writer(database, CALLER, SystemClock())
    (raw,) = texts.memories(1)
    bare = bare_insert(admin)
    for _ in range(50):
        add(writer, new_memory(raw, CALLER))
        bare()
    ours = [median_ms(lambda: add(writer, new_memory(raw, CALLER)), 300) for _ in range(3)]
    floor = [median_ms(bare, 300) for _ in range(3)]
    database.close()
    return report.row("single add in process, p50", "ms", ours, floor, 3.0, lower_is_better=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    report.show("write", run(options.records, options.repeats))
