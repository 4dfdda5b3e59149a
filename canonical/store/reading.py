"""Canonical state as search, lists and callers read it: one tenant at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import ColumnElement, and_, bindparam, func, literal_column, or_, select

from canonical.domain.records import Link, Record, Status, Version
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.errors import NotFoundError, StoreUnavailableError
from canonical.store import arrays, filter_sql, rows
from canonical.store.database import Database
from canonical.store.records import scope_parameters
from canonical.store.statements import for_driver, named
from canonical.store.tables import memory

TAIL_SCAN = 20_000  # events of a shard that one search looks at, the newest first


@dataclass(frozen=True, slots=True)
class Tail:
    """Records of a scope that are committed and not projected yet, newest first, of any status."""

    records: list[Record]
    truncated: bool  # there are more than were read


@dataclass(frozen=True, slots=True)
class ServedProjection:
    """How far a projection's live generation has come. `state`: live, or missing."""

    generation: int
    state: str
    marks: Mapping[int, int]
    lag: Mapping[int, int]
    oldest_unserved_seconds: float | None = None
    halted: bool = False
    error_code: str | None = None
    error: str | None = None


MISSING = ServedProjection(0, "missing", {}, {})


class CanonicalReader:
    """Reads records for one tenant at a time. `database` serves as the API role."""

    def __init__(self, database: Database) -> None:
        """Nothing is read yet."""
        self._database = database

    def current(self, tenant: str, ids: Sequence[UUID]) -> dict[UUID, Record]:
        """Return the present state of those that the tenant has, whatever their status."""
        wanted = {"tenant": tenant, "ids": arrays.uuids(ids)}
        (found,) = self._database.read((for_driver("current_memories"), wanted), tenant=tenant)
        return {row["id"]: rows.to_record(row) for row in found}

    def get(self, tenant: str, memory_id: UUID) -> Record:
        """Return one record with its links, whatever its status.

        Raises: NotFoundError.
        """
        wanted = {"tenant": tenant, "ids": [memory_id]}
        found, links = self._database.read(
            (for_driver("current_memories"), wanted),
            (for_driver("links_of"), wanted),
            tenant=tenant,
        )
        if not found:
            raise NotFoundError(f"no memory {memory_id} in this tenant")
        return rows.to_record(
            found[0], tuple(Link(row["relation"], row["target"]) for row in links)
        )

    def history(self, tenant: str, memory_id: UUID) -> list[Version]:
        """Return every version of one record, oldest first.

        Raises: NotFoundError.
        """
        parameters = {"tenant": tenant, "id": memory_id}
        with self._database.transaction(tenant) as conn:
            found = conn.execute(named("history"), parameters).mappings().all()
        if not found:
            raise NotFoundError(f"no memory {memory_id} in this tenant")
        return [rows.to_version(dict(row)) for row in found]

    def page(
        self, visible: Visible, *, after: UUID | None, limit: int
    ) -> tuple[list[Record], UUID | None]:
        """List what may be shown, oldest first, and where the next page begins.

        Guarantee: ids never change, so a record that lives throughout comes exactly once.
        Cost:      one statement along the scope's index.
        """
        query = select(memory).where(*conditions(visible)).order_by(memory.c.id)
        if after is not None:
            query = query.where(memory.c.id > after)
        with self._database.transaction(visible.scope.tenant) as conn:
            found = conn.execute(query.limit(limit + 1)).mappings().all()
        records = [rows.to_record(dict(row)) for row in found[:limit]]
        return records, records[-1].id if len(found) > limit else None

    def count(self, visible: Visible) -> int:
        """Count what may be shown."""
        query = select(func.count()).select_from(memory).where(*conditions(visible))
        with self._database.transaction(visible.scope.tenant) as conn:
            return int(conn.execute(query).scalar_one())

    def scope_count(self, scope: Scope, limit: int) -> int:
        """Count a scope's records that are not deleted, up to `limit`."""
        inside = [memory.c[name] == value for name, value in scope.named().items()]
        living = memory.c.status.in_([status.value for status in Status if status.is_live])
        found = select(memory.c.id).where(memory.c.tenant == scope.tenant, living, *inside)
        with self._database.transaction(scope.tenant) as conn:
            query = select(func.count()).select_from(found.limit(limit).subquery())
            return int(conn.execute(query).scalar_one())

    def served(self, projections: Sequence[str]) -> dict[str, ServedProjection]:
        """Return how far each projection serving or being built has come, in one snapshot."""
        asked = for_driver("served"), {"projections": list(projections)}
        (found,) = self._database.read(asked)
        return {
            name: _served([row for row in found if row["projection"] == name])
            for name in projections
        }

    def tail(
        self,
        scope: Scope,
        served: Sequence[Mapping[int, int]],
        *,
        limit: int,
        must_reach: Mapping[int, int] | None = None,
    ) -> Tail:
        """Return what some watermarks have not passed yet: the newest `limit` of a scope.

        Shapes: `served` has one mapping (shard → position) per leg that serves; of none, the whole
                log is the tail. Parked memories are part of it.
        Raises: StoreUnavailableError, when this database hasn't got `must_reach` yet (a replica).
        """
        shards = {shard for marks in served for shard in marks}
        floors = {shard: min(marks.get(shard, 0) for marks in served) for shard in shards}
        asked = {
            **scope_parameters(scope),
            "shards": arrays.numbers(floors),
            "floors": arrays.numbers(floors.values()),
            "scan": TAIL_SCAN,
            "limit": limit + 1,
        }
        heads, found = self._database.read(
            (for_driver("heads"), {}), (for_driver("tail"), asked), tenant=scope.tenant
        )
        _require_reached({row["shard"]: row["pos"] for row in heads}, must_reach or {})
        records = [rows.to_record(row) for row in found[:limit] if row["id"] is not None]
        return Tail(records, len(found) > limit or found[0]["most_scanned"] >= TAIL_SCAN)

    def epoch(self) -> int:
        """Return the log's epoch, which position tokens carry."""
        with self._database.transaction() as conn:
            return int(conn.execute(named("epoch")).scalar_one())

    def heads(self) -> dict[int, int]:
        """Return the position of each shard's newest event."""
        with self._database.transaction() as conn:
            return {row.shard: row.pos for row in conn.execute(named("heads"))}

    def record_query(
        self,
        tenant: str,
        query_id: UUID,
        candidates: list[dict[str, Any]],
        keep: bool,  # noqa: FBT001 - the recorder's shape
    ) -> None:
        """Keep the diagnostics of one search; with `keep` they are never purged as a sample."""
        parameters = {"tenant": tenant, "query_id": query_id, "keep": keep}
        with self._database.transaction(tenant) as conn:
            conn.execute(named("record_query"), {**parameters, "candidates": Jsonb(candidates)})

    def mark_used(
        self, tenant: str, query_id: UUID, packed: Sequence[UUID], used: Sequence[UUID]
    ) -> None:
        """Note which candidates of a search were packed or used, and keep that search.

        Of a search whose diagnostics are not there, the marks alone are kept.
        """
        parameters = {
            "tenant": tenant,
            "query_id": query_id,
            "packed": [str(memory_id) for memory_id in packed],
            "used": [str(memory_id) for memory_id in used],
        }
        marks = [
            {"memory_id": str(i), "packed": i in packed, "used_by_answer": i in used}
            for i in dict.fromkeys([*packed, *used])
        ]
        with self._database.transaction(tenant) as conn:
            if conn.execute(named("mark_used"), parameters).first() is None:
                alone = {**parameters, "keep": True, "candidates": Jsonb(marks)}
                conn.execute(named("record_query"), alone)


def _require_reached(heads: Mapping[int, int], wanted: Mapping[int, int]) -> None:
    behind = [shard for shard, pos in wanted.items() if heads.get(shard, 0) < pos]
    if behind:
        raise StoreUnavailableError(f"the log hasn't reached the position asked for: {behind}")


def _served(found: Sequence[rows.Row]) -> ServedProjection:
    if not found:
        return MISSING
    waiting = [row["waiting_s"] for row in found if row["waiting_s"] is not None]
    failed = next((row for row in found if row["error_code"] is not None), None)
    return ServedProjection(
        generation=found[0]["generation"],
        state=found[0]["state"],
        marks={row["shard"]: row["pos"] for row in found},
        lag={row["shard"]: max(0, row["head"] - row["pos"]) for row in found},
        oldest_unserved_seconds=max(waiting, default=None),
        halted=any(row["halted"] for row in found),
        error_code=None if failed is None else failed["error_code"],
        error=None if failed is None else failed["error"],
    )


def conditions(visible: Visible) -> list[ColumnElement[bool]]:
    """Return what `visible` asks of rows of `memory`; the same as `drop_reason`.

    Guarantee: but for the filter, the parameters are those of `parameters`, and the text depends
               on `shape` alone.
    """
    columns, scope = memory.c, visible.scope
    values = parameters(visible)
    found = [columns[name] == bindparam(name, values[name]) for name in ("tenant", *scope.named())]
    found.append(columns.status.in_([_constant(status) for status in visible.statuses()]))
    as_of: ColumnElement[datetime] = bindparam("as_of", visible.as_of)
    found.append(or_(columns.valid_from.is_(None), columns.valid_from <= as_of))
    holds = [columns.valid_to.is_(None), columns.valid_to > as_of]
    if visible.include_superseded:
        holds.append(columns.status == _constant(Status.SUPERSEDED))
    found.append(or_(*holds))
    if not visible.show_expired:
        now: ColumnElement[datetime] = bindparam("now", visible.now)
        found.append(or_(columns.expires_at.is_(None), columns.expires_at > now))
    if visible.where is not None:
        found.append(and_(filter_sql.clause(visible.where, columns.metadata)))
    return found


def _constant(status: Status) -> ColumnElement[str]:
    return literal_column(f"'{status.value}'")


def parameters(visible: Visible) -> dict[str, Any]:
    """Return the values of what `conditions` asks, but for the filter's."""
    scope = visible.scope
    times = {"as_of": visible.as_of, "now": visible.now}
    return {"tenant": scope.tenant, **scope.named(), **times}


def shape(visible: Visible) -> tuple[object, ...] | None:
    """Return what the text of `conditions` depends on; None: on a filter, and on its values."""
    if visible.where is not None:
        return None
    wanted = visible.statuses(), visible.include_superseded, visible.show_expired
    return (tuple(visible.scope.named()), *wanted)
