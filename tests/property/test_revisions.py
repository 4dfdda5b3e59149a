"""Pages that overtake each other, repeat and come from zombies, through every engine's writer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from canonical.domain.log import PARK_AFTER
from canonical.errors import LeaseLostError, RejectedError
from canonical.store.database import Database, Role
from projectors.protocol import Applied, Lease, Page, Projector
from tests.support.casting import SHARDS
from tests.support.projecting import PROJECTIONS, Opened, Shadow, said

WORKERS = 3
ANY_ORDER = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# What happens, in any order: a record is changed (five times as often as deleted), a worker reads
# a page, writes one that it has read, moves the watermarks, or every lease ends.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["change"] * 5 + ["delete"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["read", "write", "move"]), st.integers(0, WORKERS - 1)),
        st.tuples(st.just("end"), st.just(0)),
    ),
    min_size=4,
    max_size=30,
)


@dataclass
class Worker:
    """One that may be a zombie: it keeps its leases and every page that it has read."""

    shadow: Shadow
    projector: Projector
    name: str
    pages: list[tuple[Page, list[Lease]]] = field(default_factory=list)
    applied: list[tuple[Page, list[Lease], Applied]] = field(default_factory=list)

    def read(self) -> None:
        feed = self.shadow.feed(self.name)
        leases = feed.claim(SHARDS)
        if leases and (events := feed.read(leases, limit=len(leases) * 2).events):
            page = feed.page(events)
            touched = {mark.shard for mark in page.marks}
            self.pages.append((page, [one for one in leases if one.shard in touched]))

    def write(self) -> None:
        """Write the oldest page that it holds, and keep it: the next write may repeat it."""
        if self.pages:
            page, leases = self.pages[0]
            self.applied.append((page, leases, self.projector.apply(page)))
            self.pages = [*self.pages[1:], self.pages[0]]

    def move(self) -> None:
        if self.applied:
            page, leases, applied = self.applied.pop(0)
            with suppress(LeaseLostError):
                self.shadow.feed(self.name).advance(leases, page, applied)

    def finish(self) -> None:
        """Come last, as a zombie does, with all that it ever held."""
        for _ in self.pages:
            self.write()
        while self.applied:
            self.move()


@dataclass
class Scene:
    """A projection, its engine, and the workers that share it."""

    shadow: Shadow
    opened: Opened
    turn: int = 0

    def play(self, steps: Sequence[tuple[str, int]]) -> None:
        shadow = self.shadow
        self.turn += 1
        workers = [
            Worker(shadow, self.opened.projector, f"{self.turn}/{n}") for n in range(WORKERS)
        ]
        ids = shadow.fill(3)
        for n, (step, who) in enumerate(steps):
            if step == "end":
                shadow.end_leases()
            elif step in ("change", "delete"):
                with suppress(RejectedError):  # it is deleted
                    self._mutate(step, ids[who], said(n))
            else:
                getattr(workers[who], step)()
        with suppress(RejectedError):  # it is deleted
            shadow.delete(ids[0])
        shadow.end_leases()
        shadow.drain(self.opened.projector, f"{self.turn}/heir")
        # What many had claimed and nobody ended looks like what kills its workers, and is parked.
        shadow.retry(self.opened.projector, f"{self.turn}/heir")
        assert shadow.execute("SELECT * FROM parked") == []
        shadow.check(self.opened)
        for worker in workers:
            worker.finish()
        shadow.check(self.opened)

    def _mutate(self, step: str, memory_id: UUID, text: str) -> None:
        if step == "delete":
            self.shadow.delete(memory_id)
        else:
            self.shadow.say(memory_id, text)


@pytest.fixture(params=PROJECTIONS)
def scene(
    request: pytest.FixtureRequest,
    open_database: Callable[[Role], Database],
    database_url: str,
    tmp_path: Path,
) -> Iterator[Scene]:
    shadow = Shadow(open_database, request.param, tmp_path, database_url)
    with shadow.opened() as opened:
        yield Scene(shadow, opened)


@ANY_ORDER
@given(steps=STEPS)
@example(steps=[("read", 0), ("end", 0)] * (PARK_AFTER + 1))
def test_the_newest_state_wins_in_every_order_of_pages(
    scene: Scene, steps: list[tuple[str, int]]
) -> None:
    """O-04, O-05, O-06, O-08, O-24: in each engine the newest state of each record, and once."""
    scene.play(steps)
