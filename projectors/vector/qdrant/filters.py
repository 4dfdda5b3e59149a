"""Predicates in the terms of Qdrant's client."""

from collections.abc import Sequence
from typing import assert_never

from qdrant_client.models import (
    FieldCondition,
    Filter,
    HasIdCondition,
    MatchAny,
    MatchValue,
    Nested,
    NestedCondition,
    Range,
)

from projectors.protocol import Mark
from projectors.vector import schema
from projectors.vector.mapping import IndexWrite
from projectors.vector.predicates import NEVER, Every, Is, Item, No, Predicate, Some, Within

QdrantCondition = FieldCondition | Filter | NestedCondition | HasIdCondition


def qdrant_filter(predicate: Predicate) -> Filter:
    """Translate a predicate as a whole."""
    condition = _condition(predicate)
    return condition if isinstance(condition, Filter) else Filter(must=[condition])


def older_than(writes: Sequence[IndexWrite]) -> Filter:
    """Select the points that these writes may replace: each by its own guard, in one request.

    A point without a guard, which only a foreign hand can have left, is replaced too: `guard <
    held` would never match it.
    """
    by_guard: dict[int, list[str]] = {}
    for write in writes:
        by_guard.setdefault(write.guard, []).append(str(write.memory_id))
    if len(by_guard) == 1:
        return Filter(must_not=[_at_least(*by_guard)])
    return Filter(
        should=[
            Filter(must=[HasIdCondition(has_id=list(ids))], must_not=[_at_least(guard)])
            for guard, ids in by_guard.items()
        ]
    )


def behind(marks: Sequence[Mark]) -> Filter:
    """Select the marks that these may replace: by epoch, then by position."""
    return Filter(
        should=[
            Filter(must=[HasIdCondition(has_id=[mark.shard])], must_not=[_has_come_to(mark)])
            for mark in marks
        ]
    )


def _at_least(guard: int) -> FieldCondition:
    return FieldCondition(key=schema.GUARD, range=Range(gte=float(guard)))


def _has_come_to(mark: Mark) -> Filter:
    epoch, pos = f"{schema.MARK}.epoch", f"{schema.MARK}.pos"
    same = Range(gte=float(mark.epoch), lte=float(mark.epoch))
    return Filter(
        should=[
            FieldCondition(key=epoch, range=Range(gt=float(mark.epoch))),
            Filter(
                must=[
                    FieldCondition(key=epoch, range=same),
                    FieldCondition(key=pos, range=Range(gte=float(mark.pos))),
                ]
            ),
        ]
    )


def _condition(predicate: Predicate) -> FieldCondition | Filter | NestedCondition:
    match predicate:
        case Is(field, any_of):
            one = len(any_of) == 1
            match_any = MatchValue(value=any_of[0]) if one else MatchAny(any=list(any_of))
            return FieldCondition(key=field, match=match_any)
        case Within():
            bounds = Range(gt=predicate.gt, gte=predicate.gte, lt=predicate.lt, lte=predicate.lte)
            return FieldCondition(key=predicate.field, range=bounds)
        case Item(field, parts):
            inside = Filter(must=[_condition(part) for part in parts])
            return NestedCondition(nested=Nested(key=field, filter=inside))
        case Every(parts):
            return Filter(must=[_condition(part) for part in parts])
        case Some(parts):  # an empty `should` would hold always
            return Filter(should=[_condition(part) for part in parts or (NEVER,)])
        case No(part):
            return Filter(must_not=[_condition(part)])
        case _:
            assert_never(predicate)
