"""Write and read records inside the caller's transaction."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from canonical.domain.answers import Written
from canonical.domain.decide import Outcome
from canonical.domain.records import Record
from canonical.domain.scope import Scope
from canonical.store import rows, statements

SALT_BYTES = 16


def add(cursor: psycopg.Cursor[Any], record: Record, by: str | None) -> Callable[[], Written]:
    """Write a record's first state, its version and its event: the last thing before the commit.

    In a pipeline the result is there after the sync: the returned function reads it.
    """
    cursor.execute(statements.for_driver("add_memory"), {**_first_state(record), "by": by})

    def written() -> Written:
        row = cursor.fetchone()
        assert row is not None
        return Written(*row)

    return written


def insert(cursor: psycopg.Cursor[Any], record: Record) -> bytes:
    """Write a record's first state alone; returns the MAC of its text, for `announce`."""
    state = _first_state(record)
    cursor.execute(statements.for_driver("insert_memory"), state)
    mac: bytes = state["text_mac"]
    return mac


def _first_state(record: Record) -> dict[str, Any]:
    salt = os.urandom(SALT_BYTES)
    return {
        **scope_parameters(record.scope),
        "id": record.id,
        "actor_id": record.actor_id,
        "role": record.role,
        "kind": record.kind.value,
        "text": record.text,
        "content_hash": rows.content_hash(record.text),
        "text_mac": rows.content_mac(record, salt),
        "attributed_to": record.attributed_to,
        "metadata": Jsonb(record.metadata),
        "provenance": Jsonb(rows.provenance_document(record.provenance)),
        "valid_from": record.valid_from,
        "valid_to": record.valid_to,
        "expires_at": record.expires_at,
        "salt": UUID(bytes=salt),
        "now": record.created_at,
    }


def insert_links(cursor: psycopg.Cursor[Any], record: Record) -> None:
    """Keep a new record's links."""
    for link in record.links:
        cursor.execute(
            statements.for_driver("insert_link"),
            {
                "tenant": record.scope.tenant,
                "source": record.id,
                "relation": link.relation,
                "target": link.target,
            },
        )


def update(cursor: psycopg.Cursor[Any], changed: Sequence[Record]) -> None:
    """Bring records, which are locked, to their next states."""
    cursor.executemany(
        statements.for_driver("update_memory"), [_update_parameters(record) for record in changed]
    )


def _update_parameters(record: Record) -> dict[str, Any]:
    gone = record.tombstone
    return {
        "tenant": record.scope.tenant,
        "id": record.id,
        "version": record.version,
        "rev": record.rev,
        "status": record.status.value,
        "text": record.text,
        "content_hash": rows.content_hash(record.text),
        "metadata": Jsonb(record.metadata),
        "valid_from": record.valid_from,
        "valid_to": record.valid_to,
        "expires_at": record.expires_at,
        "deleted_at": gone and gone.at,
        "deleted_by": gone and gone.by,
        "deleted_why": gone and gone.why,
        "superseded_by": record.superseded_by,
        "now": record.updated_at,
    }


def announce(
    cursor: psycopg.Cursor[Any],
    outcomes: Sequence[Outcome],
    macs: Sequence[bytes | None],
    now: datetime,
) -> Callable[[], list[Written]]:
    """Write the events and versions of what was written: the last thing before the commit.

    A MAC of None says that the content didn't change. In a pipeline the result is there after the
    sync: the returned function reads it, in the order of `outcomes`.
    """
    records = [outcome.record for outcome in outcomes]
    cursor.execute(
        statements.for_driver("announce"),
        {
            "tenant": records[0].scope.tenant,
            "ids": [r.id for r in records],
            "revs": [r.rev for r in records],
            "versions": [r.version for r in records],
            "ops": [outcome.op.value for outcome in outcomes],
            "macs": list(macs),
            "now": now,
            "by": outcomes[0].by,
            "why": outcomes[0].why,
        },
    )

    def written() -> list[Written]:
        found = {row[0]: Written(*row) for row in cursor.fetchall()}
        return [found[record.id] for record in records]

    return written


def supersession(conn: psycopg.Connection, old: Record) -> Written:
    """Return the version by which a record became superseded, as its command answered it."""
    row = conn.execute(
        statements.for_driver("find_supersession"), {"tenant": old.scope.tenant, "id": old.id}
    ).fetchone()
    assert row is not None
    memory_id, version, shard, pos = row
    return Written(memory_id, version, shard, pos, replayed=True)


def scope_parameters(scope: Scope) -> dict[str, str | None]:
    """Return a scope as statements take it; NULL: free."""
    return {
        "tenant": scope.tenant,
        "user_id": scope.user_id,
        "agent_id": scope.agent_id,
        "run_id": scope.run_id,
    }


def lock(
    conn: psycopg.Connection, tenant: str, ids: Sequence[UUID]
) -> dict[UUID, tuple[Record, bytes | None]]:
    """Lock records for a change; returns each that exists, with its salt."""
    return locking(conn, tenant, ids)()


def locking(
    conn: psycopg.Connection, tenant: str, ids: Sequence[UUID]
) -> Callable[[], dict[UUID, tuple[Record, bytes | None]]]:
    """Lock as `lock`. In a pipeline the result is there after the sync: the function reads it."""
    cursor = conn.cursor(row_factory=dict_row)
    cursor.execute(statements.for_driver("lock_memories"), {"tenant": tenant, "ids": list(ids)})

    def locked() -> dict[UUID, tuple[Record, bytes | None]]:
        return {
            row["id"]: (rows.to_record(row), row["salt"] and row["salt"].bytes)
            for row in cursor.fetchall()
        }

    return locked
