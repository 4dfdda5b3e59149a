from uuid import UUID

import pytest

from canonical.errors import InvalidInputError
from gnomon.api import cursors, parameters

KNOWN = frozenset({"user_id", "limit"})
ID = UUID("01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("a%20b", "a b"),
        ("a+b", "a b"),
        ("%E7%94%A8%E6%88%B71", "用户1"),
        ("a%2Fb%26c%3D", "a/b&c="),
        ("", ""),
        ("%25", "%"),
    ],
)
def test_a_value_comes_back_as_it_was_meant(raw: str, value: str) -> None:
    """S-08"""
    assert parameters.query(f"user_id={raw}".encode(), KNOWN) == {"user_id": value}


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"fitler={}", "fitler"),
        (b"user_id=a&user_id=b", "user_id"),
        (b"user_id=%FF", "query string"),
        (b"user_id=%ED%A0%BD", "query string"),
        (b"user_id=\xff", "query string"),
        (b"&".join(b"user_id=a" for _ in range(100)), "query string"),
        (b"%1b%5b2J=1", "\\x1b[2J"),
    ],
)
def test_what_is_unknown_doubled_or_unsound_is_refused(raw: bytes, field: str) -> None:
    """S-09: no parameter is ever ignored."""
    with pytest.raises(InvalidInputError) as caught:
        parameters.query(raw, KNOWN)
    assert caught.value.field == field


@pytest.mark.parametrize("value", ["1", "TRUE", "yes", "", "null"])
def test_a_flag_is_true_or_false_and_nothing_else(value: str) -> None:
    with pytest.raises(InvalidInputError):
        parameters.flag({"explain": value}, "explain")
    assert parameters.flag({"explain": "true"}, "explain")
    assert not parameters.flag({}, "explain")


@pytest.mark.parametrize("value", ["5.0", "5x", "\u0665", "1e3", " 5", "+5", ""])
def test_a_number_is_written_in_plain_digits(value: str) -> None:
    """Q-16: what isn't stays a text, and the door refuses it."""
    assert parameters.number({"limit": value}, "limit") == value


def test_a_cursor_leads_back_to_its_place() -> None:
    assert cursors.read(cursors.write(ID, ["t1"]), ["t1"]) == ID


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "ü", "A" * 38, cursors.write(ID, ["t1"])[:-4], cursors.write(ID, ["t1"]) + "AAAA"],
)
def test_a_garbled_cursor_is_refused(cursor: str) -> None:
    """Q-17"""
    with pytest.raises(InvalidInputError, match="cursor: is not one of ours"):
        cursors.read(cursor, ["t1"])


def test_a_cursor_of_another_question_is_refused() -> None:
    """Q-17"""
    with pytest.raises(InvalidInputError, match="another question"):
        cursors.read(cursors.write(ID, ["t1", {"filter": {"n": 10**30}}]), ["t2"])
