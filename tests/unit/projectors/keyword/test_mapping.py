"""What the index must hold for a record."""

import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.domain import filters
from canonical.domain.filters import Operator
from canonical.domain.records import EPOCH_SHIFT, Status
from canonical.domain.scope import Scope
from canonical.errors import EngineRefusedError
from projectors.keyword import mapping, schema
from projectors.keyword.embedded import queries
from projectors.keyword.mapping import Tombstone, Upsert, number, steps, write_for
from tests.support.keyword_index import NOW, record

ALICE = Scope("acme", user_id="alice", run_id="r1")
NUMBERS = st.floats(allow_nan=False) | st.integers(-(10**6), 10**6).map(float)
COMPARE = {
    Operator.GT: float.__gt__,
    Operator.GTE: float.__ge__,
    Operator.LT: float.__lt__,
    Operator.LTE: float.__le__,
}


@pytest.mark.parametrize("status", [status for status in Status if status.is_live])
def test_a_live_record_becomes_an_upsert(status: Status) -> None:
    held = record("green tea", ALICE, status=status, rev=7, metadata={"n": 3, "tags": ["a", "b"]})
    write = write_for(held, epoch=2)
    facets = filters.facets(held.metadata)
    assert write == Upsert(
        memory_id=held.id,
        guard=2 << EPOCH_SHIFT | 7,
        status=status,
        scope=ALICE,
        valid_from=schema.ALWAYS,
        valid_to=schema.NEVER,
        expires_at=schema.NEVER,
        facets=facets.terms,
        numbers=tuple(mapping.tag("acme") + filters.key_term("n") + step for step in steps(3)),
        body=f"{mapping.tag('acme')}green {mapping.tag('acme')}tea",
    )


@pytest.mark.parametrize("status", [status for status in Status if not status.is_live])
def test_a_dead_record_becomes_a_tombstone(status: Status) -> None:
    held = record("secret", ALICE, status=status, rev=8, metadata={"n": 3})
    assert write_for(held, epoch=1) == Tombstone(
        memory_id=held.id, guard=1 << EPOCH_SHIFT | 8, status=status, tenant="acme"
    )


def test_times_keep_their_microsecond_in_every_zone() -> None:
    moment = NOW + timedelta(microseconds=1)
    held = record(
        "x",
        ALICE,
        valid_from=moment.astimezone(timezone(timedelta(hours=9))),
        valid_to=datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        expires_at=datetime.max.replace(tzinfo=UTC),
    )
    write = write_for(held, epoch=1)
    assert isinstance(write, Upsert)
    assert write.valid_from == int(NOW.timestamp()) * 1_000_000 + 1
    assert write.valid_to == -1_000_000
    assert mapping.micros(datetime.min.replace(tzinfo=UTC)) > schema.ALWAYS
    assert write.expires_at < schema.NEVER


def test_a_number_that_no_double_holds_is_refused_by_itself() -> None:
    """E-10: the record is parked, with its reason."""
    with pytest.raises(EngineRefusedError, match="too large"):
        write_for(record("x", ALICE, metadata={"n": 10**400}), epoch=1)


def test_a_text_without_words_has_an_empty_body() -> None:
    write = write_for(record("🙂 …", ALICE), epoch=1)
    assert isinstance(write, Upsert)
    assert write.body == ""


def test_tenants_share_no_body_term() -> None:
    one, other = (mapping.body(tenant, "green tea").split() for tenant in ("a", "b"))
    assert not set(one) & set(other)
    assert len({len(mapping.tag(tenant)) for tenant in ("", "a", "用户", "x" * 256)}) == 1


@given(NUMBERS, NUMBERS)
def test_numbers_are_in_order_as_strings(one: float, other: float) -> None:
    assert (number(one) < number(other)) == (one < other)
    assert (number(one) == number(other)) == (one == other)
    assert len(number(one)) == mapping.NUMBER_LENGTH


@given(st.sampled_from(sorted(COMPARE)), NUMBERS.filter(math.isfinite), st.data())
def test_a_range_s_pattern_matches_exactly_its_numbers(
    op: Operator, bound: float, data: st.DataObject
) -> None:
    """S-09: also next to the bound, and around zero."""
    near = [bound, -bound, 0.0, -0.0, math.nextafter(bound, math.inf), bound + 1, bound - 1]
    held = data.draw(st.sampled_from([*near, math.nextafter(bound, -math.inf)]) | NUMBERS)
    pattern = queries._pattern(op, bound)
    matched = [step for step in steps(held) if re.fullmatch(pattern, step)]
    assert len(matched) == COMPARE[op](held, bound)  # once, by one step


def test_the_fingerprint_follows_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema.fingerprint()
    monkeypatch.setattr(schema, "ANALYSIS", "another")
    assert schema.fingerprint() != before


def test_replaying_a_record_gives_the_same_write() -> None:
    held = record("green tea", ALICE, metadata={"b": 1, "a": [2, "x"]})
    assert write_for(held, epoch=1) == write_for(
        replace(held, metadata=dict(held.metadata)), epoch=1
    )
