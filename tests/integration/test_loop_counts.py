"""What loops count: each memory of a page once, and nothing that ever falls."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from canonical.domain.log import Page
from canonical.errors import EngineUnavailableError, PoisonError
from canonical.store import projections
from canonical.store.database import Database, Role
from projectors.protocol import Applied
from tests.support.builders import until
from tests.support.log import NAME, Log
from workers.runner import Pace, Runner
from workers.supervisor import ProjectorSpec, Supervisor, SupervisorSettings


@pytest.fixture
def log(open_database: Callable[[Role], Database]) -> Log:
    return Log(open_database)


class Moody:
    """Refuses one memory, is past another, and took two writes at the second try only."""

    def __init__(self, *, away: int = 0) -> None:
        self._away = away

    def apply(self, page: Page) -> Applied:
        if self._away:
            self._away -= 1
            raise EngineUnavailableError("away")
        first = next(iter(page.records))
        return Applied(refused={first: PoisonError("no")}, stale=1, again=2)


def test_each_memory_of_a_page_is_counted_once_by_what_became_of_it(log: Log) -> None:
    for n in range(5):
        log.add(f"memory {n}")
    runner = Runner(NAME, log.feed(), Moody())
    assert runner.run_once() == 5
    counts = runner.counts
    assert (counts.done, counts.stale, counts.refused, counts.again) == (3, 1, 1, 2)


def test_what_a_process_counts_does_not_fall_when_a_generation_is_given_up(log: Log) -> None:
    """Prometheus takes a counter that falls for a process that began anew."""
    for n in range(5):
        log.add(f"memory {n}")
    pace = Pace(gather_s=0.01, idle_s=0.01, backoff_s=0.01)
    supervisor = Supervisor(
        log.projector,
        [ProjectorSpec(NAME, "schema", lambda _: Moody(away=2), pace)],
        SupervisorSettings(owner="one", lasting=timedelta(seconds=30), parked_cap=100),
    )
    try:
        supervisor.look()
        until(lambda: supervisor.counts()[NAME]["done"] >= 3, "the page to be written")
        assert supervisor.counts()[NAME]["failures"] == 2
        until(lambda: supervisor.counts()[NAME]["failing"] == 0, "the loop to be well")
        with log.projector.transaction() as conn:
            projections.set_state(conn, NAME, log.generation, "old")
        before = supervisor.counts()[NAME]
        supervisor.look()
        after = supervisor.counts()[NAME]
        assert {
            name: after[name] - before[name] for name in before if after[name] < before[name]
        } == {}
        assert after["failures"] >= 2
    finally:
        supervisor.stop()
