"""What commands that serve have in common: the wish to stop, the socket, uvicorn's settings."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from gnomon.cli.failures import CommandError, Exit

if TYPE_CHECKING:
    import uvicorn

    from gnomon.settings import Settings

BACKLOG: Final = 2048
KEEP_ALIVE_S: Final = 75  # above what clients keep idle connections for
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
GRACE_S: Final = 10  # requests at work when the server is told to stop


def uvicorn_config(app: Any, **more: Any) -> "uvicorn.Config":
    """Return how uvicorn serves an application of ours, or the name of what makes one."""
    import uvicorn  # noqa: PLC0415 - only commands that serve need it

    from gnomon.api.wire import Wire  # noqa: PLC0415

    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    return uvicorn.Config(
        app,
        http=Wire,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        **more,
    )


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Leave out the traceback of a request that the end of the grace cuts off."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class Stop:
    """The wish to stop, by Ctrl-C or SIGTERM: heard at once, obeyed where nothing is half open.

    Raised as an exception wherever the start or the stop happens to be, it could leave behind a
    Postgres that was just made and that nobody knows of yet, or that was about to be stopped. So a
    signal is never raised, and a second one changes nothing: requests at work have their grace.
    """

    def __init__(self) -> None:
        """Nothing is wished for yet."""
        self.asked = False
        self.server: uvicorn.Server | None = None

    def listen(self) -> None:
        """Hear signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self.hear)

    def hear(self, sig: int, frame: object) -> None:  # noqa: ARG002 - as uvicorn names them
        """Note the wish; the server, if there is one yet, ends when it comes to it."""
        self.asked = True
        if self.server is not None:
            self.server.should_exit = True

    def end(self) -> None:
        """Let no further signal cut the closing of the engines short."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def listening(settings: "Settings") -> Iterator[socket.socket]:
    """Listen where the settings say.

    Raises: CommandError.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (settings.host, settings.port), family=family, backlog=BACKLOG
        )
    except OSError as exc:
        raise CommandError(
            "cannot_listen",
            f"{settings.host}, port {settings.port}: {_why(exc)}",
            "Stop what listens there, or choose another --port (0: any free one) or --host.",
            Exit.REFUSED,
        ) from None
    with listener:
        yield listener


def _why(error: OSError) -> str:
    """Return the reason; `create_server` says the place once more behind it."""
    return (error.strerror or "").partition(" (while ")[0]


def stop_when_stdin_ends() -> None:
    """Stop with whoever started us and holds the other end, however that one ends."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def address(listener: socket.socket) -> str:
    """Return the URL of what listens there."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
