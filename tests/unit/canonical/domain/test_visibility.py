"""Who sees a record, and the instants at which that changes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from canonical.domain import filters
from canonical.domain.records import Status, Tombstone
from canonical.domain.scope import Scope
from canonical.domain.visibility import DropReason, Visible, drop_reason, is_expired, is_valid
from tests.support.builders import ALICE, NOW, record

TICK = timedelta(microseconds=1)
TOMB = Tombstone(NOW, None, None)


def visible(scope: Scope = ALICE, **changes: Any) -> Visible:
    return replace(Visible(scope=scope, now=NOW, as_of=NOW), **changes)


@pytest.mark.parametrize(
    ("ids", "scope", "inside"),
    [
        ({"user_id": "alice"}, {"user_id": "alice"}, True),
        ({"user_id": "alice"}, {"user_id": "bob"}, False),
        ({"user_id": "alice"}, {"user_id": "Alice"}, False),
        ({"user_id": "alice", "run_id": "r1"}, {"user_id": "alice"}, True),
        ({"user_id": "alice", "run_id": "r1"}, {"run_id": "r1"}, True),
        ({"user_id": "alice", "run_id": "r1"}, {"user_id": "alice", "run_id": "r1"}, True),
        ({"user_id": "alice", "run_id": "r1"}, {"user_id": "alice", "run_id": "r2"}, False),
        ({"user_id": "alice"}, {"user_id": "alice", "run_id": "r1"}, False),
        ({"user_id": "alice"}, {"agent_id": "alice"}, False),
    ],
)
def test_a_scope_covers_what_equals_each_id_that_it_names(
    *, ids: dict[str, str], scope: dict[str, str], inside: bool
) -> None:
    """S-12, S-15."""
    owner, asked = Scope("t1", **ids), Scope("t1", **scope)
    assert asked.covers(owner) is inside
    seen = drop_reason(record(scope=owner), visible(asked))
    assert seen is (None if inside else DropReason.FOREIGN)


def test_another_tenants_record_is_foreign() -> None:
    """S-06."""
    theirs = record(scope=replace(ALICE, tenant="t2"))
    assert drop_reason(theirs, visible()) is DropReason.FOREIGN


def test_a_scope_names_what_is_named() -> None:
    assert Scope("t1", "u", None, "r").named() == {"user_id": "u", "run_id": "r"}


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("include_superseded", [False, True])
def test_only_live_records_are_seen(status: Status, *, include_superseded: bool) -> None:
    held = record(status=status, tombstone=None if status.is_live else TOMB)
    shown = status is Status.ACTIVE or (status is Status.SUPERSEDED and include_superseded)
    reason = drop_reason(held, visible(include_superseded=include_superseded))
    assert reason == (None if shown else DropReason(status.value))
    assert (status in visible(include_superseded=include_superseded).statuses()) is shown


@pytest.mark.parametrize("status", Status)
def test_engines_hold_the_content_of_what_can_be_shown(status: Status) -> None:
    assert status.is_live is (status in visible(include_superseded=True).statuses())


def test_a_record_expires_at_its_very_instant() -> None:
    """L-08."""
    held = record(expires_at=NOW)
    assert not is_expired(held, NOW - TICK)
    assert is_expired(held, NOW)
    assert drop_reason(held, visible(now=NOW - TICK)) is None
    assert drop_reason(held, visible()) is DropReason.EXPIRED
    assert drop_reason(held, visible(show_expired=True)) is None
    assert not is_expired(record(), NOW)


def test_expiry_is_of_the_present_and_validity_of_the_time_that_is_asked_for() -> None:
    held = record(expires_at=NOW + TICK, valid_from=NOW - TICK)
    early = NOW - timedelta(days=1)
    assert drop_reason(held, visible(as_of=early)) is DropReason.NOT_VALID
    assert drop_reason(record(expires_at=NOW), visible(as_of=early)) is DropReason.EXPIRED


def test_a_fact_holds_from_its_first_instant_to_before_its_last() -> None:
    held = record(valid_from=NOW, valid_to=NOW + 2 * TICK)
    seen = [is_valid(held, NOW + n * TICK) for n in range(-1, 4)]
    assert seen == [False, True, True, False, False]
    assert is_valid(record(valid_to=NOW), NOW - TICK)
    assert not is_valid(record(valid_to=NOW), NOW)
    assert drop_reason(held, visible(as_of=NOW - TICK)) is DropReason.NOT_VALID


def test_a_look_at_another_time_shows_what_held_then() -> None:
    """Superseded since or not: the older fact ends where the newer one begins."""
    noon, evening = NOW - timedelta(hours=8), NOW - timedelta(hours=2)
    older = record(status=Status.SUPERSEDED, valid_to=evening)
    newer = record(valid_from=evening)
    for as_of, shown in ((NOW, [newer]), (noon, [older]), (evening, [newer])):
        seen = [r for r in (older, newer) if drop_reason(r, visible(as_of=as_of)) is None]
        assert seen == shown, as_of
    assert drop_reason(older, visible()) is DropReason.SUPERSEDED
    gone = record(status=Status.DELETED, tombstone=TOMB, valid_to=evening)
    assert drop_reason(gone, visible(as_of=noon)) is DropReason.DELETED


def test_who_asks_for_superseded_facts_is_shown_them_though_they_have_ended() -> None:
    asked = visible(include_superseded=True)
    older = record(status=Status.SUPERSEDED, valid_to=NOW - TICK)
    assert drop_reason(older, asked) is None
    early = record(status=Status.SUPERSEDED, valid_from=NOW + TICK)
    assert drop_reason(early, asked) is DropReason.NOT_VALID
    # An active fact that has ended by itself is none of them.
    assert drop_reason(record(valid_to=NOW - TICK), asked) is DropReason.NOT_VALID


def test_the_callers_filter_comes_last() -> None:
    where = filters.parse({"colour": "red"})
    assert drop_reason(record(metadata={"colour": "red"}), visible(where=where)) is None
    assert drop_reason(record(), visible(where=where)) is DropReason.FILTERED
    foreign = record(scope=Scope("t1", user_id="bob"))
    assert drop_reason(foreign, visible(where=where)) is DropReason.FOREIGN


def test_each_reason_has_a_word_of_its_own() -> None:
    assert len({reason.value for reason in DropReason}) == len(DropReason)
    assert {status.value for status in Status if status is not Status.ACTIVE} <= {
        reason.value for reason in DropReason
    }
