"""Filters over metadata as SQL: the same meaning as `canonical.domain.filters.matches`."""

from typing import Any

import orjson
from sqlalchemy import (
    ColumnElement,
    Float,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB

from canonical.domain.filters import AllOf, AnyOf, Condition, Filter, Not, Operator


def clause(where: Filter, metadata: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that `where` puts on a metadata column."""
    match where:
        case AllOf(parts):
            return and_(true(), *(clause(part, metadata) for part in parts))
        case AnyOf(parts):
            return or_(false(), *(clause(part, metadata) for part in parts))
        case Not(part):
            # A comparison with what is not there is NULL in SQL and false in a filter.
            return not_(func.coalesce(clause(part, metadata), false()))
        case Condition(field, op, value):
            return func.coalesce(_condition(field, op, value, metadata), false())


def _condition(
    field: str,
    op: Operator,
    value: Any,
    metadata: ColumnElement[Any],
) -> ColumnElement[bool]:
    key = literal(field, Text)
    if op is Operator.EXISTS:
        return metadata.bool_op("?")(key)
    held = _items(metadata.op("->")(key))
    if op in (Operator.EQ, Operator.IN):
        wanted = value if isinstance(value, tuple) else (value,)
        test: ColumnElement[bool] = or_(false(), *(_equals(held.c.item, one) for one in wanted))
    else:
        test = _within(held.c.item, op, value)
    return exists(select(1).select_from(held).where(test))


def _items(value: ColumnElement[Any]) -> Any:
    """Return a list's items, or the value itself, as rows of one column `item`."""
    array = case((func.jsonb_typeof(value) == "array", value), else_=func.jsonb_build_array(value))
    return func.jsonb_array_elements(cast(array, JSONB)).table_valued("item").render_derived()


def _equals(item: ColumnElement[Any], wanted: Any) -> ColumnElement[bool]:
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return and_(func.jsonb_typeof(item) == "number", _number(item) == float(wanted))
    return cast(item, JSONB) == bindparam(None, orjson.dumps(wanted).decode(), type_=Text).cast(
        JSONB
    )


def _within(item: ColumnElement[Any], op: Operator, bound: float) -> ColumnElement[bool]:
    symbol = {Operator.GT: ">", Operator.GTE: ">=", Operator.LT: "<", Operator.LTE: "<="}[op]
    compared = _number(item).op(symbol)(literal(float(bound), Float))
    return and_(func.jsonb_typeof(item) == "number", compared)


def _number(item: ColumnElement[Any]) -> ColumnElement[Any]:
    # Evaluated only for numbers: SQL promises no order of evaluation for AND, but for CASE it does.
    return case((func.jsonb_typeof(item) == "number", cast(cast(item, Text), Float)), else_=None)
