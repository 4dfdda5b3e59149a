"""The chain: what an entry says, byte for byte, and how each hash holds all that came before."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import orjson

ENCODING = 1  # first value of every entry; another one when the values or their order change


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one memory, as the audit keeps it: no text, only its MAC under a salt."""

    shard: int
    pos: int
    tenant: str
    memory_id: UUID
    version: int
    op: str
    status: str
    at: datetime
    by: str | None
    why: str | None
    text_mac: bytes


def entry_bytes(entry: Entry) -> bytes:
    """Write an entry as a JSON list: unambiguous, and readable in any language for long."""
    return orjson.dumps(
        [
            *(ENCODING, entry.shard, entry.pos, entry.tenant, str(entry.memory_id), entry.version),
            *(entry.op, entry.status, entry.at.astimezone(UTC).isoformat(timespec="microseconds")),
            *(entry.by, entry.why, entry.text_mac.hex()),
        ]
    )


def next_hash(previous: bytes, entry: Entry) -> bytes:
    """Return the hash of an entry that follows `previous`: SHA-256 of both."""
    return hashlib.sha256(previous + entry_bytes(entry)).digest()


def head_bytes(generation: int, shard: int, pos: int, digest: bytes) -> bytes:
    """Write a head of a chain as it is signed."""
    return orjson.dumps([ENCODING, generation, shard, pos, digest.hex()])
