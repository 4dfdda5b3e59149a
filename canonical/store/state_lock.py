"""The lock of a state folder: one process at a time works on what lies there."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from canonical.errors import StateInUseError, StateUnusableError


class StateLock:
    """The right to work on a state folder, for as long as this process lives or until `release`.

    Guarantee: the kernel gives the lock back however the process ends, SIGKILL included, and a
               forked child doesn't keep it. The file stays; only its lock means something.
    """

    def __init__(self, folder: Path) -> None:
        """Prepare; nothing is locked or made yet."""
        self.folder = folder
        self.path = folder / "lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Make the folder, if need be, and take its lock.

        Raises: StateInUseError, which names the process that holds it; StateUnusableError.
        """
        fd = self._opened()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise StateInUseError(str(self.folder), holder) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
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
