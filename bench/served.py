"""Writes over HTTP by one client: bulks against plain COPY, single adds against a bare insert.

Both floors lie in the server's own Postgres: COPY in a second database with the same tables and
indexes, without projectors. A bulk is measured twice: with the projections paused, so that only
writing is compared with writing, and with all of them at work on the same two cores meanwhile.
"""

import argparse
import http.client
from collections.abc import Callable
from typing import Final

import httpx
import orjson

from bench import floors, report, server, texts
from bench.server import PROJECTIONS, Server
from bench.write import bare_insert, median_ms

SINGLES = 200
BAD: Final = 400  # and above: a status that is no success


def run(records: int, repeats: int) -> list[report.Row]:
    """Measure; floor and ours in turn."""
    with server.started() as up:
        return [*_single(up, repeats), *_bulk(up, records, repeats)]


def _single(up: Server, repeats: int) -> list[report.Row]:
    """Add one at a time on a connection that is kept, with the projections paused and at work.

    The client is the standard library's, which takes less for a request than httpx: what is
    measured is the server. Beside it a route that asks for nothing, as HTTP's own part.
    """
    (raw,) = texts.memories(1)
    bare, post = bare_insert(up.superuser), _asker(up, "POST", "/v1/memories", orjson.dumps(raw))
    empty = _asker(up, "GET", "/healthz")
    times: dict[str, list[float]] = {"bare": [], "empty": [], "paused": [], "at work": []}
    for work in (bare, post, empty):
        median_ms(work, 50)
    for _ in range(repeats):
        up.drain()
        times["bare"].append(median_ms(bare, SINGLES))
        times["empty"].append(median_ms(empty, SINGLES))
        times["at work"].append(median_ms(post, SINGLES))
        up.pause(PROJECTIONS, paused=True)
        times["paused"].append(median_ms(post, SINGLES))
        up.pause(PROJECTIONS, paused=False)
    floor = times["bare"]
    paused, at_work = times["paused"], times["at work"]
    return [
        report.row(
            "single POST, projections paused, p50", "ms", paused, floor, 3.0, lower_is_better=True
        ),
        report.row(
            "single POST, projections at work, p50", "ms", at_work, floor, 3.0, lower_is_better=True
        ),
        report.row(
            "a route that does nothing, p50", "ms", times["empty"], floor, lower_is_better=True
        ),
    ]


def _asker(up: Server, method: str, path: str, body: bytes | None = None) -> Callable[[], None]:
    url = httpx.URL(up.up.url)
    conn = http.client.HTTPConnection(url.host, url.port)
    headers = {
        "Authorization": up.client.headers["Authorization"],
        "Content-Type": "application/json",
    }

    def ask() -> None:
        conn.request(method, path, body, headers)
        answer = conn.getresponse()
        answer.read()
        assert answer.status < BAD, answer.status

    return ask


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
