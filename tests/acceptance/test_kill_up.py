"""`gnomon up` is killed in the middle of a bulk import, again and again, and sent it again."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import psycopg
import pytest

from canonical.store.embedded import EmbeddedPostgres
from tests.support.server import Up

KILLS = int(os.environ.get("GNOMON_KILLS", "2"))
LINES = int(os.environ.get("GNOMON_KILL_LINES", "6000"))
WITHIN_S = 300
SOON_S = 8  # a lease has at least 20 s left when its holder dies, and a start takes some 3
BULK = "/v1/memories:bulk"
HEADERS = {"content-type": "application/x-ndjson"}


def lines() -> list[bytes]:
    return [
        orjson.dumps({"user_id": f"u{n % 7}", "text": f"Mara Lind keeps key {n} in Lisbon"}) + b"\n"
        for n in range(LINES)
    ]


def paced(up: Up, sent: list[bytes]) -> Iterator[bytes]:
    """Send lines in pieces; half-way, once some are committed, the server is killed."""
    for start in range(0, len(sent), 500):
        if start == len(sent) // 2:
            wait_until_committed(up)
            threading.Timer(0.05, up.process.kill).start()
        yield b"".join(sent[start : start + 500])


def wait_until_committed(up: Up) -> None:
    with httpx.Client(base_url=up.url) as other:
        until = time.monotonic() + WITHIN_S
        while not other.get("/v1/memories", params={"user_id": "u0"}).json()["total"]:
            assert time.monotonic() < until
            threading.Event().wait(0.05)


def wait_until_projected(up: Up, within_s: float = WITHIN_S) -> None:
    """Wait for all, also for what was set aside because kills met its shard again and again."""
    until = time.monotonic() + within_s
    while any([*up.lags().values(), *up.parked().values()]):
        assert time.monotonic() < until, (up.lags(), up.parked())
        threading.Event().wait(0.2)


def test_kills_in_the_middle_of_an_import_lose_and_double_nothing(tmp_path: Path) -> None:
    """W-12, O-07: exactly the input's records, and every projection complete."""
    state, sent = tmp_path / "state", lines()
    for _ in range(KILLS):
        up = Up(state)
        with pytest.raises(httpx.TransportError):
            up.client.post(
                BULK, params={"mutation_id": "import-1"}, headers=HEADERS, content=paced(up, sent)
            )
        up.kill()
    with Up(state) as up:
        answer = up.client.post(
            BULK, params={"mutation_id": "import-1"}, headers=HEADERS, content=b"".join(sent)
        )
        assert answer.status_code == 200
        *written, last = answer.text.splitlines()
        summary = orjson.loads(last)["summary"]
        assert summary["written"] + summary["replayed"] == LINES
        assert summary["replayed"] > 0
        ids = {orjson.loads(line)["id"] for line in written}
        assert len(ids) == LINES
        wait_until_projected(up)
        totals = [
            up.client.get("/v1/memories", params={"user_id": f"u{n}", "limit": 1}).json()["total"]
            for n in range(7)
        ]
        assert sum(totals) == LINES
        found = up.client.post(
            "/v1/search", json={"query": f"key {LINES - 1}", "user_id": f"u{(LINES - 1) % 7}"}
        ).json()
        assert found["degraded"] == []
        assert found["items"][0]["text"].endswith(f"key {LINES - 1} in Lisbon")
        assert up.stop() == 0
    assert counts(state) == {"memory": LINES, "audit": LINES, "linked": LINES, "events": LINES}


def test_what_a_killed_server_held_is_worked_on_as_soon_as_the_next_one_is_up(
    tmp_path: Path,
) -> None:
    """O-09, A-02: not a lease's time later, with /readyz red before that."""
    state = tmp_path / "state"
    up = Up(state)
    for n in range(40):
        up.client.post("/v1/memories", json={"user_id": "u", "text": f"key {n}"}).raise_for_status()
    wait_until_projected(up)  # idle, it holds its leases and renews them
    up.kill()
    with Up(state) as up:
        up.client.post("/v1/memories", json={"user_id": "u", "text": "one more"})
        wait_until_projected(up, SOON_S)
        for name in up.lags():
            series = f'gnomon_leases_lost_total{{projection="{name}"}} 0.0'
            assert series in up.client.get("/metrics").text
        assert up.stop() == 0


def counts(state: Path) -> dict[str, int]:
    with (
        EmbeddedPostgres(state / "postgres") as server,
        psycopg.connect(server.url(database="gnomon")) as conn,
    ):
        return {
            "memory": _count(conn, "memory"),
            "audit": _count(conn, "audit"),
            "linked": _count(conn, "(SELECT DISTINCT memory_id FROM entity_link) l"),
            "events": _count(conn, "outbox"),
        }


def _count(conn: psycopg.Connection, table: str) -> int:
    row = conn.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0
