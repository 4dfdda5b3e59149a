"""Finds the memories that are linked to a query's names, in one statement."""

from collections.abc import Mapping, Sequence
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
    Select,
    Text,
    TextualSelect,
    UnaryExpression,
    Uuid,
    bindparam,
    column,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects import postgresql

from canonical.domain.scope import Scope
from canonical.domain.values import value_object
from canonical.domain.visibility import Visible
from canonical.store.arrays import numbers, texts
from canonical.store.database import Database
from canonical.store.reading import conditions, parameters, shape
from canonical.store.tables import memory
from projectors.entity import names
from projectors.entity.schema import FLOOR, HUB, SQL, WEIGHT, WEIGHTS, named

TIMEOUT: Final = timedelta(seconds=2)
PER_KEY: Final = 200  # entities of one key: more of one name is a hub
READS: Final = 4  # links read for each that is wanted: some are hidden by status, time or filter


@value_object
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
        statement, defaults = _statement(visible)
        values = {
            **defaults,
            **_WEIGHING,
            **parameters(visible),
            "generation": self._generation,
            "keys": texts(dict.fromkeys(names)),
            "per_key": PER_KEY,
            "reads": READS * limit,
            "limit": limit,
        }
        tenant = visible.scope.tenant
        (found,) = self._database.read((statement, values), tenant=tenant, timeout=self._timeout)
        return [EntityHit(**row) for row in found]


_WEIGHING: Final = {
    "floor": FLOOR,
    "hub": HUB,
    "labels": texts(WEIGHTS),
    "weights": numbers(WEIGHTS.values()),
    "weight": WEIGHT,
}


_Statement = tuple[bytes, Mapping[str, Any]]
_held: Final[dict[object, bytes]] = {}  # by shape: a few dozen


def _statement(visible: Visible) -> _Statement:
    """Return the statement for the driver, with the values of the filter's parameters.

    SQLAlchemy takes longer to build and compile it than Postgres to run it, so it is held. No value
    is held with it: one that `linked` didn't name anew would be another caller's.
    """
    key = shape(visible)
    if key is None:
        return _compiled(visible)
    if (held := _held.get(key)) is None:
        held = _held[key] = _compiled(visible)[0]
    return held, {}


def _compiled(visible: Visible) -> _Statement:
    compiled = _query(visible).compile(dialect=_DIALECT)
    return str(compiled).encode(), compiled.params


_DIALECT: Final = postgresql.psycopg.dialect()  # type: ignore[no-untyped-call]


def _query(visible: Visible) -> Select[Any]:
    found = _links(tuple(visible.scope.named())).cte("found")
    links = select(found).order_by(*_best_first(found.c)).subquery("links")
    # One look-up for each link, until there are enough: joined freely, all records of the scope
    # would be read.
    shown = (
        select(memory.c.id)
        .where(memory.c.id == links.c.memory_id, *conditions(visible))
        .offset(literal_column("0"))
        .lateral("shown")
    )
    limit = bindparam("limit", type_=BigInteger)
    return select(links).join(shown, true()).order_by(*_best_first(links.c)).limit(limit)


def _best_first(links: Any) -> tuple[UnaryExpression[Any], UnaryExpression[Any]]:
    return links.score.desc(), links.memory_id.desc()


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
