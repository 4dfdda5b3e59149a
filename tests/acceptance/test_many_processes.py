"""Several API processes and workers over one Postgres and one index server: kills, a rebuild."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from canonical.store.database import Database, Role
from tests.support.builders import until
from tests.support.command import gnomon
from tests.support.qdrant import StandIn, stand_in
from tests.support.site import Site, add, behind, holders, rows, search

HELD = "SELECT 1 FROM watermark WHERE error_code = 'engine_unavailable'"


@pytest.fixture
def qdrant(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path / "qdrant") as server:
        yield server


@pytest.fixture
def site(safe_url: str, tmp_path: Path, qdrant: StandIn) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(safe_url, tmp_path, stack, GNOMON_QDRANT_URL=qdrant.url)


@pytest.fixture
def owner(safe_url: str) -> Iterator[Database]:
    database = Database(safe_url, Role.OWNER)
    yield database
    database.close()


def test_workers_share_the_work_survive_a_kill_and_give_their_leases_back(
    site: Site, owner: Database
) -> None:
    """O-09, P1, P2: an API of two processes; of two workers one is killed, one told to stop."""
    client = site.serve("--processes", "2")
    doomed, heir = site.worker("--threads", "2"), site.worker()
    add(client, 0, 200)
    until(lambda: len(holders(owner)) > 0, "somebody to take leases")
    doomed.kill()
    add(client, 200, 300)
    until(lambda: behind(owner) == 0, "all to be projected")
    texts, degraded = search(client, 299)
    assert "Mara keeps key 299" in texts
    assert "vector" not in degraded
    assert degraded["keyword"] == "failed"  # nobody here has its engine
    ((entries, twice),) = rows(
        owner, "SELECT count(*), count(*) - count(DISTINCT (memory_id, version)) FROM audit"
    )
    assert (entries, twice) == (300, 0)
    assert heir.stop() == 0, heir.said()
    assert holders(owner) == set()


def test_a_rebuild_is_begun_by_a_command_and_served_without_a_restart(
    site: Site, owner: Database, qdrant: StandIn
) -> None:
    """P8, E-16: an index that is gone halts; searches say so, until the rebuilt one serves."""
    client = site.serve()
    site.worker()
    add(client, 0, 50)
    until(lambda: behind(owner) == 0, "all to be projected")
    qdrant.kill()
    for part in (site.folder / "qdrant").rglob("*"):
        if part.is_file():
            part.unlink()
    qdrant.start()
    add(client, 50, 60)
    until(lambda: search(client, 1)[1].get("vector") in ("halted", "failed"), "it to be named")
    assert "Mara keeps key 59" in search(client, 59)[0]
    ran = gnomon("rebuild", "vector", "--json", env=site.env)
    assert (ran.code, ran.document["generation"]) == (0, 2), ran.err
    until(lambda: "vector" not in search(client, 1)[1], "the new one to serve")
    states = rows(
        owner,
        "SELECT generation, state FROM generation WHERE projection = 'vector' ORDER BY generation",
    )
    assert states == [(1, "old"), (2, "live")]
    assert "Mara keeps key 1" in search(client, 1)[0]


def test_everything_starts_while_the_index_server_is_away_and_uses_it_once_it_is_back(
    site: Site, owner: Database, qdrant: StandIn
) -> None:
    """O-28, P1: a write needs Postgres alone."""
    qdrant.kill()
    client = site.serve()
    worker = site.worker()
    add(client, 0, 20)
    assert "Mara keeps key 7" in search(client, 7)[0]
    until(
        lambda: bool(rows(owner, HELD)),
        "the shards to be held",
    )
    qdrant.start()
    until(lambda: behind(owner) == 0, "all to be projected")
    until(lambda: "vector" not in search(client, 7)[1], "the leg to serve")
    assert worker.stop() == 0, worker.said()


def test_a_worker_refuses_a_projection_whose_engine_it_cannot_reach(site: Site) -> None:
    ran = gnomon("worker", "--projections", "keyword", "--json", env=site.env)
    assert ran.code == 1
    assert "keyword: is embedded in another process" in ran.error["message"]
    ran = gnomon("worker", "--projections", "words", "--json", env=site.env)
    assert (ran.code, ran.error["code"]) == (2, "usage")


@pytest.mark.parametrize("command", [("worker",), ("serve",), ("rebuild", "vector")])
def test_what_shares_a_postgres_says_that_it_needs_one(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    ran = gnomon(*command, "--json", env={"GNOMON_STATE": str(tmp_path)})
    assert ran.code == 1
    assert "GNOMON_POSTGRES_URL: is not set" in ran.error["message"]
