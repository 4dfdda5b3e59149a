import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.api import documents
from gnomon.api.refusals import MalformedBodyError

NO_JSON = {
    "": "line 1, column 1",
    "{": "line 1, column 2",
    '{"a": 1,}': "line 1",
    '{"a":\n 1x}': "line 2, column 3",
    "[1] 2": "column 5",
    '{"a": NaN}': "NaN is no finite number at line 1, column 7",
    '{"a": -Infinity}': "-Infinity is no finite number",
    '{"a": [0, 1e400]}': "1e400 is no finite number at line 1, column 11",
    '"\x01"': "line 1, column 2",
    '"a': "line 1, column 1",
    "9" * 5_000: "too long",
    "[" * 100_000: "nested too deep",
    '{"a":' * 100_000: "nested too deep",
}


@pytest.mark.parametrize("raw", NO_JSON, ids=[raw[:12] for raw in NO_JSON])
def test_what_is_not_json_is_refused_with_its_place(raw: str) -> None:
    """A-04"""
    with pytest.raises(MalformedBodyError, match=NO_JSON[raw]) as caught:
        documents.parse(raw.encode())
    assert caught.value.field == "body"


@pytest.mark.parametrize("raw", [b"\xff", b'{"a": "\xed\xa0\xbd"}', b"\xff\xfe{\x00}\x00"])
def test_what_is_not_utf_8_is_refused(raw: bytes) -> None:
    """A-04, W-08: three bytes that would be a surrogate are no UTF-8."""
    with pytest.raises(MalformedBodyError, match="UTF-8 at byte"):
        documents.parse(raw)


@pytest.mark.parametrize(
    "raw", ['{"text": "a", "text": "b"}', '{"m": {"text": 1, "x": 2, "text": 1}}']
)
def test_a_key_that_stands_twice_is_refused_by_its_name(raw: str) -> None:
    """A-04: the last of two would win in silence."""
    with pytest.raises(MalformedBodyError, match="text: stands twice") as caught:
        documents.parse(raw.encode())
    assert caught.value.field == "text"


def test_a_key_that_stands_twice_is_named_so_that_it_can_be_printed() -> None:
    key = json.dumps("\x1b\ud83d" + "k" * 500)
    with pytest.raises(MalformedBodyError) as caught:
        documents.parse(f"{{{key}: 1, {key}: 2}}".encode())
    assert caught.value.field.isprintable()
    assert len(caught.value.field) < 100


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (r'"hi \ud83d"', "hi \ud83d"),
        (r'"\u0000"', "\x00"),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ('"e\u0301"', "e\u0301"),
        (' {"a": [1, 2.5, true, null]} ', {"a": [1, 2.5, True, None]}),
    ],
)
def test_what_the_door_must_judge_comes_through_unchanged(raw: str, value: Any) -> None:
    """W-08, W-09, W-10"""
    assert documents.parse(raw.encode()) == value


def values() -> st.SearchStrategy[Any]:
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | st.integers() | numbers | st.text()
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
    )


@given(values())
def test_every_value_comes_back_as_it_was_written(value: Any) -> None:
    assert documents.parse(json.dumps(value).encode()) == value


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        documents.parse(raw)
    except MalformedBodyError:
        return
    json.loads(raw)
