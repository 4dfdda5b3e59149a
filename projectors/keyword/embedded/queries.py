"""A search in tantivy's terms: query objects only, so nothing a user writes is ever parsed."""

import math
from collections.abc import Callable, Mapping
from typing import assert_never

import tantivy
from tantivy import FieldType, Occur, Query

from canonical.domain import filters
from canonical.domain.filters import AllOf, AnyOf, Condition, Filter, Not, Operator
from canonical.domain.records import Status
from canonical.domain.visibility import Visible
from projectors.keyword import schema
from projectors.keyword.embedded.documents import STATUS_CODES
from projectors.keyword.mapping import (
    NUMBER_DIGITS,
    NUMBER_STEPS,
    micros,
    number,
    number_prefix,
)

_FIRST, _LAST = NUMBER_DIGITS[0], NUMBER_DIGITS[-1]


class Queries:
    """Builds queries for one schema."""

    def __init__(self, fields: tantivy.Schema) -> None:
        self._fields = fields

    def best(self, weights: Mapping[str, float], visible: Visible) -> Query:
        """Find what is visible and holds some of the body terms; each counts by its weight."""
        words = [
            (Occur.Should, Query.boost_query(self._term(schema.BODY, term, "freq"), weight))
            for term, weight in weights.items()
        ]
        wanted = [(Occur.Must, Query.boolean_query(words))]
        return Query.boolean_query([*wanted, *self._visible(visible)])

    def _visible(self, visible: Visible) -> list[tuple[Occur, Query]]:
        scope, tenant = visible.scope, visible.scope.tenant
        must = [self._term(schema.TENANT, tenant), self._statuses(visible)]
        must += [self._term(name, value) for name, value in scope.named().items()]
        as_of = micros(visible.as_of)
        must.append(self._integers(schema.VALID_FROM, None, as_of))
        must.append(self._unended(visible))
        if not visible.show_expired:
            must.append(self._integers(schema.EXPIRES_AT, micros(visible.now) + 1, None))
        if visible.where is not None:
            must.append(self._where(visible.where, tenant))
        # A filter says yes or no; it must not move a score.
        return [(Occur.Must, Query.const_score_query(query, 0.0)) for query in must]

    def _unended(self, visible: Visible) -> Query:
        unended = self._integers(schema.VALID_TO, micros(visible.as_of) + 1, None)
        if not visible.include_superseded:
            return unended
        codes = [STATUS_CODES[Status.SUPERSEDED]]
        superseded = Query.term_set_query(self._fields, schema.STATUS, codes)
        return Query.boolean_query([(Occur.Should, unended), (Occur.Should, superseded)])

    def _statuses(self, visible: Visible) -> Query:
        codes = [STATUS_CODES[status] for status in visible.statuses()]
        return Query.term_set_query(self._fields, schema.STATUS, codes)

    def _where(self, where: Filter, tenant: str) -> Query:
        match where:
            case AllOf(()):
                return Query.all_query()
            case AnyOf(()):
                return Query.empty_query()
            case AllOf(parts):
                return Query.boolean_query([(Occur.Must, self._where(p, tenant)) for p in parts])
            case AnyOf(parts):
                return Query.boolean_query([(Occur.Should, self._where(p, tenant)) for p in parts])
            case Not(part):
                every = (Occur.Must, Query.all_query())
                return Query.boolean_query([every, (Occur.MustNot, self._where(part, tenant))])
            case Condition():
                return self._condition(where, tenant)
            case _:
                assert_never(where)

    def _condition(self, condition: Condition, tenant: str) -> Query:
        name, value = condition.field, condition.value
        match condition.op:
            case Operator.EXISTS:
                return self._term(schema.FACETS, filters.key_term(name))
            case Operator.EQ:
                assert not isinstance(value, tuple)
                return self._term(schema.FACETS, filters.value_term(name, value))
            case Operator.IN:
                assert isinstance(value, tuple)
                choices = [filters.value_term(name, choice) for choice in value]
                return Query.term_set_query(self._fields, schema.FACETS, choices)
            case _:
                assert isinstance(value, int | float)
                wanted = number_prefix(tenant, filters.key_term(name))
                wanted += _pattern(condition.op, float(value))
                return Query.regex_query(self._fields, schema.NUMBERS, wanted)

    def _term(self, field: str, value: str, kept: str = "basic") -> Query:
        return Query.term_query(self._fields, field, value, kept)

    def _integers(self, field: str, low: int | None, high: int | None) -> Query:
        return Query.range_query(self._fields, field, FieldType.Integer, low, high)


def _pattern(op: Operator, bound: float) -> str:
    """Return what the terms of a number on the right side of `bound` look like.

    tantivy has no ranges over terms. A pattern is walked over the sorted terms of the index, as a
    range would be: it visits those that match and leaves the others out by their first digits.
    """
    match op:
        case Operator.GT:
            return _beyond(number(math.nextafter(bound, math.inf)), _higher)
        case Operator.GTE:
            return _beyond(number(bound), _higher)
        case Operator.LT:
            return _beyond(number(math.nextafter(bound, -math.inf)), _lower)
        case _:
            return _beyond(number(bound), _lower)


def _beyond(digits: str, side: Callable[[str], str]) -> str:
    """Match the whole number, and all on its side, each by the coarsest step that tells it."""
    patterns, start = [], 0
    for step, stop in zip(NUMBER_DIGITS, NUMBER_STEPS, strict=False):
        pattern = _step(digits, start, stop, side)
        if pattern:
            patterns.append(step + pattern)
        start = stop
    return f"({'|'.join(patterns)})"


def _step(digits: str, start: int, stop: int, side: Callable[[str], str]) -> str:
    """Match what first differs between `start` and `stop`, by its digits up to `stop`."""
    pattern = ""
    for place in reversed(range(start, stop)):
        others = side(digits[place])
        options = [others + f"[{_FIRST}-{_LAST}]" * (stop - place - 1)] if others else []
        if pattern or stop == place + 1 == len(digits):
            options.append(digits[place] + pattern)
        pattern = f"({'|'.join(options)})" if options else ""
    return digits[:start] + pattern if pattern else ""


def _higher(digit: str) -> str:
    return f"[{chr(ord(digit) + 1)}-{_LAST}]" if digit < _LAST else ""


def _lower(digit: str) -> str:
    return f"[{_FIRST}-{chr(ord(digit) - 1)}]" if digit > _FIRST else ""
