"""A search in OpenSearch's terms: term and range queries only, so nothing is ever parsed."""

from typing import Any, assert_never

from canonical.domain import filters
from canonical.domain.filters import AllOf, AnyOf, Condition, Filter, Not, Operator
from canonical.domain.records import Status
from canonical.domain.visibility import Visible
from projectors.keyword import schema
from projectors.keyword.mapping import NUMBER_DIGITS, NUMBER_LENGTH, micros, number, number_prefix
from projectors.keyword.mapping import tag as tenant_tag
from projectors.keyword.opensearch.documents import ABOUT, ABOUT_MARKS, whole_number
from projectors.keyword.port import Question

Query = dict[str, Any]

MAX_HITS = 10_000  # what an index gives at once, unless it is set otherwise
_LEAST, _MOST = NUMBER_DIGITS[0] * NUMBER_LENGTH, NUMBER_DIGITS[-1] * NUMBER_LENGTH


def best(question: Question, *, factor: float) -> Query:
    """Find what is visible and holds some of the terms; `factor` goes into every score."""
    prefix = tenant_tag(question.visible.scope.tenant)
    words = [
        {"term": {schema.BODY: {"value": prefix + term, "boost": boost * factor}}}
        for term, boost in question.boosts.items()
    ]
    # A filter says yes or no; it moves no score.
    return {
        "size": min(question.limit, MAX_HITS),
        "query": {
            "bool": {
                "should": words,
                "minimum_should_match": 1,
                "filter": _visible(question.visible),
            }
        },
        "_source": False,
        "version": True,
        "track_total_hits": False,
    }


def marks() -> Query:
    """Find every mark."""
    return {"size": MAX_HITS, "query": {"term": {ABOUT: ABOUT_MARKS}}}


def held(memory_ids: list[str]) -> Query:
    """Find these documents, dead or alive."""
    found = {"ids": {"values": memory_ids}}
    return {"size": len(memory_ids), "query": found, "_source": False, "version": True}


def page_of_scan(view: str, *, keep_alive: str, size: int) -> Query:
    """Read the first memories of a point in time, in its own order; `search_after` goes on."""
    return {
        "size": size,
        "query": memories(live=False),
        "pit": {"id": view, "keep_alive": keep_alive},
        "sort": [{"_shard_doc": "asc"}],
        "_source": False,
        "version": True,
        "docvalue_fields": [schema.STATUS],
        "track_total_hits": False,
    }


def memories(*, live: bool) -> Query:
    """Find every memory: those with content, or tombstones too."""
    if live:
        return {"terms": {schema.STATUS: [s.value for s in Status if s.is_live]}}
    return {"exists": {"field": schema.STATUS}}


def _visible(visible: Visible) -> list[Query]:
    scope = visible.scope
    must = [
        _term(schema.TENANT, scope.tenant),
        {"terms": {schema.STATUS: [status.value for status in visible.statuses()]}},
        *(_term(name, value) for name, value in scope.named().items()),
        _range(schema.VALID_FROM, lte=micros(visible.as_of)),
        _unended(visible),
    ]
    if not visible.show_expired:
        must.append(_range(schema.EXPIRES_AT, gt=micros(visible.now)))
    if visible.where is not None:
        must.append(_where(visible.where, scope.tenant))
    return must


def _unended(visible: Visible) -> Query:
    unended = _range(schema.VALID_TO, gt=micros(visible.as_of))
    if not visible.include_superseded:
        return unended
    return _any([unended, _term(schema.STATUS, Status.SUPERSEDED.value)])


def _where(where: Filter, tenant: str) -> Query:
    match where:
        case AllOf(()):
            return {"match_all": {}}
        case AnyOf(()):
            return {"match_none": {}}
        case AllOf(parts):
            return {"bool": {"filter": [_where(part, tenant) for part in parts]}}
        case AnyOf(parts):
            return _any([_where(part, tenant) for part in parts])
        case Not(part):
            return {"bool": {"must_not": [_where(part, tenant)]}}
        case Condition():
            return _condition(where, tenant)
        case _:
            assert_never(where)


def _condition(condition: Condition, tenant: str) -> Query:
    name, value = condition.field, condition.value
    match condition.op:
        case Operator.EXISTS:
            return _term(schema.FACETS, filters.key_term(name))
        case Operator.EQ:
            assert not isinstance(value, tuple)
            return _term(schema.FACETS, filters.value_term(name, value))
        case Operator.IN:
            assert isinstance(value, tuple)
            return {"terms": {schema.FACETS: [filters.value_term(name, one) for one in value]}}
        case _:
            assert isinstance(value, int | float)
            prefix = number_prefix(tenant, filters.key_term(name))
            return _numbers(condition.op, prefix, number(float(value)))


def _numbers(op: Operator, prefix: str, bound: str) -> Query:
    """Find the numbers under one key on one side of `bound`: their terms are in their order."""
    edge = whole_number(prefix, bound)
    match op:
        case Operator.GT | Operator.GTE:
            return _range(schema.NUMBERS, **{op.value: edge, "lte": whole_number(prefix, _MOST)})
        case _:
            return _range(schema.NUMBERS, **{op.value: edge, "gte": whole_number(prefix, _LEAST)})


def _term(field: str, value: str) -> Query:
    return {"term": {field: value}}


def _range(field: str, **bounds: int | str) -> Query:
    return {"range": {field: bounds}}


def _any(parts: list[Query]) -> Query:
    return {"bool": {"should": parts, "minimum_should_match": 1}}
