"""What the processes of one site tell Prometheus, each at a port of its own."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.builders import until
from tests.support.metrics import value
from tests.support.qdrant import stand_in
from tests.support.site import Site, add


@pytest.fixture
def site(safe_url: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        qdrant = stack.enter_context(stand_in(tmp_path / "qdrant"))
        held = Site(safe_url, tmp_path, stack, GNOMON_QDRANT_URL=qdrant.url)
        held.env["GNOMON_METRICS_PORT"] = str(free_port())
        yield held


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return min(port, 65_000)


def scrapes(site: Site) -> list[str]:
    """Read every process of the site that answers at one of the first ports."""
    first, found = int(site.env["GNOMON_METRICS_PORT"]), []
    for port in range(first, first + 6):
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=20, trust_env=False)
        except httpx.ConnectError:
            continue
        if "gnomon_hints_total" in answer.text:
            found.append(answer.text)
    return found


def total(site: Site, name: str, **labels: str) -> float:
    return sum(value(one, name, **labels) or 0 for one in scrapes(site))


def test_each_process_of_a_site_is_scraped_by_itself(site: Site) -> None:
    client = site.serve("--processes", "2")
    site.worker()
    until(lambda: len(scrapes(site)) == 3, "two doors and a worker")
    add(client, 0, 40)
    done = {"projection": "vector", "outcome": "done"}
    until(lambda: total(site, "gnomon_engine_writes_total", **done) == 40, "all to be written")
    assert total(site, "gnomon_writes_total", command="add_list", outcome="written") == 40
    said = scrapes(site)
    # Of the projections only doors tell, all the same; of loops only the worker.
    lagging = {"projection": "vector", "generation": "1", "state": "live"}
    told = [value(one, "gnomon_projection_lag_positions", **lagging) for one in said]
    assert sorted(told, key=str) == [0.0, 0.0, None]
    assert all(value(one, "gnomon_postgres_connections_limit", role="api") == 20 for one in said)
