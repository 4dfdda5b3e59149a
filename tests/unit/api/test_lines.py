import itertools
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.api import lines
from gnomon.api.lines import LineChunk
from gnomon.api.refusals import UploadBrokenError

LONGEST = 8


def reading(pieces: list[bytes]) -> Callable[[], bytes]:
    left = iter([piece for piece in pieces if piece])
    return lambda: next(left, b"")


def cut(*pieces: bytes, size: int = 3) -> list[LineChunk]:
    return list(lines.cut(reading(list(pieces)), size, LONGEST))


def test_lines_are_cut_into_chunks_of_exactly_so_many_and_only_the_last_has_fewer() -> None:
    found = cut(b"a\nb\n\nc\nd\ne\nf")
    assert [(c.number, c.first, list(c.lines)) for c in found] == [
        (0, 1, [b"a", b"b", b""]),
        (1, 4, [b"c", b"d", b"e"]),
        (2, 7, [b"f"]),
    ]


def test_the_last_line_needs_no_end_and_an_end_makes_no_further_line() -> None:
    assert cut(b"a\nb") == cut(b"a\nb\n")
    assert cut(b"") == []
    assert cut(b"\n")[0].lines == [b""]


def test_white_space_around_a_line_is_none_of_it() -> None:
    assert cut(b" a\t\r\n\r\n  \n")[0].lines == [b"a", b"", b""]


def test_a_line_over_the_bound_is_its_length_alone_and_spoils_no_other() -> None:
    assert cut(b"a\n", b"x" * 7, b"x" * 7, b"x\nb\n")[0].lines == [b"a", 15, b"b"]
    assert cut(b"x" * 9)[0].lines == [9]
    assert cut(b"x" * 8)[0].lines == [b"x" * 8]


def test_no_more_than_the_bound_is_held_of_a_line_without_end() -> None:
    """W-13: a line of a terabyte is counted, not kept."""
    pieces = (b"x" * 10_000 for _ in range(1_000))
    tracemalloc.start()
    try:
        found = list(lines.cut(lambda: next(pieces, b""), 3, LONGEST))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found[0].lines == [10_000_000]
    assert peak < 200_000


def test_an_upload_that_breaks_off_yields_no_part_of_a_chunk() -> None:
    """W-12: neither the line at hand nor the lines before it in its chunk."""

    def broken() -> bytes:
        if pieces:
            return pieces.pop(0)
        raise UploadBrokenError("gone")

    pieces = [b"a\nb\nc\nd\ne", b"e\nf"]
    running = lines.cut(broken, 3, LONGEST)
    assert next(running).lines == [b"a", b"b", b"c"]
    with pytest.raises(UploadBrokenError):
        next(running)


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"x", b"\n")), st.data())
def test_the_cut_does_not_depend_on_the_pieces_that_the_network_makes(
    raw: bytes, data: st.DataObject
) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    bounds = [0, *places, len(raw)]
    pieces = [raw[a:b] for a, b in itertools.pairwise(bounds)]
    whole = raw.split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    found = [line for chunk in cut(*pieces) for line in chunk.lines]
    assert found == [
        len(line) if len(line) > LONGEST else line.strip(b" \t\r") for line in expected
    ]
    assert all(len(chunk.lines) == 3 for chunk in cut(*pieces)[:-1])


def test_the_same_lines_have_the_same_hash_and_others_have_another() -> None:
    assert cut(b"a\r\nb\n")[0].body_hash() == cut(b"a\n b")[0].body_hash()
    others = [b"a\nb", b"ab", b"a\n\nb", b"b\na", b"x" * 9, b"x" * 10, b"\x009"]
    assert len({cut(other)[0].body_hash() for other in others}) == len(others)
