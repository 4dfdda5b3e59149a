"""The staging table that bulk writes go through: COPY is refused under row-level security."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg.rows import dict_row

from canonical.domain import ids
from canonical.domain.commands import NO_PROVENANCE, NewMemory
from canonical.store import rows, statements

NULL = "\\N"
SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Staged:
    """Records ready for COPY, with the id that each line will have."""

    ids: dict[int, UUID]
    data: bytes
    has_events: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """A line whose source event made a memory before."""

    line: int
    memory_id: UUID
    same_body: bool
    shard: int | None  # None: it is of an earlier line of the same transaction
    pos: int | None


def staged(items: Sequence[tuple[int, NewMemory]]) -> Staged:
    """Give each line its id and write it in COPY's text format."""
    salts = os.urandom(SALT_BYTES * len(items))
    named = dict(zip((line for line, _ in items), ids.new_ids(len(items)), strict=True))
    lines: list[str] = []
    for n, (line, new) in enumerate(items):
        salt = salts[n * SALT_BYTES : (n + 1) * SALT_BYTES]
        lines.append(_row(line, named[line], new, salt))
    has_events = any(new.provenance.event_id is not None for _, new in items)
    return Staged(named, "".join(lines).encode(), has_events)


def _row(line: int, memory_id: UUID, new: NewMemory, salt: bytes) -> str:
    owner, source = new.scope, new.provenance
    return (
        f"{line}\t{memory_id.int:032x}\t{_text(owner.user_id)}\t{_text(owner.agent_id)}\t"
        f"{_text(owner.run_id)}\t{_text(new.actor_id)}\t{_text(new.role)}\t{new.kind.value}\t"
        f"{_text(new.text)}\t\\\\x{rows.content_hash(new.text).hex()}\t"
        f"\\\\x{rows.content_mac(new, salt).hex()}\t{salt.hex()}\t{_text(new.attributed_to)}\t"
        f"{_document(new.metadata)}\t"
        f"{'{}' if source is NO_PROVENANCE else _document(rows.provenance_document(source))}\t"
        f"{_instant(new.valid_from)}\t{_instant(new.valid_to)}\t{_instant(new.expires_at)}\t"
        f"{NULL if source is NO_PROVENANCE else _event(new)}\n"
    )


def _text(value: str | None) -> str:
    if value is None:
        return NULL
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    if "\n" in value or "\r" in value or "\t" in value:
        value = value.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return value


def _document(value: dict[str, Any]) -> str:
    return _text(orjson.dumps(value).decode()) if value else "{}"


def _instant(value: datetime | None) -> str:
    return NULL if value is None else value.isoformat()


def _event(new: NewMemory) -> str:
    fingerprint = rows.fingerprint(new)
    if fingerprint is None:
        return NULL
    source = new.provenance
    return (
        orjson.dumps([source.event_id, source.event_part, fingerprint.hex()])
        .decode()
        .replace("\\", "\\\\")
    )


def copy(conn: psycopg.Connection, data: bytes) -> None:
    """Stage records in this transaction's `incoming`."""
    with conn.cursor() as cursor, cursor.copy(statements.for_driver("copy_incoming")) as stream:
        stream.write(data)


def settle(conn: psycopg.Connection, tenant: str) -> list[Taken]:
    """Claim the staged records' source events; take out of `incoming` those that came before."""
    parameters = {"tenant": tenant}
    with conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(statements.for_driver("claim_incoming_events"), parameters)
        found = cursor.execute(statements.for_driver("settle_incoming_events"), parameters)
        return [
            Taken(row["ord"], row["memory_id"], row["same"], row["shard"], row["pos"])
            for row in found
        ]
