"""This process's log as it would stand on standard error."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from gnomon import logs
from gnomon.settings import Settings


class Written:
    """What was written so far."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def lines(self, logger: str = "") -> list[dict[str, Any]]:
        """Return the lines of a logger, where they are JSON."""
        found = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in found if line["logger"].startswith(logger)]


@contextmanager
def written(
    form: Literal["text", "json"], level: Literal["debug", "info"] = "debug"
) -> Iterator[Written]:
    """Write this process's log as the settings would, and put all back at the end."""
    loggers = [logging.getLogger(), *map(logging.getLogger, logs.OURS)]
    before = [(one, one.level, list(one.handlers)) for one in loggers]
    stream = io.StringIO()
    logs.configure(Settings(_env_file=None, log=form, log_level=level), stream)
    try:
        yield Written(stream)
    finally:
        for one, old, handlers in before:
            one.setLevel(old)
            one.handlers[:] = handlers
