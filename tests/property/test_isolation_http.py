"""P5: whatever one tenant sends to any route, it sees and touches nothing that is not its own."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from sqlalchemy import Connection
from starlette.routing import Route

from canonical.domain.scope import Scope
from canonical.store.database import Database, Role
from canonical.store.reading import CanonicalReader
from inference.fakes import HashEmbedder
from projectors.entity.reader import EntityReader
from search.ports import Engines, always
from search.searcher import Searcher
from tests.support import described
from tests.support.hostile import DOORS, NAMES, Extent, Sent, addressed, requests
from tests.support.http_server import Api, Client, DownEngine
from tests.support.tenants import OURS, SCOPES, SECRET, House, Row, two_tenants

UUIDS: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
LINKS: Final = re.compile(r'"links":\[.*?\]|"superseded_by":"[^"]*"')
SEARCH: Final = ("POST", "/v1/search")
EXAMPLES: Final = {SEARCH: 150, ("GET", "/v1/memories"): 100}
READING: Final = [SEARCH, *(route for route in DOORS if route[0] == "GET")]
# Routes that know of no record, and why.
OPEN: Final = {"/healthz": "asks nobody", "/openapi.json": "describes routes, not data"}
# Without shrinking: what a request did stays done.
PHASES: Final = (Phase.explicit, Phase.reuse, Phase.generate)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with two_tenants(tmp_path_factory.mktemp("house") / "state") as house:
        yield house


def sending(examples: int) -> settings:
    slow = [HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, phases=PHASES, suppress_health_check=slow)


def test_every_route_has_a_place_here(house: House) -> None:
    """S-06: a route that is added without one fails here."""
    served = {
        (method, route.path_format)
        for route in house.app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    beside = {
        route.path
        for route in house.app.routes
        if isinstance(route, Route) and not isinstance(route, APIRoute)
    }
    assert len(served) + len(beside) == len(house.app.routes)
    assert served == DOORS.keys()
    assert beside == OPEN.keys()


@pytest.mark.parametrize("route", DOORS, ids=" ".join)
def test_no_request_sees_or_touches_what_is_foreign(house: House, route: tuple[str, str]) -> None:
    """P5; S-01, S-02, S-03, S-05, S-06, S-14: ids, filters, metadata, tokens, cursors, keys."""
    theirs = house.fingerprint()
    searches: dict[str, Sent] = {}

    @sending(EXAMPLES.get(route, 40))
    @given(requests(route))
    def send(drawn: Sent) -> None:
        held = house.replenished()
        sent = addressed(drawn, house, held)
        answer = sent.ask(house.client)
        now = house.rows()
        assert answer.status_code < 500, answer.text
        assert described.faults(house.app.openapi(), answer) == []
        assert leaks(sent, answer, held, now, house.secrets) == [], answer.text
        assert touched(sent, held, now) == []
        assert counted(sent, answer, held) == []
        assert house.fingerprint() == theirs
        if route == SEARCH and answer.is_success and sent.body["top_k"]:
            searches[answer.json()["query_id"]] = sent

    send()
    for query_id, sent in searches.items():
        beyond = [one for one in house.candidates(query_id) if one["scope_match"] is not True]
        assert beyond == [], f"a leg looked beyond {sent.scope()}"


def leaks(
    sent: Sent,
    answer: httpx.Response,
    held: Mapping[str, Row],
    now: Mapping[str, Row],
    secrets: Mapping[str, str],
) -> list[str]:
    """Name the records that an answer tells of and that the request may not see.

    An id that the request said itself tells nothing when it comes back; a secret does. A record
    that was put in the place of one of another scope names it: its id, and nothing else of it.
    """
    told = {secrets[secret] for secret in SECRET.findall(answer.text)}
    shown = set(UUIDS.findall(LINKS.sub("", answer.text))) - set(UUIDS.findall(sent.said))
    linked = {one for links in LINKS.findall(answer.text) for one in UUIDS.findall(links)}
    beyond = {
        one for one in (told | shown) & held.keys() if not sent.meets(now[one], sent.door.shows)
    }
    return [*beyond, *(one for one in linked & held.keys() if now[one].tenant != OURS)]


def touched(sent: Sent, held: Mapping[str, Row], now: Mapping[str, Row]) -> list[str]:
    """Name the records that came, went or changed and that the request may not touch."""
    gone = held.keys() - now.keys()
    changed = [row for memory_id, row in held.items() if now.get(memory_id) != row]
    wrong = [row.id for row in changed if not sent.meets(row, sent.door.touches)]
    moved = [row.id for row in changed if row.id in now and now[row.id].scope != row.scope]
    may_come = set(scopes_in(sent.body)) if sent.door.adds else set()
    come = [now[memory_id] for memory_id in now.keys() - held.keys()]
    return [*gone, *wrong, *moved, *(row.id for row in come if row.scope not in may_come)]


def scopes_in(body: Any) -> Iterator[Scope]:
    """Give the exact scope of each memory that a body adds."""
    for one in body if isinstance(body, list) else body.get("memories", [body]):
        named = [one.get(name) for name in NAMES]
        if all(value is None or isinstance(value, str) for value in named):
            yield Scope(OURS, *named)


def counted(sent: Sent, answer: httpx.Response, held: Mapping[str, Row]) -> list[str]:
    """Name the counts that are higher than what the request may know of."""
    if sent.door.shows is not Extent.SCOPE or answer.is_error:
        return []
    inside = sum(sent.meets(row, Extent.SCOPE) for row in held.values())
    said = answer.json()
    return [name for name in ("total", "scope_records") if said.get(name, 0) > inside]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_every_leg_answers_a_plain_question(house: House, scope: dict[str, str]) -> None:
    """Without this, legs that never answer would pass for walls."""
    made = house.fill(OURS, scope)
    house.settle()
    question = {"query": "Mara Lind walnut recipe in Lisbon", "top_k": 200, "explain": True}
    found = house.client.post("/v1/search", json={**question, **scope}).json()
    ours = [row for row in house.rows().values() if row.tenant == OURS]
    hits = {hit["id"] for hit in found["items"]}
    assert made <= hits <= {row.id for row in ours if row.is_covered(scope)}
    sources = {source for hit in found["items"] for source in hit["explain"]["sources"]}
    assert sources >= {"vector", "keyword", "entity"}


# A server that forgets to say for whom it reads -----------------------------------------------


class Forgetful(Database):
    """Opens every transaction without a tenant."""

    @contextmanager
    def transaction(  # type: ignore[explicit-override]
        self, tenant: str | None = None
    ) -> Iterator[Connection]:
        del tenant
        with super().transaction() as conn:
            yield conn

    def read(  # type: ignore[explicit-override]
        self,
        *asked: tuple[bytes, Mapping[str, Any]],
        tenant: str | None = None,
        timeout: timedelta | None = None,
    ) -> list[list[dict[str, Any]]]:
        del tenant
        return super().read(*asked, timeout=timeout)


@pytest.fixture(scope="module")
def forgetful(house: House) -> Iterator[Client]:
    """A client of ours at such a server, over the same Postgres; its tail is all of the log."""
    url = house.backend.databases.api.engine.url.render_as_string(hide_password=False)
    database = Forgetful(url, Role.API)
    reader, down = CanonicalReader(database), always(DownEngine())
    entity: Any = always(EntityReader(database, generation=house.generation("entity")))
    searcher = Searcher(
        Engines(canonical=reader, vector=down, keyword=down, entity=entity, embedder=HashEmbedder())
    )
    api = Api(url, database=database, canonical=reader, searcher=searcher)
    with api.stack:
        api.stack.callback(database.close)
        api.stack.callback(searcher.close)
        yield api.start().client(api.key(OURS))


@pytest.mark.parametrize("route", READING, ids=" ".join)
def test_without_a_tenant_the_same_queries_return_nothing(
    house: House, forgetful: Client, route: tuple[str, str]
) -> None:
    """P5, S-07, S-13: row-level security is a wall of its own."""

    @sending(30)
    @given(requests(route))
    def send(drawn: Sent) -> None:
        held = house.replenished()
        sent = addressed(drawn, house, held)
        answer = sent.ask(forgetful)
        assert answer.status_code < 500, answer.text
        assert SECRET.search(answer.text) is None
        assert not held.keys() & set(UUIDS.findall(answer.text)) - set(UUIDS.findall(sent.said))
        if answer.is_success and sent.door.shows is Extent.SCOPE:
            assert not answer.json().get("total")
            assert not answer.json().get("scope_records")

    send()


def test_that_server_would_answer_if_it_remembered(house: House, forgetful: Client) -> None:
    """It holds what it is asked for, and refuses nothing: nothing is all that it sees."""
    held = house.replenished()
    ours = next(row for row in held.values() if row.tenant == OURS and row.status == "active")
    assert house.client.get(f"/v1/memories/{ours.id}").is_success
    assert forgetful.get(f"/v1/memories/{ours.id}").status_code == 404
    listed = forgetful.get("/v1/memories", params={"user_id": "alice"})
    assert (listed.status_code, listed.json()["items"]) == (200, [])
