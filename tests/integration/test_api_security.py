"""Who is let in: keys, rights and tenants; an open server and the web pages around it."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from canonical.store import api_keys
from canonical.store.api_keys import Right
from gnomon.api import security
from gnomon.api.routes import ROUTES
from tests.support.http_server import JSON, NDJSON, Api, served, texts

MARKER = "MARKER-7Q2X"
NEW = {"text": MARKER, "user_id": "alice"}
ALICE = {"user_id": "alice"}
ID = "01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44"


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with served(database_url) as api:
        yield api


def every_route() -> list[tuple[str, str, Right]]:
    return [
        (route.method, route.path.format(id=ID, query_id=ID, name="vector"), route.rule.right)
        for route in ROUTES
        if route.rule.right is not None
    ]


def knock(api: Api, method: str, path: str, **headers: str) -> httpx.Response:
    media = NDJSON if path.endswith(":bulk") else JSON if method in ("POST", "PATCH") else {}
    content = b"{}" if media else None
    return httpx.request(
        method, api.address + path, content=content, headers={**media, **headers}, trust_env=False
    )


def test_without_a_valid_key_no_route_answers(api: Api) -> None:
    """S-14: no key, a cut one, a lengthened one, another scheme; on every route."""
    key = api.key()
    wrong = [
        {},
        {"Authorization": f"Bearer {key[:-1]}"},
        {"Authorization": f"Bearer {key}x"},
        {"Authorization": f"Basic {key}"},
        {"Authorization": key},
        {"Authorization": "Bearer"},
    ]
    api_is_closed(api)
    for method, path, _ in every_route():
        for headers in wrong:
            answer = knock(api, method, path, **headers)
            assert answer.status_code == 401, (method, path, headers)
            assert answer.json()["code"] == "unauthenticated"
            assert answer.headers["WWW-Authenticate"] == "Bearer"


def api_is_closed(api: Api) -> None:
    """Wait until a server that started without keys has seen the first one."""
    deadline = threading.Event()
    for _ in range(100):
        if knock(api, "GET", "/v1/memories?user_id=a").status_code == 401:
            return
        deadline.wait(security.FRESH_S / 20)
    pytest.fail("the server stays open though a key was made")


def test_a_key_does_only_what_its_rights_say(api: Api) -> None:
    """S-14"""
    keys = {right: api.key("t1", frozenset({right})) for right in Right}
    api_is_closed(api)
    for method, path, needed in every_route():
        for right, key in keys.items():
            answer = knock(api, method, path, Authorization=f"Bearer {key}")
            allowed = right in (needed, Right.ADMIN)
            assert (answer.status_code == 403) is not allowed, (method, path, right)
            assert answer.status_code < 500
            if not allowed:
                assert needed.value in answer.json()["detail"]


def test_a_revoked_key_is_refused_within_two_seconds(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "FRESH_S", 0.2)
    key = api.key()
    client = api.client(key)
    assert client.get("/v1/memories", params=ALICE).is_success
    api_keys.revoke(api.owner, api_keys.listed(api.owner)[0].id)
    wait = threading.Event()
    for _ in range(100):
        if client.get("/v1/memories", params=ALICE).status_code == 401:
            return
        wait.wait(0.02)
    pytest.fail("a revoked key works on")


def test_no_place_in_a_request_names_another_tenant(api: Api) -> None:
    """S-14: body, header, path, filter, an NDJSON line; nothing is written for the other."""
    one, two = api.client(api.key("t1")), api.client(api.key("t2"))
    tries = [
        one.post("/v1/memories", json={**NEW, "tenant": "t2"}),
        one.post("/v1/memories", json={"memories": [{**NEW, "tenant": "t2"}]}),
        one.post("/v1/search", json={"query": "x", **ALICE, "tenant": "t2"}),
        one.post("/v1/search", json={"query": "x", **ALICE, "filter": {"tenant": "t2"}}),
        one.get("/v1/memories", params={**ALICE, "tenant": "t2"}),
        one.delete("/v1/memories", params={**ALICE, "tenant": "t2"}),
        one.post("/v1/memories?tenant=t2", json=NEW),
    ]
    assert [answer.status_code for answer in tries] == [422] * len(tries)
    line = json.dumps({**NEW, "tenant": "t2"}).encode()
    assert one.bulk(line)[0]["error"]["field"] == "tenant"
    for header in ("X-Tenant", "X-Tenant-Id", "Tenant", "X-Gnomon-Tenant"):
        assert one.post("/v1/memories", json=NEW, headers={header: "t2"}).status_code == 201
    assert texts(one.listed()) == [MARKER] * 4
    assert two.listed()["items"] == []


def test_a_foreign_id_is_unknown_on_every_verb_and_stays_as_it_was(api: Api) -> None:
    """S-06, P5: by its id too, and the answer doesn't tell that it exists."""
    one, two = api.client(api.key("t1")), api.client(api.key("t2"))
    path = f"/v1/memories/{one.add(MARKER)['id']}"
    answers = [
        two.get(path),
        two.get(path, params={"include_deleted": "true"}),
        two.get(f"{path}/history"),
        two.patch(path, json={"text": "x"}),
        two.delete(path),
        two.post(f"{path}:supersede", json={**NEW, "text": "x"}),
    ]
    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert not any(MARKER in answer.text for answer in answers)
    assert one.get(path).json()["version"] == 1


def test_keys_of_two_tenants_are_apart(api: Api) -> None:
    """S-16: one mutation_id and one event_id in both."""
    one, two = api.client(api.key("t1")), api.client(api.key("t2"))
    made = [c.add("same", mutation_id="m-1", event_id="e-1") for c in (one, two)]
    assert made[0]["id"] != made[1]["id"]
    assert not any(answer["replayed"] for answer in made)
    raw = json.dumps({**NEW, "event_id": "e-2"}).encode()
    bulks = [c.bulk(raw, "b-1") for c in (one, two)]
    assert bulks[0][0]["id"] != bulks[1][0]["id"]


def test_requests_of_two_tenants_at_once_never_mix(database_url: str) -> None:
    """S-07: over one pool; some of them fail in mid transaction."""
    with served(database_url) as api:
        clients = {tenant: api.client(api.key(tenant)) for tenant in ("t1", "t2")}
        ids = {t: c.add(f"{t} first", event_id="e-1")["id"] for t, c in clients.items()}

        def work(n: int) -> None:
            tenant = f"t{n % 2 + 1}"
            client = clients[tenant]
            client.add(f"{tenant} {n}")
            conflict = {**NEW, "text": f"{tenant} {n}", "event_id": "e-1"}
            assert client.post("/v1/memories", json=conflict).status_code == 409
            seen = [*texts(client.listed()), *texts(client.search("first", top_k=200))]
            assert {text.split()[0] for text in seen} == {tenant}
            assert client.get(f"/v1/memories/{ids[f't{(n + 1) % 2 + 1}']}").status_code == 404

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(64)))


# A server without keys -----------------------------------------------------------------------


def test_an_open_server_answers_its_own_machine_for_the_default_tenant(api: Api) -> None:
    """S-14"""
    assert api.client().add()["version"] == 1
    assert api.client(api.key("default")).listed()["total"] == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_no_web_page_reaches_an_open_server(api: Api, headers: dict[str, str]) -> None:
    """S-14: on no path at all, described ones or not."""
    paths = [(method, path) for method, path, _ in every_route()]
    beside = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/nope"]
    for method, path in [*paths, *(("GET", one) for one in beside)]:
        answer = knock(api, method, path, **headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
    assert api.client().listed()["items"] == []


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_what_a_form_can_send_is_refused(api: Api, media_type: str | None) -> None:
    """A-04: such a request crosses origins without being asked for leave."""
    headers = {} if media_type is None else {"Content-Type": media_type}
    for path in ("/v1/memories", "/v1/memories:bulk", "/v1/search"):
        answer = httpx.post(
            api.address + path, content=json.dumps(NEW), headers=headers, trust_env=False
        )
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert api.client().listed()["items"] == []


def test_no_answer_lets_another_origin_read_it(api: Api) -> None:
    for method, path, _ in every_route():
        answer = knock(api, method, path, Origin=api.address)
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        preflight = knock(api, "OPTIONS", path, Origin=api.address)
        assert preflight.status_code == 405


def test_an_open_server_trusts_no_address_that_a_proxy_passes_on(api: Api) -> None:
    """S-14: a request that came from elsewhere through a proxy on this machine."""
    answer = knock(api, "GET", "/v1/memories?user_id=a", **{"X-Forwarded-For": "203.0.113.9"})
    assert answer.status_code == 403


# Ids in every spelling -----------------------------------------------------------------------

IDS = ["a-b", "a b", "a/b c", "../a", "o'brien", "x:y", 'a"b', "用户1", "AND", "-1", "a.b", "%"]
IDS += [
    "_",
    "a_b",
    "a%b",
    "'; DROP TABLE memory; --",
    "\\",
    "{a}",
    "é",
    "e\u0301",
    "A-B",
    "x" * 256,
]


def test_each_id_finds_exactly_its_own_record(api: Api) -> None:
    """S-01, S-08: in lists, searches and deletes; % and _ match only themselves."""
    client = api.client()
    for one in IDS:
        client.add(f"of {one}", user_id=one)
    for one in IDS:
        assert texts(client.listed(user_id=one)) == [f"of {one}"]
        assert texts(client.search("of", user_id=one)) == [f"of {one}"]
    for n, one in enumerate(IDS):
        deleted = client.delete("/v1/memories", params={"user_id": one}).json()
        assert deleted["count"] == 1, one
        left = sum(client.listed(user_id=other)["total"] for other in IDS)
        assert left == len(IDS) - n - 1


WRONG = ["*", "alice*", "?", "a?b", " alice", "alice ", "alice\n", "\t", "", "x" * 257, "a\x00b"]


@pytest.mark.parametrize("name", ["user_id", "agent_id", "run_id"])
def test_an_id_with_a_wildcard_or_padding_is_refused_by_every_verb(api: Api, name: str) -> None:
    """S-01, S-11: and alice's record stays."""
    client = api.client()
    client.add(MARKER, user_id="alice", agent_id="alice", run_id="alice")
    for value in WRONG:
        scope = {name: value}
        answers: list[httpx.Response] = [
            client.post("/v1/memories", json={"text": "x", **scope}),
            client.post("/v1/search", json={"query": "x", **scope}),
            client.get("/v1/memories", params=scope),
            client.delete("/v1/memories", params=scope),
        ]
        assert [answer.status_code for answer in answers] == [422] * 4, value
        assert {answer.json()["field"] for answer in answers} == {name}, value
        assert not any(MARKER in answer.text for answer in answers)
    assert client.listed()["total"] == 1


@pytest.mark.parametrize("scope", [{}, {"user_id": ""}, {"why": "no scope"}])
def test_a_scope_left_out_is_never_everything(api: Api, scope: dict[str, str]) -> None:
    """S-05"""
    client = api.client()
    client.add(MARKER)
    lists = {name: value for name, value in scope.items() if name != "why"}
    answers: list[Any] = [
        client.get("/v1/memories", params=lists),
        client.delete("/v1/memories", params=scope),
        client.post("/v1/search", json={"query": "x", **lists}),
    ]
    for null in ("null", "{}", "[]"):
        raw = f'{{"query": "x", "user_id": {null}}}'
        answers.append(client.raw("POST", "/v1/search", raw))
    assert {answer.status_code for answer in answers} == {422}
    assert client.listed()["total"] == 1


def test_a_delete_by_one_id_takes_all_that_hold_it_and_nothing_else(api: Api) -> None:
    """S-12, S-15: ids that are named must be equal, ids that are not are free."""
    client = api.client()
    client.add("A", user_id=None, agent_id="g")
    client.add("B", user_id="alice", agent_id="g")
    client.add("C", user_id="bob", run_id="r")
    assert client.delete("/v1/memories", params={"user_id": "alice"}).json()["count"] == 1
    assert texts(client.get("/v1/memories", params={"agent_id": "g"}).json()) == ["A"]
    assert texts(client.listed(user_id="bob", run_id="r")) == ["C"]
