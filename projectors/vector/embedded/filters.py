"""Predicates in Qdrant Edge's terms; qdrant-client has the same model in other classes."""

from typing import assert_never

from qdrant_edge import (
    FieldCondition,
    Filter,
    MatchAny,
    MatchValue,
    NestedCondition,
    RangeFloat,
)

from projectors.vector import schema
from projectors.vector.predicates import NEVER, Every, Is, Item, No, Predicate, Some, Within

EdgeCondition = FieldCondition | Filter | NestedCondition


def edge_filter(predicate: Predicate) -> Filter:
    """Translate a predicate as a whole."""
    condition = _condition(predicate)
    return condition if isinstance(condition, Filter) else Filter(must=[condition])


def older_than(held: int) -> Filter:
    """Select the points that a write with this guard may replace.

    A point without a guard, which only a foreign hand can have left, is replaced too: `guard <
    held` would never match it.
    """
    bound = RangeFloat(gte=float(held))
    return Filter(must_not=[FieldCondition(schema.GUARD, range=bound)])


def _condition(predicate: Predicate) -> EdgeCondition:
    match predicate:
        case Is(field, any_of):
            one = len(any_of) == 1
            return FieldCondition(
                field, match=MatchValue(any_of[0]) if one else MatchAny(list(any_of))
            )
        case Within():
            bounds = RangeFloat(
                gt=predicate.gt, gte=predicate.gte, lt=predicate.lt, lte=predicate.lte
            )
            return FieldCondition(predicate.field, range=bounds)
        case Item(field, parts):
            return NestedCondition(field, Filter(must=[_condition(part) for part in parts]))
        case Every(parts):
            return Filter(must=[_condition(part) for part in parts])
        case Some(parts):  # an empty `should` would hold always
            return Filter(should=[_condition(part) for part in parts or (NEVER,)])
        case No(part):
            return Filter(must_not=[_condition(part)])
        case _:
            assert_never(predicate)
