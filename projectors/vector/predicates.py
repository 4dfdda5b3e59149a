"""What a search may see, as conditions on a point's fields that any engine can be asked."""

from dataclasses import dataclass
from typing import assert_never

from canonical.domain import filters
from canonical.domain.filters import AllOf, AnyOf, Condition, Filter, Not, Operator
from canonical.domain.records import Status
from canonical.domain.visibility import Visible
from projectors.vector import schema
from projectors.vector.mapping import asked, in_order


@dataclass(frozen=True, slots=True)
class Is:
    """A field has, or a list field holds, one of these values; of none: never."""

    field: str
    any_of: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A number field lies within bounds; a missing field doesn't."""

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A list of objects has an item for which all parts hold at once."""

    field: str
    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold; of none: always."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one part holds; of none: never."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class No:
    """The part doesn't hold."""

    part: "Predicate"


Predicate = Is | Within | Item | Every | Some | No

NEVER = Is(schema.STATUS, ())
LIVE = Is(schema.STATUS, tuple(status.value for status in Status if status.is_live))


def seen(visible: Visible) -> Predicate:
    """Return the condition for a point to be shown: the same as `visibility.drop_reason`."""
    as_of = asked(visible.as_of)
    scope = (Is(name, (value,)) for name, value in visible.scope.named().items())
    parts: list[Predicate] = [
        Is(schema.TENANT, (visible.scope.tenant,)),
        *scope,
        Is(schema.STATUS, tuple(status.value for status in visible.statuses())),
        No(Within(field=schema.VALID_FROM, gt=as_of)),  # a missing bound is within no bounds
        _unended(visible),
    ]
    if not visible.show_expired:
        parts.append(No(Within(field=schema.EXPIRES_AT, lte=asked(visible.now))))
    if visible.where is not None:
        parts.append(matching(visible.where))
    return Every(tuple(parts))


def _unended(visible: Visible) -> Predicate:
    unended = No(Within(field=schema.VALID_TO, lte=asked(visible.as_of)))
    if not visible.include_superseded:
        return unended
    return Some((unended, Is(schema.STATUS, (Status.SUPERSEDED.value,))))


def matching(where: Filter) -> Predicate:
    """Return the condition that a point's facets meet exactly when `filters.matches` holds."""
    match where:
        case AllOf(parts):
            return Every(tuple(matching(part) for part in parts))
        case AnyOf(parts):
            return Some(tuple(matching(part) for part in parts))
        case Not(part):
            return No(matching(part))
        case Condition():
            return _condition(where)
        case _:
            assert_never(where)


def _condition(condition: Condition) -> Predicate:
    name, value = condition.field, condition.value
    match condition.op:
        case Operator.EXISTS:
            return Is(schema.TERMS, (filters.key_term(name),))
        case Operator.EQ:
            assert not isinstance(value, tuple)
            return Is(schema.TERMS, (filters.value_term(name, value),))
        case Operator.IN:
            assert isinstance(value, tuple)
            choices = dict.fromkeys(filters.value_term(name, choice) for choice in value)
            return Is(schema.TERMS, tuple(choices))
        case _:
            assert isinstance(value, int | float)
            return _range(filters.key_term(name), condition.op, float(value))


def _range(key: str, op: Operator, bound: float) -> Predicate:
    high, low = in_order(bound)
    strictly = Operator.GT if op in (Operator.GT, Operator.GTE) else Operator.LT
    number = Some(
        (
            _bounded(schema.NUMBER_HIGH, strictly, high),
            Every(
                (
                    Within(field=schema.NUMBER_HIGH, gte=high, lte=high),
                    _bounded(schema.NUMBER_LOW, op, low),
                )
            ),
        )
    )
    item = Item(schema.NUMBERS, (Is(schema.NUMBER_KEY, (key,)), number))
    # The first part adds nothing but speed: it is indexed, what is inside of items is not.
    return Every((Is(schema.TERMS, (key,)), item))


def _bounded(field: str, op: Operator, bound: int) -> Within:
    return Within(field=field, **{op.value: bound})  # the operators are named as the bounds are
