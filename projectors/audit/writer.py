"""Appends every version to its shard's chain; commits together with the watermark."""

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping

from canonical.domain.records import Op
from canonical.errors import RecordMissingError
from projectors.audit.mapping import Entry, head_bytes, next_hash
from projectors.audit.schema import BEGINNING, named
from projectors.audit.signing import Signer
from projectors.protocol import Applied, Event, Page

SIGN_EVERY_ROWS = 1_000  # of a shard
SIGN_EVERY_S = 60.0  # while a shard grows


class AuditProjector:
    """The writing side of one generation of the audit projection.

    Guarantee: one entry per version, in the order of the log, exactly once, as the entries commit
               with the watermark; nothing is ever changed (the role has no right to).
    """

    def __init__(self, signer: Signer, *, generation: int) -> None:
        self._signer, self._generation = signer, generation
        self._unsigned: dict[int, int] = {}  # shard → entries since its head was signed
        self._signed_at: dict[int, float] = {}

    def apply(self, page: Page) -> Applied:
        """Take every event that made a version; a repair made none and is passed over."""
        events = [event for event in page.events if event.op is not Op.REPAIR]
        return Applied(in_transaction=lambda conn: self._append(conn, events))

    def _append(self, conn: Connection, events: Sequence[Event]) -> None:
        if not events:
            return
        entries = [_entry(row) for row in self._versions(conn, events)]
        heads = self._heads(conn, {entry.shard for entry in entries})
        rows: list[dict[str, Any]] = []
        for entry in entries:
            previous = heads.get(entry.shard, BEGINNING)
            heads[entry.shard] = next_hash(previous, entry)
            rows.append({"entry": entry, "previous": previous, "hash": heads[entry.shard]})
        self._insert(conn, rows)
        self._sign(conn, rows)

    def _versions(self, conn: Connection, events: Sequence[Event]) -> Sequence[RowMapping]:
        parameters = {
            "tenants": [event.tenant for event in events],
            "ids": [event.memory_id for event in events],
            "versions": [event.version for event in events],
            "shards": [event.shard for event in events],
            "positions": [event.pos for event in events],
        }
        found = conn.execute(named("versions_of_page"), parameters).mappings().all()
        if len(found) != len(events):
            known = {(row["shard"], row["pos"]) for row in found}
            lost = next(e for e in events if (e.shard, e.pos) not in known)
            raise RecordMissingError(
                f"shard {lost.shard}, position {lost.pos}: memory {lost.memory_id} has no version "
                f"{lost.version} that was announced there"
            )
        return found

    def _heads(self, conn: Connection, shards: set[int]) -> dict[int, bytes]:
        parameters = {"generation": self._generation, "shards": sorted(shards)}
        found = conn.execute(named("chain_heads"), parameters)
        return {row.shard: bytes(row.hash) for row in found if row.hash is not None}

    def _insert(self, conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
        entries = [row["entry"] for row in rows]
        parameters = {
            "generation": self._generation,
            "tenants": [entry.tenant for entry in entries],
            "ids": [entry.memory_id for entry in entries],
            "versions": [entry.version for entry in entries],
            "previous": [row["previous"] for row in rows],
            "hashes": [row["hash"] for row in rows],
        }
        conn.execute(named("append_entries"), parameters)

    def _sign(self, conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Sign the heads of shards that have grown enough, or whose last signature is old."""
        newest: dict[int, dict[str, Any]] = {}
        for row in rows:
            shard = row["entry"].shard
            newest[shard] = row
            self._unsigned[shard] = self._unsigned.get(shard, 0) + 1
        now = time.monotonic()
        for shard, row in newest.items():
            waited_s = now - self._signed_at.get(shard, 0.0)
            if self._unsigned[shard] >= SIGN_EVERY_ROWS or waited_s >= SIGN_EVERY_S:
                self._sign_head(conn, row)
                self._unsigned[shard], self._signed_at[shard] = 0, now

    def _sign_head(self, conn: Connection, row: dict[str, Any]) -> None:
        entry: Entry = row["entry"]
        message = head_bytes(self._generation, entry.shard, entry.pos, row["hash"])
        parameters = {
            "generation": self._generation,
            "shard": entry.shard,
            "pos": entry.pos,
            "hash": row["hash"],
            "key_id": self._signer.key_id,
            "signature": self._signer.sign(message),
        }
        conn.execute(named("sign_head"), parameters)


def _entry(row: RowMapping) -> Entry:
    fields = {name: row[name] for name in Entry.__dataclass_fields__}
    return Entry(**{**fields, "text_mac": bytes(row["text_mac"])})
