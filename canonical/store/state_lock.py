"""The lock of a state folder: one process at a time works on what lies there."""

import fcntl
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from canonical.errors import StateInUseError, StateUnusableError


class StateLock:
    """The right to work on a state folder, for as long as this process lives or until `release`.

    Guarantee: the kernel gives the lock back however the process ends, SIGKILL included, and a
               forked child doesn't keep it. The file stays, with the pid of its last holder and the
               folder's identity. `identity` is the same for every holder of this folder and, being
               bound to the file itself, another one for a copy of the folder.
    """

    def __init__(self, folder: Path) -> None:
        """Prepare; nothing is locked or made yet."""
        self.folder = folder
        self.path = folder / "lock"
        self.identity = ""  # known once it is acquired
        self._fd: int | None = None

    def acquire(self) -> None:
        """Make the folder, if need be, and take its lock.

        Raises: StateInUseError, which names the process that holds it; StateUnusableError.
        """
        fd = self._opened()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _lines(fd)[0]
            os.close(fd)
            raise StateInUseError(str(self.folder), holder) from None
        self.identity = _identity(fd)
        _write(fd, f"{os.getpid()}\n{self.identity} {_place(fd)}\n")
        self._fd = fd
        # A flock belongs to the open file, which a fork shares: a child that outlived us would
        # keep the folder locked.
        os.register_at_fork(after_in_child=self._forget)

    def _opened(self) -> int:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise StateUnusableError(f"{exc.filename}: {exc.strerror}") from None

    def release(self) -> None:
        """Give the lock back; repeating it is harmless."""
        self._forget()

    def _forget(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _exc: BaseException | None,
        _tb: TracebackType | None,
    ) -> None:
        self.release()


def _identity(fd: int) -> str:
    """Return the folder's identity: the one that was written into this very file, else a new one.

    A folder that was copied, or restored beside its original, must not pass for it.
    """
    identity, _, place = _lines(fd)[1].partition(" ")
    return identity if identity and place == _place(fd) else secrets.token_hex(8)


def _place(fd: int) -> str:
    file = os.fstat(fd)
    return f"{file.st_dev}:{file.st_ino}"


def _lines(fd: int) -> list[str]:
    """Read what the last holder wrote: a line with its pid, one with the folder's identity."""
    return [*os.pread(fd, 200, 0).decode(errors="replace").splitlines(), "", ""]


def _write(fd: int, said: str) -> None:
    os.pwrite(fd, said.encode(), 0)
    os.ftruncate(fd, len(said))
