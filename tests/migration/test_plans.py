"""The plans of the statements that run often: along their indexes, also without known values."""

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.mutations.change import ScopePage
from canonical.store.database import SESSION, Role
from canonical.store.reading import conditions
from canonical.store.statements import FOLDER, _body
from canonical.store.tables import memory
from tests.support.builders import NOW, Store
from tests.support.postgres import Server

TENANTS, RECORDS = 3, 6_000  # records of each; a scope has 30 of them
LARGE = {
    *("memory", "memory_version", "outbox", "mutation", "source_event", "link", "parked"),
    "query_event",
}

FILL = """
    INSERT INTO memory (tenant, id, user_id, agent_id, run_id, version, rev, status, kind, text,
                        content_hash)
    SELECT 't' || t, gen_random_uuid(), 'u' || n % 200, CASE WHEN n % 3 = 0 THEN 'a' || n % 300 END,
           CASE WHEN n % 3 = 1 THEN 'r' || n % 300 END, 1, 1, 'active', 'raw', 'text ' || n, 'x'
      FROM generate_series(1, {tenants}) t, generate_series(1, {records}) n;
    INSERT INTO memory_version (tenant, memory_id, version, op, status, text, text_mac, metadata,
                                shard, pos)
    SELECT tenant, id, 1, 'add', status, text, 'x', metadata, shard_of(id),
           row_number() OVER (PARTITION BY shard_of(id)) FROM memory;
    INSERT INTO outbox (segment, shard, pos, memory_id, rev, version, op, tenant)
    SELECT 1, shard, pos, memory_id, 1, 1, 'add', tenant FROM memory_version;
    UPDATE shard s SET pos = (SELECT max(pos) FROM outbox o WHERE o.shard = s.shard);
    INSERT INTO mutation (tenant, mutation_id, chunk, command, body_hash, memory_ids, versions)
    SELECT tenant, 'm-' || id, 0, 'add', 'x', ARRAY[id], ARRAY[1] FROM memory;
    INSERT INTO source_event (tenant, event_id, event_part, memory_id, body_hash)
    SELECT tenant, 'e-' || id, 0, id, 'x' FROM memory;
    INSERT INTO query_event (tenant, query_id, candidates) SELECT tenant, id, '[]' FROM memory;
    INSERT INTO link (tenant, source, relation, target)
    SELECT tenant, id, 'relates_to', id FROM memory;
    INSERT INTO generation (projection, generation, state, schema_hash)
    VALUES ('vector', 1, 'live', 'x');
    INSERT INTO parked (tenant, projection, generation, memory_id, shard, first_pos, last_pos,
                        next_try, error_code, error)
    SELECT 't' || row_number() OVER () % 100, 'vector', 1, id, shard_of(id), 1, 1, now(), 'x', 'x'
      FROM memory LIMIT 5000;
    ANALYZE"""


@pytest.fixture(scope="module")
def filled(postgres: Server, template: str) -> Iterator[Store]:
    name = f"gnomon_test_{secrets.token_hex(6)}"
    store = Store(postgres.create(name, template=template))
    for statement in FILL.format(tenants=TENANTS, records=RECORDS).split(";"):
        store.query(statement)
    yield store
    store.close()
    postgres.drop(name)


@dataclass
class Plan:
    """What a plan does with tables: its index conditions by index, and what it reads whole."""

    conditions: dict[str, str] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)


def explained(store: Store, role: Role, statement: str) -> Plan:
    """Plan a statement as a role; `:name` stays unknown, as in a generic plan."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return numbers.setdefault(match[1], f"${len(numbers) + 1}")

    body = re.sub(r"(?<![:\w]):([a-z_]+)\b", number, statement)
    option = "GENERIC_PLAN, " if numbers else ""
    with store.as_owner() as conn:
        for setting in ("jit", "plan_cache_mode"):
            conn.execute(f"SET LOCAL {setting} = '{SESSION[setting]}'".encode())
        conn.execute(f"SET LOCAL ROLE {role}".encode())
        conn.execute("SELECT set_config('gnomon.tenant', 't1', true)")
        row = conn.execute(f"EXPLAIN ({option}FORMAT JSON) {body}".encode(), prepare=False)
        found = row.fetchone()
    assert found is not None
    return read_plan(store, found[0] if isinstance(found[0], list) else json.loads(found[0]))


def read_plan(store: Store, document: list[dict[str, Any]]) -> Plan:
    parents = {
        row["child"]: row["parent"]
        for row in store.query(
            "SELECT inhrelid::regclass::text AS child, inhparent::regclass::text AS parent"
            " FROM pg_inherits"
        )
    }
    plan = Plan()
    for node in nodes(document[0]["Plan"]):
        index = node.get("Index Name")
        if index is not None:
            plan.conditions[parents.get(index, index)] = node.get("Index Cond", "")
        if node["Node Type"] == "Seq Scan":
            plan.whole.add(parents.get(node["Relation Name"], node["Relation Name"]))
    return plan


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


# statement → index: columns that its condition must hold
ALONG: dict[str, dict[str, str]] = {
    "announce": {"memory_pkey": "tenant id", "memory_version_pkey": "tenant memory_id version"},
    "current_memories": {"memory_pkey": "tenant id"},
    "find_mutation": {
        "mutation_pkey": "tenant mutation_id chunk",
        "memory_version_pkey": "tenant memory_id version",
    },
    "find_source_event": {
        "source_event_pkey": "tenant event_id event_part",
        "memory_version_pkey": "tenant memory_id version",
    },
    "find_supersession": {"memory_version_pkey": "tenant memory_id"},
    "history": {"memory_version_pkey": "tenant memory_id"},
    "links_of": {"link_pkey": "tenant source"},
    "lock_memories": {"memory_pkey": "tenant id"},
    "tail": {
        "outbox_tail": "tenant shard pos",
        "memory_pkey": "tenant id",
        "parked_pkey": "tenant",
    },
    "update_memory": {"memory_pkey": "tenant id"},
}
BY_PROJECTORS: dict[str, dict[str, str]] = {
    "page_records": {
        "memory_pkey": "tenant id",
        "parked_pkey": "tenant projection generation memory_id",
    },
    "purge_old": {
        "mutation_age": "created_at",
        "source_event_age": "created_at",
        "query_event_age": "at",
    },
    "read_page": {"outbox_pkey": "shard pos"},
}


def check(plan: Plan, along: dict[str, str]) -> None:
    assert not plan.whole & LARGE
    for index, columns in along.items():
        assert index in plan.conditions, plan
        for column in columns.split():
            assert re.search(rf"\b{column} ", plan.conditions[index]), plan


@pytest.mark.parametrize("name", ALONG)
def test_a_request_goes_along_its_indexes(filled: Store, name: str) -> None:
    check(explained(filled, Role.API, _body(name, FOLDER)), ALONG[name])


@pytest.mark.parametrize("name", BY_PROJECTORS)
def test_a_projector_goes_along_its_indexes(filled: Store, name: str) -> None:
    check(explained(filled, Role.PROJECTOR, _body(name, FOLDER)), BY_PROJECTORS[name])


@pytest.mark.parametrize(
    ("scope", "index"),
    [
        ({"user_id": "u1"}, "memory_user"),
        ({"agent_id": "a3"}, "memory_agent"),
        ({"run_id": "r1"}, "memory_run"),
    ],
)
def test_a_scopes_delete_reads_its_scope(filled: Store, scope: dict[str, str], index: str) -> None:
    """Not the tenant: which ids are free is known when it is planned."""
    page = ScopePage(Scope("t1", **scope), None, [0] * 16, UUID(int=1))
    statement = re.sub(
        r"(?<![:\w]):([a-z_]+)\b",
        partial(literal, page.parameters()),
        _body("live_in_scope", FOLDER),
    )
    plan = explained(filled, Role.API, statement)
    check(plan, {index: f"tenant {next(iter(scope))}", "memory_version_pkey": "memory_id version"})


@pytest.mark.parametrize(
    ("scope", "index"),
    [
        ({"user_id": "u1"}, "memory_user"),
        ({"agent_id": "a3"}, "memory_agent"),
        ({"run_id": "r1"}, "memory_run"),
    ],
)
def test_a_list_reads_its_scope(filled: Store, scope: dict[str, str], index: str) -> None:
    """Along the index's order, so that a page costs the same wherever it begins."""
    visible = Visible(scope=Scope("t1", **scope), now=NOW, as_of=NOW)
    query = select(memory).where(*conditions(visible), memory.c.id < UUID(int=2**127))
    page = query.order_by(memory.c.id.desc()).limit(20)
    statement = page.compile(filled.api.engine, compile_kwargs={"literal_binds": True})
    plan = explained(filled, Role.API, str(statement).replace("%%", "%"))
    check(plan, {index: f"tenant {next(iter(scope))} id"})


def literal(values: dict[str, Any], match: re.Match[str]) -> str:
    value = values[match[1]]
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "'{" + ",".join(map(str, value)) + "}'"
    return f"'{value}'" if not isinstance(value, int) else str(value)


def test_a_plan_that_reads_a_table_whole_is_seen(filled: Store) -> None:
    """The tests above can fail: one statement without an index, one along the wrong columns."""
    whole = explained(filled, Role.OWNER, "SELECT count(*) FROM memory WHERE text = :text")
    assert whole.whole == {"memory"}
    with pytest.raises(AssertionError):
        check(whole, {})
    tenant = explained(filled, Role.API, "SELECT count(*) FROM memory WHERE text = :text")
    with pytest.raises(AssertionError):
        check(tenant, {"memory_pkey": "tenant id"})
