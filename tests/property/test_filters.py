"""Filters: what engines index of metadata decides every filter as the metadata itself does."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canonical.domain import filters
from canonical.domain.filters import (
    RANGES,
    SYSTEM_FIELDS,
    AllOf,
    AnyOf,
    Condition,
    Facets,
    Filter,
    Not,
    Operator,
    facets,
    key_term,
    matches,
    value_term,
)
from canonical.errors import InvalidInputError

KEYS = st.sampled_from(["a", "b", "ab", "AND", "é", "b1"])
# values that lie near each other, across types
NEIGHBOURS: list[Any] = [
    *(True, False, None, 0, 1, -0.0, 0.0, 1.0, "", "0", "1", "1.0", "true", "True", "None", "null"),
    *(2**53, 2**53 + 1, float(2**53), 2**63 - 1, 1e308, 5e-324, 0.1, 0.1 + 1e-17, -1, "a", "b1"),
]
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(NEIGHBOURS),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text("ab1é", max_size=2),
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=2), max_leaves=4
)
METADATA = st.dictionaries(KEYS, VALUES, max_size=3)
NUMBERS = st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
TESTS = st.one_of(
    SCALARS,
    *(st.fixed_dictionaries({op: SCALARS}) for op in ("eq", "ne", "contains")),
    *(st.fixed_dictionaries({op: NUMBERS}) for op in ("gt", "gte", "lt", "lte")),
    st.fixed_dictionaries({"in": st.lists(SCALARS, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
)
CONDITIONS = st.dictionaries(KEYS.filter(lambda k: k != "AND"), TESTS, min_size=1, max_size=2)
FILTERS = st.recursive(
    CONDITIONS,
    lambda f: st.one_of(
        st.fixed_dictionaries({"AND": st.lists(f, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"OR": st.lists(f, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"NOT": f}),
    ),
    max_leaves=5,
)


def holds(where: Filter, held: Facets) -> bool:  # noqa: PLR0911 - a line for each
    """Decide a filter as an engine must: by facets alone."""
    match where:
        case AllOf(parts):
            return all(holds(part, held) for part in parts)
        case AnyOf(parts):
            return any(holds(part, held) for part in parts)
        case Not(part):
            return not holds(part, held)
        case Condition(field, Operator.EXISTS, _):
            return key_term(field) in held.terms
        case Condition(field, Operator.EQ, value):
            assert not isinstance(value, tuple)
            return value_term(field, value) in held.terms
        case Condition(field, Operator.IN, values):
            assert isinstance(values, tuple)
            return any(value_term(field, value) in held.terms for value in values)
        case Condition(field, op, bound):
            assert isinstance(bound, int | float)
            name = key_term(field)
            return any(RANGES[op](n, float(bound)) for key, n in held.numbers if key == name)


@settings(max_examples=150)
@given(raw=FILTERS, metadata=METADATA)
def test_facets_decide_as_the_metadata_does(raw: dict[str, Any], metadata: dict[str, Any]) -> None:
    """S-09: every engine and the tail give the same ids."""
    where = filters.parse(raw)
    assert where is not None
    assert holds(where, facets(metadata)) is matches(where, metadata)


def test_equality_by_facets_is_equality() -> None:
    """Of each value with each other one, as it stands and as an item."""
    for wanted, held in itertools.product(NEIGHBOURS, repeat=2):
        condition = Condition("k", Operator.EQ, wanted)
        for metadata in ({"k": held}, {"k": ["x", held]}, {"k": [[held]]}, {"other": held}):
            said = holds(condition, facets(metadata))
            assert said is matches(condition, metadata), (wanted, metadata)
        same = type(wanted) is type(held) or not {type(wanted), type(held)} - {int, float}
        equal = same and wanted == held  # Python itself takes True for 1
        if not (isinstance(wanted, int | float) and abs(wanted) >= 2**53):
            assert matches(condition, {"k": held}) is equal, (wanted, held)


@given(raw=FILTERS, metadata=METADATA)
def test_a_filter_and_its_negation_part_the_records(
    raw: dict[str, Any], metadata: dict[str, Any]
) -> None:
    where = filters.parse(raw)
    assert where is not None
    assert matches(where, metadata) is not matches(Not(where), metadata)


ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.text(st.characters(categories=["Cs", "Cc", "Lu"]), max_size=2),
        st.sampled_from(["AND", "OR", "NOT", "user_id", "tenant", "in", "gt", "exists"]),
    ),
    lambda v: st.one_of(
        st.lists(v, max_size=3),
        st.dictionaries(
            st.sampled_from(["AND", "OR", "NOT", "in", "gt", "eq", "exists", "user_id", "k"])
            | st.text(st.characters(categories=["Cs", "Cc", "Lu"]), max_size=2),
            v,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(raw=ANYTHING)
def test_whatever_is_sent_is_read_or_refused(raw: object) -> None:
    """S-02, S-09, W-08: and what was read names no field of the record."""
    try:
        where = filters.parse(raw)
    except InvalidInputError as exc:
        str(exc).encode()
        exc.field.encode()
        return
    if where is not None:
        assert not {c.field for c in filters.conditions(where)} & SYSTEM_FIELDS


@pytest.mark.parametrize("value", [10**308, -(10**308)])
def test_a_number_as_postgres_gives_it_back_is_the_number(value: int) -> None:
    """jsonb writes 1e308 as 309 digits."""
    assert facets({"k": value}) == facets({"k": float(value)})
    where = filters.parse({"k": float(value)})
    assert where is not None
    assert matches(where, {"k": value})
