"""Change memories that exist: update, supersede, delete one or all of a scope."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import psycopg

from canonical.domain import decide, ids
from canonical.domain.answers import Written
from canonical.domain.commands import Change, MutationKey, NewMemory
from canonical.domain.decide import Outcome
from canonical.domain.records import Record
from canonical.domain.scope import Scope
from canonical.errors import NotFoundError, StoreUnavailableError
from canonical.mutations.writer import Writer
from canonical.store import keys, records, rows, statements

SCOPE_PAGE = 1_000  # records deleted in one transaction
TWINS = 3

Locked = tuple[Record, bytes | None]


def update(
    writer: Writer,
    memory_id: UUID,
    change: Change,
    key: MutationKey | None = None,
    *,
    expected_version: int | None = None,
) -> Written:
    """Set what the change names, as the record's next version.

    Guarantee: the new state, its version and its event are committed, in one transaction.
    Raises:    NotFoundError; VersionConflictError; StatusConflictError; MutationConflictError.
    """

    def decision(locked: Record) -> Outcome:
        return decide.update(locked, change, expected_version, writer.caller, writer.clock.now())

    return _change_one(writer, memory_id, decision, key)


def delete(
    writer: Writer,
    memory_id: UUID,
    key: MutationKey | None = None,
    *,
    expected_version: int | None = None,
    why: str | None = None,
) -> Written:
    """Hide one record; its text and history stay until an erase.

    Raises: NotFoundError, also when it is deleted already; VersionConflictError.
    """

    def decision(locked: Record) -> Outcome:
        return decide.delete(locked, expected_version, why, writer.caller, writer.clock.now())

    return _change_one(writer, memory_id, decision, key)


def supersede(
    writer: Writer,
    old_id: UUID,
    new: NewMemory,
    key: MutationKey | None = None,
    *,
    expected_version: int | None = None,
) -> tuple[Written, Written]:
    """Add `new` in place of an older record, which ends where the new one begins.

    Guarantee: both, their versions, the link and the events are committed, in one transaction.
    Shapes:    returns (the older record's next version, the new record).
    Raises:    NotFoundError; StatusConflictError; VersionConflictError; ScopeMismatchError;
               MutationConflictError.
    """

    def work(conn: psycopg.Connection) -> list[Written]:
        old, salt = _locked(conn, writer.tenant, old_id)
        if (earlier := _superseded_before(conn, writer.tenant, old, new, key)) is not None:
            return earlier
        record = decide.add(new, ids.new_id(), writer.clock.now())
        older, newer = decide.supersede(old, record, expected_version, writer.caller)
        with conn.cursor() as cursor:
            _remember(cursor, writer.tenant, key, [older, newer])
            keys.claim_source_event(cursor, newer.record, rows.fingerprint(new))
            mac = records.insert(cursor, newer.record)
            records.insert_links(cursor, newer.record)
            records.update(cursor, [older.record])
            macs = [_mac(old, older.record, salt), mac]
            return records.announce(cursor, [older, newer], macs, record.created_at)()

    older, newer = _keyed(writer, key, work)
    return older, newer


def _superseded_before(
    conn: psycopg.Connection, tenant: str, old: Record, new: NewMemory, key: MutationKey | None
) -> list[Written] | None:
    """Return what the key or the source event answered before; `old` is locked."""
    # Looked up again under the record's lock: a twin may have committed while we waited.
    if key is not None and (row := keys.find(conn, tenant, key)) is not None:
        return keys.answer_of(row)
    newer = keys.find_source_event(conn, tenant, new.provenance, rows.fingerprint(new))
    if newer is None:
        return None
    if newer.memory_id != old.superseded_by:
        raise keys.event_conflict(new.provenance)
    older = records.supersession(conn, old)
    if key is not None:
        answer = [(one.memory_id, one.version) for one in (older, newer)]
        keys.remember(conn.cursor(), tenant, key, answer)
    return [older, newer]


@dataclass(frozen=True, slots=True)
class ScopeDeleted:
    """How many records of a scope a delete hid, and the last place in the log of each shard."""

    count: int
    written: Sequence[Written]


def delete_scope(writer: Writer, scope: Scope, *, why: str | None = None) -> ScopeDeleted:
    """Hide every record of a scope that was there when the call began.

    Guarantee: on return all are deleted, in transactions of 1,000; cut short, some are, and a
               repeat goes on. Records added meanwhile stay: the log's heads at the beginning tell
               them apart, whatever the servers' clocks say.
    Cost:      six statements a transaction.
    """
    heads = writer.database.run(lambda: _heads(writer))
    count, last, after = 0, dict[int, Written](), UUID(int=0)
    while True:
        page = ScopePage(scope, why, heads, after)
        listed, written = writer.database.run(partial(_delete_page, writer, page))
        count += len(written)
        for one in written:
            last[one.shard] = max(one, last.get(one.shard, one), key=lambda w: w.pos)
        if len(listed) < SCOPE_PAGE:
            return ScopeDeleted(count, list(last.values()))
        after = listed[-1]


@dataclass(frozen=True, slots=True)
class ScopePage:
    """The records of a scope that stood at or before `heads` (by shard), above the id `after`."""

    scope: Scope
    why: str | None
    heads: Sequence[int]
    after: UUID

    def parameters(self) -> dict[str, Any]:
        """Return what lists them."""
        bounds = {"heads": self.heads, "after": self.after, "limit": SCOPE_PAGE}
        return {**records.scope_parameters(self.scope), **bounds}


def _heads(writer: Writer) -> list[int]:
    with writer.database.raw() as conn, conn.transaction():
        return [pos for _, pos in sorted(conn.execute(statements.for_driver("heads")).fetchall())]


def _delete_page(writer: Writer, page: ScopePage) -> tuple[list[UUID], list[Written]]:
    """Delete one page; returns what was listed, and what of it was still there to be deleted."""
    now = writer.clock.now()
    with writer.database.raw() as conn, conn.transaction(), conn.cursor() as cursor:
        cursor.execute(statements.for_driver("set_tenant"), {"tenant": writer.tenant})
        cursor.execute(statements.for_driver("plan_for_values"))
        cursor.execute(statements.for_driver("live_in_scope"), page.parameters())
        listed = [row[0] for row in cursor.fetchall()]
        outcomes = [
            decide.delete(record, None, page.why, writer.caller, now)
            for record, _ in records.lock(conn, writer.tenant, listed).values()
            if record.status.is_live
        ]
        if not outcomes:
            return listed, []
        records.update(cursor, [outcome.record for outcome in outcomes])
        return listed, records.announce(cursor, outcomes, [None] * len(outcomes), now)()


def _change_one(
    writer: Writer,
    memory_id: UUID,
    decision: decide.Decision,
    key: MutationKey | None,
) -> Written:
    def work(conn: psycopg.Connection) -> list[Written]:
        record, salt = _locked(conn, writer.tenant, memory_id)
        # Looked up again under the record's lock: a twin may have committed while we waited.
        if key is not None and (row := keys.find(conn, writer.tenant, key)) is not None:
            return keys.answer_of(row)
        outcome = decision(record)
        changed = outcome.record
        mac = _mac(record, changed, salt)
        with conn.cursor() as cursor:
            _remember(cursor, writer.tenant, key, [outcome])
            records.update(cursor, [changed])
            return records.announce(cursor, [outcome], [mac], changed.updated_at)()

    return _keyed(writer, key, work)[0]


def _mac(before: Record, changed: Record, salt: bytes | None) -> bytes | None:
    """Return the MAC of a record's next version; None: it says what the one before it said."""
    if rows.content_bytes(before) == rows.content_bytes(changed):
        return None
    assert salt is not None, "only an erase takes the salt, and nothing changes what was erased"
    return rows.content_mac(changed, salt)


def _locked(conn: psycopg.Connection, tenant: str, memory_id: UUID) -> Locked:
    found = records.lock(conn, tenant, [memory_id])
    if memory_id not in found:
        raise NotFoundError(f"no memory {memory_id} in this tenant")
    return found[memory_id]


def _remember(
    cursor: psycopg.Cursor[Any], tenant: str, key: MutationKey | None, outcomes: list[Outcome]
) -> None:
    if key is not None:
        answer = [(outcome.record.id, outcome.record.version) for outcome in outcomes]
        keys.remember(cursor, tenant, key, answer)


def _keyed(
    writer: Writer,
    key: MutationKey | None,
    work: Callable[[psycopg.Connection], list[Written]],
) -> list[Written]:
    """Run `work` in a transaction of the tenant, unless the key has an answer already."""

    def attempt() -> list[Written]:
        with writer.database.raw() as conn, keys.refusing_used(), conn.transaction():
            conn.execute(statements.for_driver("set_tenant"), {"tenant": writer.tenant})
            if key is not None and (row := keys.find(conn, writer.tenant, key)) is not None:
                return keys.answer_of(row)
            return work(conn)

    for _ in range(TWINS):
        try:
            return writer.database.run(attempt)
        except keys.UsedKeyError:
            continue
    raise StoreUnavailableError("the command's key is being written by others again and again")
