"""Gnomon's programs as processes of a production set-up: each by its own command and settings."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import orjson
import pytest

from canonical.store import migrate
from canonical.store.embedded import EmbeddedPostgres
from tests.support.postgres import Server

WITHIN_S = 60


@pytest.fixture(scope="module")
def safe_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps what it acknowledges, as every process of ours demands of it."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("safe") / "pg") as server:
        yield Server(server.url(), lambda name: server.url("gnomon", name))


@pytest.fixture
def safe_url(safe_server: Server) -> Iterator[str]:
    """URL of a migrated database of this test's own on such a server."""
    name = f"gnomon_test_{secrets.token_hex(6)}"
    url = safe_server.create(name)
    migrate.upgrade(url)
    yield url
    safe_server.drop(name)


class Program:
    """A command that says in a line of JSON that it is ready, then runs until it is ended."""

    def __init__(self, log: Path, env: Mapping[str, str], *arguments: str) -> None:
        plain = {name: v for name, v in os.environ.items() if not name.startswith("GNOMON_")}
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gnomon.cli", *arguments, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**plain, **env, "NO_COLOR": "1"},
                start_new_session=True,  # so that a kill takes its children along
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said()
        self.announced: dict[str, Any] = orjson.loads(line)

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4_000:]

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """End it, and what it started, as a power cut does."""
        self.signal(signal.SIGKILL)
        self._close()

    def stop(self) -> int:
        """End it as an orchestrator does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WITHIN_S)
        self._close()
        return code

    def _close(self) -> None:
        self.process.wait(WITHIN_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        elif self.process.stdout is not None:
            self.process.stdout.close()
