"""What OpenSearch is given."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.domain.filters import RANGES, Operator
from canonical.domain.records import Status
from canonical.domain.scope import Scope
from canonical.errors import EngineRefusedError
from projectors.keyword import mapping, schema
from projectors.keyword.mapping import Upsert, number, write_for
from projectors.keyword.opensearch import documents, queries
from projectors.keyword.opensearch.documents import item_of
from projectors.keyword.opensearch.settings import OpenSearchSettings
from tests.support.keyword_index import record

ALICE = Scope("acme", user_id="alice", run_id="r1")
HELD = record('"tea"\n\\ 緑茶', ALICE, metadata={"n": 3})
WRITE = write_for(HELD, epoch=1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def sent(write: mapping.IndexWrite, *, routed: bool = True) -> tuple[dict[str, Any], Any]:
    action, source = item_of(write, routed=routed).lines.splitlines()
    return json.loads(action)["index"], json.loads(source)


def test_a_document_holds_every_value_as_it_is() -> None:
    assert isinstance(WRITE, Upsert)
    action, source = sent(WRITE)
    assert action == {
        "_id": HELD.id.hex,
        "version": WRITE.guard,
        "version_type": "external",
        "routing": mapping.tag("acme"),
    }
    whole = documents.whole_number("", number(3.0))
    assert source == {
        schema.TENANT: "acme",
        schema.STATUS: "active",
        schema.USER_ID: "alice",
        schema.RUN_ID: "r1",
        schema.FACETS: list(WRITE.facets),
        schema.NUMBERS: [n for n in WRITE.numbers if n.endswith(whole)],
        schema.VALID_FROM: schema.ALWAYS,
        schema.VALID_TO: schema.NEVER,
        schema.EXPIRES_AT: schema.NEVER,
        schema.BODY: WRITE.body,
    }
    assert len(source[schema.NUMBERS]) == 1
    assert "routing" not in sent(WRITE, routed=False)[0]


def test_a_document_has_no_field_that_the_mapping_lacks() -> None:
    settings = OpenSearchSettings(urls=())
    known = documents.index_body(settings, "x")["mappings"]["properties"].keys()
    gone = write_for(replace(HELD, status=Status.DELETED), epoch=1)
    assert sent(WRITE)[1].keys() <= known
    assert sent(gone)[1] == {schema.TENANT: "acme", schema.STATUS: "deleted"}


def test_what_no_document_can_hold_is_refused_by_itself() -> None:
    """E-10: the others of its page go through."""
    assert isinstance(WRITE, Upsert)
    with pytest.raises(EngineRefusedError, match="too high"):
        item_of(replace(WRITE, guard=1 << 63), routed=True)
    with pytest.raises(EngineRefusedError, match="surrogates"):
        item_of(replace(WRITE, body="\ud800"), routed=True)


@given(st.sampled_from(sorted(RANGES)), FLOATS, st.data())
def test_a_range_holds_exactly_its_numbers_and_those_of_its_key(
    op: Operator, bound: float, data: st.DataObject
) -> None:
    """S-09: also next to the bound, and around zero."""
    near = [bound, -bound, 0.0, math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)]
    value = data.draw(st.sampled_from([n for n in near if math.isfinite(n)]) | FLOATS)
    bounds = queries._numbers(op, "b", number(bound))["range"][schema.NUMBERS]
    compare = {"gt": str.__gt__, "gte": str.__ge__, "lt": str.__lt__, "lte": str.__le__}

    def holds(prefix: str) -> bool:
        term = documents.whole_number(prefix, number(value))
        return all(compare[name](term, edge) for name, edge in bounds.items())

    assert holds("b") == RANGES[op](value, bound)
    assert not holds("a")
    assert not holds("c")


@pytest.mark.parametrize("changes", [{"k1": 1.3}, {"b": 0.5}, {"route_by_tenant": False}])
def test_the_fingerprint_follows_what_stays_with_an_index(changes: dict[str, Any]) -> None:
    plain = OpenSearchSettings(urls=())
    assert replace(plain, **changes).fingerprint() != plain.fingerprint()
    assert replace(plain, urls=("x",), replicas=3, shards=2).fingerprint() == plain.fingerprint()


def test_the_fingerprint_follows_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    before = OpenSearchSettings(urls=()).fingerprint()
    monkeypatch.setattr(schema, "ANALYSIS", "another")
    assert OpenSearchSettings(urls=()).fingerprint() != before
