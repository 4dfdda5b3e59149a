"""The loop on the real log: crashes at every step, zombies, holes, dead engines, bad records."""

import logging
import threading
from collections.abc import Callable, Sequence

import pytest

from canonical.domain.commands import change
from canonical.errors import (
    EngineUnavailableError,
    LeaseLostError,
    PositionGapError,
    StoreUnavailableError,
    TooManyParkedError,
)
from canonical.mutations import change as changes
from canonical.store import projections
from canonical.store.database import Database, Role
from canonical.store.feed import LogFeed
from projectors import loop
from projectors.protocol import Lease, Page, Step
from tests.support.log import TENANT, Log
from tests.support.recording import RecordingProjector
from workers.faults import FAILURES
from workers.runner import Pace, Runner


class CrashError(BaseException):
    """The process dies here."""


@pytest.fixture
def log(open_database: Callable[[Role], Database]) -> Log:
    return Log(open_database)


def crash_at(step: Step) -> loop.At:
    def at(reached: Step) -> None:
        if reached is step:
            raise CrashError

    return at


def drain(log: Log, projector: RecordingProjector, owner: str = "one", *, limit: int = 64) -> None:
    feed = log.feed(owner)
    while shards := feed.waiting():
        leases = feed.claim(shards)
        progress = loop.run_page(feed, projector, leases, limit=limit)
        loop.retry_parked(feed, projector, progress.leases)
        feed.release(progress.leases)


@pytest.mark.parametrize("step", [s for s in Step if s is not Step.CLAIMED])
def test_a_crash_at_any_step_loses_no_event(log: Log, step: Step) -> None:
    """O-07, O-21: whatever the worker had done, its successor ends where canonical state is."""
    wanted = {log.add(f"fact {n}") for n in range(40)}
    projector, feed = RecordingProjector(), log.feed("doomed")
    leases = feed.claim(feed.waiting())
    with pytest.raises(CrashError):
        loop.run_page(feed, projector, leases, limit=16, at=crash_at(step))
    if step is Step.PAGE_READ:
        assert not projector.held
    log.end_leases()
    drain(log, projector, "successor")
    assert set(projector.held) == wanted
    assert log.lag() == 0


def test_a_watermark_moves_only_after_the_engine_took_the_page(log: Log) -> None:
    """O-07: a page whose projector raised is never marked as done."""
    for n in range(10):
        log.add(f"fact {n}")
    projector, feed = RecordingProjector(), log.feed()

    def dead(_page: Page) -> None:
        raise EngineUnavailableError("no answer")

    projector.before = dead
    leases = feed.claim(feed.waiting())
    with pytest.raises(EngineUnavailableError):
        loop.run_page(feed, projector, leases, limit=100)
    assert log.lag() == 10


def test_a_zombie_moves_no_watermark(log: Log) -> None:
    """O-08: the lease was taken over while the worker slept in mid page."""
    first = log.add("before")
    sleeper, feed = RecordingProjector(), log.feed("sleeper")
    leases = feed.claim(feed.waiting())

    def taken_over(_page: Page) -> None:
        log.end_leases()
        changes.update(log.writer, first, change({"text": "after"}))
        drain(log, successor, "successor")

    successor = RecordingProjector()
    sleeper.before = taken_over
    with pytest.raises(LeaseLostError):
        loop.run_page(feed, sleeper, leases, limit=100)
    assert successor.held[first].text == "after"
    assert log.lag() == 0


def test_a_loss_in_mid_page_is_said_and_counted_for_each_shard(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """O-08, O-23: losing work is never silent; the leases that were kept are not in it."""
    for n in range(40):
        log.add(f"fact {n}")
    projector, feed = RecordingProjector(), log.feed("sleeper")
    shards = feed.waiting()
    taken = shards[:3]

    def taken_over(_page: Page) -> None:
        projector.before = lambda _page: None
        log.end_leases(taken)
        log.feed("successor").claim(taken)

    projector.before = taken_over
    runner = Runner("vector", feed, projector)
    with caplog.at_level("WARNING"):
        assert runner.run_once() == 0
    assert runner.counts.leases_lost == 3
    assert losses(caplog) == [f"vector generation 1 shard {shard}" for shard in taken]
    runner.run_once()
    assert runner.counts.leases_lost == 3
    assert log.lag() > 0
    log.end_leases()
    runner.run_once()
    assert log.lag() == 0


def test_a_loss_that_the_renewal_notices_is_said_and_counted_once(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """O-08: an idle worker hears of it as well, and the shard is claimed anew when it is free."""
    log.add("one")
    projector, feed = RecordingProjector(), log.feed("sleeper")
    shards = feed.waiting()
    runner = Runner("vector", feed, projector, pace=Pace(idle_s=0.01, renew_s=0.02))
    with caplog.at_level("WARNING"):
        runner.start()
        try:
            runner.wait_until(lambda: log.lag() == 0, timeout_s=10)
            log.execute(  # at one go: between an end and a claim, the sleeper may renew
                "UPDATE watermark SET lease_owner = 'successor', lease_epoch = lease_epoch + 1"
                " WHERE lease_owner IS NOT NULL"
            )
            runner.wait_until(lambda: runner.counts.leases_lost > 0, timeout_s=10)
            log.end_leases(shards)
            log.execute("UPDATE watermark SET pos = 0")
            runner.wait_until(lambda: log.lag() == 0, timeout_s=10)
        finally:
            runner.stop()
    assert runner.counts.leases_lost == 1
    assert losses(caplog) == [f"vector generation 1 shard {shards[0]}"]


class BadFeed(LogFeed):
    """A log whose leases can't be renewed a few times, nor given back."""

    def __init__(self, log: Log, errors: Sequence[Exception]) -> None:
        super().__init__(log.projector, log.feed()._settings)
        self._errors = iter(errors)
        self.failed, self.go_on, self.renewed = (threading.Event() for _ in range(3))

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:  # type: ignore[explicit-override]
        for error in self._errors:
            raise error
        self.failed.set()
        assert self.go_on.wait(10)
        kept = super().renew(leases)
        self.renewed.set()
        return kept

    def release(self, leases: Sequence[Lease]) -> None:  # type: ignore[explicit-override]
        raise ValueError("a secret fact")


def test_a_renewal_that_fails_in_whichever_way_is_said_and_tried_again(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """O-14: without a text, which /readyz would show to whoever asks."""
    log.add("one")
    errors = [ValueError("a secret fact"), StoreUnavailableError("away")] * FAILURES
    feed = BadFeed(log, errors)
    pace = Pace(idle_s=0.01, renew_s=0.005)
    runner = Runner("vector", feed, RecordingProjector(), pace=pace)
    with caplog.at_level("WARNING"):
        runner.start()
        try:
            assert feed.failed.wait(10)
            said = runner.ailment()
            feed.go_on.set()
            assert feed.renewed.wait(10)
            runner.wait_until(lambda: runner.ailment() is None, timeout_s=10)
        finally:
            feed.go_on.set()
            runner.stop()
    assert said is not None
    assert said.startswith("its leases are not renewed: store_unavailable.")
    assert caplog.text.count("vector: leases not renewed, tried again: ValueError at") == FAILURES
    assert caplog.text.count("vector: leases not given back: ValueError at") == 1
    assert "secret" not in caplog.text


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        said.partition(":")[0]
        for name, level, said in caplog.record_tuples
        if "lease_lost" in said and name == "workers.leases" and level == logging.WARNING
    ]


def test_a_lease_is_held_by_one_at_a_time_and_taken_over_when_it_ends(log: Log) -> None:
    """O-09: no row needs a hand; reclaiming is part of each claim."""
    log.add("one")
    one, two = log.feed("one"), log.feed("two")
    shards = one.waiting()
    assert len(one.claim(shards)) == 1
    assert two.waiting() == []
    assert two.claim(shards) == []
    log.end_leases()
    assert [lease.shard for lease in two.claim(two.waiting())] == shards
    assert one.renew([_stale(shards[0])]) == []


def _stale(shard: int) -> Lease:
    return Lease("vector", 1, shard, "one", 1, 0)


def test_a_hole_halts_its_shard_alone_and_names_the_place(log: Log) -> None:
    """O-03: nothing is applied beyond the hole, and the other shards go on."""
    for n in range(64):
        log.add(f"fact {n}")
    (shard,) = [s for (s,) in log.execute("SELECT shard FROM shard ORDER BY pos DESC LIMIT 1")]
    log.execute("DELETE FROM outbox WHERE shard = :s AND pos = 2", s=shard)
    projector, feed = RecordingProjector(), log.feed()
    progress = loop.run_page(feed, projector, feed.claim(feed.waiting()), limit=1_000)
    assert list(progress.halted) == [shard]
    gap = progress.halted[int(str(shard))]
    assert isinstance(gap, PositionGapError)
    assert (gap.expected, gap.found) == (2, 3)
    assert shard not in {s for s, _ in projector.applied}
    assert len({s for s, _ in projector.applied}) >= 10


def test_a_hole_at_the_end_of_the_log_is_seen_too(log: Log) -> None:
    """O-03: the counter says that there is an event, and there is none."""
    log.add("only")
    log.execute("DELETE FROM outbox")
    feed = log.feed()
    progress = loop.run_page(feed, RecordingProjector(), feed.claim(feed.waiting()), limit=100)
    assert len(progress.halted) == 1


def test_a_runner_halts_a_shard_for_everybody_until_it_is_resumed(log: Log) -> None:
    """O-03: the state says where and why; no worker claims the shard again by itself."""
    log.add("only")
    removed = log.execute("DELETE FROM outbox RETURNING shard")
    runner = Runner("vector", log.feed(), RecordingProjector())
    runner.run_once()
    assert runner.counts.halts == 1
    found = log.execute("SELECT shard, halted, error_code FROM watermark WHERE halted")
    assert found == [(removed[0][0], True, "position_gap")]
    assert log.feed("other").waiting() == []


def test_a_dead_engine_parks_nothing_and_is_not_hammered(log: Log) -> None:
    """O-12: the shards are held back, and go on by themselves when the engine is back."""
    wanted = {log.add(f"fact {n}") for n in range(30)}
    projector = RecordingProjector()

    def dead(_page: Page) -> None:
        raise EngineUnavailableError("connection refused")

    projector.before = dead
    runner = Runner("vector", log.feed(), projector, pace=Pace(backoff_s=0.5))
    pauses = []
    for _ in range(6):
        with pytest.raises(EngineUnavailableError) as caught:
            runner.run_once()
        pauses.append(runner._after(caught.value))
    assert log.parked() == set()
    assert log.lag() == 30
    assert pauses[5] > 4 * pauses[0]
    assert log.execute(
        "SELECT DISTINCT error_code FROM watermark WHERE held_since IS NOT NULL"
    ) == [("engine_unavailable",)]
    projector.before = lambda _page: None
    while runner.run_once():
        pass
    assert set(projector.held) == wanted
    assert log.execute("SELECT 1 FROM watermark WHERE error_code IS NOT NULL") == []


def test_a_bad_record_is_parked_by_itself(log: Log) -> None:
    """O-10, O-11: it stands first, the others pass it; later changes only raise its last place."""
    bad = log.add("poison")
    good = {log.add(f"fact {n}") for n in range(50)}
    projector = RecordingProjector(refuses="poison")
    drain(log, projector)
    assert set(projector.held) == good
    assert log.parked() == {bad}
    assert log.lag() == 0
    changes.update(log.writer, bad, change({"text": "poison again"}))
    drain(log, projector)
    assert log.execute("SELECT attempts, last_pos > first_pos FROM parked") == [(1, True)]


def test_a_redrive_reads_the_newest_state_and_touches_no_watermark(log: Log) -> None:
    """O-10: one success clears all that piled up."""
    bad = log.add("poison")
    projector = RecordingProjector(refuses="poison")
    drain(log, projector)
    changes.update(log.writer, bad, change({"text": "mended"}))
    drain(log, projector)
    before = log.execute("SELECT shard, pos FROM watermark ORDER BY shard")
    log.execute("UPDATE parked SET next_try = now()")
    drain(log, projector)
    assert projector.held[bad].text == "mended"
    assert log.parked() == set()
    assert log.execute("SELECT shard, pos FROM watermark ORDER BY shard") == before


@pytest.mark.parametrize(
    ("state", "counts"), [("live", 2), ("building", 2), ("lost", 1), ("old", 1)]
)
def test_what_no_generation_tries_any_more_is_neither_listed_nor_redriven(
    log: Log, state: str, counts: int
) -> None:
    """An operator would wait for it in vain; the generation that came after parks for itself."""
    bad = log.add("poison")
    drain(log, RecordingProjector(refuses="poison"))
    first = log.generation
    with log.projector.transaction() as conn:
        projections.set_state(conn, "vector", first, "old")
        log.generation = projections.begin_generation(conn, "vector", "x", live=False).number
    drain(log, RecordingProjector(refuses="poison"))
    with log.projector.transaction() as conn:
        projections.set_state(conn, "vector", first, state)
    listed = projections.parked(log.projector, "vector")
    assert {one.memory_id for one in listed} == {bad}
    assert {one.generation for one in listed} >= {log.generation}
    assert len(listed) == counts
    for ids in (None, [bad]):
        assert projections.redrive(log.projector, "vector", ids) == counts
        assert projections.redrive(log.api, "vector", ids, tenant=TENANT) == counts
        assert projections.redrive(log.api, "vector", ids, tenant="other") == 0


def test_a_refused_retry_backs_off(log: Log) -> None:
    """O-11: attempts always grow, and the next try lies further away."""
    log.add("poison")
    projector = RecordingProjector(refuses="poison")
    drain(log, projector)
    log.execute("UPDATE parked SET next_try = now()")
    drain(log, projector)
    assert log.execute("SELECT attempts, next_try > now() + interval '50 s' FROM parked") == [
        (2, True)
    ]


def test_a_change_during_the_retry_keeps_the_memory_parked(log: Log) -> None:
    """A retry clears only what it has seen: what came meanwhile is tried again."""
    bad = log.add("poison")
    projector = RecordingProjector(refuses="poison")
    drain(log, projector)
    log.execute("UPDATE parked SET next_try = now()")
    feed = log.feed()
    leases = feed.claim(feed.waiting())
    projector.refuses = None

    def changed_meanwhile(_page: Page) -> None:
        log.execute("UPDATE parked SET last_pos = last_pos + 1")

    projector.before = changed_meanwhile
    loop.retry_parked(feed, projector, leases)
    assert log.parked() == {bad}


def test_more_bad_records_than_can_be_bad_by_themselves_halt_the_projection(log: Log) -> None:
    """O-12: nothing is parked beyond the cap, the watermark stays."""
    for n in range(12):
        log.add(f"poison {n}")
    projector, feed = RecordingProjector(refuses="poison"), log.feed(cap=10)
    with pytest.raises(TooManyParkedError):
        loop.run_page(feed, projector, feed.claim(feed.waiting()), limit=100)
    assert log.parked() == set()
    assert log.lag() == 12


def test_what_halts_a_projection_quotes_no_refused_record(log: Log) -> None:
    """A shard's error is shown to the admins of every tenant."""
    for n in range(12):
        log.add(f"poison {n}")
    Runner("vector", log.feed(cap=10), RecordingProjector(refuses="poison")).run_once()
    found = log.execute("SELECT DISTINCT error_code, error FROM watermark WHERE halted")
    assert found == [
        ("too_many_parked", "more than 10 records are parked; the newest: engine_refused")
    ]


def test_a_record_that_kills_its_workers_is_parked_after_some_of_them(log: Log) -> None:
    """O-24: attempts are counted at the claim, so a death leaves its trace."""
    killer = log.add("killer")
    others = {log.add(f"fact {n}") for n in range(40)}
    projector = RecordingProjector()

    def dies(page: Page) -> None:
        if killer in page.records:
            raise CrashError

    projector.before = dies
    deaths = 0
    while log.lag():
        feed = log.feed(f"worker {deaths}")
        try:
            while shards := feed.waiting():
                feed_leases = feed.claim(shards)
                loop.run_page(feed, projector, feed_leases, limit=100)
        except CrashError:
            deaths += 1
            log.end_leases()
        assert deaths < 40
    assert log.parked() == {killer}
    assert set(projector.held) == others
    assert log.execute("SELECT error_code FROM parked") == [("workers_ended",)]


def test_a_paused_projection_takes_no_page(log: Log) -> None:
    log.add("fact")
    log.execute("UPDATE projection SET paused = true WHERE name = 'vector'")
    feed = log.feed()
    assert feed.waiting() == []
    assert feed.claim(range(16)) == []


def test_an_unexpected_error_never_ends_the_loop(log: Log) -> None:
    """O-14: the loop is alive afterwards and works within one poll."""
    wanted = {log.add("fact")}
    projector = RecordingProjector()
    failures = iter([ValueError("unforeseen"), OSError("unforeseen")])
    done = projector.held

    def sometimes(_page: Page) -> None:
        for failure in failures:
            raise failure

    projector.before = sometimes
    runner = Runner("vector", log.feed(), projector, pace=Pace(idle_s=0.01, backoff_s=0.001))
    runner.start()
    try:
        runner.wait_until(lambda: set(done) == wanted, timeout_s=10)
    finally:
        runner.stop()
    assert runner.counts.failures == 2


def test_stopping_gives_the_leases_back(log: Log) -> None:
    """The next worker need not wait for their end."""
    log.add("fact")
    projector = RecordingProjector()
    runner = Runner("vector", log.feed("one"), projector, pace=Pace(idle_s=0.01))
    runner.start()
    runner.wait_until(lambda: log.lag() == 0, timeout_s=10)
    runner.stop()
    log.add("another")
    assert len(log.feed("two").claim(range(16))) == 16
