"""Loops that share a projection: each leases a few shards, and every shard comes to its turn."""

import threading
from collections.abc import Callable

import pytest

from canonical.store.database import Database, Role
from projectors.protocol import Applied, Page
from tests.support.casting import SHARDS, Casting
from tests.support.recording import RecordingProjector
from workers.runner import Pace, Runner

MOST = 4
WITHIN_S = 30


@pytest.fixture
def casting(open_database: Callable[[Role], Database]) -> Casting:
    return Casting(open_database, "keyword")


class Busy(RecordingProjector):
    """With every page somebody writes to all shards again."""

    def __init__(self, write: Callable[[], None]) -> None:
        super().__init__()
        self._write = write

    def apply(self, page: Page) -> Applied:  # type: ignore[explicit-override]
        self._write()
        return super().apply(page)


def runner(casting: Casting, projector: RecordingProjector, owner: str, page: int = 64) -> Runner:
    pace = Pace(page_events=page, shards=MOST)
    return Runner(casting.name, casting.feed(owner), projector, pace=pace)


def fill(casting: Casting, count: int = 100) -> None:
    for n in range(count):
        casting.add(f"note {n}")


def held(casting: Casting) -> dict[object, int]:
    rows = casting.execute(
        "SELECT split_part(lease_owner, '.', 1), count(*) FROM watermark"
        " WHERE lease_until > now() GROUP BY 1"
    )
    return {owner: int(str(count)) for owner, count in rows}


def test_a_loop_leases_no_more_than_its_share_and_others_find_the_rest(casting: Casting) -> None:
    fill(casting)
    one, two = (runner(casting, RecordingProjector(), owner) for owner in ("one", "two"))
    one.run_once()
    two.run_once()
    assert held(casting) == {"one": MOST, "two": MOST}


def test_every_shard_comes_to_its_turn_while_the_others_always_have_work(
    casting: Casting,
) -> None:
    fill(casting)
    seen: set[int] = set()
    projector = Busy(lambda: fill(casting, 20))
    alone = runner(casting, projector, "one", page=8)
    for _ in range(200):
        alone.run_once()
        seen = {shard for shard, _ in projector.applied}
        if len(seen) == len(SHARDS):
            break
    assert len(seen) == len(SHARDS)


def test_a_loop_that_has_caught_up_holds_nothing(casting: Casting) -> None:
    fill(casting)
    alone = runner(casting, RecordingProjector(), "one")
    while alone.run_once():
        pass
    assert held(casting) == {}


def test_a_page_that_outlasts_the_time_to_stop_is_given_back(casting: Casting) -> None:
    """Whoever is told to stop keeps nobody waiting for the end of its leases."""
    fill(casting)
    there, go_on = threading.Event(), threading.Event()

    def stand(_page: Page) -> None:
        there.set()
        assert go_on.wait(WITHIN_S)

    projector = RecordingProjector()
    projector.before = stand
    slow = runner(casting, projector, "slow")
    slow.start()
    assert there.wait(WITHIN_S)
    assert held(casting) == {"slow": MOST}
    slow.stop(timeout_s=0.05)
    assert held(casting) == {}
    go_on.set()
    slow.stop()
    assert casting.execute("SELECT max(pos) FROM watermark") == [(0,)]
