"""Errors of a class that nobody foresaw: one record's are parked, a dead engine's never."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from canonical.domain.commands import change
from canonical.errors import LeaseLostError, ModelUnavailableError
from canonical.mutations import change as changes
from canonical.store.database import Database, Role
from projectors.isolation import PROBES
from projectors.protocol import Applied, Page, Projector
from tests.support.log import Log
from tests.support.projecting import PROJECTIONS, Shadow
from tests.support.recording import RecordingProjector
from workers.faults import FAILURES
from workers.runner import ISOLATE_AFTER, Pace, Runner

GOOD = 100


class UnforeseenError(Exception):
    """Of no family."""


@pytest.fixture
def log(open_database: Callable[[Role], Database]) -> Log:
    return Log(open_database)


def passes(runner: Runner, most: int = 12) -> int:
    """Run passes until one ends well; returns how many did not."""
    for failed in range(most):
        try:
            runner.run_once()
        except UnforeseenError:
            continue
        return failed
    return most


def fails_on(*said: str) -> Callable[[Page], None]:
    def before(page: Page) -> None:
        for record in page.records.values():
            if any(word in record.text for word in said):
                raise UnforeseenError(f"cannot take {record.text}")

    return before


@pytest.mark.parametrize("bad", [1, 2, 30])
def test_what_fails_alone_is_parked_and_the_others_go_on(log: Log, bad: int) -> None:
    """W-11, O-11, P12: after some tries of the whole page, each with its own error."""
    planted = {log.add(f"odd {n}") for n in range(bad)}
    good = {log.add(f"fact {n}") for n in range(GOOD)}
    projector = RecordingProjector()
    projector.before = fails_on("odd")
    runner = Runner("vector", log.feed(), projector)
    for _ in range(ISOLATE_AFTER):
        with pytest.raises(UnforeseenError):
            runner.run_once()
        assert log.parked() == set()
    assert passes(runner) <= 12
    while runner.run_once():
        pass
    assert log.parked() == planted
    assert set(projector.held) == good
    assert log.lag() == 0
    errors = log.execute("SELECT DISTINCT error_code, left(error, 32) FROM parked")
    assert errors == [("projector_failed", "UnforeseenError: cannot take odd")]


def test_an_engine_that_fails_everything_parks_nothing_and_is_not_hammered(log: Log) -> None:
    """W-11, O-12: whatever class its errors have; it goes on by itself when the engine is back."""
    wanted = {log.add(f"fact {n}") for n in range(GOOD)}
    projector = RecordingProjector()
    projector.before = fails_on("fact")
    runner = Runner("vector", log.feed(), projector)
    for _ in range(3 * ISOLATE_AFTER):
        calls = projector.calls
        with pytest.raises(UnforeseenError):
            runner.run_once()
        assert projector.calls - calls <= PROBES
    assert log.parked() == set()
    assert log.execute(
        "SELECT DISTINCT error_code, error LIKE 'UnforeseenError at %', error LIKE '%fact%'"
        " FROM watermark WHERE held_since IS NOT NULL"
    ) == [("projector_failed", True, False)]
    projector.before = lambda _page: None
    while runner.run_once():
        pass
    assert set(projector.held) == wanted
    assert log.execute("SELECT 1 FROM watermark WHERE error_code IS NOT NULL") == []


def by_the_database(log: Log, said: str) -> None:
    with log.projector.transaction() as conn:
        conn.execute(text("SELECT CAST(:said AS integer)"), {"said": said})


def by_the_model(_log: Log, said: str) -> None:
    raise ModelUnavailableError(f"it answers 500: cannot take {said}")


def by_whatever(_log: Log, said: str) -> None:
    raise UnforeseenError(f"cannot take {said}")


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (by_the_database, "DataError at "),
        (by_the_model, "model_unavailable. Bring the model's endpoint back"),
        (by_whatever, "UnforeseenError at test_unforeseen_errors.py:"),
    ],
)
def test_what_a_loop_says_of_its_failures_holds_no_text(
    log: Log, fails: Callable[[Log, str], None], told: str
) -> None:
    """/readyz shows it to whoever asks, without a key."""
    log.add("a secret fact")
    projector = RecordingProjector()
    projector.before = lambda page: fails(log, next(iter(page.records.values())).text)
    runner = Runner("vector", log.feed(), projector, pace=Pace(idle_s=0.01, backoff_s=0.001))
    assert runner.ailment() is None
    runner.start()
    try:
        runner.wait_until(lambda: runner.failures > FAILURES, timeout_s=20)
    finally:
        runner.stop()
    assert str(runner.last_error).count("secret") >= 1
    said = runner.ailment()
    assert said is not None
    assert said.startswith(f"its loop fails: {told}")
    assert "secret" not in said


def test_an_engine_that_dies_during_the_search_parks_nothing(log: Log) -> None:
    """O-12: what fails then doesn't fail alone."""
    for n in range(GOOD):
        log.add(f"fact {n}")
    projector = RecordingProjector()
    projector.before = fails_on("fact")
    runner = Runner("vector", log.feed(), projector)
    for _ in range(ISOLATE_AFTER):
        with pytest.raises(UnforeseenError):
            runner.run_once()

    def dies_after_the_first(page: Page) -> None:
        projector.before = fails_on("fact")

    projector.before = dies_after_the_first
    with pytest.raises(UnforeseenError):
        runner.run_once()
    assert log.parked() == set()
    assert log.lag() == GOOD


def test_a_record_that_waits_alone_is_held_until_another_shows_that_the_engine_lives(
    log: Log,
) -> None:
    """O-12: nobody waits behind it."""
    bad = log.add("odd")
    projector = RecordingProjector()
    projector.before = fails_on("odd")
    runner = Runner("vector", log.feed(), projector)
    assert passes(runner) == 12
    assert log.parked() == set()
    good = log.add("fact")
    assert passes(runner) < 12
    assert log.parked() == {bad}
    assert set(projector.held) == {good}


def test_a_parked_record_that_fails_so_again_backs_off_and_holds_nobody(log: Log) -> None:
    """O-11: its retry costs no pass; one that is mended beside it is cleared."""
    bad, mended = log.add("odd"), log.add("strange")
    for n in range(5):
        log.add(f"fact {n}")
    projector = RecordingProjector()
    projector.before = fails_on("odd", "strange")
    runner = Runner("vector", log.feed(), projector)
    passes(runner)
    assert log.parked() == {bad, mended}
    changes.update(log.writer, mended, change({"text": "plain"}))
    log.execute("UPDATE parked SET next_try = now()")
    while runner.run_once():
        pass
    assert log.parked() == {bad}
    assert projector.held[mended].text == "plain"
    assert log.execute("SELECT attempts, next_try > now() FROM parked") == [(2, True)]


class Odd:
    """A real projection that fails on some memories: before its write, or in the transaction."""

    def __init__(self, inner: Projector, bad: UUID, *, in_transaction: bool) -> None:
        self._inner, self._bad, self._in_transaction = inner, bad, in_transaction
        self.passed_over: set[UUID] = set()  # left out of a page that moved the engine's marks

    def apply(self, page: Page) -> Applied:
        if page.marks:
            self.passed_over |= {event.memory_id for event in page.events} - page.records.keys()
        if self._bad not in page.records:
            return self._inner.apply(page)
        if not self._in_transaction:
            raise UnforeseenError("odd")
        applied = self._inner.apply(page)

        def fails(conn: Connection) -> None:
            if applied.in_transaction is not None:
                applied.in_transaction(conn)
            try:
                conn.execute(text("SELECT 1 / 0"))
            except Exception as exc:
                raise UnforeseenError("odd") from exc

        return replace(applied, in_transaction=fails)


def test_a_rehearsal_leaves_nothing_and_needs_the_leases(log: Log) -> None:
    """O-08: what is tried in parts is written once, and by no zombie."""
    log.add("fact")
    feed = log.feed()
    leases = feed.claim(feed.waiting())

    def write(conn: Connection) -> None:
        conn.execute(text("UPDATE watermark SET error = 'rehearsed'"))

    feed.rehearse(leases, Applied(in_transaction=write))
    assert log.execute("SELECT 1 FROM watermark WHERE error IS NOT NULL") == []
    log.end_leases()
    with pytest.raises(LeaseLostError):
        feed.rehearse(leases, Applied(in_transaction=write))


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_on_every_engine_the_others_go_on_and_the_audit_leaves_nothing_out(
    open_database: Callable[[Role], Database],
    database_url: str,
    tmp_path: Path,
    name: str,
    *,
    in_transaction: bool,
) -> None:
    """W-11, P2, P12: what was tried in parts is there once; an event is no memory to set aside."""
    shadow = Shadow(open_database, name, tmp_path, database_url)
    ids = shadow.fill(40)
    with shadow.opened() as opened:
        odd = Odd(opened.projector, ids[7], in_transaction=in_transaction)
        runner = Runner(name, shadow.feed(), odd)
        passes(runner)
        parked = [row[0] for row in shadow.execute("SELECT memory_id FROM parked")]
        assert parked == [ids[7]]
        assert odd.passed_over == {ids[7]}
        assert shadow.lag() == 0
        shadow.execute("UPDATE parked SET next_try = now()")
        mended = Runner(name, shadow.feed(), opened.projector)
        while mended.run_once():
            pass
        assert shadow.execute("SELECT 1 FROM parked") == []
        shadow.check(opened)
