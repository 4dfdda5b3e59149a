"""Two tenants and three scopes that hold the same texts, in a whole server with real engines."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import psycopg

from canonical.domain.records import Trust
from canonical.domain.scope import Scope
from canonical.store import api_keys
from canonical.store.api_keys import Right
from gnomon.serving import Running, open_embedded
from gnomon.settings import Settings
from tests.support.builders import until
from tests.support.http_server import Client, serving

Json = dict[str, Any]

OURS: Final = "t1"
FOREIGN: Final = "t2"
# The third is a part of the first: who names alice alone is shown both.
SCOPES: Final[tuple[dict[str, str], ...]] = (
    {"user_id": "alice"},
    {"user_id": "bob"},
    {"user_id": "alice", "agent_id": "g", "run_id": "r"},
)
TEXTS: Final = ("Mara Lind keeps the walnut recipe in Lisbon", "玛拉喜欢喝绿茶")
SECRET: Final = re.compile(r"SECRET-[0-9a-f]{16}")
FEWEST: Final = 2  # live records of ours in a scope, before each request


@dataclass(frozen=True, slots=True)
class Row:
    """A record, as the owner sees it past all walls."""

    tenant: str
    id: str
    scope: Scope
    status: str
    digest: str

    def is_covered(self, named: Mapping[str, object]) -> bool:
        """Tell whether a scope that names these ids holds the record; of no ids, it doesn't."""
        held = {name: getattr(self.scope, name) for name in named}
        return bool(named) and held == dict(named)


class House:
    """The server, a client of ours, and what Postgres holds of both tenants."""

    def __init__(self, running: Running, clients: Mapping[str, Client]) -> None:
        self.app, self.backend = running.app, running.backend
        self.client, self._clients = clients[OURS], clients
        self.secrets: dict[str, str] = {}  # secret -> the record's id
        self.tokens: dict[str, str] = {}  # tenant -> a position of a write
        self._tables: list[str] = []

    def fill(self, tenant: str, scope: Mapping[str, str]) -> set[str]:
        """Add the same texts for a tenant and scope, and one that nobody else has."""
        ids = set()
        secrets = [f"SECRET-{token_hex(8)}" for _ in range(len(TEXTS) + 1)]
        texts = [*TEXTS, f"The code of the locker is {secrets[-1]}"]
        for n, (text, secret) in enumerate(zip(texts, secrets, strict=True)):
            metadata = {"project": "atlas", "n": n, "tags": ["a", "b"], "secret": secret}
            made = self._clients[tenant].add(text, **{"user_id": None, **scope}, metadata=metadata)
            self.secrets[secret] = made["id"]
            self.tokens[tenant] = made["position"]
            ids.add(made["id"])
        return ids

    def settle(self) -> None:
        """Wait until all is projected; what a test has paused is not waited for."""
        ours = self._clients[OURS]

        def lags() -> set[int]:
            items = ours.get("/v1/projections").json()["items"]
            return {one["lag"] for one in items if not one["paused"]}

        until(lambda: lags() == {0}, "all is projected")

    def replenished(self) -> dict[str, Row]:
        """Return all records, after adding to our scopes that are nearly empty."""
        held = self.rows()
        short = [scope for scope in SCOPES if self._live(held, scope) < FEWEST]
        for scope in short:
            self.fill(OURS, scope)
        return self.rows() if short else held

    def generation(self, projection: str) -> int:
        """Return the generation that serves."""
        with self._as_owner() as conn:
            row = conn.execute(
                "SELECT generation FROM generation WHERE projection = %s AND state = 'live'",
                (projection,),
            ).fetchone()
        assert row is not None
        return int(row[0])

    def _live(self, held: Mapping[str, Row], scope: Mapping[str, str]) -> int:
        exact = Scope(OURS, **scope)
        return sum(row.scope == exact and row.status == "active" for row in held.values())

    def rows(self) -> dict[str, Row]:
        """Read every record by its id."""
        with self._as_owner() as conn:
            found = conn.execute(
                "SELECT tenant, id::text, user_id, agent_id, run_id, status, md5(m::text)"
                " FROM memory m"
            ).fetchall()
        return {r[1]: Row(r[0], r[1], Scope(r[0], *r[2:5]), r[5], r[6]) for r in found}

    def fingerprint(self) -> dict[str, str | None]:
        """Read all that any table holds of the foreign tenant."""
        with self._as_owner() as conn:
            self._tables = self._tables or _tables_of_tenants(conn)
            digest = "SELECT '{0}', md5(string_agg(x::text, ';' ORDER BY x::text)) FROM {0} x"
            parts = [f"{digest.format(name)} WHERE tenant = %(tenant)s" for name in self._tables]
            found = conn.execute(" UNION ALL ".join(parts).encode(), {"tenant": FOREIGN})
            return dict(found.fetchall())

    def candidates(self, query_id: str) -> list[Json]:
        """Wait for the diagnostics of a search of ours, and return what the legs had offered."""
        held: list[Json] = []

        def is_there() -> bool:
            with self._as_owner() as conn:
                row = conn.execute(
                    "SELECT candidates FROM query_event WHERE tenant = %s AND query_id = %s",
                    (OURS, query_id),
                ).fetchone()
            held[:] = row[0] if row else []
            return row is not None

        until(is_there, "the diagnostics of a search are kept")
        return held

    @contextmanager
    def _as_owner(self) -> Iterator[psycopg.Connection]:
        with self.backend.databases.owner.raw() as conn, conn.transaction():
            yield conn


def _tables_of_tenants(conn: psycopg.Connection) -> list[str]:
    found = conn.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition AND a.attname = 'tenant' ORDER BY 1"
    )
    return [name for (name,) in found]


@contextmanager
def two_tenants(state: Path) -> Iterator[House]:
    """Serve both tenants, filled and projected; a record of each is parked."""
    with open_embedded(Settings(state=state, diagnostics_share=1.0)) as running:
        owner = running.backend.databases.owner
        keys = {
            tenant: api_keys.create(owner, tenant, tenant, frozenset({Right.ADMIN}), Trust.USER)[1]
            for tenant in (OURS, FOREIGN)
        }
        with serving(running.app) as address:
            clients = {tenant: Client(address, key) for tenant, key in keys.items()}
            house = House(running, clients)
            _move_in(house, clients[FOREIGN])
            yield house
            for client in clients.values():
                client.close()


def _move_in(house: House, foreign: Client) -> None:
    for tenant in (OURS, FOREIGN):
        for scope in SCOPES:
            house.fill(tenant, scope)
    foreign.add("keyed", mutation_id="m-1", event_id="e-1")
    house.settle()
    park_one_each(house)
    asked = foreign.search("Mara Lind", user_id="alice")
    used = {"packed": [asked["items"][0]["id"]]}
    assert foreign.post(f"/v1/queries/{asked['query_id']}:used", json=used).is_success
    house.tokens["query"] = asked["query_id"]
    cursor = foreign.get("/v1/memories", params={"user_id": "alice", "limit": 1}).json()
    house.tokens["cursor"] = cursor["next_cursor"]


def park_one_each(house: House) -> None:
    """Park the first record of each tenant, as if an engine had refused it; tried again never."""
    with house.backend.databases.owner.raw() as conn, conn.transaction():
        conn.execute(
            "INSERT INTO parked (tenant, projection, generation, memory_id, shard, first_pos,"
            " last_pos, next_try, error_code, error)"
            " SELECT DISTINCT ON (m.tenant) m.tenant, 'audit', g.generation, m.id, 0, 1, 1,"
            " now() + interval '1 day', 'poison', 'refused'"
            " FROM memory m, generation g WHERE g.projection = 'audit' AND g.state = 'live'"
            " ORDER BY m.tenant, m.id"
        )
