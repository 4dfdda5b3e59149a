"""A real `gnomon up` as a process of its own, to talk to and to kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

READY_S = 120


class Up:
    """`gnomon up` on a free port; SIGKILL is a method."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._log = (state.parent / "up.log").open("ab")
        command = [sys.executable, "-m", "gnomon.cli", "up", "--no-env", "--json", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--state", str(state)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (state.parent / "up.log").read_text(errors="replace")[-2_000:]
        self.announced: dict[str, Any] = orjson.loads(line)
        self.url: str = self.announced["address"]
        self.client = httpx.Client(base_url=self.url, timeout=READY_S)

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.send_signal(signal.SIGKILL)
        self.close()

    def stop(self) -> int:
        """End it as Ctrl-C does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.close()
        return code

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    def lags(self) -> dict[str, int]:
        """Return how far each projection is behind."""
        return self._each("lag")

    def parked(self) -> dict[str, int]:
        """Return how many memories of each projection are set aside."""
        return self._each("parked")

    def _each(self, fact: str) -> dict[str, int]:
        items: list[dict[str, Any]] = self.client.get("/v1/projections").json()["items"]
        return {one["name"]: one[fact] for one in items}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
