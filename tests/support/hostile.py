"""Requests that try to reach beyond their tenant and scope: arbitrary filters, ids and metadata.

Ids are only known once a server runs, so requests are drawn with places for them. None is put into
what is stored, where it would come back to whoever reads that.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import httpx
from hypothesis import strategies as st

from canonical.domain.scope import Scope
from gnomon.api import cursors
from tests.support.http_server import JSON, NDJSON
from tests.support.tenants import FOREIGN, OURS, SCOPES, House, Row

Json = dict[str, Any]
PLACE: Final = re.compile(r"<(own|foreign|token|cursor):(\w+)>")
NAMES: Final = ("user_id", "agent_id", "run_id")

own_ids = st.integers(0, 40).map("<own:{}>".format)
foreign_ids = st.integers(0, 40).map("<foreign:{}>".format)
wrong_ids = st.sampled_from(
    ["*", "%", "../memories", "<own:1>/history", "<foreign:1>,<own:1>", "{id}", "null", "' OR ''='"]
)
ids = own_ids | foreign_ids | st.uuids().map(str) | wrong_ids
good_scopes: st.SearchStrategy[Json] = st.sampled_from([*SCOPES, {"agent_id": "g"}]).map(dict)
wild = st.sampled_from(
    ["*", "%", "_", "alice*", "ALICE", " alice", "", "t2", "bob' OR '1'='1", "null"]
) | st.sampled_from([None, 1, True, ["alice", "bob"], {"like": "%"}, {"ne": "x"}])
wild_scopes: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from([*NAMES, "tenant", "scope"]), wild | st.just("alice"), max_size=3
)
scopes = good_scopes | good_scopes | wild_scopes

plain = st.sampled_from(["project", "n", "tags", "secret", "tags", "nope"])
strange = st.sampled_from(
    ["tenant", *NAMES, "id", "text", "*", "$or", "", "tenant'--", "a.b", "OR"]
)
scalars: st.SearchStrategy[Any] = st.sampled_from(
    ["atlas", "a", "t2", "bob", "*", "%", "SECRET", 0, 1, 2.5, True, None]
)
operators = st.sampled_from(["eq", "ne", "in", "gt", "gte", "lt", "lte", "exists", "contains"])
good_tests = (
    scalars
    | st.dictionaries(st.sampled_from(["eq", "ne", "contains"]), scalars, min_size=1)
    | st.fixed_dictionaries({"in": st.lists(scalars, min_size=1, max_size=3)})
    | st.dictionaries(st.sampled_from(["gt", "gte", "lt"]), st.integers(-1, 3), min_size=1)
    | st.fixed_dictionaries({"exists": st.booleans()})
)
wrong_tests = st.dictionaries(operators | st.just("like"), scalars | st.lists(scalars), max_size=2)
leaves: st.SearchStrategy[Any] = st.dictionaries(plain, good_tests, min_size=1, max_size=2)
leaves |= foreign_ids.map(lambda place: {"secret": place})
good_filters = st.recursive(
    leaves,
    lambda inner: (
        st.fixed_dictionaries(
            {}, optional={"AND": st.lists(inner, min_size=1), "OR": st.lists(inner, min_size=1)}
        ).filter(bool)
        | st.fixed_dictionaries({"NOT": inner})
    ),
    max_leaves=6,
)
any_filters = st.recursive(
    st.dictionaries(plain | strange, good_tests | wrong_tests, max_size=2) | scalars,
    lambda inner: st.dictionaries(
        st.sampled_from(["AND", "OR", "NOT", "project", "user_id"]), inner | st.lists(inner)
    ),
    max_leaves=6,
)
filters = good_filters | good_filters | any_filters
tokens = st.sampled_from(["<token:t1>", "<token:t2>", "AQAA", "*"])
times = st.sampled_from(["2026-03-01T00:00:00Z", "1990-01-01T00:00:00+08:00", "now"])


def some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Draw any of these fields."""
    return st.fixed_dictionaries({}, optional=optional)


def merged(*parts: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.tuples(*parts).map(lambda drawn: {k: v for one in drawn for k, v in one.items()})


flags = {"show_expired": st.booleans(), "include_superseded": st.booleans()}
metadata = st.dictionaries(plain | strange, scalars | any_filters, max_size=3) | scalars
fields = some(
    metadata=metadata,
    event_id=st.sampled_from(["e-1", "e-2"]),
    mutation_id=st.sampled_from(["m-1", "m-2"]),
    expires_at=times,
)
texts = st.fixed_dictionaries(
    {"text": st.sampled_from(["Mara Lind keeps the walnut recipe", "x", "*", ""])}
)
additions = merged(texts, scopes, fields)
questions = merged(
    scopes,
    some(
        filter=filters, after=tokens, as_of=times, threshold=st.sampled_from([0, 0.2, 1]), **flags
    ),
    st.fixed_dictionaries(
        {
            "query": st.sampled_from(["Mara Lind walnut recipe in Lisbon", "code locker", "绿茶"])
            | st.sampled_from(["SECRET", "*", "<foreign:5>", "text:*"]),
            "top_k": st.sampled_from([0, 1, 10, 200, 201]),
            "explain": st.booleans(),
        }
    ),
)
as_text = st.one_of(st.none(), filters).map(lambda f: {} if f is None else {"filter": f})
pages = merged(
    scopes,
    as_text,
    some(limit=st.sampled_from([1, 2, 1000, 0]), as_of=times, **flags),
    some(cursor=st.sampled_from(["<cursor:t2>", "<cursor:forged>", "x"])),
)
why = some(why=st.just("asked"), mutation_id=st.just("m-1"))
versions = some(expected_version=st.sampled_from([1, 2, 0]), mutation_id=st.just("m-1"))


class Extent(Enum):
    """Which records of ours a request may show or touch."""

    NOTHING = "nothing"
    NAMED = "those whose ids it says"
    SCOPE = "those that its scope covers"
    OURS = "all of our tenant"


@dataclass(frozen=True)
class Door:
    """What may be sent to one route, and what an answer may show and touch."""

    body: st.SearchStrategy[Any] = field(default_factory=st.none)
    params: st.SearchStrategy[Json] = field(default_factory=lambda: st.just({}))
    shows: Extent = Extent.NOTHING
    touches: Extent = Extent.NOTHING
    adds: bool = False
    lines: bool = False


DOORS: Final = {
    ("POST", "/v1/memories"): Door(
        additions | st.fixed_dictionaries({"memories": st.lists(additions, max_size=3)}),
        shows=Extent.OURS,  # of a repeat
        adds=True,
    ),
    ("POST", "/v1/memories:bulk"): Door(
        st.lists(additions, max_size=3),
        some(mutation_id=st.sampled_from(["m-1", "m-3"])),
        shows=Extent.OURS,
        adds=True,
        lines=True,
    ),
    ("GET", "/v1/memories"): Door(params=pages, shows=Extent.SCOPE),
    ("DELETE", "/v1/memories"): Door(params=merged(scopes, why), touches=Extent.SCOPE),
    ("POST", "/v1/memories/{id}:supersede"): Door(
        merged(additions, versions), shows=Extent.OURS, touches=Extent.NAMED, adds=True
    ),
    ("GET", "/v1/memories/{id}/history"): Door(shows=Extent.NAMED),
    ("GET", "/v1/memories/{id}"): Door(
        params=some(include_deleted=st.sampled_from(["true", "x"])), shows=Extent.NAMED
    ),
    ("PATCH", "/v1/memories/{id}"): Door(
        merged(some(text=st.just("changed"), metadata=metadata), versions, some(user_id=wild)),
        shows=Extent.NAMED,
        touches=Extent.NAMED,
    ),
    ("DELETE", "/v1/memories/{id}"): Door(
        params=merged(why, some(user_id=st.just("bob"))), shows=Extent.NAMED, touches=Extent.NAMED
    ),
    ("POST", "/v1/search"): Door(questions, shows=Extent.SCOPE),
    ("POST", "/v1/queries/{query_id}:used"): Door(some(packed=st.lists(ids), used=st.lists(ids))),
    ("GET", "/v1/projections"): Door(),
    ("POST", "/v1/projections/{name}:pause"): Door(),
    ("POST", "/v1/projections/{name}:resume"): Door(),
    ("GET", "/v1/projections/{name}/parked"): Door(
        params=some(limit=st.sampled_from([1, 1000]), tenant=st.just("t2")), shows=Extent.OURS
    ),
    ("POST", "/v1/projections/{name}/parked:redrive"): Door(
        some(ids=st.lists(ids, max_size=3) | st.none())
    ),
    ("GET", "/readyz"): Door(params=some(tenant=st.just("t2"))),
    ("GET", "/metrics"): Door(params=some(tenant=st.just("t2"))),
}
# Routes that know of no record, and why.
OPEN: Final = {"/healthz": "asks nobody", "/openapi.json": "describes routes, not data"}
in_path = {
    "id": ids,
    "query_id": st.sampled_from(["<token:query>"]) | ids,
    "name": st.sampled_from(["audit", "audit", "*", "nope", "audit' OR '1'='1"]),
}


@dataclass(frozen=True)
class Sent:
    """One request, and all that it said."""

    route: tuple[str, str]
    path: str
    params: Json
    body: Any

    @property
    def door(self) -> Door:
        return DOORS[self.route]

    @property
    def method(self) -> str:
        return self.route[0]

    @property
    def said(self) -> str:
        return json.dumps([self.path, self.params, self.body])

    def ask(self, client: httpx.Client) -> httpx.Response:
        params = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in self.params.items()
        }
        content, headers = None, {}
        if self.door.lines:
            content = b"\n".join(json.dumps(line).encode() for line in self.body)
            headers = NDJSON
        elif self.body is not None:
            content, headers = json.dumps(self.body).encode(), JSON
        return client.request(
            self.method, self.path, params=params, content=content, headers=headers
        )

    def scope(self) -> Json:
        """Return the ids that the request names as its scope."""
        given = self.params if self.method != "POST" else self.body
        named = {name: given.get(name) for name in NAMES}
        return {name: value for name, value in named.items() if value is not None}

    def meets(self, row: Row, extent: Extent) -> bool:
        """Tell whether a record is within what this request may show or touch."""
        if row.tenant != OURS:
            return False
        match extent:
            case Extent.NAMED:
                return row.id in self.said
            case Extent.SCOPE:
                return row.is_covered(self.scope())
            case _:
                return extent is Extent.OURS


@st.composite
def requests(draw: st.DrawFn, route: tuple[str, str]) -> Sent:
    """Draw a request to a route, with places for ids."""
    _, template = route
    parts = {name: draw(in_path[name]) for name in re.findall(r"{(\w+)}", template)}
    door = DOORS[route]
    path = template.format(**{name: f"({value})" for name, value in parts.items()})
    return Sent(route, path, draw(door.params), draw(door.body))


def addressed(sent: Sent, house: House, held: Mapping[str, Row]) -> Sent:
    """Fill the places of a request."""
    by_tenant = {
        kind: sorted(row.id for row in held.values() if row.tenant == tenant)
        for kind, tenant in (("own", OURS), ("foreign", FOREIGN))
    }
    theirs = UUID(by_tenant["foreign"][0])
    scope = Scope(OURS, user_id="alice")
    question = {"user_id": "alice", "show_expired": False, "include_superseded": False}
    forged = cursors.write(theirs, [OURS, scope.named(), question])

    def place(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "cursor":
            return forged if name == "forged" else house.tokens["cursor"]
        if kind == "token":
            return house.tokens[name]
        return by_tenant[kind][int(name) % len(by_tenant[kind])]

    path, params, body = json.loads(PLACE.sub(place, sent.said))
    quoted = re.sub(r"\((.*?)\)", lambda m: quote(m[1], safe=""), path)
    return Sent(sent.route, quoted, params, body)
