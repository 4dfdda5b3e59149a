"""The log as one generation of a projection sees it: leases, pages, watermarks, parked memories."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from canonical.domain.log import CAUTIOUS_AFTER, Due, Event, Lease, Mark, Page, Reading
from canonical.domain.records import Op, Record
from canonical.errors import (
    GnomonError,
    LeaseLostError,
    PoisonError,
    RecordMissingError,
    TooManyParkedError,
)
from canonical.store import rows
from canonical.store.arrays import numbers, texts, uuids
from canonical.store.database import Database
from canonical.store.pages import Applied
from canonical.store.statements import for_driver, named

_OPS = {op.value: op for op in Op}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """Whose feed it is, and its bounds."""

    projection: str
    generation: int
    epoch: int  # of the log
    owner: str  # another one for each process: a zombie's writes name the wrong one
    lasting: timedelta = timedelta(seconds=30)
    parked_cap: int = 1_000  # above it, it is not the records that are bad
    records: bool = True  # whether the projection looks at a page's records, or at its events only


class LogFeed:
    """Reads the log and moves one generation's watermarks. `database` serves as the projector."""

    def __init__(self, database: Database, settings: FeedSettings) -> None:
        """Nothing is read yet."""
        self._database, self._settings = database, settings

    def _own(self, **more: object) -> dict[str, object]:
        settings = self._settings
        return {"projection": settings.projection, "generation": settings.generation, **more}

    def _held(self, leases: Sequence[Lease], **more: object) -> dict[str, object]:
        return self._own(
            owner=self._settings.owner,
            shards=[lease.shard for lease in leases],
            lease_epochs=[lease.epoch for lease in leases],
            **more,
        )

    def waiting(self) -> list[int]:
        """List the shards with work whose lease is free or ours; none while paused."""
        with self._database.transaction() as conn:
            parameters = self._own(owner=self._settings.owner, cautious_after=CAUTIOUS_AFTER)
            return list(conn.execute(named("waiting_shards"), parameters).scalars())

    def claim(self, shards: Sequence[int]) -> list[Lease]:
        """Take the lease of each shard that is free, has ended or is ours."""
        settings = self._settings
        parameters = self._own(
            owner=settings.owner, shards=list(shards), lasting_s=settings.lasting.total_seconds()
        )
        with self._database.transaction() as conn:
            found = conn.execute(named("claim_leases"), parameters).all()
        return [
            Lease(
                projection=settings.projection,
                generation=settings.generation,
                shard=row.shard,
                owner=settings.owner,
                epoch=row.lease_epoch,
                watermark=row.pos,
                attempts=row.attempts,
            )
            for row in sorted(found, key=lambda row: row.shard)
        ]

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extend leases; return those that are still ours."""
        lasting_s = self._settings.lasting.total_seconds()
        with self._database.transaction() as conn:
            parameters = self._held(leases, lasting_s=lasting_s)
            kept = set(conn.execute(named("renew_leases"), parameters).scalars())
        return [lease for lease in leases if lease.shard in kept]

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back, so that another worker need not wait for their end."""
        with self._database.transaction() as conn:
            conn.execute(named("release_leases"), self._held(leases))

    def read(self, leases: Sequence[Lease], *, limit: int) -> Reading:
        """Read up to about `limit` events above the leases' watermarks, evenly over the shards."""
        parameters = {
            "shards": numbers(lease.shard for lease in leases),
            "after": numbers(lease.watermark for lease in leases),
            "per_shard": max(1, limit // max(1, len(leases))),
        }
        (found,) = self._database.read((for_driver("read_page"), parameters))
        events = tuple([_event(row) for row in found if row["pos"] is not None])
        return Reading(events, {row["shard"]: row["head"] for row in found})

    def page(self, events: Sequence[Event]) -> Page:
        """Make a page of events: the current records of the memories that are not parked.

        Raises: RecordMissingError, when canonical state doesn't hold a memory that the log names
                (unless the projection looks at no records).
        """
        named_once = dict.fromkeys((event.tenant, event.memory_id) for event in events)
        records = self._current(list(named_once)) if self._settings.records else {}
        last = {event.shard: event for event in events}
        epoch = self._settings.epoch
        marks = tuple(Mark(s, e.pos, e.memory_id, e.rev, epoch) for s, e in last.items())
        shards = {event.memory_id: event.shard for event in events}
        return Page(tuple(events), records, marks, epoch, shards)

    def retry_page(self, due: Sequence[Due]) -> Page:
        """Make a page of parked memories as they are now: no events, no marks."""
        records = self._current([(one.tenant, one.memory_id) for one in due], parked=True)
        shards = {one.memory_id: one.shard for one in due}
        return Page((), records, (), self._settings.epoch, shards)

    def _current(
        self, wanted: Sequence[tuple[str, UUID]], *, parked: bool = False
    ) -> dict[UUID, Record]:
        ids = [memory_id for _, memory_id in wanted]
        parameters = self._own(tenants=texts(tenant for tenant, _ in wanted), ids=uuids(ids))
        (found,) = self._database.read((for_driver("page_records"), parameters))
        if len(found) != len(wanted):
            missing = set(ids) - {row["id"] for row in found}
            raise RecordMissingError(f"the log names {min(missing)}, which no record is")
        return {row["id"]: rows.to_record(row) for row in found if parked or not row["is_parked"]}

    def advance(self, leases: Sequence[Lease], page: Page, applied: Applied) -> list[Lease]:
        """Move each shard's watermark to its mark, park what was refused; all in one transaction.

        Shapes: one lease for each of the page's marks; returns them at their new watermarks.
        Raises: LeaseLostError, when a watermark was not ours to move; TooManyParkedError. Nothing
                was changed then.
        """
        reached = {mark.shard: mark.pos for mark in page.marks}
        parameters = self._held(
            leases,
            expected=[lease.watermark for lease in leases],
            reached=[reached[lease.shard] for lease in leases],
        )
        with self._database.transaction() as conn:
            _require_all(conn.execute(named("advance_watermarks"), parameters).scalars(), leases)
            if applied.in_transaction is not None:
                applied.in_transaction(conn)
            self._park(conn, page.events, applied.refused)
            self._note_parked(conn, page)
        if applied.committed is not None:
            applied.committed()
        return [replace(lease, watermark=reached[lease.shard], attempts=0) for lease in leases]

    def rehearse(self, leases: Sequence[Lease], applied: Applied) -> None:
        """Do what would commit with the watermarks, and take it back.

        Raises: LeaseLostError; whatever the commit would have raised.
        """
        with self._database.transaction() as conn:
            confirmed = conn.execute(named("confirm_leases"), self._held(leases))
            _require_all(confirmed.scalars(), leases)
            if applied.in_transaction is not None:
                rehearsal = conn.begin_nested()
                applied.in_transaction(conn)
                rehearsal.rollback()

    def due(self, leases: Sequence[Lease], *, limit: int) -> list[Due]:
        """List parked memories of these shards whose next try has come."""
        parameters = self._own(shards=[lease.shard for lease in leases], limit=limit)
        with self._database.transaction() as conn:
            found = conn.execute(named("due_parked"), parameters).all()
        return [Due(row.tenant, row.memory_id, row.shard, row.last_pos) for row in found]

    def settle(self, leases: Sequence[Lease], due: Sequence[Due], applied: Applied) -> None:
        """Clear what was projected, back off from what was refused again.

        Raises: LeaseLostError, when a lease is no longer ours: nothing was changed.
        """
        done = [one for one in due if one.memory_id not in applied.refused]
        again = [one for one in due if one.memory_id in applied.refused]
        with self._database.transaction() as conn:
            confirmed = conn.execute(named("confirm_leases"), self._held(leases))
            _require_all(confirmed.scalars(), leases)
            if applied.in_transaction is not None:
                applied.in_transaction(conn)
            conn.execute(named("unpark"), self._own(**_places(done)))
            if again:
                self._insert_parked(
                    conn,
                    [(d.tenant, d.memory_id, d.shard, d.last_pos) for d in again],
                    applied.refused,
                )
        if applied.committed is not None:
            applied.committed()

    def hold(self, leases: Sequence[Lease], error: Exception, *, halt: bool) -> None:
        """Record why shards don't go on; nobody claims a halted one until it is resumed."""
        code = error.code if isinstance(error, GnomonError) else type(error).__name__
        parameters = self._held(leases, halted=halt, code=code, message=str(error)[:1_000])
        with self._database.transaction() as conn:
            conn.execute(named("hold_shards"), parameters)

    def _park(
        self, conn: Connection, events: Iterable[Event], refused: Mapping[UUID, PoisonError]
    ) -> None:
        if not refused:
            return
        newest = {event.memory_id: event for event in events if event.memory_id in refused}
        parked = [(e.tenant, e.memory_id, e.shard, e.pos) for e in newest.values()]
        self._insert_parked(conn, parked, refused)
        bound = self._settings.parked_cap + 1
        count = conn.execute(named("count_parked"), self._own(bound=bound)).scalar_one()
        if count > self._settings.parked_cap:
            # The shard's state is everybody's to read; what was refused is its tenant's alone.
            code = next(iter(refused.values())).code
            raise TooManyParkedError(
                f"more than {self._settings.parked_cap} records are parked; the newest: {code}"
            )

    def _insert_parked(
        self,
        conn: Connection,
        parked: Sequence[tuple[str, UUID, int, int]],
        refused: Mapping[UUID, PoisonError],
    ) -> None:
        ordered = sorted(parked, key=lambda one: one[1])
        errors = [refused[memory_id] for _, memory_id, _, _ in ordered]
        parameters: dict[str, Any] = {
            "tenants": [one[0] for one in ordered],
            "ids": [one[1] for one in ordered],
            "shards": [one[2] for one in ordered],
            "first": [one[3] for one in ordered],
            "last": [one[3] for one in ordered],
            "codes": [error.code for error in errors],
            "errors": [str(error)[:1_000] for error in errors],
        }
        conn.execute(named("park"), self._own(**parameters))

    def _note_parked(self, conn: Connection, page: Page) -> None:
        if not self._settings.records:
            return
        passed = {e.memory_id: e for e in page.events if e.memory_id not in page.records}
        if passed:
            due = [Due(e.tenant, e.memory_id, e.shard, e.pos) for e in passed.values()]
            conn.execute(named("raise_parked"), self._own(**_places(due)))


def _event(row: rows.Row) -> Event:
    return Event(
        row["shard"],
        row["pos"],
        row["memory_id"],
        row["rev"],
        row["version"],
        _OPS[row["op"]],
        row["tenant"],
        row["at"],
        row["trace"],
    )


def _places(due: Sequence[Due]) -> dict[str, list[Any]]:
    ordered = sorted(due, key=lambda one: one.memory_id)
    return {
        "tenants": [one.tenant for one in ordered],
        "ids": [one.memory_id for one in ordered],
        "last": [one.last_pos for one in ordered],
    }


def _require_all(ours: Iterable[int], leases: Sequence[Lease]) -> None:
    lost = {lease.shard for lease in leases}.difference(ours)
    if lost:
        message = f"{len(lost)} of {len(leases)} leases of {leases[0].projection} are lost"
        raise LeaseLostError(message, frozenset(lost))
