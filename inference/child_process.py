"""A child process that answers framed JSON, with a deadline on every answer."""

import contextlib
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from inference.spacy_child import LENGTH

MAX_FRAME_BYTES = 1 << 28
GRACE_S = 2.0  # from the end of the child's input to the kill


class ChildDiedError(Exception):
    """The child is gone; it may have been what it was asked."""


class ChildSlowError(Exception):
    """The child didn't answer in time, and was ended."""


class ChildProcess:
    """One child. Not for two threads at once.

    Guarantee: it ends with the parent, however that ends: its input is a pipe that only the parent
               holds. It is out of the terminal's group, so an interrupt there reaches only us.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Start `command`; nothing is known of it until its first answer."""
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        self._expired = False
        self._finish = weakref.finalize(self, _end, self._process)

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    def ask(self, message: Mapping[str, Any], *, within: timedelta) -> dict[str, Any]:
        """Send a frame and return the answer.

        Raises: ChildDiedError, ChildSlowError; the child is closed then.
        """
        return self._exchange(json.dumps(message).encode(), within)

    def hear(self, *, within: timedelta) -> dict[str, Any]:
        """Return a frame that the child sends without being asked. Raises as `ask`."""
        return self._exchange(None, within)

    def _exchange(self, body: bytes | None, within: timedelta) -> dict[str, Any]:
        timer = threading.Timer(within.total_seconds(), self._expire)
        timer.daemon = True
        timer.start()
        with contextlib.ExitStack() as broken:
            # Else the answer to come would be taken for the next question's.
            broken.callback(self.close)
            try:
                if body is not None:
                    self._write(body)
                answer = self._read()
            except (OSError, EOFError, ValueError) as exc:
                self.close()
                if self._expired:
                    raise ChildSlowError(f"no answer within {within.total_seconds():g} s") from exc
                raise ChildDiedError(f"exit code {self._process.returncode}") from exc
            finally:
                timer.cancel()
            broken.pop_all()
        return answer

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def _write(self, body: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(LENGTH.pack(len(body)) + body)
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        (size,) = LENGTH.unpack(self._read_exactly(LENGTH.size))
        if size > MAX_FRAME_BYTES:
            raise EOFError("not a frame: something else wrote to the child's output")
        answer: dict[str, Any] = json.loads(self._read_exactly(size))
        return answer

    def _read_exactly(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def close(self) -> None:
        """End the child; nothing of it is left on return."""
        self._finish()


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):  # a broken pipe, if bytes for the dead child are buffered
        process.stdin.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def python(program: str, *arguments: str) -> list[str]:
    """Return the command that runs a file with this Python, its folder not on the import path."""
    return [sys.executable, "-P", program, *arguments]
