"""Generations of an index on a server, which any number of processes decide about at once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest

from canonical.errors import EngineMismatchError, EngineUnavailableError, LeaseLostError
from canonical.store import projections
from canonical.store.database import Database, Role
from projectors.loop import run_page
from tests.support.builders import until
from tests.support.casting import SHARDS, Casting
from tests.support.index_server import IndexServer, OpenIndex
from tests.support.recording import RecordingProjector
from workers import generations
from workers.lazy import LazyProjector
from workers.runner import Pace
from workers.supervisor import ProjectorSpec, Supervisor, SupervisorSettings

NAME = "keyword"
WITHIN_S = 30
QUICK = Pace(idle_s=0.05, backoff_s=0.05, backoff_most_s=0.1, renew_s=1.0)


class House:
    """One Postgres, one index server, and as many supervisors as a test wants."""

    def __init__(self, open_database: Callable[[Role], Database]) -> None:
        self.server = IndexServer()
        self.open_database = open_database
        self.log = Casting(open_database, NAME)
        for table in ("watermark", "generation"):  # the first is the supervisors' to begin
            self.log.execute(f"DELETE FROM {table}")

    def supervisor(self, owner: str = "one", schema_hash: str = "schema") -> Supervisor:
        database = self.open_database(Role.PROJECTOR)
        blueprint = self.server.blueprint(NAME, schema_hash)

        def opened(generation: projections.Generation) -> LazyProjector:
            def open_() -> tuple[OpenIndex, Callable[[], None]]:
                index = generations.open_on_server(blueprint, generation, database)
                return index, index.close

            return LazyProjector(open_)

        settings = SupervisorSettings(
            owner=owner, lasting=timedelta(seconds=2), parked_cap=10, look_s=0.05
        )
        return Supervisor(database, [ProjectorSpec(NAME, schema_hash, opened, QUICK)], settings)

    @contextmanager
    def working(self, owner: str = "one", schema_hash: str = "schema") -> Iterator[Supervisor]:
        supervisor = self.supervisor(owner, schema_hash)
        supervisor.start()
        try:
            yield supervisor
        finally:
            supervisor.stop()

    def states(self) -> dict[int, str]:
        rows = self.log.execute("SELECT generation, state FROM generation ORDER BY generation")
        return {int(str(number)): str(state) for number, state in rows}

    def errors(self, generation: int) -> set[tuple[object, ...]]:
        return set(
            self.log.execute(
                "SELECT halted, error_code FROM watermark"
                " WHERE generation = :g AND error_code IS NOT NULL",
                g=generation,
            )
        )

    def is_projected(self, generation: int) -> bool:
        with self.log.projector.transaction() as conn:
            return projections.lag(conn, NAME, generation) == 0

    def texts(self, generation: int) -> set[str]:
        place = generations.place_of(NAME, generation)
        return {record.text for record in self.server.indexes[place].records.values()}

    def fill(self, first: int = 0, count: int = 20) -> None:
        for n in range(first, first + count):
            self.log.add(f"note {n}")


@pytest.fixture
def house(open_database: Callable[[Role], Database]) -> House:
    return House(open_database)


def said(first: int, end: int) -> set[str]:
    return {f"note {n}" for n in range(first, end)}


def test_processes_that_start_at_once_begin_one_generation_and_make_one_index(
    house: House,
) -> None:
    house.fill()
    together = threading.Barrier(4)

    def start(n: int) -> None:
        supervisor = house.supervisor(f"process {n}")
        together.wait(WITHIN_S)
        supervisor.start()
        supervisors.append(supervisor)

    supervisors: list[Supervisor] = []
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(start, range(4)))
        until(lambda: house.states() == {1: "live"}, "the one generation to serve")
    finally:
        for supervisor in supervisors:
            supervisor.stop()
    assert house.server.created == [generations.place_of(NAME, 1)]
    assert house.texts(1) == said(0, 20)
    assert house.errors(1) == set()


def test_two_processes_that_open_a_new_generation_make_its_index_once(house: House) -> None:
    """The one that finds it missing meets the other in the middle of making it."""
    generation = generations.current(house.log.projector, NAME, "schema")
    blueprint = house.server.blueprint(NAME)
    making, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        making.set()
        assert go_on.wait(WITHIN_S)

    house.server.before_create = pause
    database = house.open_database(Role.PROJECTOR)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(generations.open_on_server, blueprint, generation, database)
        assert making.wait(WITHIN_S)
        second = pool.submit(generations.open_on_server, blueprint, generation, house.log.projector)
        until(house.log.waits_for_lock, "the second to wait for the first")
        go_on.set()
        assert first.result(WITHIN_S).place == second.result(WITHIN_S).place
    assert len(house.server.created) == 1


def test_an_engine_that_is_away_at_the_start_is_worked_on_once_it_is_back(house: House) -> None:
    """E-16, O-28: it is not lost; the shards are held, nothing is parked, nobody restarts."""
    house.fill()
    house.server.is_away = True
    with house.working() as supervisor:
        until(lambda: house.errors(1) == {(False, "engine_unavailable")}, "the shards to be held")
        assert house.states() == {1: "building"}
        house.server.is_away = False
        until(lambda: house.states() == {1: "live"}, "the generation to serve")
        assert supervisor.ailments() == []
    assert house.texts(1) == said(0, 20)


def test_an_index_that_was_written_to_and_is_gone_halts_and_is_never_made_again(
    house: House,
) -> None:
    """E-16: the halt names the generation; a rebuild brings it back beside the lost one."""
    house.fill()
    with house.working():
        until(lambda: house.states() == {1: "live"}, "the generation to serve")
        house.server.indexes.clear()
        house.fill(20, 20)
        until(lambda: house.errors(1) == {(True, "engine_mismatch")}, "its shards to halt")
    with house.working():  # nor by a process that starts, nor when the shards are let go on
        assert projections.resume_halted(house.log.projector, NAME) > 0
        until(lambda: house.errors(1) == {(True, "engine_mismatch")}, "its shards to halt again")
        assert house.server.indexes == {}
        assert house.states() == {1: "live"}
        ((said_why,),) = house.log.execute(
            "SELECT DISTINCT error FROM watermark WHERE error IS NOT NULL"
        )
        assert generations.place_of(NAME, 1) in str(said_why)
        generations.rebuild(house.log.projector, NAME, "schema")
        until(lambda: house.states() == {1: "old", 2: "live"}, "the new one to serve")
    assert house.texts(2) == said(0, 40)


def test_an_index_that_comes_back_older_is_not_written_on(house: House) -> None:
    house.fill()
    with house.working():
        until(lambda: house.is_projected(1), "all to be projected")
    place = generations.place_of(NAME, 1)
    house.server.indexes[place].marks.popitem()
    generation = generations.current(house.log.projector, NAME, "schema")
    with pytest.raises(EngineMismatchError, match=f"{place}: the engine stands before"):
        generations.open_on_server(house.server.blueprint(NAME), generation, house.log.projector)


def test_an_engine_of_another_history_is_not_written_on(house: House) -> None:
    house.fill()
    with house.working():
        until(lambda: house.is_projected(1), "all to be projected")
    index = house.server.indexes[generations.place_of(NAME, 1)]
    shard, mark = index.marks.popitem()
    index.marks[shard] = type(mark)(shard, mark.pos, mark.memory_id, mark.rev + 1, mark.epoch)
    generation = generations.current(house.log.projector, NAME, "schema")
    with pytest.raises(EngineMismatchError, match="a history that the log doesn't"):
        generations.open_on_server(house.server.blueprint(NAME), generation, house.log.projector)


def test_a_process_of_another_schema_leaves_the_generation_alone_and_names_both(
    house: House,
) -> None:
    """E-06: one that was built with another model is refused; who fits it goes on."""
    house.fill()
    with house.working("fitting"):
        until(lambda: house.states() == {1: "live"}, "the generation to serve")
        with house.working("strange", "another model") as strange:
            ((name, ailment),) = strange.ailments()
            assert name == NAME
            assert "schema" in ailment
            assert "another model" in ailment
            assert strange.runners == []
            house.fill(20, 20)
            until(lambda: house.is_projected(1), "the fitting one to go on")
            assert house.errors(1) == set()


def test_a_rebuild_that_another_process_began_is_worked_on_and_taken_live_without_a_restart(
    house: House,
) -> None:
    house.fill()
    with house.working("one"), house.working("two"):
        until(lambda: house.states() == {1: "live"}, "the first to serve")
        generations.rebuild(house.log.projector, NAME, "schema")
        until(lambda: house.states() == {1: "old", 2: "live"}, "the second to serve")
        house.fill(20, 5)
        until(lambda: house.is_projected(2), "the second to go on")
    assert house.texts(2) == said(0, 25)
    assert house.texts(1) <= said(0, 20)


def test_a_generation_never_takes_the_place_of_a_newer_one(house: House) -> None:
    house.fill()
    old = generations.current(house.log.projector, NAME, "schema")
    late = generations.go_live(house.log.projector, NAME, old)
    generations.rebuild(house.log.projector, NAME, "schema")
    new = generations.current(house.log.projector, NAME, "schema")
    generations.go_live(house.log.projector, NAME, new)(1_000)
    late(1_000)
    assert house.states() == {1: "old", 2: "live"}


def test_a_worker_that_still_holds_leases_of_a_retired_generation_moves_no_watermark(
    house: House,
) -> None:
    house.fill()
    generations.current(house.log.projector, NAME, "schema")
    feed = house.log.feed("zombie", generation=1)
    leases = feed.claim(SHARDS)
    assert len(leases) == len(SHARDS)
    generations.rebuild(house.log.projector, NAME, "schema")
    with pytest.raises(LeaseLostError):
        run_page(feed, RecordingProjector(), leases, limit=100)
    assert feed.waiting() == []
    assert feed.claim(SHARDS) == []
    assert house.log.execute("SELECT DISTINCT pos FROM watermark WHERE generation = 1") == [(0,)]


def test_an_engine_that_is_away_is_no_reason_to_make_its_index_anew(house: House) -> None:
    house.fill()
    generation = generations.current(house.log.projector, NAME, "schema")
    house.server.is_away = True
    with pytest.raises(EngineUnavailableError):
        generations.open_on_server(house.server.blueprint(NAME), generation, house.log.projector)
    assert house.server.created == []
    assert house.states() == {1: "building"}
