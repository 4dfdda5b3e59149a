"""Every command on a record of every status: what becomes of it, or which refusal."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from canonical.domain import decide
from canonical.domain.commands import Caller, Change
from canonical.domain.decide import Outcome
from canonical.domain.records import Link, Op, Record, Status, Tombstone
from canonical.domain.scope import Scope
from canonical.errors import (
    InvalidInputError,
    NotFoundError,
    RejectedError,
    ScopeMismatchError,
    StatusConflictError,
    VersionConflictError,
)
from tests.support.builders import CALLER, NOW, new, record

LATER = NOW + timedelta(hours=1)
NEW = decide.add(new("Mara dives"), UUID(int=9), LATER)


def update(held: Record, expected: int | None = None, **fields: Any) -> Outcome:
    return decide.update(held, Change(**fields or {"text": "new"}), expected, CALLER, LATER)


def delete(held: Record, expected: int | None = None) -> Outcome:
    return decide.delete(held, expected, "asked", CALLER, LATER)


def supersede(held: Record, expected: int | None = None) -> Outcome:
    return decide.supersede(held, NEW, expected, CALLER)[0]


COMMANDS = {"update": update, "delete": delete, "supersede": supersede}
# command, status → the status after it, or its refusal
TABLE: dict[tuple[str, Status], Status | type[RejectedError]] = {
    ("update", Status.ACTIVE): Status.ACTIVE,
    ("update", Status.SUPERSEDED): StatusConflictError,
    ("update", Status.DELETED): NotFoundError,
    ("update", Status.ERASED): NotFoundError,
    ("delete", Status.ACTIVE): Status.DELETED,
    ("delete", Status.SUPERSEDED): Status.DELETED,
    ("delete", Status.DELETED): NotFoundError,
    ("delete", Status.ERASED): NotFoundError,
    ("supersede", Status.ACTIVE): Status.SUPERSEDED,
    ("supersede", Status.SUPERSEDED): StatusConflictError,
    ("supersede", Status.DELETED): NotFoundError,
    ("supersede", Status.ERASED): NotFoundError,
}


@pytest.mark.parametrize(
    ("older", "newer", "differing"),
    [
        ({"user_id": "alice"}, {"user_id": "bob"}, ["user_id"]),
        ({"user_id": "alice", "run_id": "r1"}, {"user_id": "alice"}, ["run_id"]),
        ({"user_id": "alice"}, {"user_id": "alice", "run_id": "r1"}, ["run_id"]),
        ({"user_id": "alice"}, {"agent_id": "alice"}, ["user_id", "agent_id"]),
    ],
)
def test_a_memory_of_another_scope_supersedes_nothing(
    older: dict[str, str], newer: dict[str, str], differing: list[str]
) -> None:
    """P5, P6: a search of the older one's scope would lose it to one that it can't find."""
    held = record(scope=Scope("t1", **older))
    with pytest.raises(ScopeMismatchError, match=f": {', '.join(differing)}$"):
        decide.supersede(held, replace(NEW, scope=Scope("t1", **newer)), None, CALLER)
    with pytest.raises(ScopeMismatchError, match="tenant"):
        decide.supersede(held, replace(NEW, scope=Scope("t2", **older)), None, CALLER)


def held_as(status: Status) -> Record:
    gone = None if status.is_live else Tombstone(NOW, "x", None)
    return record(status=status, version=3, rev=5, tombstone=gone, superseded_by=UUID(int=7))


def test_the_table_is_whole() -> None:
    assert set(TABLE) == {(command, status) for command in COMMANDS for status in Status}


@pytest.mark.parametrize(("command", "status"), TABLE)
@pytest.mark.parametrize("expected", [None, 3, 2, 4])
def test_each_command_on_each_status(command: str, status: Status, expected: int | None) -> None:
    held, after = held_as(status), TABLE[command, status]
    if not isinstance(after, Status):
        with pytest.raises(after):  # the status is told before the version
            COMMANDS[command](held, expected)
        return
    if expected not in (None, 3):
        with pytest.raises(VersionConflictError) as caught:
            COMMANDS[command](held, expected)
        assert (caught.value.expected, caught.value.current) == (expected, 3)
        assert "3" in str(caught.value)
        return
    outcome = COMMANDS[command](held, expected)
    assert outcome.record.status is after
    assert (outcome.record.version, outcome.record.rev) == (4, 6)
    assert (outcome.record.updated_at, outcome.record.created_at) == (LATER, NOW)
    assert (outcome.op, outcome.by) == (Op(command), CALLER.name)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_keeps_what_it_does_not_name(command: str) -> None:
    """L-15, S-03: the scope, too."""
    held = record(metadata={"k": 1}, valid_from=NOW, expires_at=LATER, actor_id="a", role="user")
    after = COMMANDS[command](held).record
    changes = {
        "update": {"text"},
        "delete": {"status", "tombstone"},
        "supersede": {"status", "valid_to", "superseded_by"},
    }[command] | {"version", "rev", "updated_at"}
    differ = {
        name for name in Record.__dataclass_fields__ if getattr(after, name) != getattr(held, name)
    }
    assert differ == changes


def test_a_superseded_record_names_the_newer_one() -> None:
    with pytest.raises(StatusConflictError, match=str(UUID(int=7))):
        update(held_as(Status.SUPERSEDED))


def test_an_add_begins_at_version_1() -> None:
    made = decide.add(new("x", metadata={"a": 1}, expires_at="2027-01-01T00:00:00Z"), NEW.id, NOW)
    assert (made.version, made.rev, made.status) == (1, 1, Status.ACTIVE)
    assert (made.created_at, made.updated_at) == (NOW, NOW)
    assert (made.text, made.metadata) == ("x", {"a": 1})
    assert made.expires_at is not None


class TestUpdates:
    def test_metadata_is_replaced_as_a_whole(self) -> None:
        """L-15: null is a value; an empty object empties."""
        held = record(metadata={"category": "travel", "priority": 2})
        for given in ({"priority": 3}, {"priority": None}, {}):
            assert update(held, metadata=given).record.metadata == given

    @pytest.mark.parametrize("name", ["valid_from", "valid_to", "expires_at"])
    def test_none_clears_a_time(self, name: str) -> None:
        times: dict[str, Any] = {name: NOW}
        held = record(**times)
        assert getattr(update(held, **{name: None}).record, name) is None
        assert getattr(update(held, text="x").record, name) == NOW

    def test_a_fact_cannot_come_to_end_before_it_begins(self) -> None:
        """Of the two times one may be the record's own."""
        with pytest.raises(InvalidInputError):
            update(record(valid_from=NOW), valid_to=NOW)
        with pytest.raises(InvalidInputError):
            update(record(valid_to=NOW), valid_from=LATER)
        later = update(record(valid_to=NOW), valid_from=LATER, valid_to=None).record
        assert (later.valid_from, later.valid_to) == (LATER, None)


def test_a_delete_says_when_by_whom_and_why() -> None:
    outcome = delete(record())
    assert outcome.record.tombstone == Tombstone(LATER, CALLER.name, "asked")
    assert (outcome.by, outcome.why) == (CALLER.name, "asked")
    assert outcome.record.text  # it stays until an erase


def test_a_held_record_can_be_deleted() -> None:
    """L-07: a hold keeps its content, not its place in a search."""
    assert delete(record(legal_hold=True)).record.legal_hold


class TestSupersede:
    def test_both_name_each_other(self) -> None:
        old = record()
        older, newer = decide.supersede(old, NEW, None, Caller("t1", "who"))
        assert older.record.superseded_by == NEW.id
        assert newer.record.links == (Link("supersedes", old.id),)
        assert (older.op, newer.op) == (Op.SUPERSEDE, Op.ADD)
        assert (older.by, newer.by) == ("who", "who")
        assert (newer.record.version, newer.record.rev) == (1, 1)

    @pytest.mark.parametrize(
        ("valid_from", "valid_to", "begins", "ends"),
        [
            (None, None, None, LATER),  # ends when the newer one was made
            (None, None, NOW, NOW),  # … or when that one begins
            (None, LATER, NOW, NOW),
            (None, NOW, LATER, NOW),  # it had ended before
            (NOW, None, LATER, LATER),
            (LATER, None, NOW, None),  # would end before it began: keeps its end
            (NOW, None, NOW, None),
            (NOW, LATER, NOW, LATER),
        ],
    )
    def test_the_older_ends_where_the_newer_begins(
        self,
        valid_from: datetime | None,
        valid_to: datetime | None,
        begins: datetime | None,
        ends: datetime | None,
    ) -> None:
        old = record(valid_from=valid_from, valid_to=valid_to)
        older, newer = decide.supersede(old, replace(NEW, valid_from=begins), None, CALLER)
        assert older.record.valid_to == ends
        assert newer.record.valid_from == begins
