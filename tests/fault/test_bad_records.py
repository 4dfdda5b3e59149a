"""Records that an engine refuses for good: parked by themselves, whoever dies meanwhile."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from canonical.store.database import Database, Role
from projectors.protocol import Step
from tests.support.http_server import served, texts
from tests.support.projecting import Shadow
from tests.support.recording import RecordingProjector
from workers.runner import Pace, Runner

GOOD = 1_660
PLANTED = '{"user_id": "bob", "n": 1e400, "whole": -1e9000, "small": 3, "third": 1e500}'


class CrashError(BaseException):
    """The process dies here."""


@pytest.fixture(params=["vector", "keyword"])
def shadow(
    request: pytest.FixtureRequest,
    open_database: Callable[[Role], Database],
    database_url: str,
    tmp_path: Path,
) -> Shadow:
    return Shadow(open_database, request.param, tmp_path, database_url)


def plant(shadow: Shadow, memory_id: UUID) -> None:
    """Put a number into metadata that no double holds; the door would have refused it."""
    shadow.execute(
        "UPDATE memory SET metadata = CAST(:bad AS jsonb) WHERE id = :id", bad=PLANTED, id=memory_id
    )


@pytest.mark.parametrize("step", [Step.PAGE_APPLIED, Step.WATERMARK_MOVED])
def test_a_refusal_is_counted_parked_and_passed_in_one_commit(shadow: Shadow, step: Step) -> None:
    """O-10, S-04, P12: whether the worker dies right before that commit or right after it."""
    ids = shadow.fill(40)
    plant(shadow, ids[0])

    def die(at: Step) -> None:
        if at is step:
            raise CrashError

    with shadow.opened() as opened:
        with pytest.raises(CrashError):
            shadow.drain(opened.projector, "victim", at=die)
        parked = [(1, True, True)] if step is Step.WATERMARK_MOVED else []
        assert entries(shadow, ids[0]) == parked
        assert shadow.lag() == (0 if parked else 40)
        shadow.end_leases()
        shadow.drain(opened.projector, "heir")
        assert entries(shadow, ids[0]) == [(1, True, True)]
        assert shadow.lag() == 0
        assert opened.scan is not None
        assert {memory_id for memory_id, _, _ in opened.scan()} == set(ids[1:])
        leased = "SELECT 1 FROM watermark WHERE lease_owner IS NOT NULL AND lease_until > now()"
        assert shadow.execute(leased) == []


def entries(shadow: Shadow, memory_id: UUID) -> list[tuple[object, ...]]:
    """Read what is said of a parked memory: attempts, its error, a next try to come."""
    return shadow.execute(
        "SELECT attempts, error LIKE '%' || memory_id || '%' OR error <> '', next_try > now()"
        " FROM parked WHERE memory_id = :id",
        id=memory_id,
    )


def test_a_number_that_no_double_holds_spoils_no_answer(database_url: str) -> None:
    """S-04, P12: it is shown, found by its words and changed, and so are all others."""
    with served(database_url) as api:
        client = api.client()
        bad, good = client.add("planted tea"), client.add("plain tea")
        with api.opened(Role.API, connections=1).transaction("default") as conn:
            conn.execute(
                text("UPDATE memory SET metadata = CAST(:bad AS jsonb) WHERE id = :id"),
                {"bad": PLANTED, "id": UUID(bad["id"])},
            )
        assert texts(client.listed()) == ["planted tea", "plain tea"]
        assert set(texts(client.search("tea"))) == {"planted tea", "plain tea"}
        assert texts(client.listed(filter='{"small": {"gt": 2}}')) == ["planted tea"]
        held = client.get(f"/v1/memories/{bad['id']}").json()["metadata"]
        assert held["n"] == 10**400
        assert held["small"] == 3
        assert client.get(f"/v1/memories/{good['id']}").is_success
        mended = client.patch(f"/v1/memories/{bad['id']}", json={"metadata": {"n": 1}})
        assert mended.is_success, mended.text
        assert client.delete(f"/v1/memories/{bad['id']}").is_success


def test_bad_records_in_front_starve_no_good_one(
    open_database: Callable[[Role], Database], database_url: str, tmp_path: Path
) -> None:
    """O-11: some that always fail are the oldest of their shards; more of them than one go."""
    shadow = Shadow(open_database, "vector", tmp_path, database_url)
    bad = [shadow.add(f"poison {n}") for n in range(60)]
    good = set(shadow.fill(GOOD))
    projector = RecordingProjector(refuses="poison")
    runner = Runner("vector", shadow.feed(), projector, pace=Pace(page_events=100))
    while runner.run_once():
        pass
    assert set(projector.held) == good
    assert shadow.lag() == 0
    for attempts in (1, 2, 3):
        assert attempts_of(shadow) == {(attempts, len(bad))}
        shadow.execute("UPDATE parked SET next_try = now() - interval '1 s'")
        while runner.run_once():  # each go takes those whose next try came first
            pass


def attempts_of(shadow: Shadow) -> set[tuple[object, ...]]:
    return set(shadow.execute("SELECT attempts, count(*) FROM parked GROUP BY 1"))
