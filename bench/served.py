"""Writes over HTTP by one client: bulks against plain COPY, single adds against a bare insert.

Both floors lie in the server's own Postgres: COPY in a second database with the same tables and
indexes, without projectors. A bulk is measured twice: with the projections paused, so that only
writing is compared with writing, and with all of them at work on the same two cores meanwhile.
"""

import argparse

from bench import floors, report, server, texts
from bench.server import PROJECTIONS, Server
from bench.write import bare_insert, median_ms

SINGLES = 200


def run(records: int, repeats: int) -> list[report.Row]:
    """Measure; floor and ours in turn."""
    with server.started() as up:
        return [_single(up, repeats), *_bulk(up, records, repeats)]


def _single(up: Server, repeats: int) -> report.Row:
    """Add one at a time on a connection that is kept; projectors run, the log was drained."""
    (raw,) = texts.memories(1)
    bare = bare_insert(up.superuser)

    def add() -> None:
        assert up.client.post("/v1/memories", json=raw).status_code == 201

    ours, floor = [], []
    median_ms(add, 50)
    median_ms(bare, 50)
    for _ in range(repeats):
        up.drain()
        floor.append(median_ms(bare, SINGLES))
        ours.append(median_ms(add, SINGLES))
    return report.row("single POST, p50", "ms", ours, floor, 3.0, lower_is_better=True)


def _bulk(up: Server, records: int, repeats: int) -> list[report.Row]:
    admin = server.floor_database(up.postgres)
    raws = texts.memories(records)
    rates: dict[bool, list[float]] = {True: [], False: []}
    floor = []
    for _ in range(repeats):
        for paused in (True, False):
            up.pause(PROJECTIONS, paused=paused)
            rates[paused].append(records / up.load(raws))
            up.pause(PROJECTIONS, paused=False)
            up.drain()
        dumped = _newest(floors.dump(up.superuser), records)
        floors.empty(admin)
        floor.append(floors.copy_rate(admin, dumped, 1))
    return [
        report.row("HTTP bulk, projections paused", "records/s", rates[True], floor, 0.4),
        report.row("HTTP bulk, projections at work", "records/s", rates[False], floor, 0.4),
    ]


def _newest(
    dumped: dict[str, tuple[str, list[bytes]]], records: int
) -> dict[str, tuple[str, list[bytes]]]:
    """Return the rows of the last bulk: all tables come in the order of ids, which is time's."""
    return {table: (columns, rows[-records:]) for table, (columns, rows) in dumped.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    report.show("served", run(options.records, options.repeats))
