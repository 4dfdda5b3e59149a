"""Lines of an upload, cut into chunks of exactly so many, whatever pieces the network makes."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

LF: Final = b"\n"
TRIMMED: Final = b" \t\r"

# A line without the white space around it; of one over the bound, only its length.
Line = bytes | int


@dataclass(frozen=True, slots=True)
class LineChunk:
    """Lines of one transaction, in order; `first` is the number of the first one, from 1."""

    number: int
    first: int
    lines: Sequence[Line]

    def body_hash(self) -> bytes:
        """Hash the lines as they were sent, but for white space around them."""
        long = [(n, line) for n, line in enumerate(self.lines) if isinstance(line, int)]
        parts = [b"" if isinstance(line, int) else line for line in self.lines]
        digest = hashlib.sha256(LF.join(parts)).digest()
        return hashlib.sha256(digest + repr(long).encode()).digest() if long else digest


def cut(read: Callable[[], bytes], size: int, line_bytes: int) -> Iterator[LineChunk]:
    """Cut an upload into chunks of `size` lines; only the last may have fewer.

    Guarantee: a line counts once its end or the body's end has come, so an upload that breaks off
               never yields a part of a line, nor a part of a chunk. At most a chunk, a line and a
               piece are held.
    Raises:    what `read` raises, which returns the next piece, or nothing at the end.
    """
    held: list[Line] = []
    number, first = 0, 1
    for line in _lines(read, line_bytes):
        held.append(line)
        if len(held) == size:
            yield LineChunk(number, first, held)
            number, first, held = number + 1, first + size, []
    if held:
        yield LineChunk(number, first, held)


def _lines(read: Callable[[], bytes], limit: int) -> Iterator[Line]:
    rest: list[bytes] = []  # pieces of the line that has no end yet; none of one over the bound
    length = 0
    while piece := read():
        *ended, last = piece.split(LF)
        for part in ended:
            length += len(part)
            yield length if length > limit else b"".join([*rest, part]).strip(TRIMMED)
            rest, length = [], 0
        length += len(last)
        if length > limit:
            rest = []
        else:
            rest.append(last)
    if length:
        yield length if length > limit else b"".join(rest).strip(TRIMMED)
