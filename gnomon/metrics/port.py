"""A port of each process's own, where Prometheus reads what that process counts."""

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from canonical.errors import InvalidInputError
from gnomon.settings import Settings

PORTS: Final = 32  # tried from the one that is named: so many processes may share one setting
END_S: Final = 5.0


@contextmanager
def scraped(settings: Settings, registry: CollectorRegistry) -> Iterator[int | None]:
    """Serve metrics while the block runs, if a port is named; give the port that was taken.

    Guarantee: it is the first free one of PORTS from `settings.metrics_port` on: processes that
               share an HTTP port or a setting are told apart, and one that is replaced takes the
               place of the one before.
    Raises:    InvalidInputError, when none of them is free.
    """
    if settings.metrics_port is None:
        yield None
        return
    server, thread = _listening(settings.metrics_host, settings.metrics_port, registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(END_S)


def _listening(
    host: str, first: int, registry: CollectorRegistry
) -> tuple[WSGIServer, threading.Thread]:
    for port in range(first, first + PORTS):
        try:
            return start_http_server(port, host, registry)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise _refused(first, exc.strerror or "can't be listened on") from None
    raise _refused(first, "is in use, and so are all those after it")


def _refused(first: int, problem: str) -> InvalidInputError:
    allowed = f"a port with some free ones among the {PORTS} from it on"
    return InvalidInputError("GNOMON_METRICS_PORT", f"{first}: {problem}", allowed)
