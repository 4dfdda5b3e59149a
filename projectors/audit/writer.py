"""Appends every version to its shard's chain; commits together with the watermark."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from canonical.domain.records import Op
from canonical.errors import ChainBrokenError, RecordMissingError
from canonical.store.arrays import blobs, hexes, numbers, texts, words
from projectors.audit.mapping import Entry, head_bytes, next_hash
from projectors.audit.schema import BEGINNING, named
from projectors.audit.signing import Signer
from projectors.protocol import Applied, Event, Page

SIGN_EVERY_ROWS = 1_000  # of a shard
SIGN_EVERY_S = 60.0  # while a shard grows


class Linked(NamedTuple):
    """An entry in its place in the chain."""

    entry: Entry
    previous: bytes
    hash: bytes


class AuditProjector:
    """The writing side of one generation of the audit projection.

    Guarantee: one entry per version, in the order of the log, exactly once, as the entries commit
               with the watermark; nothing is ever changed (the role has no right to).
    """

    def __init__(self, signer: Signer, *, generation: int) -> None:
        self._signer, self._generation = signer, generation
        self._unsigned: Counter[int] = Counter()  # entries of a shard since its head was signed
        self._signed_at: dict[int, float] = {}

    def apply(self, page: Page) -> Applied:
        """Take every event that made a version; a repair made none and is passed over.

        Cost: three statements at the commit, and one for each head that is signed.
        """
        events = [event for event in page.events if event.op is not Op.REPAIR]
        return Applied(in_transaction=lambda conn: self._append(conn, events))

    def _append(self, conn: Connection, events: Sequence[Event]) -> None:
        if not events:
            return
        entries = _versions(conn, events)
        rows = _linked(entries, self._heads(conn, {entry.shard for entry in entries}))
        try:
            self._insert(conn, rows)
        except IntegrityError as exc:
            raise ChainBrokenError(f"the audit has an entry of this page already: {exc}") from exc
        self._sign(conn, rows)

    def _heads(self, conn: Connection, shards: set[int]) -> dict[int, bytes]:
        parameters = {"generation": self._generation, "shards": sorted(shards)}
        found = conn.execute(named("chain_heads"), parameters)
        return {row.shard: bytes(row.hash) for row in found if row.hash is not None}

    def _insert(self, conn: Connection, rows: Sequence[Linked]) -> None:
        entries, previous, hashes = zip(*rows, strict=True)
        shards, places, tenants, ids, versions, *rest = zip(*entries, strict=True)
        ops, statuses, times, bys, whys, macs = rest
        parameters = {
            "generation": self._generation,
            "shards": numbers(shards),
            "positions": numbers(places),
            "tenants": texts(tenants),
            "ids": words(ids),
            "versions": numbers(versions),
            "ops": words(ops),
            "statuses": words(statuses),
            "times": words(times),
            "bys": texts(bys),
            "whys": texts(whys),
            "macs": hexes(macs),
            "previous": blobs(previous),
            "hashes": blobs(hashes),
        }
        conn.execute(named("append_entries"), parameters)

    def _sign(self, conn: Connection, rows: Sequence[Linked]) -> None:
        """Sign the heads of shards that have grown enough, or whose last signature is old."""
        self._unsigned.update(row.entry.shard for row in rows)
        now = time.monotonic()
        for shard, row in {row.entry.shard: row for row in rows}.items():
            waited_s = now - self._signed_at.get(shard, 0.0)
            if self._unsigned[shard] >= SIGN_EVERY_ROWS or waited_s >= SIGN_EVERY_S:
                self._sign_head(conn, row)
                self._unsigned[shard], self._signed_at[shard] = 0, now

    def _sign_head(self, conn: Connection, row: Linked) -> None:
        entry = row.entry
        message = head_bytes(self._generation, entry.shard, entry.pos, row.hash)
        parameters = {
            "generation": self._generation,
            "shard": entry.shard,
            "pos": entry.pos,
            "hash": row.hash,
            "key_id": self._signer.key_id,
            "signature": self._signer.sign(message),
        }
        conn.execute(named("sign_head"), parameters)


def _versions(conn: Connection, events: Sequence[Event]) -> list[Entry]:
    """Read the versions of the events.

    Raises: RecordMissingError, when one isn't there: the log and the records contradict each other.
    """
    parameters = {
        "tenants": texts(event.tenant for event in events),
        "ids": words(event.memory_id.hex for event in events),
        "versions": numbers(event.version for event in events),
        "shards": numbers(event.shard for event in events),
        "positions": numbers(event.pos for event in events),
    }
    entries = [Entry(*row) for row in conn.execute(named("versions_of_page"), parameters).all()]
    if len(entries) != len(events):
        known = {(entry.shard, entry.pos) for entry in entries}
        lost = next(event for event in events if (event.shard, event.pos) not in known)
        raise RecordMissingError(
            f"shard {lost.shard}, position {lost.pos}: memory {lost.memory_id} has no version "
            f"{lost.version} that was announced there"
        )
    return entries


def _linked(entries: Sequence[Entry], heads: Mapping[int, bytes]) -> list[Linked]:
    """Put entries into their shards' chains, which end at `heads`."""
    newest = dict(heads)
    rows = []
    for entry in entries:
        previous = newest.get(entry.shard, BEGINNING)
        newest[entry.shard] = next_hash(previous, entry)
        rows.append(Linked(entry, previous, newest[entry.shard]))
    return rows
