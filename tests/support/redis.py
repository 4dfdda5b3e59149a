"""A real Redis of a test's own: killed, started again empty, full; and one that never answers."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import redis as client

START_S = 20


class Redis:
    """A server without persistence: what it held is gone when it is killed."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.options = folder, options
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", *options,
                 *self.options],
                stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        for _ in range(START_S * 20):
            try:
                self.ask("PING")
            except client.ConnectionError:
                Event().wait(0.05)
            else:
                return
        raise AssertionError("redis-server doesn't start")

    def ask(self, *command: str) -> Any:
        with client.Redis(port=self.port, decode_responses=True) as conn:
            return conn.execute_command(*command)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(START_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def silent() -> Iterator[str]:
    """Yield the URL of a place that takes connections and says nothing, as dropped packets do."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    if shutil.which("redis-server") is None:
        told = "there is no redis-server on the PATH"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(told)
    server = Redis(tmp_path / "redis")
    yield server
    server.kill()
