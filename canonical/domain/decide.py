"""What becomes of a record under a command: pure, so that every rule can be tested by itself."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import assert_never
from uuid import UUID

from canonical.domain.commands import Caller, Change, NewMemory, Unset, check_validity
from canonical.domain.records import Link, Op, Record, Status, Tombstone
from canonical.domain.values import value_object
from canonical.errors import (
    NotFoundError,
    ScopeMismatchError,
    StatusConflictError,
    VersionConflictError,
)

SUPERSEDES = "supersedes"


@value_object
class Outcome:
    """A record's next state, and what its event and its version say of it."""

    record: Record
    op: Op
    by: str | None = None
    why: str | None = None


Decision = Callable[[Record], Outcome]


def add(new: NewMemory, memory_id: UUID, now: datetime) -> Record:
    """Return the first state of a new memory."""
    return Record(
        id=memory_id,
        scope=new.scope,
        version=1,
        rev=1,
        status=Status.ACTIVE,
        kind=new.kind,
        text=new.text,
        created_at=now,
        updated_at=now,
        actor_id=new.actor_id,
        role=new.role,
        attributed_to=new.attributed_to,
        metadata=new.metadata,
        provenance=new.provenance,
        valid_from=new.valid_from,
        valid_to=new.valid_to,
        expires_at=new.expires_at,
    )


def update(
    record: Record, change: Change, expected: int | None, caller: Caller, now: datetime
) -> Outcome:
    """Set what the change names; everything else stays."""
    _require_active(record)
    _require_version(record, expected)
    fields = {
        name: value
        for name in ("text", "metadata", "valid_from", "valid_to", "expires_at")
        if not isinstance(value := getattr(change, name), Unset)
    }
    changed = _next(replace(record, **fields), now)
    check_validity(changed.valid_from, changed.valid_to)
    return Outcome(changed, Op.UPDATE, caller.name)


def delete(
    record: Record, expected: int | None, why: str | None, caller: Caller, now: datetime
) -> Outcome:
    """Hide the record; its text and history stay until it is erased."""
    if not record.status.is_live:
        raise _gone(record)
    _require_version(record, expected)
    deleted = replace(
        _next(record, now), status=Status.DELETED, tombstone=Tombstone(now, caller.name, why)
    )
    return Outcome(deleted, Op.DELETE, caller.name, why)


def supersede(
    old: Record, new: Record, expected: int | None, caller: Caller
) -> tuple[Outcome, Outcome]:
    """Replace `old` by `new`: the older fact ends where the newer begins, and names it.

    Whoever finds the older one must find the newer one in its place, so both are of one scope.
    """
    _require_active(old)
    _require_version(old, expected)
    _require_scope(old, new)
    begins = new.valid_from or new.created_at
    ends = begins if old.valid_to is None else min(old.valid_to, begins)
    begins_late = old.valid_from is not None and ends <= old.valid_from
    older = replace(
        _next(old, new.created_at),
        status=Status.SUPERSEDED,
        # A fact that would end before it began keeps its end: its status says that it is past.
        valid_to=old.valid_to if begins_late else ends,
        superseded_by=new.id,
    )
    newer = replace(new, links=(*new.links, Link(SUPERSEDES, old.id)))
    return Outcome(older, Op.SUPERSEDE, caller.name), Outcome(newer, Op.ADD, caller.name)


def _next(record: Record, now: datetime) -> Record:
    return replace(record, version=record.version + 1, rev=record.rev + 1, updated_at=now)


def _require_version(record: Record, expected: int | None) -> None:
    if expected is not None and expected != record.version:
        raise VersionConflictError(expected, record.version)


def _require_scope(old: Record, new: Record) -> None:
    if differing := old.scope.differing(new.scope):
        raise ScopeMismatchError(differing)


def _require_active(record: Record) -> None:
    match record.status:
        case Status.ACTIVE:
            return
        case Status.SUPERSEDED:
            raise StatusConflictError(
                f"memory {record.id} is superseded by {record.superseded_by}: change that one"
            )
        case Status.DELETED | Status.ERASED:
            raise _gone(record)
        case _:
            assert_never(record.status)


def _gone(record: Record) -> NotFoundError:
    return NotFoundError(f"memory {record.id} is {record.status.value}")
