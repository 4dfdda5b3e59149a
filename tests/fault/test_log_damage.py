"""A damaged log, and loops that stand still: who stops, who goes on, and what the watch says."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from canonical.store.database import Database, Role
from gnomon.api.services import ApiSettings
from projectors.protocol import Applied, Page
from tests.support.builders import WAIT_S, until
from tests.support.http_server import Client, served
from tests.support.projecting import PROJECTIONS, Shadow
from tests.support.recording import RecordingProjector
from workers.runner import Pace, Runner

STUCK_AFTER = timedelta(seconds=0.3)


@pytest.fixture
def shadow(open_database: Callable[[Role], Database], database_url: str, tmp_path: Path) -> Shadow:
    """A log of 100 events with a live generation of every projection; only vector is cast here."""
    made = {n: Shadow(open_database, n, tmp_path, database_url) for n in PROJECTIONS}
    made["vector"].fill(100)
    return made["vector"]


@pytest.fixture
def client(database_url: str) -> Iterator[Client]:
    settings = replace(ApiSettings(), stuck_after=STUCK_AFTER)
    with served(database_url, settings=settings) as api:
        yield api.client()


def unwell(client: Client, part: str) -> dict[str, str]:
    """Return what the watch says of a projection's shards, as `part` says it."""
    answer: dict[str, Any] = client.get("/readyz").json()
    return {p["part"]: p["problem"] for p in answer["problems"] if p["part"].startswith(part)}


def test_a_hole_and_a_repeat_stop_their_shards_and_are_named(
    shadow: Shadow, client: Client
) -> None:
    """O-03: a hole at position 1, and a position that two events have; the others go on."""
    shards = [
        int(str(s)) for (s,) in shadow.execute("SELECT shard FROM shard WHERE pos > 2 ORDER BY 1")
    ]
    hole, repeat, *sound = shards
    shadow.execute("DELETE FROM outbox WHERE shard = :s AND pos = 1", s=hole)
    shadow.execute("CREATE TABLE outbox_planted PARTITION OF outbox FOR VALUES IN (99)")
    shadow.execute(
        "INSERT INTO outbox (segment, shard, pos, memory_id, rev, version, op, tenant)"
        " SELECT 99, shard, pos, gen_random_uuid(), 1, 1, op, tenant FROM outbox"
        " WHERE shard = :s AND pos = 2",
        s=repeat,
    )
    projector = RecordingProjector()
    runner = Runner("vector", shadow.feed(), projector, pace=Pace(page_events=32))
    while runner.run_once():
        pass
    assert runner.counts.halts == 2
    applied = {shard: max(p for s, p in projector.applied if s == shard) for shard in sound}
    heads = shadow.execute("SELECT shard, pos FROM shard WHERE pos > 2")
    assert set(applied.items()) <= set(heads)
    assert {pos for shard, pos in projector.applied if shard == hole} == set()
    assert {pos for shard, pos in projector.applied if shard == repeat} <= {1, 2}
    part = f"vector generation {shadow.generation} shard"
    said = unwell(client, "vector")
    assert said[f"{part} {hole}"].startswith("halted at position 1: position_gap. ")
    assert said[f"{part} {repeat}"].startswith("halted at position ")
    assert set(said) == {f"{part} {hole}", f"{part} {repeat}"}
    (status,) = [one for one in client.get("/v1/projections").json()["items"] if one["lag"] < 100]
    assert status["name"] == "vector"
    assert "position 1 expected" in str(status)


def test_a_second_event_at_a_position_is_refused_below_and_above_the_watermark(
    shadow: Shadow,
) -> None:
    """O-03: within a segment no repeat can be planted, not even by the owner of the log."""
    shadow.drain(RecordingProjector())
    shadow.fill(100)
    for place in ("o.pos = 1", "o.pos = w.pos", "o.pos = w.pos + 1"):
        with pytest.raises(IntegrityError, match="outbox_s1_pkey"):
            shadow.execute(
                "INSERT INTO outbox (segment, shard, pos, memory_id, rev, version, op, tenant)"
                " SELECT o.segment, o.shard, o.pos, gen_random_uuid(), 1, 1, o.op, o.tenant"
                "   FROM outbox o JOIN watermark w USING (shard)"
                f"  WHERE w.projection = 'vector' AND {place} LIMIT 1"
            )


class Frozen:
    """A projector that stands still until it is let go."""

    def __init__(self) -> None:
        self.inner, self.let_go = RecordingProjector(), Event()

    def apply(self, page: Page) -> Applied:
        assert self.let_go.wait(WAIT_S)
        return self.inner.apply(page)


def test_a_loop_that_stands_still_turns_the_watch_red_until_it_goes_on(
    shadow: Shadow, client: Client
) -> None:
    """A-02: it holds its leases and renews them, and nothing moves; liveness is another matter."""
    frozen = Frozen()
    runner = Runner("vector", shadow.feed(), frozen, pace=Pace(idle_s=0.01, renew_s=0.05))
    runner.start()
    try:
        until(lambda: bool(unwell(client, "vector")), "the watch to turn red")
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        said = unwell(client, "vector")
        assert all("positions wait" in problem for problem in said.values())
        waiting = shadow.execute("SELECT count(*) FROM shard WHERE pos > 0")
        assert [(len(said),)] == waiting
        frozen.let_go.set()
        until(lambda: not unwell(client, "vector"), "the watch to turn green")
    finally:
        frozen.let_go.set()
        runner.stop()


def test_no_worker_at_all_turns_the_watch_red_for_each_projection(
    shadow: Shadow, client: Client
) -> None:
    """A-02: killed workers and a sweep that stopped look alike: the head moved, nothing else."""
    until(lambda: all(unwell(client, name) for name in PROJECTIONS), "all four to be named")
    assert client.get("/healthz").status_code == 200
    assert shadow.lag() == 100
