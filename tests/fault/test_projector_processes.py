"""Projecting processes on real engines and a real log, killed and frozen wherever they stand."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from canonical.errors import LeaseLostError
from canonical.store.database import Database, Role
from canonical.store.projections import end_leases_of, owner_of
from projectors import loop
from projectors.protocol import Projector
from tests.support.builders import WAIT_S, until
from tests.support.casting import SHARDS
from tests.support.projecting import (
    APPLIED,
    IDLE,
    MOVED,
    PROJECTIONS,
    READ,
    Gated,
    Shadow,
    said,
)

ROUNDS = int(os.environ.get("GNOMON_KILL_ROUNDS", "1"))  # of four kills each
LEASE_S = 0.7


@pytest.fixture(params=PROJECTIONS)
def shadow(
    request: pytest.FixtureRequest,
    open_database: Callable[[Role], Database],
    database_url: str,
    tmp_path: Path,
) -> Shadow:
    return Shadow(open_database, request.param, tmp_path, database_url)


def test_kills_at_every_step_lose_and_double_nothing(shadow: Shadow) -> None:
    """O-07: after the read, inside the engine's write, after it, after the watermark moved."""
    ids = shadow.fill(120)
    for n in range(ROUNDS):
        for place in (READ, "inside", APPLIED, MOVED):
            with shadow.worker(f"victim {n} {place}") as victim:
                victim.reach(READ if place == "inside" else place)
                if place == "inside":
                    victim.go_on()
                victim.kill()
            shadow.end_leases()
            change_some(shadow, ids)
    shadow.catch_up()


def change_some(shadow: Shadow, ids: list[UUID]) -> None:
    """Write what the next worker finds above what the last one may have done."""
    for _ in range(4):
        shadow.say(ids.pop(), said(len(ids)))
    shadow.delete(ids.pop())
    ids += shadow.fill(4)


@pytest.mark.parametrize("place", [READ, APPLIED])
def test_a_process_that_wakes_after_its_lease_moves_nothing(shadow: Shadow, place: str) -> None:
    """O-08: it is stopped in mid page for longer than the lease, then it goes on."""
    ids = shadow.fill(24)
    with shadow.worker("sleeper") as sleeper:
        sleeper.reach(place)
        sleeper.freeze()
        sleeper.go_on()
        change_some(shadow, ids)
        shadow.execute("UPDATE watermark SET lease_until = now() WHERE lease_owner = 'sleeper'")
        assert leased(shadow) == set()
        if not shadow.in_files:  # an engine in files has one process: nobody can take over there
            with shadow.opened() as opened:
                shadow.drain(opened.projector, "successor")
        before = watermarks(shadow)
        sleeper.thaw()
        lost = sleeper.reach(IDLE)
        assert lost > 0
        assert watermarks(shadow) == before
        sleeper.go_on()
        assert sleeper.reach(IDLE) == lost
        assert shadow.lag() == 0
    shadow.catch_up()


def test_what_a_killed_process_held_is_held_by_another_within_a_lease(shadow: Shadow) -> None:
    """O-09: a new name, started at once; no row needs a hand, and none is taken early."""
    shadow.fill(160)
    with shadow.worker("victim", lasting_s=LEASE_S) as victim:
        victim.reach(READ)
        victim.kill()
        ((ended,),) = shadow.execute(
            "SELECT max(lease_until) FROM watermark WHERE lease_owner = 'victim'"
        )
    with shadow.worker("heir", gated=False):
        until(lambda: shadow.lag() == 0, "the heir to take over and catch up")
    moved = shadow.execute(
        "SELECT DISTINCT lease_owner, moved_at >= :ended FROM watermark", ended=ended
    )
    assert moved == [("heir", True)]
    shadow.catch_up()


@pytest.mark.parametrize("place", [READ, APPLIED])
def test_who_has_the_state_takes_over_at_once_and_fences_who_only_slept(
    shadow: Shadow, place: str
) -> None:
    """O-08, O-09: the leases of its family alone end, and a frozen older process moves nothing."""
    ids = shadow.fill(24)
    lease_to_another_state(shadow)
    with shadow.worker(owner_of("state", "sleeper")) as sleeper:
        sleeper.reach(place)
        sleeper.freeze()
        sleeper.go_on()
        change_some(shadow, ids)
        assert leased(shadow) == {"state.sleeper", "state2.other"}
        end_leases_of(shadow.projector, "state")
        assert leased(shadow) == {"state2.other"}
        shadow.execute("UPDATE watermark SET lease_until = NULL WHERE lease_owner = 'state2.other'")
        if not shadow.in_files:  # an engine in files has one process: nobody can take over there
            with shadow.opened() as opened:
                shadow.drain(opened.projector, owner_of("state", "heir"))
        before = watermarks(shadow)
        sleeper.thaw()
        assert sleeper.reach(IDLE) > 0
        assert watermarks(shadow) == before
    shadow.catch_up()


def lease_to_another_state(shadow: Shadow) -> None:
    """Let a process of another state folder, whose name begins alike, hold a lease."""
    shadow.execute(
        "UPDATE watermark SET lease_owner = 'state2.other', lease_until = now() + interval '1 h'"
        " WHERE shard = (SELECT min(shard) FROM shard)"
    )


def test_taking_over_forgets_no_attempt(shadow: Shadow) -> None:
    """O-24: a record that kills `gnomon up` again and again is still counted out."""
    shadow.fill(24)
    for n in (1, 2, 3):
        assert {lease.attempts for lease in shadow.feed(owner_of("s", str(n))).claim(SHARDS)} == {n}
        assert end_leases_of(shadow.projector, "s") == len(SHARDS)


@pytest.mark.parametrize("place", [READ, APPLIED])
def test_a_write_that_was_paused_before_a_delete_revives_nothing(
    shadow: Shadow, place: str
) -> None:
    """O-05, O-04, O-08: the older page reaches the engine, or the log, after the newer one."""
    ids = shadow.fill(24)
    shadow.end_leases()
    with shadow.opened() as opened:
        sleeper = Sleeper(shadow, opened.projector, place)
        sleeper.fall_asleep()
        shadow.end_leases()
        for memory_id in ids[:8]:
            shadow.delete(memory_id)
        for memory_id in ids[8:16]:
            shadow.say(memory_id, "Ben Okafor moved to Oslo")
        shadow.drain(opened.projector, "successor")
        shadow.check(opened)
        before = watermarks(shadow)
        sleeper.wake()
        assert isinstance(sleeper.error, LeaseLostError)
        assert watermarks(shadow) == before
        shadow.check(opened)
        assert shadow.drain(opened.projector, "successor") == 0


class Sleeper:
    """A worker on a thread that stands still before or after its page's write until it is woken."""

    def __init__(self, shadow: Shadow, projector: Projector, place: str) -> None:
        self._feed, self._place = shadow.feed("sleeper"), place
        self._projector = Gated(projector, self._at)
        self._stands, self._may_go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: Exception | None = None

    def fall_asleep(self) -> None:
        self._thread.start()
        assert self._stands.wait(WAIT_S)

    def wake(self) -> None:
        self._may_go_on.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        leases = self._feed.claim(SHARDS)
        try:
            loop.run_page(self._feed, self._projector, leases, limit=500)
        except LeaseLostError as exc:
            self.error = exc

    def _at(self, place: str) -> None:
        if place == self._place:
            self._stands.set()
            assert self._may_go_on.wait(WAIT_S)


def leased(shadow: Shadow) -> set[object]:
    """Name who holds a lease that has not ended."""
    rows = shadow.execute("SELECT lease_owner FROM watermark WHERE lease_until > now()")
    return {owner for (owner,) in rows}


def watermarks(shadow: Shadow) -> list[tuple[object, ...]]:
    return shadow.execute("SELECT shard, pos FROM watermark ORDER BY shard")
