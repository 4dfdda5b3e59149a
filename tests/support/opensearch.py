"""A real OpenSearch for tests: GNOMON_TEST_OPENSEARCH_URL, or one of this run's own."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from opensearchpy import OpenSearch

from projectors.keyword.opensearch.settings import OpenSearchSettings
from tests.support.faulty_proxy import FaultyProxy, proxied

SERVER = Path(__file__).parents[2] / "deploy" / "local" / "opensearch" / "server"
START_S = 180
SMALL = {
    "OPENSEARCH_HEAP": "256m",
    "OPENSEARCH_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:-AlwaysPreTouch",
}


@pytest.fixture(scope="session")
def opensearch_url() -> Iterator[str]:
    """URL of a server for the whole run; it takes a quarter of a minute, so only who asks waits."""
    given = os.environ.get("GNOMON_TEST_OPENSEARCH_URL")
    if given is not None:
        yield given
        return
    missing = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
    if missing:
        told = f"no OpenSearch: {', '.join(missing)} missing, and no GNOMON_TEST_OPENSEARCH_URL"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(told)
    with running() as url:
        yield url


@contextmanager
def running() -> Iterator[str]:
    """Run a server of one's own; it ends with the run, however that ends."""
    data = Path(tempfile.mkdtemp(prefix="gnomon-opensearch-"))
    data.chmod(0o755)  # as root the server runs as nobody
    port = _free_port()
    settings = {**SMALL, "OPENSEARCH_PORT": str(port), "OPENSEARCH_DATA": str(data)}
    try:
        with (data / "console.log").open("wb") as log:
            process = subprocess.Popen(
                [SERVER, "run"], env={**os.environ, **settings}, stdout=log, stderr=log
            )
        try:
            _wait(process, f"http://127.0.0.1:{port}", data / "console.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=60)
    finally:
        shutil.rmtree(data)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline, pause = time.monotonic() + START_S, Event()
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/_cluster/health", timeout=60).is_success:
                return
        pause.wait(0.2)
    raise AssertionError(f"OpenSearch did not start:\n{log.read_text()[-3000:]}")


def new_name() -> str:
    """Return the name of an index that no other test has used."""
    return f"gnomon-test-{secrets.token_hex(6)}"


def settings_at(url: str, **changes: Any) -> OpenSearchSettings:
    plain: dict[str, Any] = {"urls": (url,), "replicas": 0}
    return OpenSearchSettings(**(plain | changes))


@pytest.fixture
def raw(opensearch_url: str) -> Iterator[OpenSearch]:
    """The server by its own client: to break things by hand, and to look."""
    client = OpenSearch([opensearch_url], max_retries=0, timeout=30)
    yield client
    client.close()


@pytest.fixture
def name(opensearch_url: str) -> Iterator[str]:
    """The name of an index, which is gone at the test's end."""
    chosen = new_name()
    yield chosen
    drop(opensearch_url, chosen)


def drop(url: str, name: str) -> None:
    with OpenSearch([url], max_retries=0, timeout=30) as client:
        client.indices.delete(index=f"{name}*", params={"ignore_unavailable": "true"})


@pytest.fixture
def opensearch_proxy(opensearch_url: str) -> Iterator[FaultyProxy]:
    """The way to the server, which breaks where it is told to."""
    with proxied(opensearch_url) as made:
        yield made
