"""What comes in, what is refused, and what a refusal says."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from canonical.domain import door
from canonical.domain.commands import CHANGE_FIELDS, NEW_FIELDS
from canonical.domain.door import LIMITS
from canonical.domain.filters import SYSTEM_FIELDS
from canonical.domain.records import Record
from canonical.domain.scope import Scope
from canonical.errors import InvalidInputError, RejectedError, TooLargeError

Check = Callable[[Any], object]

UNSOUND = ["a\x00b", "\x00", "hi \ud83d there", "\udc00", "\U0001d400\ud835"]
BLANK = [
    *("", "   ", "\n\t", "\u200b", "\u200b \u2060\ufeff", "\u00ad", "\u3164", "\u2800"),
    *("\x01\x07", "\x7f\x85", "\u115f\u1160", "\ufe0f", "\U000e0020\U000e007f", "\u180e\u061c"),
]
NO_STRINGS: list[Any] = [None, 42, 1.5, True, [], ["*"], {}, {"like": "%"}]
# W-10: none of these may lose or gain a code point
GOOD_TEXTS = [
    "Hello 👋 𠮷野家 👩‍👩‍👧",
    "é and e\u0301",
    "zero\u200bwidth\u200djoiner",
    "שלום \u202bright to left\u202c",
    "tab\t, CR LF\r\n, form feed\x0c, bell\x07",
    " padded ",
    "!",
    "\u0301",
]
GOOD_IDS = [
    *(
        "a-b",
        "a b",
        "a/b c",
        "../a",
        "o'brien",
        "x:y",
        'a"b',
        "用户1",
        "AND",
        "-1",
        "a.b",
        "%",
        "_",
    ),
    *("0190163d-8694-739b-aea5-966c26f8ad91", "a" * 256, "𠮷" * 256, "❤️", "Alice", "a\u200bb"),
    *("\\", "null", "; DROP TABLE memory", "🏴\U000e0067\U000e007f", "👩‍👩‍👧"),
]
BAD_IDS = [
    *("*", "alice*", "?", "a?b", "", " ", "a" * 257, "a\nb", "a\x7fb", "a\x85b", "a\tb"),
    *("  alice  ", "alice\n", " alice", "alice\u00a0", "\u200balice", "alice\ufeff", "a\u200e"),
    *("\u3164", "\ufe0f", "\u2028a", *UNSOUND),
]
TEXT_CHECKS: list[Check] = [
    door.text,
    door.query_text,
    lambda v: door.note(v, "why"),
]


def refused(check: Check, value: object) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        check(value)
    said = caught.value
    assert said.status == 422
    assert said.field
    assert said.problem
    assert said.allowed
    str(said).encode()  # an answer can be made of it, whatever was sent
    return said


@pytest.mark.parametrize("check", TEXT_CHECKS, ids=["text", "query", "note"])
class TestTexts:
    @pytest.mark.parametrize("value", UNSOUND)
    def test_nul_and_lone_surrogates_are_refused(self, check: Check, value: str) -> None:
        """W-08, W-09."""
        refused(check, value)

    @pytest.mark.parametrize("value", BLANK)
    def test_what_shows_nothing_is_refused(self, check: Check, value: str) -> None:
        """W-15."""
        assert refused(check, value).problem == "is blank"

    @pytest.mark.parametrize("value", GOOD_TEXTS)
    def test_a_text_comes_back_as_it_was_sent(self, check: Check, value: str) -> None:
        """W-10."""
        assert check(value) == value

    @pytest.mark.parametrize("value", [v for v in NO_STRINGS if v is not None])
    def test_only_a_string_is_a_text(self, check: Check, value: object) -> None:
        """W-15."""
        refused(check, value)


@pytest.mark.parametrize("check", TEXT_CHECKS[:2], ids=["text", "query"])
def test_a_text_that_is_missing_is_refused(check: Check) -> None:
    """W-15."""
    assert "missing" in refused(check, None).problem


def test_a_note_may_be_left_out() -> None:
    assert door.note(None, "why") is None


@pytest.mark.parametrize("unit", ["a", "茶", "𠮷"])
@pytest.mark.parametrize("limit", [12, 120, LIMITS.text_bytes // 12 * 12])
def test_a_text_is_bounded_in_bytes(unit: str, limit: int) -> None:
    """W-13: limit - 1 and limit are stored whole, above it says size and limit."""
    limits = replace(LIMITS, text_bytes=limit)
    whole = unit * (limit // len(unit.encode()))
    assert door.text(whole, "text", limits) == whole
    assert door.text(whole[1:] + "a" * (len(unit.encode()) - 1), "text", limits)
    with pytest.raises(TooLargeError) as caught:
        door.text(whole + "a", "text", limits)
    said = caught.value
    assert (said.status, said.size, said.limit, said.unit) == (413, limit + 1, limit, "bytes")
    assert str(limit) in str(said)
    assert str(limit + 1) in str(said)


def test_a_query_over_its_bound_is_not_a_body_over_its_bound() -> None:
    said = refused(door.query_text, "a" * (LIMITS.query_bytes + 1))
    assert str(LIMITS.query_bytes) in said.allowed


@pytest.mark.parametrize("value", GOOD_IDS)
def test_an_id_comes_back_as_it_was_sent(value: str) -> None:
    """S-08: `%` and `_` are plain characters; so is whatever is no control and no wildcard."""
    assert door.identifier(value, "user_id") == value


@pytest.mark.parametrize("value", [*BAD_IDS, *NO_STRINGS])
def test_an_id_without_sense_is_refused(value: object) -> None:
    """S-01, S-08, S-11, W-08, W-09."""
    assert refused(lambda v: door.identifier(v, "agent_id"), value).field == "agent_id"


def test_an_id_over_its_bound_is_told_the_bound() -> None:
    """S-08."""
    assert "256" in refused(lambda v: door.identifier(v, "run_id"), "a" * 257).allowed


@pytest.mark.parametrize("name", ["user_id", "agent_id", "run_id"])
class TestScopes:
    @pytest.mark.parametrize("value", [v for v in [*BAD_IDS, *NO_STRINGS] if v is not None])
    def test_no_id_of_a_scope_may_be_odd(self, name: str, value: object) -> None:
        """S-01: 422 with the field's name, for a wildcard as for a list or an object."""
        other = {"user_id": "alice", name: value}
        assert refused(lambda v: door.scope(v, "t1"), other).field == name

    def test_one_id_is_enough(self, name: str) -> None:
        assert door.scope({name: "x"}, "t1") == Scope("t1", **{name: "x"})


@pytest.mark.parametrize(
    "raw", [{}, {"user_id": None}, {"user_id": None, "agent_id": None, "run_id": None}]
)
def test_a_scope_left_out_does_not_mean_everything(raw: dict[str, Any]) -> None:
    """S-05."""
    said = refused(lambda v: door.scope(v, "t1"), raw)
    assert "at least one of user_id, agent_id and run_id" in said.allowed


@pytest.mark.parametrize("name", sorted(SYSTEM_FIELDS))
def test_metadata_cannot_set_a_field_of_the_record(name: str) -> None:
    """S-03, S-04."""
    said = refused(door.metadata, {"colour": "red", name: "x"})
    assert said.field == f"metadata.{name}"


def test_every_field_that_a_caller_can_name_is_reserved() -> None:
    """S-03, S-04: a new field of a record can't be forgotten in the list of reserved names."""
    named = NEW_FIELDS | CHANGE_FIELDS | set(Record.__dataclass_fields__) - {"scope"}
    assert named <= SYSTEM_FIELDS


def test_a_reserved_name_is_free_below_the_top() -> None:
    nested = {"source": {"user_id": "bob", "id": 7}}
    assert door.metadata(nested) == nested


@pytest.mark.parametrize("bad", UNSOUND)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda v: {"k": v},
        lambda v: {v: 1},
        lambda v: {"k": ["x", {"y": v}]},
        lambda v: {"k": {"z": {v: [1]}}},
        lambda v: {"k": [[v]]},
    ],
)
def test_metadata_is_sound_unicode_at_every_depth(wrap: Check, bad: str) -> None:
    """W-08, W-09."""
    assert refused(door.metadata, wrap(bad)).field.startswith("metadata")


def test_metadata_is_bounded_in_depth() -> None:
    def deep(levels: int) -> dict[str, Any]:
        value: Any = 1
        for _ in range(levels):
            value = {"k": value}
        return dict(value)

    assert door.metadata(deep(8)) == deep(8)
    assert refused(door.metadata, deep(9)).allowed == "a depth of at most 8"
    limits = replace(LIMITS, metadata_depth=2)
    said = refused(lambda v: door.metadata(v, limits), {"a": [[1]]})
    assert said.allowed == "a depth of at most 2"
    refused(door.metadata, deep(100_000))  # refused long before Python's own bound


def test_metadata_is_bounded_in_bytes() -> None:
    exact = {"k": "茶" * ((LIMITS.metadata_bytes - len('{"k":""}')) // 3)}
    assert door.metadata(exact) == exact
    with pytest.raises(TooLargeError) as caught:
        door.metadata({"k": exact["k"] + "茶"})
    assert caught.value.limit == LIMITS.metadata_bytes


@pytest.mark.parametrize(
    "value",
    [
        *({"k": float("nan")}, {"k": [float("inf")]}, {"k": 2**63}, {"k": -(2**63)}, {"k": {1}}),
        *({"": 1}, {1: 2}, {"k": {None: 1}}, [], "x", 3, True),
    ],
)
def test_metadata_is_a_json_object(value: object) -> None:
    refused(door.metadata, value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": None, "b": True, "c": -(2**63) + 1, "d": 1e308, "e": ["x", {"f": []}], "AND": 1},
        {"emoji 👋": "𠮷", "*": "?"},
    ],
)
def test_metadata_comes_back_as_it_was_sent(value: dict[str, Any]) -> None:
    assert door.metadata(value) == value


def test_metadata_left_out_is_empty() -> None:
    assert door.metadata(None) == {}


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("2026-03-01T00:30:00+08:00", datetime(2026, 2, 28, 16, 30, tzinfo=UTC)),
        ("2026-02-28T16:30:00Z", datetime(2026, 2, 28, 16, 30, tzinfo=UTC)),
        ("2026-02-28t16:30:00z", datetime(2026, 2, 28, 16, 30, tzinfo=UTC)),
        ("2026-02-28 16:30Z", datetime(2026, 2, 28, 16, 30, tzinfo=UTC)),
        ("2026-02-28T02:30:00-14:00", datetime(2026, 2, 28, 16, 30, tzinfo=UTC)),
        ("2026-02-28T16:30:00.5Z", datetime(2026, 2, 28, 16, 30, 0, 500_000, tzinfo=UTC)),
        ("2026-02-28T16:30:00.123456789Z", datetime(2026, 2, 28, 16, 30, 0, 123_456, tzinfo=UTC)),
        ("2028-02-29T00:00:00Z", datetime(2028, 2, 29, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_an_instant_is_the_same_in_every_zone(sent: str, meant: datetime) -> None:
    """L-09."""
    read = door.instant(sent, "expires_at")
    assert read == meant
    assert read is not None
    assert read.tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        *("2026-03-01", "2026-03-01T00:30:00", "2026-02-30T00:00:00Z", "2026-12-31T23:59:60Z"),
        *("2027-02-29T00:00:00Z", "2026-W09-7T00:00:00+00:00", "20260301T003000+0800"),
        *("2026-03-01T25:00:00Z", "2026-03-01T00:30:00+25:00", "0001-01-01T00:00:00+14:00"),
        *("9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "tomorrow"),
        *("2026-03-01x00:30:00+08:00", "٢٠٢٦-03-01T00:30:00Z", "2026-03-01T00:30:00Z\n", ""),
        *("2026-03-01T00:30:00 +08:00", "2026-03-01T00:30:00+08:00:30", 1_700_000_000, 1.5, True),
        *([], {}, "\ud83d", "2026-03-01T00:30:00,5Z"),
    ],
)
def test_a_time_without_an_offset_or_without_a_day_is_refused(value: object) -> None:
    """L-09."""
    assert refused(lambda v: door.instant(v, "valid_from"), value).field == "valid_from"


def test_a_time_may_be_left_out() -> None:
    assert door.instant(None, "valid_to") is None


@pytest.mark.parametrize("value", [None, "3", 3.0, True, -1, 201, 10**400, [1], float("nan")])
def test_a_whole_number_is_one_inside_its_bounds(value: object) -> None:
    said = refused(lambda v: door.whole_number(v, "top_k", 0, 200), value)
    assert said.allowed == "a whole number from 0 to 200"
    assert len(said.problem) < 50


@pytest.mark.parametrize("value", [0, 7, 200])
def test_a_whole_number_on_its_bounds_passes(value: int) -> None:
    assert door.whole_number(value, "top_k", 0, 200) == value


@pytest.mark.parametrize("name", ["fitler", "\ud83d", "a\x00", "x" * 10_000, "tenant"])
def test_an_unknown_field_is_named_and_never_ignored(name: str) -> None:
    """S-09: also a name that no answer could hold as it is."""
    said = refused(lambda v: door.known_fields(v, frozenset({"text"})), {"text": "x", name: 1})
    assert len(said.field) < 100
    assert said.problem == "is an unknown field"


@pytest.mark.parametrize("raw", [None, [], "x", 1, True])
def test_a_body_is_an_object(raw: object) -> None:
    refused(lambda v: door.known_fields(v, frozenset()), raw)


def test_every_refusal_is_of_the_family_that_changes_the_request() -> None:
    assert issubclass(InvalidInputError, RejectedError)
    assert issubclass(TooLargeError, RejectedError)
