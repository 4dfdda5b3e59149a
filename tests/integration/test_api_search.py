"""The routes of search over a real store: with every engine down, answers come from the tail."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text as sql

from canonical.domain.positions import Position, to_token
from tests.support.http_server import Api, Client, served, served_apart, texts
from tests.support.postgres import Server

ONE = "01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44"


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with served(database_url) as api:
        yield api


@pytest.fixture
def client(api: Api) -> Client:
    return api.client()


@pytest.fixture(scope="module")
def still(postgres: Server, template: str) -> Iterator[Api]:
    """An API that refuses everything that is asked of it here."""
    with served_apart(postgres, template) as api:
        yield api


@pytest.fixture
def refusing(still: Api) -> Client:
    return still.client()


def refused(answer: Any) -> tuple[int, str | None]:
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json().get("field")


def ask(client: Client, **fields: Any) -> Any:
    return client.post("/v1/search", json={"query": "tea", "user_id": "alice", **fields})


def test_the_header_says_how_long_each_part_took(client: Client) -> None:
    client.add("likes green tea")
    answer = ask(client, explain=True)
    said = dict(part.split(";dur=") for part in answer.headers["Server-Timing"].split(", "))
    told = answer.json()["seconds"]
    assert {"tail", "recheck", "total"} <= told.keys()
    assert {part: float(ms) for part, ms in said.items()} == pytest.approx(
        {part: seconds * 1_000 for part, seconds in told.items()}, abs=0.001
    )


def test_a_hit_is_the_record_with_its_scores(client: Client) -> None:
    made = client.add("likes green tea", metadata={"n": 1})
    found = client.search("green tea", explain=True)
    hit = found["items"][0]
    assert {k: v for k, v in hit.items() if k not in ("score", "relevance", "explain")} == (
        client.get(f"/v1/memories/{made['id']}").json()
    )
    assert 0 <= hit["score"] <= 1
    assert 0 <= hit["relevance"] <= 1
    assert hit["explain"] in found["candidates"]
    assert found["seconds"]["total"] > 0
    assert "explain" not in client.search("green tea")["items"][0]
    assert "candidates" not in client.search("green tea")


def test_an_engine_that_is_down_makes_the_answer_degraded_and_not_fail(client: Client) -> None:
    """A-05, W-05: the record is found anyway, from the canonical tail."""
    position = client.add("likes green tea")["position"]
    found = client.search("green tea", after=position)
    assert texts(found) == ["likes green tea"]
    assert {(one["leg"], one["reason"]) for one in found["degraded"]} == {
        (leg, "failed") for leg in ("vector", "keyword", "entity")
    }


@pytest.mark.parametrize("top_k", [-1, 201, "5", None, 1.5, True, [], 10**30])
def test_a_top_k_out_of_bounds_is_refused_with_the_bounds(refusing: Client, top_k: Any) -> None:
    """Q-16"""
    answer = ask(refusing, top_k=top_k)
    assert refused(answer) == (422, "top_k")
    assert "0 to 200" in answer.json()["detail"]


def test_top_k_at_its_edges_and_left_out_is_said_in_the_answer(client: Client) -> None:
    """Q-16"""
    for n in range(15):
        client.add(f"tea {n}")
    sizes = {k: client.search("tea", top_k=k) for k in (0, 1, 200)}
    assert {k: len(found["items"]) for k, found in sizes.items()} == {0: 0, 1: 1, 200: 15}
    assert all(found["top_k"] == k for k, found in sizes.items())
    default = client.search("tea")
    assert (default["top_k"], len(default["items"]), default["threshold"]) == (10, 10, 0.0)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, "0.5", None, True])
def test_a_threshold_is_a_share(refusing: Client, threshold: Any) -> None:
    assert refused(ask(refusing, threshold=threshold)) == (422, "threshold")
    for literal in ("NaN", "1e400", "Infinity"):
        raw = f'{{"query": "a", "user_id": "u", "threshold": {literal}}}'
        assert refused(refusing.raw("POST", "/v1/search", raw)) == (400, "body")


def test_an_answer_without_hits_says_how_many_records_the_scope_has(client: Client) -> None:
    """S-17, Q-18: a misspelt scope can be told from an empty answer."""
    client.add("likes tea", agent_id="agent-7")
    found = client.search("tea", user_id="alcie")
    assert (found["items"], found["scope_records"]) == ([], 0)
    none = client.search("tea", filter={"n": 1})
    assert (none["items"], none["scope_records"]) == ([], 1)


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 422), (" \t\n", 422), ("\u200b", 422), (None, 422), (7, 422), ("a " * 5_000, 422)],
)
def test_a_query_without_a_question_is_refused(refusing: Client, query: Any, status: int) -> None:
    """Q-11"""
    assert refused(ask(refusing, query=query)) == (status, "query")


@pytest.mark.parametrize("query", ["???", "！！", "的", "🙂", "a" * 8_192, "%", "*"])  # noqa: RUF001
def test_a_query_without_words_never_shows_the_whole_scope_as_matching(
    client: Client, query: str
) -> None:
    """Q-11: whatever is nearest may come, but nothing counts as having its words."""
    for n in range(5):
        client.add(f"tea {n}")
    found = client.search(query, explain=True)
    assert all("keyword" not in hit["explain"]["legs"] for hit in found["items"])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"fitler": {"n": 1}}, "fitler"),
        ({"tenant": "t2"}, "tenant"),
        ({"limit": 3}, "limit"),
        ({"filter": {"priority": {"approx": 3}}}, "filter.priority.approx"),
        ({"filter": {"user_id": "bob"}}, "filter.user_id"),
        ({"filter": {"tenant": "t2"}}, "filter.tenant"),
        ({"filter": {"AND": [{"OR": [{"NOT": {"agent_id": "x"}}]}]}}, None),
        ({"filter": []}, "filter"),
        ({"filter": "x"}, "filter"),
        ({"show_expired": "true"}, "show_expired"),
        ({"explain": 1}, "explain"),
        ({"as_of": "yesterday"}, "as_of"),
        ({"as_of": "2026-03-01T00:00:00"}, "as_of"),
        ({"user_id": None}, "user_id"),
        ({"user_id": "*"}, "user_id"),
        ({"user_id": ["alice"]}, "user_id"),
        ({"user_id": {"like": "%"}}, "user_id"),
        ({"agent_id": "a?"}, "agent_id"),
    ],
)
def test_what_a_search_does_not_know_is_refused_by_name(
    refusing: Client, fields: dict[str, Any], field: str | None
) -> None:
    """S-01, S-02, S-05, S-09: nothing is ignored, so that nothing runs wider than asked."""
    status, said = refused(ask(refusing, **fields))
    assert status == 422
    assert field is None or said == field


def test_a_filter_nested_a_thousand_deep_is_refused(refusing: Client) -> None:
    """A-04"""
    deep = '{"NOT":' * 1_000 + '{"a":1}' + "}" * 1_000
    answer = refusing.raw("POST", "/v1/search", f'{{"query":"a","user_id":"u","filter":{deep}}}')
    assert refused(answer)[0] in (400, 422)
    listed = refusing.get("/v1/memories", params={"user_id": "u", "filter": deep})
    assert refused(listed)[0] in (400, 422)


FILTERS: list[tuple[Any, set[str]]] = [
    ({}, {"a", "b", "ab", "none"}),
    ({"tag": "a"}, {"a", "ab"}),
    ({"AND": [{"tag": "a"}, {"tag": "b"}]}, {"ab"}),
    ({"OR": [{"tag": "a"}, {"tag": "b"}]}, {"a", "b", "ab"}),
    ({"NOT": {"tag": "a"}}, {"b", "none"}),
    ({"tag": {"ne": "a"}}, {"b", "none"}),
    ({"tag": {"in": ["b", "x"]}}, {"b", "ab"}),
    ({"tag": {"contains": "b"}}, {"b", "ab"}),
    ({"tag": {"exists": False}}, {"none"}),
    ({"price": {"gt": 10, "lt": 20}}, {"b"}),
    ({"price": {"gte": 10, "lte": 15}}, {"a", "b"}),
    ({"price": 10.0}, {"a"}),
    ({"price": "10"}, set()),
]


def test_filters_mean_the_same_in_lists_and_searches(client: Client) -> None:
    """S-09, S-10"""
    client.add("a", metadata={"tag": "a", "price": 10})
    client.add("b", metadata={"tag": ["b"], "price": 15})
    client.add("ab", metadata={"tag": ["a", "b"], "price": 20})
    client.add("none")
    for where, expected in FILTERS:
        listed = client.listed(filter=json.dumps(where))
        assert set(texts(listed)) == expected, where
        assert listed["total"] == len(expected)
        assert set(texts(client.search("x", filter=where))) == expected, where


def test_what_is_hidden_is_shown_when_asked_for_in_lists_and_searches(client: Client) -> None:
    client.add("past", valid_to="2026-01-01T00:00:00Z")
    client.add("expired", expires_at="2026-01-01T00:00:00Z")
    old = client.add("old", valid_from="2025-06-01T00:00:00Z")
    body = {"text": "new", "user_id": "alice", "valid_from": "2025-09-01T00:00:00Z"}
    client.post(f"/v1/memories/{old['id']}:supersede", json=body)
    questions: list[tuple[dict[str, Any], set[str]]] = [
        ({}, {"new"}),
        ({"show_expired": True}, {"new", "expired"}),
        ({"include_superseded": True, "as_of": "2025-07-01T00:00:00Z"}, {"old", "past"}),
        ({"as_of": "2025-10-01T00:00:00+08:00"}, {"past", "new"}),
    ]
    for fields, expected in questions:
        parameters = {k: str(v).lower() if v is True else v for k, v in fields.items()}
        assert set(texts(client.listed(**parameters))) == expected, fields
        assert set(texts(client.search("x", **fields))) == expected, fields


@pytest.mark.parametrize("after", ["", "x", 7, "ü", "AQAAAAAAAAABAAcAAAAAAAAAKrMmDqo"[:-1], {}])
def test_a_position_that_is_none_is_refused(refusing: Client, after: Any) -> None:
    assert refused(ask(refusing, after=after)) == (422, "after")


def test_a_position_of_another_life_of_the_log_is_refused(still: Api, refusing: Client) -> None:
    """P7, P13: what it stood for may be gone, and a search can't promise to know of it."""
    for epoch in (still.services.epoch - 1, still.services.epoch + 1):
        answer = ask(refusing, after=to_token(Position(epoch, {0: 1})))
        assert refused(answer) == (422, "after")
        assert "restore" in answer.json()["detail"]


def test_a_position_that_the_log_has_not_reached_is_not_answered(
    still: Api, refusing: Client
) -> None:
    """P7: 503 rather than an answer that lacks the write."""
    answer = ask(refusing, after=to_token(Position(still.services.epoch, {3: 10**9})))
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert answer.headers["Retry-After"] == "1"


def test_what_became_of_the_hits_is_kept_for_the_keys_tenant(api: Api, client: Client) -> None:
    memory_id = client.add("likes tea")["id"]
    query_id = client.search("tea")["query_id"]
    path = f"/v1/queries/{query_id}:used"
    answer = client.post(path, json={"packed": [memory_id], "used": []})
    assert answer.json() == {"query_id": query_id, "packed": 1, "used": 0}
    assert [str(one[1]) for one in api.noted.used] == [query_id]
    with api.opened(api.services.database.role, connections=1).transaction("default") as conn:
        kept = conn.execute(sql("SELECT candidates FROM query_event WHERE keep")).scalar_one()
    assert kept[0]["memory_id"] == memory_id
    assert kept[0]["packed"] is True
    bads: list[Any] = [{"packed": "x"}, {"packed": ["x"]}, {"usde": []}, {"used": [ONE] * 1_001}]
    for bad in bads:
        assert client.post(path, json=bad).status_code == 422
    assert client.post("/v1/queries/x:used", json={}).status_code == 422
