"""The HTTP API in a process of its own, without projectors: a second server on one Postgres."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from tests.support.http_server import START_S, served

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.support.api_process"])


def _serve(database_url: str, pipe: Connection) -> None:
    """Serve until the pipe ends, with whoever holds its other end."""
    with served(database_url) as api:
        pipe.send(api.address)
        try:
            pipe.recv()
        except EOFError:
            return


@contextmanager
def served_by_another_process(database_url: str) -> Iterator[str]:
    """Serve an API on a database; gives its address."""
    ours, theirs = _processes.Pipe()
    process = _processes.Process(target=_serve, args=(database_url, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.poll(START_S), "the other server doesn't start"
        yield ours.recv()
    finally:
        ours.close()
        process.join(START_S)
        if process.is_alive():
            process.kill()
            process.join()
