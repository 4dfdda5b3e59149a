"""What makes a repeat harmless: mutation keys and source events, with what they answered."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from canonical.domain.answers import Written
from canonical.domain.commands import MutationKey
from canonical.domain.records import Provenance, Record
from canonical.errors import MutationConflictError
from canonical.store import statements

MUTATION_CONSTRAINT = "mutation_pkey"
SOURCE_EVENT_CONSTRAINT = "source_event_pkey"


class UsedKeyError(Exception):
    """A key that this transaction wanted was claimed by another one, which has committed."""


@contextmanager
def refusing_used() -> Iterator[None]:
    """Raise UsedKeyError when a transaction, which is gone then, wanted a key that is taken."""
    try:
        yield
    except pg.UniqueViolation as exc:
        if exc.diag.constraint_name in (MUTATION_CONSTRAINT, SOURCE_EVENT_CONSTRAINT):
            raise UsedKeyError from exc
        raise


def remember(
    cursor: psycopg.Cursor[Any],
    tenant: str,
    key: MutationKey,
    written: list[tuple[UUID, int]],
    outcome: dict[str, Any] | None = None,
) -> None:
    """Claim a mutation's key in the caller's transaction, with its answer."""
    cursor.execute(
        statements.for_driver("insert_mutation"),
        {
            "tenant": tenant,
            "mutation_id": key.mutation_id,
            "chunk": key.chunk,
            "command": key.command,
            "body_hash": key.body_hash,
            "memory_ids": [memory_id for memory_id, _ in written],
            "versions": [version for _, version in written],
            "outcome": None if outcome is None else Jsonb(outcome),
        },
    )


def find(conn: psycopg.Connection, tenant: str, key: MutationKey) -> dict[str, Any] | None:
    """Find the row of a mutation that came before, with the positions of its answer.

    Raises: MutationConflictError, when it was another command or had another body.
    """
    return finding(conn, tenant, key)()


def finding(
    conn: psycopg.Connection, tenant: str, key: MutationKey
) -> Callable[[], dict[str, Any] | None]:
    """Ask as `find`. In a pipeline the result is there after the sync: the function reads it."""
    cursor = conn.cursor(row_factory=dict_row)
    cursor.execute(
        statements.for_driver("find_mutation"),
        {"tenant": tenant, "mutation_id": key.mutation_id, "chunk": key.chunk},
    )

    def found() -> dict[str, Any] | None:
        row = cursor.fetchone()
        if row is not None and (row["command"], bytes(row["body_hash"])) != (
            key.command,
            key.body_hash,
        ):
            raise MutationConflictError(
                f"mutation_id {key.mutation_id!r} was used before for another command or body"
            )
        return row

    return found


def answer_of(row: Mapping[str, Any]) -> list[Written]:
    """Read the answer that a mutation's row holds."""
    parts = zip(
        row["memory_ids"], row["versions"], row["shards"] or (), row["positions"] or (), strict=True
    )
    return [Written(*part, replayed=True) for part in parts]


def claim_source_event(
    cursor: psycopg.Cursor[Any], record: Record, fingerprint: bytes | None
) -> None:
    """Claim a new record's source event, if it names one, in the caller's transaction."""
    if record.provenance.event_id is None:
        return
    cursor.execute(
        statements.for_driver("insert_source_event"),
        {
            "tenant": record.scope.tenant,
            "event_id": record.provenance.event_id,
            "event_part": record.provenance.event_part,
            "memory_id": record.id,
            "body_hash": fingerprint,
        },
    )


def find_source_event(
    conn: psycopg.Connection, tenant: str, source: Provenance, fingerprint: bytes | None
) -> Written | None:
    """Find the memory that a source event made before.

    Raises: MutationConflictError, when the event came with another body.
    """
    row = conn.execute(
        statements.for_driver("find_source_event"),
        {"tenant": tenant, "event_id": source.event_id, "event_part": source.event_part},
    ).fetchone()
    if row is None:
        return None
    memory_id, held, shard, pos = row
    if bytes(held) != fingerprint:
        raise event_conflict(source)
    return Written(memory_id, 1, shard, pos, replayed=True)


def event_conflict(source: Provenance) -> MutationConflictError:
    """Say that a source event came before with another body."""
    return MutationConflictError(
        f"event_id {source.event_id!r}, part {source.event_part}, was used before with another body"
    )
