"""The chain: what an entry says, byte for byte, and how each hash holds all that came before."""

import hashlib
from typing import NamedTuple

import orjson

ENCODING = 1  # first value of every entry; another one when the values or their order change


class Entry(NamedTuple):
    """One version of one memory, as the audit keeps it: no text, only its MAC under a salt.

    The fields have the form in which they are hashed; Postgres writes them so.
    """

    shard: int
    pos: int
    tenant: str
    memory_id: str  # with hyphens, lower case
    version: int
    op: str
    status: str
    at: str  # ISO 8601 in UTC, with microseconds: 2026-03-01T12:00:00.000000+00:00
    by: str | None
    why: str | None
    text_mac: str  # hexadecimal


def entry_bytes(entry: Entry) -> bytes:
    """Write an entry as a JSON list: unambiguous, and readable in any language for long."""
    return orjson.dumps((ENCODING, *entry))


def next_hash(previous: bytes, entry: Entry) -> bytes:
    """Return the hash of an entry that follows `previous`: SHA-256 of both."""
    return hashlib.sha256(previous + entry_bytes(entry)).digest()


def head_bytes(generation: int, shard: int, pos: int, digest: bytes) -> bytes:
    """Write a head of a chain as it is signed."""
    return orjson.dumps([ENCODING, generation, shard, pos, digest.hex()])
