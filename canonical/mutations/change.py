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
from canonical.store.database import gathered, one_trip

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

    def work(conn: psycopg.Connection, locked: Locked) -> list[Written]:
        old, salt = locked
        if (earlier := _superseded_before(conn, writer.tenant, old, new, key)) is not None:
            return earlier
        record = decide.add(new, ids.new_id(), writer.clock.now())
        older, newer = decide.supersede(old, record, expected_version, writer.caller)
        with one_trip(conn) as cursor:
            _remember(cursor, writer.tenant, key, [older, newer])
            keys.claim_source_event(cursor, newer.record, rows.fingerprint(new))
            mac = records.insert(cursor, newer.record)
            records.insert_links(cursor, newer.record)
            records.update(cursor, [older.record])
            macs = [_mac(old, older.record, salt), mac]
            written = records.announce(cursor, [older, newer], macs, record.created_at)
        return written()

    older, newer = _keyed(writer, old_id, key, work)
    return older, newer


def _superseded_before(
    conn: psycopg.Connection, tenant: str, old: Record, new: NewMemory, key: MutationKey | None
) -> list[Written] | None:
    """Return what the source event answered before, and bind a new key to it; `old` is locked."""
    if new.provenance.event_id is None:
        return None
    newer = keys.find_source_event(conn, tenant, new.provenance, rows.fingerprint(new))
    if newer is None:
        return None
    if newer.memory_id != old.superseded_by:
        raise keys.event_conflict(new.provenance)
    older = records.supersession(conn, old)
    with one_trip(conn) as cursor:
        if key is not None:
            answer = [(one.memory_id, one.version) for one in (older, newer)]
            keys.remember(cursor, tenant, key, answer)
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
    def work(conn: psycopg.Connection, locked: Locked) -> list[Written]:
        record, salt = locked
        outcome = decision(record)
        changed = outcome.record
        mac = _mac(record, changed, salt)
        with one_trip(conn) as cursor:
            _remember(cursor, writer.tenant, key, [outcome])
            records.update(cursor, [changed])
            written = records.announce(cursor, [outcome], [mac], changed.updated_at)
        return written()

    return _keyed(writer, memory_id, key, work)[0]


def _mac(before: Record, changed: Record, salt: bytes | None) -> bytes | None:
    """Return the MAC of a record's next version; None: it says what the one before it said."""
    if rows.content_bytes(before) == rows.content_bytes(changed):
        return None
    assert salt is not None, "only an erase takes the salt, and nothing changes what was erased"
    return rows.content_mac(changed, salt)


def _remember(
    cursor: psycopg.Cursor[Any], tenant: str, key: MutationKey | None, outcomes: list[Outcome]
) -> None:
    if key is not None:
        answer = [(outcome.record.id, outcome.record.version) for outcome in outcomes]
        keys.remember(cursor, tenant, key, answer)


def _keyed(
    writer: Writer,
    memory_id: UUID,
    key: MutationKey | None,
    work: Callable[[psycopg.Connection, Locked], list[Written]],
) -> list[Written]:
    """Run `work`, which commits, on a record that is locked, unless the key has an answer already.

    Cost: one round trip beside those of `work`.
    """

    def attempt() -> list[Written]:
        with writer.database.raw() as conn, keys.refusing_used():
            try:
                with gathered(conn):
                    conn.execute(statements.for_driver("set_tenant"), {"tenant": writer.tenant})
                    locked = records.locking(conn, writer.tenant, [memory_id])
                    # Under the record's lock: a twin may have committed while we waited for it.
                    earlier = None if key is None else keys.finding(conn, writer.tenant, key)
                if earlier is not None and (row := earlier()) is not None:
                    return keys.answer_of(row)
                if (found := locked().get(memory_id)) is None:
                    raise NotFoundError(f"no memory {memory_id} in this tenant")
                return work(conn, found)
            finally:
                conn.rollback()  # after a commit there is nothing left to undo

    for _ in range(TWINS):
        try:
            return writer.database.run(attempt)
        except keys.UsedKeyError:
            continue
    raise StoreUnavailableError("the command's key is being written by others again and again")
