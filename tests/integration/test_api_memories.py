"""The routes of memories over a real server and a real Postgres."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text as sql

from canonical.domain.positions import from_token
from canonical.domain.records import Trust
from canonical.store.api_keys import Right
from canonical.store.database import Role
from tests.support.http_server import JSON, Api, Client, served, served_apart, texts
from tests.support.postgres import Server

NEW = {"text": "Mara is allergic to walnuts", "user_id": "u1"}
LIMIT = 64 * 1024


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


def events(api: Api) -> int:
    with api.owner.transaction() as conn:
        conn.execute(sql("SET LOCAL ROLE gnomon_projector"))
        return int(conn.execute(sql("SELECT count(*) FROM outbox")).scalar_one())


def problem(answer: Any) -> tuple[int, str, str | None]:
    """Give an answer's status, code and field, once it is a problem document."""
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["hint"]
    return answer.status_code, said["code"], said.get("field")


def test_a_memory_goes_through_its_life(api: Api, client: Client) -> None:
    """L-17: after a delete `get` is 404, or its tombstone when asked for; the history is whole."""
    made = client.add("likes tea", metadata={"n": 1})
    path = f"/v1/memories/{made['id']}"
    assert (made["version"], made["status"], made["replayed"]) == (1, "active", False)
    assert client.get(path).json()["text"] == "likes tea"

    changed = client.patch(path, json={"text": "likes coffee", "expected_version": 1}).json()
    assert (changed["version"], changed["id"]) == (2, made["id"])
    newer = client.post(f"{path}:supersede", json={"text": "likes water", "user_id": "alice"})
    assert newer.status_code == 201
    assert newer.json()["superseded"]["status"] == "superseded"
    assert texts(client.listed()) == ["likes water"]
    both = from_token(newer.json()["position"]).shards
    older = from_token(newer.json()["superseded"]["position"]).shards
    assert all(both[shard] >= pos for shard, pos in older.items())

    gone = client.delete(path, params={"why": "asked to", "expected_version": 3}).json()
    assert (gone["version"], gone["status"]) == (4, "deleted")
    assert problem(client.get(path)) == (404, "not_found", None)
    shown = client.get(path, params={"include_deleted": "true"}).json()
    assert shown["tombstone"]["why"] == "asked to"
    versions = client.get(f"{path}/history").json()["items"]
    assert [(v["version"], v["op"], v["text"]) for v in versions] == [
        (1, "add", "likes tea"),
        (2, "update", "likes coffee"),
        (3, "supersede", "likes coffee"),
        (4, "delete", "likes coffee"),
    ]
    assert {v["by"] for v in versions} == {"local"}
    assert api.noted.hints == 4


def test_what_was_sent_comes_back_as_it_was(client: Client) -> None:
    """W-10: code points, white space, and an instant in another offset."""
    text = "Hello 👋 𠮷野家 👩‍👩‍👧 e\u0301 שלום\t\r\n ."
    fields: dict[str, Any] = {
        "metadata": {"k": [1, 2.5, None, True, {"é": "\u200d"}]},
        "agent_id": "a/b c",
        "run_id": "%_x",
        "actor_id": "用户1",
        "role": "user",
        "attributed_to": "assistant",
        "source_message_ids": ["m-1"],
        "source_role": "tool",
        "source_trust": "tool",
        "event_id": "e-1",
        "event_part": 3,
    }
    made = client.add(text, valid_from="2026-03-01T00:30:00+08:00", **fields)
    read = client.get(f"/v1/memories/{made['id']}").json()
    assert read["text"] == text
    assert read["valid_from"] == "2026-02-28T16:30:00Z"
    assert {name: read[name] for name in list(fields)[:6]} == dict(list(fields.items())[:6])
    assert read["provenance"] == dict(list(fields.items())[6:])


@pytest.mark.parametrize("verb", ["get", "history", "patch", "delete", "supersede"])
def test_a_wrong_id_is_404_or_422_on_every_verb(refusing: Client, verb: str) -> None:
    """A-01: never 5xx, never 200 with nothing."""

    def ask(memory_id: str) -> Any:
        path = f"/v1/memories/{memory_id}"
        match verb:
            case "get":
                return refusing.get(path)
            case "history":
                return refusing.get(f"{path}/history")
            case "patch":
                return refusing.patch(path, json={"text": "x"})
            case "delete":
                return refusing.delete(path)
            case _:
                return refusing.post(f"{path}:supersede", json=NEW)

    assert problem(ask(str(uuid4())))[:2] == (404, "not_found")
    for wrong in ("GPK0F14H", "%2e%2e%2fx", "%00", "x" * 10_000, "%F0%9F%91%8B", "a%3Ab", "%20"):
        assert problem(ask(wrong)) == (422, "invalid_input", "id"), wrong


def test_a_path_that_leads_nowhere_says_so(refusing: Client) -> None:
    assert problem(refusing.get("/v1/memory"))[:2] == (404, "no_such_route")
    refused = refusing.put("/v1/memories")
    assert problem(refused)[:2] == (405, "method_not_allowed")
    assert refused.headers["Allow"] == "DELETE, GET, POST"


def test_a_repeat_of_an_add_has_no_second_effect(api: Api, client: Client) -> None:
    """W-01: the answer is lost, then four in a row, then eight at once."""
    body = json.dumps({**NEW, "mutation_id": "m-1"}).encode()
    head = f"POST /v1/memories HTTP/1.1\r\nHost: {api.host}\r\nContent-Type: application/json\r\n"
    with api.socket() as lost:
        lost.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        lost.recv(1)
        lost.shutdown(socket.SHUT_RDWR)
    answers = [client.post("/v1/memories", content=body, headers=JSON) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        others = [api.client() for _ in range(8)]
        twins = pool.map(lambda c: c.post("/v1/memories", content=body, headers=JSON), others)
        answers += twins
    said = [answer.json() for answer in answers]
    assert {answer.status_code for answer in answers} == {200}
    assert len({(one["id"], one["version"], one["position"]) for one in said}) == 1
    assert all(one["replayed"] for one in said)
    assert events(api) == 1


def test_twins_that_meet_write_once(api: Api) -> None:
    """W-01, W-03: none came before the others."""
    body = {**NEW, "mutation_id": "m-1"}
    clients = [api.client() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda c: c.post("/v1/memories", json=body), clients))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert events(api) == 1


def test_equal_texts_are_not_the_same_memory(api: Api) -> None:
    """W-03: a text is never a key."""
    clients = [api.client() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda c: c.post("/v1/memories", json=NEW), clients))
    assert len({answer.json()["id"] for answer in answers}) == 8


def test_one_key_for_two_commands_is_a_conflict(api: Api, client: Client) -> None:
    """W-02"""
    first = client.post("/v1/memories", json={**NEW, "mutation_id": "m-1"}).json()
    before = events(api)
    path = f"/v1/memories/{first['id']}"
    key = {"mutation_id": "m-1"}
    others = [
        client.post("/v1/memories", json={**NEW, "text": "likes coffee", **key}),
        client.post("/v1/memories", json={**NEW, "metadata": {"a": 1}, **key}),
        client.post("/v1/memories", json={"memories": [NEW], **key}),
        client.patch(path, json={"text": "x", **key}),
        client.delete(path, params=key),
        client.delete("/v1/memories", params={"user_id": "u1", **key}),
        client.post(f"{path}:supersede", json={**NEW, **key}),
        client.bulk_answer(json.dumps(NEW).encode(), "m-1"),
    ]
    assert [problem(one)[:2] for one in others] == [(409, "mutation_conflict")] * len(others)
    assert events(api) == before
    again = client.post("/v1/memories", json={**NEW, "mutation_id": "m-1"}).json()
    assert again == {**first, "replayed": True}


def test_an_answer_ends_its_line(client: Client) -> None:
    """For whoever reads it at a terminal."""
    held = client.add()
    for answer in (
        client.get(f"/v1/memories/{held['id']}"),
        client.get(f"/v1/memories/{uuid4()}"),
        client.get("/nowhere"),
        client.get("/healthz"),
    ):
        assert answer.text.endswith("}\n")
        assert answer.text.count("\n") == 1


def test_a_supersede_by_another_scope_is_refused_and_changes_nothing(
    api: Api, client: Client
) -> None:
    """P5, P6: what alice's search shows is not changed by a record that it can't find."""
    held = client.post("/v1/memories", json={"text": "likes tea", "user_id": "alice"}).json()
    path, before = f"/v1/memories/{held['id']}", events(api)
    for ids in ({"user_id": "bob"}, {"user_id": "alice", "agent_id": "a"}, {"run_id": "alice"}):
        refused = client.post(
            f"{path}:supersede", json={"text": "likes coffee", "mutation_id": "m-1", **ids}
        )
        assert problem(refused)[:2] == (422, "scope_mismatch")
        assert "alice" not in refused.text
    assert events(api) == before
    assert client.get(path).json()["status"] == "active"
    again = {"text": "likes coffee", "user_id": "alice", "mutation_id": "m-1"}
    assert client.post(f"{path}:supersede", json=again).status_code == 201


@pytest.mark.parametrize("verb", ["patch", "delete", "supersede"])
def test_a_repeat_of_a_change_answers_as_before(api: Api, client: Client, verb: str) -> None:
    """W-01, P4: and with another version expected it is another command."""
    path = f"/v1/memories/{client.add(**NEW)['id']}"

    def change(expected: int) -> Any:
        control: dict[str, str | int] = {"mutation_id": "m-2", "expected_version": expected}
        if verb == "patch":
            return client.patch(path, json={"text": "x", **control})
        if verb == "delete":
            return client.delete(path, params=control)
        return client.post(f"{path}:supersede", json={**NEW, **control})

    first, before = change(1).json(), events(api)
    again = change(1)
    assert again.status_code == 200
    assert again.json()["replayed"] is True
    assert {**again.json(), "replayed": False} | {"superseded": None} == {
        **first,
        "superseded": None,
    }
    assert problem(change(2))[:2] == (409, "mutation_conflict")
    assert events(api) == before


def test_a_repeat_of_a_scopes_delete_spares_what_came_since(api: Api, client: Client) -> None:
    """P4: what is deleted is decided once, when the command comes first."""

    def delete(**more: str) -> Any:
        params = {"user_id": "u1", "why": "asked", "mutation_id": "m-3", **more}
        return client.delete("/v1/memories", params=params)

    gone = [client.add(**NEW)["id"] for _ in range(3)]
    first = delete()
    stays, others = client.add(**NEW)["id"], client.add(text="x", user_id="u2")["id"]
    before = events(api)
    again = delete()
    assert (first.json()["count"], first.json()["replayed"]) == (3, False)
    assert (again.status_code, again.json()) == (200, {**first.json(), "replayed": True})
    for change in ({"user_id": "u2"}, {"run_id": "r1"}, {"why": "another"}):
        assert problem(delete(**change))[:2] == (409, "mutation_conflict")
    assert events(api) == before
    assert [client.get(f"/v1/memories/{one}").status_code for one in (*gone, stays, others)] == [
        *(404, 404, 404),
        *(200, 200),
    ]
    counts = client.get("/metrics").text
    assert 'gnomon_writes_total{command="delete_scope",outcome="written"} 3.0' in counts
    assert 'gnomon_writes_total{command="delete_scope",outcome="replayed"} 3.0' in counts
    assert delete(mutation_id="m-4").json()["count"] == 1


def test_of_two_changes_of_one_version_one_is_refused_with_the_current_one(client: Client) -> None:
    """W-07"""
    path = f"/v1/memories/{client.add()['id']}"
    assert client.patch(path, json={"text": "a", "expected_version": 1}).is_success
    refused = client.patch(path, json={"text": "b", "expected_version": 1})
    assert problem(refused)[:2] == (409, "version_conflict")
    assert (refused.json()["expected"], refused.json()["current"]) == (1, 2)


def test_a_list_is_written_whole_or_not_at_all(api: Api, client: Client) -> None:
    """W-06: the place of what is wrong is named, and nothing of the list is there."""
    good = client.post("/v1/memories", json={"memories": [NEW, NEW], "mutation_id": "m-1"})
    assert good.status_code == 201
    assert [one["version"] for one in good.json()["items"]] == [1, 1]
    before = events(api)
    for bad, code, field in (
        ({**NEW, "text": " "}, 422, "memories[1].text"),
        ({**NEW, "text": "x" * (LIMIT + 1)}, 413, "memories[1].text"),
        ({**NEW, "metadata": {"user_id": "bob"}}, 422, "memories[1].metadata.user_id"),
        ({**NEW, "txet": "a"}, 422, "memories[1].txet"),
        ("x", 422, "memories[1].body"),
    ):
        answer = client.post("/v1/memories", json={"memories": [NEW, bad, NEW]})
        status, _, said = problem(answer)
        assert (status, said) == (code, field)
    wrongs: list[Any] = [[], {}, "x", None, [NEW] * 1_001]
    for wrong in wrongs:
        assert problem(client.post("/v1/memories", json={"memories": wrong}))[2] == "memories"
    assert events(api) == before
    again = client.post("/v1/memories", json={"memories": [NEW, NEW], "mutation_id": "m-1"})
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert [o["id"] for o in again.json()["items"]] == [o["id"] for o in good.json()["items"]]
    assert events(api) == before


def test_a_source_event_that_came_with_another_body_refuses_the_whole_list(
    api: Api, client: Client
) -> None:
    """P4: all or none also where the store finds the conflict, not the door."""
    event = {"event_id": "e-1"}
    client.post("/v1/memories", json={**NEW, **event})
    before = events(api)
    refused = client.post(
        "/v1/memories", json={"memories": [NEW, {**NEW, "text": "another", **event}]}
    )
    assert problem(refused)[:2] == (409, "mutation_conflict")
    assert events(api) == before
    repeated = client.post("/v1/memories", json={"memories": [NEW, {**NEW, **event}]})
    assert [one["replayed"] for one in repeated.json()["items"]] == [False, True]


TEXTS: list[tuple[Any, int]] = [
    *(("", 422), ("   ", 422), ("\n\t", 422), ("\u200b", 422), (None, 422), (42, 422)),
    *(("x" * (LIMIT + 1), 413), ("茶" * (LIMIT // 3 + 1), 413), ("x" * 1_000_000, 413)),
]


def test_a_text_that_no_one_could_find_or_hold_is_refused(api: Api, client: Client) -> None:
    """W-13, W-15: the limit is of bytes, and the message names it."""
    path = f"/v1/memories/{client.add()['id']}"
    before = events(api)
    for text, status in TEXTS:
        for answer in (
            client.post("/v1/memories", json={**NEW, "text": text}),
            client.patch(path, json={"text": text}),
            client.post(f"{path}:supersede", json={**NEW, "text": text}),
        ):
            assert problem(answer)[::2] == (status, "text"), repr(text)[:20]
            assert status != 413 or str(LIMIT) in answer.json()["detail"]
    assert problem(client.post("/v1/memories", json={"user_id": "u1"}))[2] == "text"
    assert events(api) == before
    assert client.get(path).json()["version"] == 1


def test_a_text_at_the_limit_is_stored_whole_and_can_be_changed_and_deleted(
    client: Client,
) -> None:
    """W-13"""
    for text in ("x" * (LIMIT - 1), "x" * LIMIT, "茶" * (LIMIT // 3)):
        path = f"/v1/memories/{client.add(text)['id']}"
        assert client.get(path).json()["text"] == text
        assert client.patch(path, json={"text": text[::-1]}).is_success
        assert client.delete(path).is_success


UNSOUND = [r"hi \ud83d there", r"\udc00", r"a\u0000b", r"\u0000"]


@pytest.mark.parametrize("unsound", UNSOUND)
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"text": "%s", "user_id": "u"}', "text"),
        ('{"text": "a", "user_id": "%s"}', "user_id"),
        ('{"text": "a", "user_id": "u", "metadata": {"k": "%s"}}', "metadata.k"),
        ('{"text": "a", "user_id": "u", "metadata": {"k": ["x", {"y": "%s"}]}}', "metadata.k[1].y"),
        ('{"text": "a", "user_id": "u", "metadata": {"%s": 1}}', "metadata"),
        ('{"text": "a", "user_id": "u", "mutation_id": "%s"}', "mutation_id"),
        ('{"text": "a", "user_id": "u", "source_message_ids": ["%s"]}', "source_message_ids[0]"),
    ],
)
def test_what_is_no_sound_unicode_is_refused_in_every_position(
    still: Api, refusing: Client, unsound: str, body: str, field: str
) -> None:
    """W-08, W-09: with the field named, never a driver's message, and no row anywhere."""
    answer = refusing.raw("POST", "/v1/memories", body % unsound)
    assert problem(answer) == (422, "invalid_input", field)
    assert events(still) == 0


@pytest.mark.parametrize("unsound", UNSOUND)
def test_a_query_is_judged_by_the_same_rule(refusing: Client, unsound: str) -> None:
    """W-08, W-09"""
    for body, field in (
        ('{"query": "%s", "user_id": "u"}', "query"),
        ('{"query": "a", "user_id": "%s"}', "user_id"),
        ('{"query": "a", "user_id": "u", "filter": {"k": "%s"}}', "filter.k"),
    ):
        answer = refusing.raw("POST", "/v1/search", body % unsound)
        assert problem(answer) == (422, "invalid_input", field)


SETTABLE = ["id", "version", "status", "text", "expires_at", "legal_hold", "content_hash"]


def test_metadata_sets_no_field_of_the_record(api: Api, client: Client) -> None:
    """S-03, S-04: in an add, a list, a bulk and an update; the scope never moves."""
    path = f"/v1/memories/{client.add()['id']}"
    before = events(api)
    for name in (*SETTABLE, "user_id", "tenant", "run_id", "created_at"):
        bad = {**NEW, "metadata": {name: "bob"}}
        field = f"metadata.{name}"
        assert problem(client.post("/v1/memories", json=bad))[::2] == (422, field)
        assert problem(client.patch(path, json={"metadata": {name: 1}}))[::2] == (422, field)
        assert client.bulk(json.dumps(bad).encode())[0]["error"]["field"] == field
    assert problem(client.patch(path, json={"user_id": "bob"}))[::2] == (422, "user_id")
    assert events(api) == before
    assert client.get(path).json()["user_id"] == "alice"


def test_a_row_that_was_planted_by_hand_spoils_no_other(api: Api, client: Client) -> None:
    """S-04, P12"""
    planted, plain = client.add("planted"), client.add("plain")
    with api.opened(Role.API, connections=1).transaction("default") as conn:
        conn.execute(
            sql("UPDATE memory SET metadata = CAST(:bad AS jsonb) WHERE id = CAST(:id AS uuid)"),
            {"id": planted["id"], "bad": '{"user_id": "bob", "n": 1e30, "id": 7, "text": null}'},
        )
    assert texts(client.listed()) == ["planted", "plain"]
    assert set(texts(client.search("plain"))) == {"plain", "planted"}
    assert client.get(f"/v1/memories/{plain['id']}").is_success
    assert client.listed(user_id="bob")["items"] == []


def test_a_keys_cap_on_trust_holds(api: Api) -> None:
    """P5: a source is trusted no further than the key that brings it."""
    key = api.key("t1", frozenset({Right.WRITE, Right.READ}), Trust.TOOL)
    client = api.client(key)
    for sent, held in (("user", "tool"), ("external", "external")):
        made = client.add(source_trust=sent)
        read = client.get(f"/v1/memories/{made['id']}").json()
        assert read["provenance"]["source_trust"] == held
        versions = client.get(f"/v1/memories/{made['id']}/history").json()["items"]
        assert versions[0]["by"] == "key of t1"


# Lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "5.5", "x", "", "null", '"5"'])
def test_a_limit_out_of_bounds_is_refused_with_the_bounds(refusing: Client, limit: str) -> None:
    """Q-16"""
    answer = refusing.get("/v1/memories", params={"user_id": "alice", "limit": limit})
    assert problem(answer) == (422, "invalid_input", "limit")
    assert "1 to 1000" in answer.json()["detail"]


def test_pages_show_each_record_that_lived_throughout_exactly_once(
    api: Api, client: Client
) -> None:
    """Q-17: while others are added and deleted; all have the same created_at, and a total."""
    count, added = 400, 6
    items = [{"text": f"r{n}", "user_id": "alice"} for n in range(count)]
    ids = [
        one["id"] for one in client.post("/v1/memories", json={"memories": items}).json()["items"]
    ]
    seen: list[str] = []
    later: set[str] = set()
    page = client.listed(limit=37)
    assert page["total"] == count
    gone = set(ids[::10])
    while True:
        seen += [item["id"] for item in page["items"]]
        for n in range(added):
            later.add(client.add(f"later {n}")["id"])
        for memory_id in list(gone):
            client.delete(f"/v1/memories/{memory_id}")
        if page["next_cursor"] is None:
            break
        page = client.listed(limit=37, cursor=page["next_cursor"])
        assert len(page["items"]) <= 37
    lived = set(ids) - gone
    assert len(seen) == len(set(seen))
    assert lived <= set(seen) <= set(ids) | later


def test_a_cursor_belongs_to_its_question_and_its_tenant(api: Api, client: Client) -> None:
    """Q-17, S-06"""
    for n in range(3):
        client.add(f"r{n}", metadata={"n": n})
    cursor = client.listed(limit=1)["next_cursor"]
    foreign: list[dict[str, str]] = [
        {"user_id": "bob"},
        {"user_id": "alice", "agent_id": "a"},
        {"user_id": "alice", "filter": '{"n": 1}'},
        {"user_id": "alice", "show_expired": "true"},
        {"user_id": "alice", "include_superseded": "true"},
        {"user_id": "alice", "as_of": "2026-01-01T00:00:00Z"},
    ]
    for parameters in foreign:
        answer = client.get("/v1/memories", params={**parameters, "cursor": cursor})
        assert problem(answer) == (422, "invalid_input", "cursor"), parameters
    for garbled in ("", "x", cursor[:-2], cursor[1:], "ü", cursor + "AA"):
        answer = client.get("/v1/memories", params={"user_id": "alice", "cursor": garbled})
        assert problem(answer)[::2] == (422, "cursor"), garbled
    other = api.client(api.key("t2")).get(
        "/v1/memories", params={"user_id": "alice", "cursor": cursor}
    )
    assert problem(other)[::2] == (422, "cursor")
    assert texts(client.listed(limit=1, cursor=cursor)) == ["r1"]
