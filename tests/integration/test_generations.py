"""When a generation that is built anew begins to serve, under writers that never pause."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from canonical.store import projections
from canonical.store.database import Database, Role
from canonical.store.projections import Generation
from projectors.protocol import Applied, Page
from tests.support.casting import Casting
from workers import generations
from workers.runner import Pace, Runner

NAME = "keyword"
PAGE = 20


@dataclass
class Chased:
    """A projector that never sees the end of the log: with each page, somebody writes more."""

    casting: Casting
    more: int

    def apply(self, _page: Page) -> Applied:
        for n in range(self.more):
            self.casting.add(f"one more {n}")
        return Applied()


@pytest.fixture
def casting(open_database: Callable[[Role], Database]) -> Casting:
    casting = Casting(open_database, NAME)
    casting.execute("UPDATE generation SET state = 'building' WHERE projection = :n", n=NAME)
    return casting


def runner_of(casting: Casting, more: int) -> Runner:
    generation = Generation(casting.generation, "building", "schema")
    return Runner(
        NAME,
        casting.feed(),
        Chased(casting, more),
        pace=Pace(page_events=PAGE),
        caught_up=generations.go_live(casting.projector, NAME, generation),
    )


def state(casting: Casting) -> str:
    (found,) = [one for one in projections.status(casting.projector) if one.name == NAME]
    return found.generations[-1].state


def test_a_generation_serves_once_it_keeps_up_with_writers_that_never_pause(
    casting: Casting,
) -> None:
    casting.add("the first")
    runner = runner_of(casting, more=1)
    runner.run_once()
    assert state(casting) == "live"


def test_a_generation_that_is_more_than_a_page_behind_does_not_serve(casting: Casting) -> None:
    casting.add("the first")
    runner = runner_of(casting, more=PAGE + 1)
    for _ in range(2):
        runner.run_once()
        assert state(casting) == "building"


def test_a_generation_that_is_paused_before_the_end_does_not_serve(casting: Casting) -> None:
    casting.add("the first")
    projections.pause(casting.api, NAME, paused=True)
    runner_of(casting, more=0).run_once()
    assert state(casting) == "building"
