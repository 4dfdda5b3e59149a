"""Appends every version to its shard's chain; commits together with the watermark."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from canonical.domain.records import Op
from canonical.errors import ChainBrokenError, RecordMissingError
from canonical.store.arrays import numbers, texts, words
from projectors.audit.mapping import head_bytes
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
        self._unsigned: Counter[int] = Counter()  # entries of a shard since its head was signed
        self._signed_at: dict[int, float] = {}

    def apply(self, page: Page) -> Applied:
        """Take every event that made a version; a repair made none and is passed over.

        Cost: one statement at the commit; when heads are due, one more and one for each of them.
        """
        events = [event for event in page.events if event.op is not Op.REPAIR]
        grown = Counter(event.shard for event in events)
        signed: list[int] = []

        def append(conn: Connection) -> None:
            self._append(conn, events)
            signed[:] = self._due(grown)
            sign_heads(conn, self._generation, self._signer, signed)

        return Applied(in_transaction=append, committed=lambda: self._note(grown, signed))

    def _append(self, conn: Connection, events: Sequence[Event]) -> None:
        if not events:
            return
        columns = _columns(events)
        parameters = {**columns, "generation": self._generation, "beginning": BEGINNING}
        try:
            count = conn.execute(named("append_entries"), parameters).rowcount
        except IntegrityError as exc:
            raise ChainBrokenError(f"the audit holds a version of this page: {exc.orig}") from exc
        if count != len(events):
            raise _missing(conn, columns)

    def _due(self, grown: Counter[int]) -> list[int]:
        """List the shards that have now grown enough, or whose last signature is old."""
        now = time.monotonic()
        return [
            shard
            for shard in sorted(grown)
            if self._unsigned[shard] + grown[shard] >= SIGN_EVERY_ROWS
            or now - self._signed_at.get(shard, 0.0) >= SIGN_EVERY_S
        ]

    def _note(self, grown: Counter[int], signed: Sequence[int]) -> None:
        """Count what has committed: a head whose signature was rolled back is still due."""
        self._unsigned.update(grown)
        now = time.monotonic()
        for shard in signed:
            self._unsigned[shard], self._signed_at[shard] = 0, now


def sign_heads(conn: Connection, generation: int, signer: Signer, shards: Sequence[int]) -> int:
    """Sign where the chains of these shards end now; returns how many there are.

    `conn` serves as the projector.
    """
    if not shards:
        return 0
    ends = conn.execute(
        named("chain_heads"), {"generation": generation, "shards": list(shards)}
    ).all()
    for end in ends:
        digest = bytes(end.hash)
        parameters = {
            "generation": generation,
            "shard": end.shard,
            "pos": end.pos,
            "hash": digest,
            "key_id": signer.key_id,
            "signature": signer.sign(head_bytes(generation, end.shard, end.pos, digest)),
        }
        conn.execute(named("sign_head"), parameters)
    return len(ends)


def _columns(events: Sequence[Event]) -> Mapping[str, str]:
    return {
        "tenants": texts([event.tenant for event in events]),
        "ids": words([event.memory_id.hex for event in events]),
        "versions": numbers([event.version for event in events]),
        "shards": numbers([event.shard for event in events]),
        "positions": numbers([event.pos for event in events]),
    }


def _missing(conn: Connection, columns: Mapping[str, str]) -> Exception:
    lost = conn.execute(named("missing_versions"), columns).first()
    if lost is None:
        return ChainBrokenError("a version of this page was counted twice")
    return RecordMissingError(
        f"shard {lost.shard}, position {lost.pos}: memory {lost.id} has no version "
        f"{lost.version} that was announced there"
    )
