"""The filters' grammar, place by place, and what each operator means."""

from typing import Any

import pytest

from canonical.domain import filters
from canonical.domain.filters import (
    MAX_CHOICES,
    MAX_CONDITIONS,
    MAX_DEPTH,
    SYSTEM_FIELDS,
    AllOf,
    AnyOf,
    Condition,
    Not,
    Operator,
)
from canonical.errors import InvalidInputError


def refused(raw: object) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        filters.parse(raw)
    said = caught.value
    str(said).encode()  # an answer can be made of it
    assert said.field.startswith("filter")
    assert len(said.field) < 1_000
    return said


def holds(raw: object, metadata: dict[str, Any]) -> bool:
    where = filters.parse(raw)
    return where is None or filters.matches(where, metadata)


@pytest.mark.parametrize("raw", [None, {}])
def test_no_filter_is_none(raw: object) -> None:
    assert filters.parse(raw) is None


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ({"k": "x"}, Condition("k", Operator.EQ, "x")),
        ({"k": None}, Condition("k", Operator.EQ, None)),
        ({"k": {"eq": 1}}, Condition("k", Operator.EQ, 1)),
        ({"k": {"contains": "x"}}, Condition("k", Operator.EQ, "x")),
        ({"k": {"ne": "x"}}, Not(Condition("k", Operator.EQ, "x"))),
        ({"k": {"in": [1, "x"]}}, Condition("k", Operator.IN, (1, "x"))),
        ({"k": {"exists": True}}, Condition("k", Operator.EXISTS, value=True)),
        ({"k": {"exists": False}}, Not(Condition("k", Operator.EXISTS, value=True))),
        (
            {"k": {"gte": 3, "lt": 10.5}},
            AllOf((Condition("k", Operator.GTE, 3), Condition("k", Operator.LT, 10.5))),
        ),
        (
            {"a": 1, "OR": [{"b": 2}, {"NOT": {"c": 3}}]},
            AllOf(
                (
                    Condition("a", Operator.EQ, 1),
                    AnyOf((Condition("b", Operator.EQ, 2), Not(Condition("c", Operator.EQ, 3)))),
                )
            ),
        ),
        ({"and": 1}, Condition("and", Operator.EQ, 1)),  # the words are in capitals
    ],
)
def test_what_a_filter_is_read_as(raw: object, read: filters.Filter) -> None:
    assert filters.parse(raw) == read


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"k": {"approx": 3}}, "filter.k.approx"),
        ({"k": {"gt": "3"}}, "filter.k.gt"),
        ({"k": {"gt": True}}, "filter.k.gt"),
        ({"k": {"lte": None}}, "filter.k.lte"),
        ({"k": {"lt": float("nan")}}, "filter.k.lt"),
        ({"k": {"gte": 10**400}}, "filter.k.gte"),
        ({"k": float("inf")}, "filter.k"),
        ({"k": {"in": []}}, "filter.k.in"),
        ({"k": {"in": "x"}}, "filter.k.in"),
        ({"k": {"in": [["x"]]}}, "filter.k.in"),
        ({"k": {"in": list(range(MAX_CHOICES + 1))}}, "filter.k.in"),
        ({"k": {"exists": 1}}, "filter.k.exists"),
        ({"k": {}}, "filter.k"),
        ({"k": ["x"]}, "filter.k"),
        ({"k": {"eq": ["x"]}}, "filter.k.eq"),
        ({"AND": []}, "filter.AND"),
        ({"OR": {"k": 1}}, "filter.OR"),
        ({"AND": [{"k": 1}, {}]}, "filter.AND[1]"),
        ({"AND": [None]}, "filter.AND[0]"),
        ({"NOT": []}, "filter.NOT"),
        ({"NOT": {}}, "filter.NOT"),
        ({"NOT": {"OR": [{"k": {"x": 1}}]}}, "filter.NOT.OR[0].k.x"),
        ("*", "filter"),
        ([], "filter"),
        ([{"k": 1}], "filter"),
        (0, "filter"),
        (False, "filter"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_place(raw: object, field: str) -> None:
    """S-09: a filter that is not understood is never ignored."""
    assert refused(raw).field == field


@pytest.mark.parametrize("name", sorted(SYSTEM_FIELDS))
@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        lambda f: {"AND": [f]},
        lambda f: {"OR": [{"x": 1}, f]},
        lambda f: {"NOT": f},
        lambda f: {"OR": [{"NOT": {"x": 1}}, {"AND": [{"y": 1}, {"NOT": f}]}]},
    ],
)
def test_a_field_of_the_record_is_no_metadata_key(name: str, wrap: Any) -> None:
    """S-02: at no depth can a filter name the scope."""
    assert refused(wrap({name: "bob"})).field.endswith(f".{name}")


@pytest.mark.parametrize("bad", ["\ud83d", "x\udc00", "a\x00b", "\x00"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda v: {v: 1},
        lambda v: {v: {"eq": 1}},
        lambda v: {"k": v},
        lambda v: {"k": {v: 1}},
        lambda v: {"k": {"in": ["x", v]}},
        lambda v: {"NOT": {"OR": [{v: v}]}},
    ],
)
def test_unsound_text_is_refused_in_words_that_can_be_sent(wrap: Any, bad: str) -> None:
    """W-08, W-09: the refusal itself holds no lone surrogate."""
    refused(wrap(bad))


def test_a_long_key_does_not_come_back_whole() -> None:
    refused({"k" * 1_000_000: {"approx": 1}})


def deep(levels: int, word: str) -> dict[str, Any]:
    raw: dict[str, Any] = {"k": 1}
    for _ in range(levels):
        raw = {"NOT": raw} if word == "NOT" else {word: [raw]}
    return raw


@pytest.mark.parametrize("word", ["AND", "OR", "NOT"])
def test_a_filter_is_bounded_in_depth(word: str) -> None:
    assert filters.parse(deep(MAX_DEPTH - 1, word)) is not None
    for levels in (MAX_DEPTH, 100_000):
        assert "nested too deep" in refused(deep(levels, word)).problem


def test_a_filter_is_bounded_in_conditions() -> None:
    def wide(conditions: int) -> dict[str, Any]:
        return {"OR": [{"k": n} for n in range(conditions)]}

    assert filters.parse(wide(MAX_CONDITIONS)) is not None
    assert "too many" in refused(wide(MAX_CONDITIONS + 1)).problem
    assert "too many" in refused({"k": {"ne": 1}, **wide(MAX_CONDITIONS)}).problem


RECORDS: dict[str, dict[str, Any]] = {
    "none": {},
    "a": {"tag": "a"},
    "b": {"tag": "b"},
    "ab": {"tag": ["a", "b"]},
    "3": {"n": 3},
    "'3'": {"n": "3"},
    "3.0": {"n": 3.0},
    "[1,7]": {"n": [1, 7]},
    "true": {"n": True},
    "null": {"n": None},
    "[]": {"n": []},
    "{}": {"n": {"x": 3}},
    "[[3]]": {"n": [[3]]},
}


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"AND": [{"tag": "a"}, {"tag": "b"}]}, "ab"),  # S-10
        ({"tag": {"contains": "a"}}, "a ab"),
        ({"tag": {"in": ["a", "b"]}}, "a b ab"),
        ({"n": 3}, "3 3.0"),
        ({"n": "3"}, "'3'"),
        ({"n": True}, "true"),
        ({"n": 1}, "[1,7]"),
        ({"n": None}, "null"),
        ({"n": {"gt": 2}}, "3 3.0 [1,7]"),
        ({"AND": [{"n": {"gt": 5}}, {"n": {"lt": 2}}]}, "[1,7]"),
        ({"n": {"gte": 3, "lte": 3}}, "3 3.0 [1,7]"),
        ({"n": {"lt": 0}}, ""),
        ({"n": {"exists": True}}, "3 '3' 3.0 [1,7] true null [] {} [[3]]"),
        ({"n": {"exists": False}}, "none a b ab"),
        ({"n": {"ne": 3}}, "none a b ab '3' [1,7] true null [] {} [[3]]"),
        ({"NOT": {"OR": [{"n": {"exists": True}}, {"tag": "a"}]}}, "none b"),
        ({"missing": {"gt": 0}}, ""),
    ],
)
def test_what_each_operator_finds(raw: object, found: str) -> None:
    """S-09, S-10."""
    assert [name for name, metadata in RECORDS.items() if holds(raw, metadata)] == found.split()


def test_two_conditions_on_one_key_both_hold() -> None:
    """S-10."""
    raw = {"AND": [{"price": {"gt": 10}}, {"price": {"lt": 20}}]}
    assert [p for p in range(30) if holds(raw, {"price": p})] == list(range(11, 20))


def test_of_no_parts_all_hold_and_none_holds() -> None:
    assert filters.matches(AllOf(()), {})
    assert not filters.matches(AnyOf(()), {})


def test_a_facet_says_nothing_of_what_it_stands_for() -> None:
    facets = filters.facets({"salary": 90_000, "name": "Mara"})
    assert "Mara" not in repr(facets)
    assert "salary" not in repr(facets)
    assert {len(term) for term in facets.terms} == {32}


def test_a_key_cannot_be_made_to_look_like_another_keys_value() -> None:
    values: list[filters.Scalar] = ["1", 1, True, "True", None, "", "1:1"]
    terms = [
        filters.value_term("a", "bc"),
        filters.value_term("ab", "c"),
        *(filters.value_term("a", value) for value in values),
        filters.key_term("a"),
        filters.key_term("a1"),
    ]
    assert len(set(terms)) == len(terms)


def test_equal_values_of_several_types_keep_their_own_terms() -> None:
    """Terms are remembered, and to Python 1, 1.0 and True are one key."""
    for value in (True, 1, 1.0, True, 1.0):
        facets = filters.facets({"remembered": value})
        assert facets.terms[1] == filters.value_term("remembered", value)
        assert [number for _, number in facets.numbers] == ([] if value is True else [1.0])
