"""The entity leg's own wall between tenants, seen by a role before which the other one is down."""

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.store.caches import NameCache
from canonical.store.database import Database, Role
from projectors.entity.reader import EntityHit, EntityReader
from projectors.entity.writer import EntityProjector
from tests.support.builders import NOW
from tests.support.casting import TENANT, Casting, Lexicon

OTHER = "t2"
# In the order of their references.
TABLES = ("memory", "entity", "entity_key", "entity_link", "entity_degree")
SAME = {"user_id": "alice", "agent_id": "g", "run_id": "r"}


@pytest.fixture
def cast(open_database: Callable[[Role], Database]) -> Casting:
    return Casting(open_database, "entity")


def found(cast: Casting, scope: Scope) -> list[EntityHit]:
    """Ask for half of a name, as a role that row-level security hides nothing from."""
    reader = EntityReader(cast.projector, cast.generation)
    return reader.linked(["mara"], Visible(scope=scope, now=NOW, as_of=NOW), 60)


def copied(cast: Casting, table: str) -> None:
    """Give the other tenant all that we have in a table, under the same ids."""
    columns = [
        str(name)
        for (name,) in cast.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = CAST(:t AS regclass)"
            " AND attnum > 0 AND NOT attisdropped AND attname <> 'tenant'",
            t=table,
        )
    ]
    names = ", ".join(columns)
    cast.execute(
        f"INSERT INTO {table} (tenant, {names}) SELECT :other, {names} FROM {table}"
        " WHERE tenant = :ours",
        other=OTHER,
        ours=TENANT,
    )


def forgotten(cast: Casting, tables: Sequence[str], tenant: str, **where: UUID) -> None:
    """Remove rows of a tenant, past the projector."""
    also = "".join(f" AND {name} = :{name}" for name in where)
    for table in tables:
        cast.execute(f"DELETE FROM {table} WHERE tenant = :tenant{also}", tenant=tenant, **where)


@pytest.mark.parametrize("named", [("user_id",), ("agent_id",), ("run_id",), tuple(SAME)])
def test_rows_of_another_tenant_change_nothing_that_the_entity_leg_says(
    cast: Casting, named: tuple[str, ...]
) -> None:
    """P5, S-13, S-16: each table is asked for the tenant by itself.

    The other one has the same entities, links and records under our very ids, more than we do: a
    name's half would count twice, a degree would be the sum of both, and what we have only a link
    to, or only a record of, would be found.
    """
    ids = [cast.add(f"Mara Lind keeps key {n}", **SAME) for n in range(4)]
    names = Lexicon("Mara Lind")
    cache = NameCache(cast.projector)
    cast.drain(EntityProjector(names, cache, generation=cast.generation))
    scope = Scope(TENANT, **{name: SAME[name] for name in named})
    for table in TABLES:
        copied(cast, table)
    forgotten(cast, ["entity_link"], TENANT, memory_id=ids[0])
    forgotten(cast, ["memory"], TENANT, id=ids[1])
    beside = found(cast, scope)
    forgotten(cast, TABLES, OTHER)
    alone = found(cast, scope)
    assert {hit.memory_id for hit in alone} == {ids[2], ids[3]}
    assert alone[0].similarity < 1
    assert beside == alone


def test_that_role_would_see_the_other_tenant(cast: Casting) -> None:
    """Without this, the wall that is down might be standing."""
    cast.add("Mara Lind", tenant=OTHER)
    with cast.projector.transaction(TENANT) as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM memory").scalar_one() == 1
