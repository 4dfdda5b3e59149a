"""Change memories that exist: update, supersede, delete one or all of a scope."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
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

T = TypeVar("T")
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
    """How many records of a scope a delete hid, and the last place in the log of each shard.

    `repeated`: those of `count` that an earlier call with the same key hid. `replayed`: such a call
    had done all of it.
    """

    count: int
    written: Sequence[Written]
    repeated: int = 0
    replayed: bool = False


def delete_scope(
    writer: Writer, scope: Scope, key: MutationKey | None = None, *, why: str | None = None
) -> ScopeDeleted:
    """Hide every record of a scope that was there when the command began.

    Guarantee: on return all are deleted, in transactions of 1,000; cut short, some are. Records
               added meanwhile stay: the log's heads at the beginning tell them apart, whatever the
               servers' clocks say. With a key, each transaction is bound to the key's next chunk,
               the heads kept in it: a repeat goes on where the first call stopped, hides nothing
               that was added since that one began, and answers for all that both have hidden.
    Raises:    MutationConflictError, when the key came before with another body.
    Cost:      six statements a transaction; two more with a key.
    """
    heads = writer.database.run(lambda: _heads(writer))
    page: ScopePage | None = ScopePage(scope, why, heads, UUID(int=0), key)
    count, repeated, replayed, last = 0, 0, True, dict[int, Written]()
    while page is not None:
        done = _free_of_twins(writer, partial(_delete_page, writer, page))
        count += len(done.written)
        repeated += len(done.written) if done.replayed else 0
        replayed = replayed and done.replayed
        for one in done.written:
            last[one.shard] = max(one, last.get(one.shard, one), key=lambda w: w.pos)
        page = done.rest
    return ScopeDeleted(count, list(last.values()), repeated, replayed)


@dataclass(frozen=True, slots=True)
class ScopePage:
    """The records of a scope that stood at or before `heads` (by shard), above the id `after`."""

    scope: Scope
    why: str | None
    heads: Sequence[int]
    after: UUID
    key: MutationKey | None = None

    def parameters(self) -> dict[str, Any]:
        """Return what lists them."""
        bounds = {"heads": self.heads, "after": self.after, "limit": SCOPE_PAGE}
        return {**records.scope_parameters(self.scope), **bounds}

    def rest(self, listed: Sequence[UUID]) -> "ScopePage | None":
        """Return the page after this one, of which `listed` was found; None: it was the last."""
        if len(listed) < SCOPE_PAGE:
            return None
        return replace(self, after=listed[-1], key=_next_chunk(self.key))

    def bounds(self) -> dict[str, Any]:
        """Return what the chunk before keeps, so that a repeat reads this page and no other."""
        return {"heads": list(self.heads), "after": str(self.after)}

    def kept_rest(self, bounds: dict[str, Any] | None) -> "ScopePage | None":
        """Return the page after this one by what its chunk has kept."""
        if bounds is None:
            return None
        heads, after = bounds["heads"], UUID(bounds["after"])
        return replace(self, heads=heads, after=after, key=_next_chunk(self.key))


@dataclass(frozen=True, slots=True)
class PageDeleted:
    """What was hidden of a page, now or (`replayed`) by an earlier call; and the page after it."""

    written: Sequence[Written]
    rest: ScopePage | None
    replayed: bool = False


def _next_chunk(key: MutationKey | None) -> MutationKey | None:
    return None if key is None else replace(key, chunk=key.chunk + 1)


def _heads(writer: Writer) -> list[int]:
    with writer.database.raw() as conn, conn.transaction():
        return [pos for _, pos in sorted(conn.execute(statements.for_driver("heads")).fetchall())]


def _delete_page(writer: Writer, page: ScopePage) -> PageDeleted:
    """Delete what of a page is still there to be deleted, unless its chunk has an answer already.

    Raises: keys.UsedKeyError, when a twin has deleted it meanwhile.
    """
    with (
        writer.database.raw() as conn,
        keys.refusing_used(),
        conn.transaction(),
        conn.cursor() as cursor,
    ):
        cursor.execute(statements.for_driver("set_tenant"), writer.binding())
        row = None if page.key is None else keys.find(conn, writer.tenant, page.key)
        if row is not None:
            return PageDeleted(keys.answer_of(row), page.kept_rest(row["outcome"]), replayed=True)
        return _delete_listed(conn, cursor, writer, page)


def _delete_listed(
    conn: psycopg.Connection, cursor: psycopg.Cursor[Any], writer: Writer, page: ScopePage
) -> PageDeleted:
    now = writer.clock.now()
    cursor.execute(statements.for_driver("plan_for_values"))
    cursor.execute(statements.for_driver("live_in_scope"), page.parameters())
    listed = [row[0] for row in cursor.fetchall()]
    outcomes = [
        decide.delete(record, None, page.why, writer.caller, now)
        for record, _ in records.lock(conn, writer.tenant, listed).values()
        if record.status.is_live
    ]
    rest = page.rest(listed)
    # Also of nothing: what is added later is not to be deleted by a repeat.
    _remember(cursor, writer.tenant, page.key, outcomes, None if rest is None else rest.bounds())
    if not outcomes:
        return PageDeleted([], rest)
    records.update(cursor, [outcome.record for outcome in outcomes])
    return PageDeleted(records.announce(cursor, outcomes, [None] * len(outcomes), now)(), rest)


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
    cursor: psycopg.Cursor[Any],
    tenant: str,
    key: MutationKey | None,
    outcomes: list[Outcome],
    kept: dict[str, Any] | None = None,
) -> None:
    if key is not None:
        answer = [(outcome.record.id, outcome.record.version) for outcome in outcomes]
        keys.remember(cursor, tenant, key, answer, kept)


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
                    conn.execute(statements.for_driver("set_tenant"), writer.binding())
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

    return _free_of_twins(writer, attempt)


def _free_of_twins(writer: Writer, attempt: Callable[[], T]) -> T:
    """Run what looks for its key's answer first, again when a twin has taken the key meanwhile."""
    for _ in range(TWINS):
        try:
            return writer.database.run(attempt)
        except keys.UsedKeyError:
            continue
    raise StoreUnavailableError("the command's key is being written by others again and again")
