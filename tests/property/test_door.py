"""The door: whatever is sent is let in as it is, or refused in words that can be sent."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from canonical.domain import commands, door
from canonical.domain.commands import CHANGE_FIELDS, NEW_FIELDS, Caller
from canonical.domain.filters import SYSTEM_FIELDS
from canonical.errors import RejectedError

CALLER = Caller("t1")
# letters, marks, controls, format characters, white space, lone surrogates, astral planes
TEXTS = st.text(st.characters(), max_size=6) | st.text(
    st.sampled_from("a*?%_ \t\n\x00\x1f\x7f\x85\u00a0\u00ad\u200b\u2028\u3000\ud83d\udc00\ufeff𠮷"),
    max_size=4,
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        TEXTS,
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from([2**63, -(2**63), 10**400, "2026-03-01T00:30:00+08:00", "2026-02-30"]),
    ),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(st.sampled_from(sorted(NEW_FIELDS)) | TEXTS, JSON, max_size=6)


def can_be_sent(exc: RejectedError) -> None:
    """Check that a problem document can be made of a refusal (W-08: never a 500)."""
    assert exc.status in (413, 422)
    orjson.dumps([str(exc), exc.hint, exc.code, getattr(exc, "field", None)])


@settings(max_examples=100)
@given(value=TEXTS)
@example("e\u0301\u00e9")
def test_a_text_is_let_in_as_it_is_or_refused(value: str) -> None:
    """W-08, W-09, W-10, W-15: and the query's rule is the text's."""
    try:
        assert door.text(value) == value
    except RejectedError as exc:
        can_be_sent(exc)
        with pytest.raises(RejectedError):
            door.query_text(value)
        return
    assert door.query_text(value) == value
    assert value.strip()
    assert "\x00" not in value
    value.encode()


@settings(max_examples=100)
@given(value=TEXTS)
def test_an_id_is_let_in_as_it_is_or_refused(value: str) -> None:
    """S-01, S-08, S-11."""
    try:
        assert door.identifier(value, "user_id") == value
    except RejectedError as exc:
        can_be_sent(exc)
        return
    assert value == value.strip()
    assert not set(value) & set("*?\x00\n\t\x7f")
    value.encode()


@settings(max_examples=100)
@given(value=JSON)
@example({"k": {"\ud83d": 1}})
@example({"user_id": "bob"})
def test_metadata_is_let_in_as_it_is_or_refused(value: Any) -> None:
    """S-03, S-04, W-08, W-09: what is let in can be written as JSON."""
    try:
        checked = door.metadata(value)
    except RejectedError as exc:
        can_be_sent(exc)
        return
    assert checked == ({} if value is None else value)
    assert not SYSTEM_FIELDS & checked.keys()
    assert orjson.loads(orjson.dumps(checked)) == checked
    assert b"\\u0000" not in orjson.dumps(checked)


@settings(max_examples=100)
@given(body=BODIES | JSON)
def test_a_new_memory_is_let_in_or_refused(body: Any) -> None:
    """W-08, W-09: nothing but a refusal comes of any body."""
    try:
        new = commands.new_memory(body, CALLER)
    except RejectedError as exc:
        can_be_sent(exc)
        return
    assert new.text == body["text"]
    assert new.scope.tenant == "t1"
    assert new.scope.named()
    commands.body_hash(body)


@given(body=st.dictionaries(st.sampled_from(sorted(CHANGE_FIELDS)) | TEXTS, JSON, max_size=3))
def test_a_change_is_let_in_or_refused(body: dict[str, Any]) -> None:
    try:
        commands.change(body)
    except RejectedError as exc:
        can_be_sent(exc)
        return
    assert body.keys() <= CHANGE_FIELDS


OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda n: timezone(timedelta(minutes=n)))


@given(
    value=st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=OFFSETS)  # noqa: DTZ001
)
def test_an_instant_comes_back_as_the_same_instant(value: datetime) -> None:
    """L-09: whatever the offset."""
    read = door.instant(value.isoformat(), "valid_from")
    assert read == value
    assert read is not None
    assert read.tzinfo is UTC
