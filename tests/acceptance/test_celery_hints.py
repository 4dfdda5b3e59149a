"""O-13, O-25, O-26: Celery and Redis may lose, double and hold back what they like."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from canonical.store.database import Database, Role
from tests.support.builders import until
from tests.support.redis import Redis, silent
from tests.support.site import Celery, Site, add, behind, holders, rows
from workers import celery_app

# A loop that finds nothing sleeps so long: within a test's patience only a hint wakes it.
SLEEPY = {"GNOMON_IDLE_S": "60"}
TAIL = ("worker", "-Q", celery_app.TAIL + "," + celery_app.REBUILD)


@pytest.fixture
def site(safe_url: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(safe_url, tmp_path, stack, GNOMON_PROJECTIONS='["audit"]')


@pytest.fixture
def owner(safe_url: str) -> Iterator[Database]:
    database = Database(safe_url, Role.OWNER)
    yield database
    database.close()


def is_whole(owner: Database, count: int) -> bool:
    """Tell whether the audit holds each version, and each once."""
    ((entries, kinds),) = rows(
        owner, "SELECT count(*), count(DISTINCT (memory_id, version)) FROM audit"
    )
    assert entries == kinds
    return bool(entries == count and behind(owner) == 0)


def lost_hints(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    name = 'gnomon_hints_total{outcome="lost"} '
    return float(next(line for line in lines if line.startswith(name)).removeprefix(name))


def begun(site: Site, owner: Database, client: httpx.Client, **settings: str) -> Celery:
    """Start a worker, and let it project a first record: its loops sleep afterwards."""
    worker = site.celery(*TAIL, **settings)
    add(client, 0, 1)
    until(lambda: is_whole(owner, 1), "the worker to be there")
    return worker


def test_a_hint_wakes_a_worker_whose_loops_sleep(site: Site, owner: Database, redis: Redis) -> None:
    site.env["GNOMON_REDIS_URL"] = redis.url
    client = site.serve()
    begun(site, owner, client, **SLEEPY)
    for n in range(1, 4):
        add(client, n, n + 1)
        until(lambda n=n: is_whole(owner, n + 1), "a hint to wake it")  # type: ignore[misc]


def test_messages_that_come_a_hundred_times_have_the_effect_of_one(
    site: Site, owner: Database, redis: Redis
) -> None:
    """Two workers; also hints of generations and projections that are not there, and garbage."""
    site.env["GNOMON_REDIS_URL"] = redis.url
    client = site.serve()
    begun(site, owner, client)
    other = site.celery(*TAIL)
    sender = celery_app.build_app(redis.url, socket=timedelta(seconds=5))
    for shard in range(100):
        for projection, generation in (("audit", 1), ("audit", 99), ("vector", 1), ("x", 0)):
            arguments = (projection, generation, shard % 16)
            sender.send_task(celery_app.PROJECT, arguments, queue=celery_app.TAIL)
        add(client, shard + 1, shard + 2)
    sender.send_task(celery_app.PROJECT, ("too", "few"), queue=celery_app.TAIL)
    sender.send_task("no.such.task", (), queue=celery_app.TAIL)
    sender.close()
    until(lambda: is_whole(owner, 101), "all to be projected once")
    until(lambda: redis.ask("LLEN", celery_app.TAIL) == 0, "all messages to be taken")
    add(client, 101, 102)
    until(lambda: is_whole(owner, 102), "the workers to be well")
    assert other.process.poll() is None


def test_a_redis_that_comes_back_empty_is_used_again(
    site: Site, owner: Database, redis: Redis
) -> None:
    """Killed twice, flushed, all connections cut; what is written meanwhile is found later."""
    site.env["GNOMON_REDIS_URL"] = redis.url
    client = site.serve()
    begun(site, owner, client, **SLEEPY)
    for _ in range(2):
        redis.kill()
        redis.start()
    add(client, 1, 2)
    redis.ask("FLUSHALL")
    redis.ask("CLIENT", "KILL", "TYPE", "normal")

    def is_hinted() -> bool:
        client.post("/v1/projections/audit:resume").raise_for_status()  # it gives a hint
        return behind(owner) == 0

    until(is_hinted, "hints to wake the worker again")
    assert is_whole(owner, 2)


def test_a_full_redis_costs_time_and_nothing_else(
    site: Site, owner: Database, redis: Redis
) -> None:
    site.env["GNOMON_REDIS_URL"] = redis.url
    client = site.serve()
    begun(site, owner, client)
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    add(client, 1, 50)
    until(lambda: lost_hints(client) > 0, "the loss to be counted")
    until(lambda: is_whole(owner, 50), "the sweep to find it")
    until(lambda: "hints can't be sent" in (site.folder / "serve.log").read_text(), "a log line")
    redis.ask("CONFIG", "SET", "maxmemory", "0")


@pytest.mark.parametrize("kind", ["nobody listens", "packets are dropped"])
def test_without_a_redis_that_answers_everything_works_and_ends(
    site: Site, owner: Database, kind: str
) -> None:
    """P1: from start to end; SIGTERM is obeyed while the worker still looks for its Redis."""
    with silent() as nowhere:
        site.env["GNOMON_REDIS_URL"] = (
            nowhere if kind == "packets are dropped" else "redis://127.0.0.1:1/0"
        )
        client = site.serve()
        worker = begun(site, owner, client)
        add(client, 1, 50)
        until(lambda: lost_hints(client) > 0, "the loss to be counted")
        until(lambda: is_whole(owner, 50), "the sweep to find it")
        assert worker.stop() in (0, -signal.SIGTERM), worker.said()
        assert holders(owner) == set()


def test_two_beats_do_no_harm_and_their_sweep_wakes_workers(
    site: Site, owner: Database, redis: Redis
) -> None:
    client = site.serve()  # it sends no hints
    site.env["GNOMON_REDIS_URL"] = redis.url
    site.celery(*TAIL, **SLEEPY)
    for _ in range(2):
        site.celery("beat")
    for n in range(3):
        add(client, n, n + 1)
        until(lambda n=n: is_whole(owner, n + 1), "a sweep")  # type: ignore[misc]


def test_a_worker_that_is_killed_or_stopped_loses_nothing(
    site: Site, owner: Database, redis: Redis
) -> None:
    site.env["GNOMON_REDIS_URL"] = redis.url
    client = site.serve()
    doomed = site.celery(*TAIL)
    add(client, 0, 500)
    until(lambda: holders(owner) != set(), "somebody to hold leases")
    doomed.kill()
    heir = site.celery(*TAIL)
    add(client, 500, 600)
    until(lambda: is_whole(owner, 600), "the heir to do it")
    assert heir.stop() == 0, heir.said()
    assert holders(owner) == set()


def test_a_worker_does_not_fork_even_when_it_is_asked_to(
    site: Site, owner: Database, redis: Redis
) -> None:
    """Its loops are threads, and their connections must be no other process's."""
    site.env["GNOMON_REDIS_URL"] = redis.url
    worker = site.celery(*TAIL, "--pool", "prefork")
    until(lambda: "(solo)" in worker.said(), "it to say how it works")
    add(site.serve(), 0, 1)
    until(lambda: is_whole(owner, 1), "its loops to work")
