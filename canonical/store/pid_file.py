"""What `postmaster.pid` says of a data folder's server, and whether that is still so."""

import os
import subprocess
from pathlib import Path

from canonical.store.system_user import ENVIRONMENT

NAME = "postmaster.pid"
STATUS_LINE = 7  # "starting", "ready", "stopping"


def is_ready(data: Path, pid: int) -> bool:
    """Tell whether process `pid` is the folder's server and accepts connections."""
    lines = _lines(data / NAME)
    return len(lines) > STATUS_LINE and lines[0] == str(pid) and lines[STATUS_LINE] == "ready"


def place(data: Path) -> dict[str, str] | None:
    """Return where a running server that accepts connections listens, or None."""
    lines = _lines(data / NAME)
    if left_behind(data) is None or len(lines) <= STATUS_LINE or lines[STATUS_LINE] != "ready":
        return None
    _, _, _, port, socket_folder, address, *_ = lines
    return {"host": socket_folder} if socket_folder else {"host": address, "port": port}


def left_behind(data: Path) -> int | None:
    """Return the process of a server that an earlier process started on the folder and left."""
    pid = _pid(data / NAME)
    return pid if pid is not None and f"postgres -D {data} " in _command_line(pid) else None


def disown_stranger(lock: Path) -> None:
    """Let a server start although the pid in a lock file belongs to something else by now.

    Process numbers begin anew with a machine or a container, and Postgres would refuse to start
    for a stranger's sake. It takes its parent's pid for a stale one, so the file gets ours. The
    other lines stay: should a server still run on the folder after all, its shared memory, named
    there, makes Postgres refuse, and no two ever write to the same files.
    """
    pid = _pid(lock)
    if pid is None or not _is_alive(pid):
        return  # Postgres itself clears such a file away
    _, *rest = lock.read_text().splitlines(keepends=True)
    lock.write_text("".join([f"{os.getpid()}\n", *rest]))


def _lines(lock: Path) -> list[str]:
    try:
        return [line.strip() for line in lock.read_text().splitlines()]
    except FileNotFoundError:
        return []


def _pid(lock: Path) -> int | None:
    lines = _lines(lock)
    if not lines or not lines[0].lstrip("-").isdigit():
        return None
    return abs(int(lines[0]))  # negative: a server without connections, as initdb runs it


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _command_line(pid: int) -> str:
    """Return a process's words, each followed by a space; empty if it is gone or not to be seen."""
    if Path("/proc/self/cmdline").exists():
        try:
            return (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return ""
    said = subprocess.run(  # noqa: S603 - no shell; macOS has no /proc
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    return said.stdout.strip() + " "
