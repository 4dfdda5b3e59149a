"""The stand-in for a Qdrant server as a process, and real servers where there is one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import qdrant_server

REAL_URL = os.environ.get("GNOMON_TEST_QDRANT_URL")
HOME = Path(__file__).parents[2]
END_S = 20


class StandIn:
    """The stand-in's process: started, killed, started again on the same port and files."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory, self._options = directory, options
        self._port = "0"
        self._scheme = "https" if "--tls" in options else "http"
        self.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", qdrant_server.__name__, str(self._directory), self._port]
        self._process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.PIPE, text=True, cwd=HOME
        )
        assert self._process.stdout is not None
        self._port = self._process.stdout.readline().strip()
        assert self._port, "the stand-in doesn't start"

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it end by itself."""
        if self._process.poll() is None:
            self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def stand_in(directory: Path, *options: str) -> Iterator[StandIn]:
    """Run a stand-in."""
    running = StandIn(directory, *options)
    try:
        yield running
    finally:
        running.stop()
