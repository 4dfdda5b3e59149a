"""How an import is cut, sent and tallied: the same file gives the same commands again."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from canonical.domain import positions
from canonical.domain.positions import Position
from gnomon.cli.formats import Format

# A part's lines and number name its command, so another cut would make a resend a conflict.
PART_LINES: Final = 2_000  # two of the server's transactions
PART_BYTES: Final = 8 << 20
READ_BYTES: Final = 1 << 20


class Bulk(Protocol):
    """Who takes lines: `Client`."""

    def bulk(self, lines: bytes, mutation_id: str) -> list[dict[str, Any]]:
        """Add a memory a line; return a result for each line that was not blank, then a summary."""
        ...


@dataclass(frozen=True)
class Part:
    """Lines that are sent together. `first`: the number of its first line in the import, from 1."""

    number: int
    first: int
    lines: tuple[bytes, ...]

    def body(self) -> bytes:
        """Return the lines as the bulk route takes them."""
        return b"".join(line + b"\n" for line in self.lines)


@dataclass
class Tally:
    """What has become of an import so far."""

    lines: int = 0
    blank: int = 0
    written: int = 0
    replayed: int = 0  # written before, by the same import or the same source event
    refused: int = 0
    position: Position | None = field(default=None, repr=False)

    def add(self, summary: Mapping[str, Any]) -> None:
        """Add a part's summary."""
        self.lines += summary["lines"]
        self.blank += summary["blank"]
        self.written += summary["written"]
        self.replayed += summary["replayed"]
        self.refused += summary["refused"]
        if summary.get("position") is not None:
            at = positions.from_token(summary["position"], "position")
            self.position = at if self.position is None else self.position.joined(at)

    def token(self) -> str | None:
        """Return the place past everything that was written."""
        return None if self.position is None else positions.to_token(self.position)


def import_id(path: Path, form: Format, scope: Mapping[str, str]) -> str:
    """Name an import by what it sends: a file's bytes, its format, and the scope put to it."""
    options = json.dumps([form.value, scope], sort_keys=True).encode()
    digest = hashlib.sha256(len(options).to_bytes(4, "big") + options)
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return f"import-{digest.hexdigest()[:40]}"


def parts(lines: Iterable[bytes]) -> Iterator[Part]:
    """Cut lines into parts; the cut depends on nothing but the lines."""
    number, first, size = 0, 1, 0
    held: list[bytes] = []
    for line in lines:
        if held and (len(held) == PART_LINES or size + len(line) > PART_BYTES):
            yield Part(number, first, tuple(held))
            number, first, size, held = number + 1, first + len(held), 0, []
        held.append(line)
        size += len(line)
    if held:
        yield Part(number, first, tuple(held))


def send(
    server: Bulk, name: str, cut: Iterable[Part], reject: Callable[[dict[str, Any]], None]
) -> Iterator[Tally]:
    """Send each part; yield the tally after each.

    Guarantee: what the tally counts is committed. A refused line goes to `reject` with its number,
               its error and itself. Sending the same parts under the same name again writes only
               what was not written yet.
    """
    tally = Tally()
    for part in cut:
        *results, last = server.bulk(part.body(), f"{name}-{part.number}")
        for result in results:
            if "error" in result:
                reject(_rejected(result, part))
        tally.add(last["summary"])
        yield tally


def _rejected(result: Mapping[str, Any], part: Part) -> dict[str, Any]:
    line = part.lines[result["line"] - 1]
    return {
        "line": part.first + result["line"] - 1,
        **result["error"],
        "input": line.decode("utf-8", errors="backslashreplace"),
    }
