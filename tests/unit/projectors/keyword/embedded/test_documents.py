"""What tantivy is given."""

import json
from dataclasses import replace
from uuid import UUID

import pytest

from canonical.domain.scope import Scope
from canonical.errors import EngineRefusedError
from projectors.keyword import schema
from projectors.keyword.embedded.documents import ID_HIGH, ID_LOW, document_of
from projectors.keyword.mapping import Upsert, write_for
from tests.support.keyword_index import record

ALICE = Scope("acme", user_id="alice", run_id="r1")
WRITE = write_for(record('"tea"\n\\ 緑茶', ALICE, metadata={"n": 3}), epoch=1)


def test_a_document_holds_every_value_as_it_is() -> None:
    assert isinstance(WRITE, Upsert)
    highest = replace(WRITE, memory_id=UUID(int=(1 << 128) - 1), guard=(1 << 63) - 1)
    assert json.loads(document_of(highest)) == {
        schema.MEMORY_ID: "f" * 32,
        ID_HIGH: (1 << 64) - 1,
        ID_LOW: (1 << 64) - 1,
        schema.STATUS: 0,
        schema.GUARD: (1 << 63) - 1,
        schema.TENANT: "acme",
        schema.USER_ID: "alice",
        schema.RUN_ID: "r1",
        schema.FACETS: list(WRITE.facets),
        schema.NUMBERS: list(WRITE.numbers),
        schema.VALID_FROM: schema.ALWAYS,
        schema.VALID_TO: schema.NEVER,
        schema.EXPIRES_AT: schema.NEVER,
        schema.BODY: WRITE.body,
    }


def test_what_no_document_can_hold_is_refused_by_itself() -> None:
    """E-10: it must not fail in tantivy, whose errors mean the index."""
    with pytest.raises(EngineRefusedError, match="too high"):
        document_of(replace(WRITE, guard=1 << 63))
    assert isinstance(WRITE, Upsert)
    with pytest.raises(EngineRefusedError, match="surrogates"):
        document_of(replace(WRITE, body="\ud800"))
