"""Processes that hold something until they are killed: a state folder, a Postgres, a pid."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HOLD_SERVER = """
import sys
from pathlib import Path
from canonical.store.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
print(server.start(), server.pid, flush=True)
sys.stdin.read()
"""
HOLD_LOCK = """
import os, sys
from pathlib import Path
from canonical.store.state_lock import StateLock
StateLock(Path(sys.argv[1])).acquire()
child = os.fork() if "fork" in sys.argv else None
if child != 0:
    print(os.getpid(), child, flush=True)
sys.stdin.read()
"""


def pids_of(folder: Path) -> list[int]:
    """Return the processes that name a folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


@contextmanager
def holding(
    script: str, *arguments: str | Path
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run `script` in a process of its own; yield it and the words it says once it holds.

    Its standard input is ours to close, which ends it; at the end it is killed if it still runs.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()
    finally:
        process.kill()
        process.communicate()
