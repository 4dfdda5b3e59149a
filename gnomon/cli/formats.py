"""The files that `gnomon import` reads, as lines of the bulk route: one memory a line."""

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from canonical.errors import InvalidInputError, TooLargeError

MAX_LINE_BYTES: Final = (
    1 << 20
)  # far above what the door takes, so that it is the door that says so
MAX_DOCUMENT_BYTES: Final = 256 << 20  # one JSON document is read as a whole
NEWLINE: Final = b"\n"


class Format(StrEnum):
    """How a file holds memories."""

    JSONL = "jsonl"  # one memory a line, with the fields of POST /v1/memories
    LOCOMO = "locomo"  # locomo10.json: one memory a turn
    MEMORYBANK = "memorybank"  # memory_bank_*.json, or an exchange a line: one memory an exchange


def lines(path: Path, form: Format, scope: Mapping[str, str]) -> Iterator[bytes]:
    """Yield a file's memories as JSON lines without their ends; line n of the import is the nth.

    `scope` is put into each memory that doesn't name the id itself. What can't be read as JSON is
    passed on as it is: the server refuses it by its line, and the rest goes on.
    Raises: InvalidInputError, when the file as a whole is not of this format; TooLargeError.
    """
    if form is Format.JSONL:
        return _json_lines(path, scope)
    made = _locomo(_document(path)) if form is Format.LOCOMO else _memorybank(_exchanges(path))
    # As a whole first: a file that turns out to be of another format has no effect at all.
    return iter([_line({**scope, **memory}) for memory in made])


def count_lines(path: Path) -> int:
    """Count a file's lines."""
    with path.open("rb") as file:
        return sum(block.count(NEWLINE) for block in iter(lambda: file.read(MAX_LINE_BYTES), b""))


def _json_lines(path: Path, scope: Mapping[str, str]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES and not line.endswith(NEWLINE):
                _skip_line(file)
            yield _with_scope(line.removesuffix(NEWLINE).removesuffix(b"\r"), scope)


def _skip_line(file: Any) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(NEWLINE):
        pass


def _with_scope(line: bytes, scope: Mapping[str, str]) -> bytes:
    if not scope or not line.strip():
        return line
    try:
        memory = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return _line({**scope, **memory}) if isinstance(memory, dict) else line


def _line(memory: Mapping[str, Any]) -> bytes:
    return json.dumps(memory).encode("ascii")  # a lone surrogate stays one, for the door to refuse


def _document(path: Path) -> Any:
    size = path.stat().st_size
    if size > MAX_DOCUMENT_BYTES:
        raise TooLargeError("file", size, MAX_DOCUMENT_BYTES)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("file", f"is not JSON ({exc})", "one JSON document") from None


def _locomo(samples: Any) -> Iterator[dict[str, Any]]:
    """Yield one memory a turn, of the user that is named like its conversation."""
    with _of_format("a list of LoCoMo's samples"):
        for sample in samples:
            conversation = sample["conversation"]
            for number in itertools.count(1):
                if f"session_{number}_date_time" not in conversation:
                    break
                for turn in conversation.get(f"session_{number}", ()):
                    yield _turn(turn, sample["sample_id"], number, conversation)


def _turn(turn: Any, sample: str, session: int, conversation: Any) -> dict[str, Any]:
    caption = f" [image: {turn['blip_caption']}]" if "blip_caption" in turn else ""
    return {
        "user_id": sample,
        "text": f"{turn['speaker']}: {turn['text']}{caption}",
        "source_message_ids": [turn["dia_id"]],
        "metadata": {
            "sample_id": sample,
            "session": session,
            "session_time": conversation[f"session_{session}_date_time"],
            "dia_id": turn["dia_id"],
            "speaker": turn["speaker"],
        },
    }


def _exchanges(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield MemoryBank's exchanges, from its own layout or from one exchange a line."""
    with path.open("rb") as file:
        head = file.readline(MAX_LINE_BYTES)
    with _of_format("MemoryBank's users with their history, or one exchange a line"):
        if isinstance(first := _json_or_none(head), dict) and "query" in first:
            with path.open("rb") as file:
                yield from (json.loads(line) for line in file if line.strip())
            return
        for user, person in _document(path).items():
            for date, exchanges in person["history"].items():
                for exchange in exchanges:
                    yield {"user": user, "date": date, **exchange}


def _memorybank(exchanges: Iterator[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one memory an exchange: what the user said, and below it what was answered."""
    with _of_format("exchanges with user, date, query and response"):
        for exchange in exchanges:
            yield {
                "user_id": exchange["user"].strip(),
                "text": f"{exchange['query'].strip()}\n→ {exchange['response'].strip()}",
                "metadata": {key: exchange[key] for key in ("date", "lang") if key in exchange},
            }


def _json_or_none(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _of_format(allowed: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        problem = f"doesn't fit the format ({type(exc).__name__}: {exc})"
        raise InvalidInputError("file", problem, allowed) from None
