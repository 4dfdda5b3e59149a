"""Position tokens: what comes back, and what is none of ours."""

import base64
import itertools
import zlib

import pytest

from canonical.domain.answers import Written, position
from canonical.domain.positions import Position, from_token, to_token
from canonical.errors import InvalidInputError
from tests.support.builders import record

WHOLE = Position(3, {0: 1, 7: 2**40, 15: 2**63 - 1})


def signed(body: bytes) -> str:
    raw = body + zlib.crc32(body).to_bytes(4, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def refused(token: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        from_token(token)
    assert caught.value.field == "after"


@pytest.mark.parametrize("position", [WHOLE, Position(1), Position(2**63 - 1, {0: 0})])
def test_a_token_comes_back_as_the_same_position(position: Position) -> None:
    assert from_token(to_token(position)) == position


def test_a_token_fits_an_address_line() -> None:
    every = to_token(Position(1, dict.fromkeys(range(16), 2**40)))
    assert len(every) < 250
    assert set(every) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_no_token_with_one_character_changed_is_read() -> None:
    """A garbled token is refused, or it is another spelling of the very same position."""
    token = to_token(WHOLE)
    for n, other in itertools.product(range(len(token)), "A_z9"):
        garbled = token[:n] + other + token[n + 1 :]
        try:
            assert from_token(garbled) == WHOLE
        except InvalidInputError:
            continue


@pytest.mark.parametrize("cut", range(1, len(to_token(WHOLE))))
def test_no_token_that_was_cut_is_read(cut: int) -> None:
    refused(to_token(WHOLE)[:cut])


@pytest.mark.parametrize(
    "token",
    [
        *("", " ", "0", "latest", "é", "\ud83d", "a\x00", "====", "A" * 100_000, "'; DROP TABLE"),
        str(record().id),
        signed(b""),
        signed(b"\x01" + bytes(7)),  # too short for a head
        signed(b"\x02" + bytes(8)),  # another format
        signed(b"\x01" + bytes(8) + b"\x00"),  # half a pair
        signed(b"\x01" + b"\xff" * 8),  # a number that no column holds
        signed(b"\x01" + bytes(8) + bytes(2) + b"\x80" + bytes(7)),
        signed(b"\x01" + bytes(8) + b"\xff\xff" + bytes(8)),
    ],
)
def test_what_is_none_of_ours_is_refused(token: str) -> None:
    refused(token)


def test_the_place_past_two_positions() -> None:
    one, other = Position(1, {0: 5, 1: 9}), Position(1, {1: 3, 2: 4})
    assert one.joined(other) == other.joined(one) == Position(1, {0: 5, 1: 9, 2: 4})


def test_the_place_past_all_that_was_written() -> None:
    written = [Written(record().id, 1, shard, pos) for shard, pos in [(3, 7), (1, 2), (3, 9)]]
    assert position(4, written) == Position(4, {3: 9, 1: 2})
    assert position(4, []) == Position(4)
