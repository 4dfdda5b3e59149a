"""Finds the memories that are linked to a query's names, in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Connection,
    Double,
    Row,
    Select,
    Text,
    TextualSelect,
    Uuid,
    and_,
    column,
    select,
    text,
)

from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.store.arrays import numbers, texts
from canonical.store.database import Database
from canonical.store.reading import conditions
from canonical.store.tables import memory
from projectors.entity import names
from projectors.entity.schema import FLOOR, HUB, SQL, WEIGHT, WEIGHTS, named

TIMEOUT: Final = timedelta(seconds=2)
PER_KEY: Final = 200  # entities of one key: more of one name is a hub
READS: Final = 4  # links read for each that is wanted: some are hidden by status, time or filter


@dataclass(frozen=True, slots=True)
class EntityHit:
    """A memory linked to a name of the query: score is similarity times weight times penalty."""

    memory_id: UUID
    rev: int  # the revision that the link was made from
    score: float  # in (0, 1]
    entity_id: UUID
    name: str  # normalised
    similarity: float  # 1: the query says this name; less: some of its words
    degree: int  # records of the scope that are linked to this name
    weight: float  # of the name's kind
    penalty: float  # falls with the degree


class EntityReader:
    """The reading side of one generation. `database` serves as the API role."""

    def __init__(
        self, database: Database, generation: int, *, timeout: timedelta = TIMEOUT
    ) -> None:
        """Nothing is read yet; a query that takes longer than `timeout` is given up."""
        self._database, self._generation, self._timeout = database, generation, timeout

    def names_in(self, query: str, /) -> list[str]:
        """Return what in a query may be a name, normalised."""
        return names.names_in(query)

    def linked(self, names: Sequence[str], visible: Visible, limit: int, /) -> list[EntityHit]:
        """Return the visible memories linked to the names, best first, newest first among equals.

        Shapes: each memory once, with the best of its entities. Where one name has several
                entities inside the scope, it has the sum of their degrees.
        Raises: StoreUnavailableError, when Postgres doesn't answer in time.
        Cost:   one statement; its reads are bounded by `limit`, not by the degrees.
        """
        if not names or limit <= 0:
            return []
        query = _query(visible, limit)
        parameters = {
            **_WEIGHING,
            **visible.scope.named(),
            "tenant": visible.scope.tenant,
            "generation": self._generation,
            "keys": texts(dict.fromkeys(names)),
            "per_key": PER_KEY,
            "reads": READS * limit,
        }
        with self._database.transaction(visible.scope.tenant) as conn:
            _set_timeout(conn, self._timeout)
            return [_hit(row) for row in conn.execute(query, parameters)]


_WEIGHING: Final = {
    "floor": FLOOR,
    "hub": HUB,
    "labels": texts(WEIGHTS),
    "weights": numbers(WEIGHTS.values()),
    "weight": WEIGHT,
}


def _query(visible: Visible, limit: int) -> Select[Any]:
    links = _links(tuple(visible.scope.named())).cte("links")
    held = and_(memory.c.tenant == visible.scope.tenant, memory.c.id == links.c.memory_id)
    return (
        select(links)
        .join(memory, held)
        .where(*conditions(visible))
        .order_by(links.c.score.desc(), links.c.memory_id.desc())
        .limit(limit)
    )


@cache
def _links(ids: tuple[str, ...]) -> TextualSelect:
    """Return the statement for scopes that name these ids: its index depends on them."""
    if not ids or not set(ids) <= set(Scope.__dataclass_fields__) - {"tenant"}:
        raise AssertionError(ids)  # the only text that is put into the statement
    scope = " AND ".join(f"k.{name} = :{name}" for name in ids)
    return text(_template().replace("{scope}", scope)).columns(
        column("memory_id", Uuid),
        column("rev", BigInteger),
        column("entity_id", Uuid),
        column("name", Text),
        column("similarity", Double),
        column("degree", BigInteger),
        column("weight", Double),
        column("penalty", Double),
        column("score", Double),
    )


def _template() -> str:
    lines = Path(SQL / "linked.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def _set_timeout(conn: Connection, timeout: timedelta) -> None:
    milliseconds = max(1, round(timeout.total_seconds() * 1000))
    conn.execute(_SET_TIMEOUT, {"timeout": str(milliseconds)})


_SET_TIMEOUT: Final = text("SELECT set_config('statement_timeout', :timeout, true)")


def _hit(row: Row[*tuple[Any, ...]]) -> EntityHit:
    return EntityHit(
        memory_id=row.memory_id,
        rev=row.rev,
        score=row.score,
        entity_id=row.entity_id,
        name=row.name,
        similarity=row.similarity,
        degree=int(row.degree),
        weight=row.weight,
        penalty=row.penalty,
    )


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """What the tables of a generation say against each other."""

    kind: str  # degree, dangling_link, orphan, dangling_key, nameless
    tenant: str
    entity_id: UUID
    detail: str


def verify(conn: Connection, generation: int) -> list[Inconsistency]:
    """Return what the entity tables of all tenants say against each other: nothing, if all is well.

    `conn` serves as the projector. Cost: reads the generation once.
    """
    rows = conn.execute(named("inconsistencies"), {"generation": generation})
    return [Inconsistency(*row) for row in rows]
