"""How a process writes its log: as text or JSON, a record at a time, without a memory's words."""

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from canonical import tracing
from canonical.errors import GnomonError
from gnomon.settings import Settings

OURS: Final = frozenset({"canonical", "gnomon", "inference", "projectors", "search", "workers"})
# Of others, those whose messages name addresses and states, and never what is sent or answered.
TOLD: Final = frozenset({"uvicorn", "uvicorn.error", "celery.beat", "celery.worker.consumer"})
# What a record of ours may say beside its message.
FACTS: Final = ("projection", "generation", "shard", "method", "route", "status", "seconds")
CAUSES: Final = 5  # of an error, that are told
FRAMES: Final = 20  # of each, the innermost


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Write the log of this process to `stream` (standard error), as the settings say.

    Guarantee: an error is told by its code, class and places, never by its message; what libraries
               say of requests and answers is left out. Other libraries' lines begin at `warning`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if settings.log == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OURS:
        logging.getLogger(name).setLevel(settings.log_level.upper())


def message(record: logging.LogRecord) -> str:
    """Return what a record says, or where it was said: a stranger may quote a memory."""
    if record.name.partition(".")[0] in OURS or record.name in TOLD:
        return record.getMessage()
    return f"said at {record.filename}:{record.lineno}; left out, as it may quote a memory"


def error(record: logging.LogRecord) -> list[str]:
    """Return a record's error and what led to it, the outermost first, each with its places."""
    if not record.exc_info or record.exc_info[1] is None:
        return []
    return [_told(one) for one in _chain(record.exc_info[1])]


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    for _ in range(CAUSES):
        if exc is None:
            return
        yield exc
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)


def _told(exc: BaseException) -> str:
    name = type(exc).__name__
    said = f"{name} ({exc.code})" if isinstance(exc, GnomonError) else name
    frames = traceback.extract_tb(exc.__traceback__)[-FRAMES:]
    places = [f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in reversed(frames)]
    return f"{said} at {' < '.join(places)}" if places else said


class JsonLines(logging.Formatter):
    """An object a line: time, level, logger, message; ids and facts where there are."""

    # typing has `override` from Python 3.12 on.
    def format(self, record: logging.LogRecord) -> str:  # type: ignore[explicit-override]
        """Write a record."""
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message(record),
            **tracing.ids(),
            **{name: getattr(record, name) for name in FACTS if hasattr(record, name)},
        }
        if told := error(record):
            said["error"] = told
        return json.dumps(said, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """A line to read, its ids at the end; an error on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:  # type: ignore[explicit-override]
        """Write a record."""
        line = f"{record.levelname} {record.name}: {message(record)}"
        if ids := " ".join(f"{name}={one}" for name, one in tracing.ids().items()):
            line = f"{line} [{ids}]"
        return "\n    ".join([line, *error(record)])
