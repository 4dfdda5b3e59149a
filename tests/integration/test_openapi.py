"""The API's description, held against the server: examples are accepted, answers are as said."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from canonical.store import projections
from canonical.store.tables import parked, watermark
from gnomon.api import examples, openapi
from tests.support import described, json_schema
from tests.support.http_server import Api, Client, served, served_apart
from tests.support.postgres import Server

Json = dict[str, Any]
DOCUMENT = openapi.document("test")
OPERATIONS = list(described.operations(DOCUMENT))
BY_OPERATION = pytest.mark.parametrize(
    ("method", "path", "operation"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS]
)
MEMORY_ID = "01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44"
MARA = {"user_id": "mara"}


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with served(database_url) as api:
        yield api


@pytest.fixture
def client(api: Api) -> Client:
    return as_described(api.client())


@pytest.fixture(scope="module")
def still(postgres: Server, template: str) -> Iterator[Client]:
    """A client of an API that refuses everything that is asked of it here."""
    with served_apart(postgres, template) as api:
        yield as_described(api.client())


def as_described(client: Client) -> Client:
    """Hold every answer that the client gets against the description."""

    def check(answer: httpx.Response) -> None:
        answer.read()
        assert described.faults(DOCUMENT, answer) == [], answer.text

    client.event_hooks = {"response": [check]}
    return client


def test_the_served_description_is_the_one_that_is_tested(still: Client) -> None:
    assert still.get("/openapi.json").json() == DOCUMENT


@BY_OPERATION
def test_an_operation_says_what_it_does_shows_it_and_how_it_fails(
    method: str, path: str, operation: Json
) -> None:
    assert operation["summary"], path
    assert operation["description"], path
    if method in ("POST", "PATCH") and not path.endswith((":pause", ":resume")):
        assert operation["requestBody"]["content"]
    if path != openapi.ALIVE_PATH:  # it asks nobody, so it can't fail
        failed = operation["responses"]["default"]["content"]["application/problem+json"]
        assert failed["schema"] == {"$ref": "#/components/schemas/Problem"}
    assert {status for status in operation["responses"] if status.startswith("2")}


def bodies(operation: Json) -> Iterator[tuple[str, Any]]:
    """Give the media type and the value of each example of a body; of none, nothing."""
    for media_type, content in operation.get("requestBody", {"content": {}})["content"].items():
        for example in content["examples"].values():
            yield media_type, example["value"]


def parameters(operation: Json, place: str) -> dict[str, Any]:
    """Return an example of each parameter that has one, else its default."""
    found = {}
    for one in operation.get("parameters", []):
        value = one.get("example", one["schema"].get("default"))
        if one["in"] == place and value is not None:
            found[one["name"]] = value if isinstance(value, str) else json.dumps(value)
    return found


@BY_OPERATION
def test_what_the_description_shows_as_a_request_is_accepted(
    client: Client, method: str, path: str, operation: Json
) -> None:
    """Each body alone and with every parameter, on the memory that the examples speak of."""
    sent = list(bodies(operation)) or [("", None)]
    needed = MARA if path == "/v1/memories" and method in ("GET", "DELETE") else {}
    for query in (needed, parameters(operation, "query")):
        for media_type, value in sent:
            made = client.add("Mara is allergic to walnuts", **MARA)["id"]
            known = json.dumps([path_of(path, operation), value]).replace(MEMORY_ID, made)
            here, body = json.loads(known)
            answer = client.request(
                method,
                here,
                params=query,
                content=None if body is None else as_bytes(body),
                headers={"Content-Type": media_type} if media_type else {},
            )
            assert str(answer.status_code) in operation["responses"], answer.text
            assert answer.is_success or path == "/readyz", answer.text


def path_of(path: str, operation: Json) -> str:
    places = parameters(operation, "path")
    return path.format(**{name: quote(value, safe="") for name, value in places.items()})


def as_bytes(body: Any) -> bytes:
    return (body if isinstance(body, str) else json.dumps(body)).encode()


@BY_OPERATION
def test_every_refusal_is_a_problem_as_described(
    api: Api, method: str, path: str, operation: Json
) -> None:
    """A-01, A-04: an unknown parameter, a broken body, an unknown field, a wrong type, no key."""
    client, here = as_described(api.client(api.key("t1"))), path_of(path, operation)
    if path == openapi.ALIVE_PATH:
        return
    media_type = next(iter(operation.get("requestBody", {"content": [""]})["content"]))
    headers = {"Content-Type": media_type} if media_type else {}
    unknown = client.request(method, here, params={"fitler": "x"}, content=b"{}", headers=headers)
    if path not in ("/readyz", "/metrics"):
        assert (unknown.status_code, unknown.json()["field"]) == (422, "fitler")
        anonymous = as_described(api.client("gn_nobody")).request(method, here)
        assert anonymous.status_code == 401
    if media_type == "application/json":
        for content, status in ((b"{", 400), (b'{"fitler": 1}', 422), (b"[]", 422), (b"", 400)):
            answer = client.request(method, here, content=content, headers=headers)
            assert answer.status_code == status, content
        plain = {"Content-Type": "text/plain"}
        assert client.request(method, here, content=b"{}", headers=plain).status_code == 415


EXAMPLES: dict[str, Any] = {
    shape: example["value"]
    for _, _, operation in OPERATIONS
    for content in operation.get("requestBody", {"content": {}})["content"].values()
    for shape, example in content["examples"].items()
}
# What a value of each type is not.
NOT_OF_TYPE: dict[str, Any] = {"string": 7, "integer": "7", "number": "7", "boolean": "true"}
NOT_OF_TYPE |= {"array": {"0": "x"}, "object": [], "null": 7}


def fields() -> Iterator[tuple[str, str, str, str, Any]]:
    """Give each field of each body that takes JSON, with a value that it doesn't take."""
    for method, path, operation in OPERATIONS:
        content = operation.get("requestBody", {"content": {}})["content"]
        for shape in content.get("application/json", {}).get("examples", {}):
            for name, schema in DOCUMENT["components"]["schemas"][shape]["properties"].items():
                kind = schema.get("type", "string")
                wrong = NOT_OF_TYPE[kind if isinstance(kind, str) else kind[0]]
                assert json_schema.faults(wrong, schema, DOCUMENT)
                yield method, path_of(path, operation), shape, name, wrong


@pytest.mark.parametrize(
    ("method", "path", "shape", "name", "wrong"),
    list(fields()),
    ids=[f"{f[2]}.{f[3]}" for f in fields()],
)
def test_a_value_that_is_not_of_the_described_type_is_refused_by_its_name(
    still: Client, method: str, path: str, shape: str, name: str, wrong: Any
) -> None:
    answer = still.request(method, path, json={**EXAMPLES[shape], name: wrong})
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"].split(".")[0].split("[")[0] == name


def test_answers_about_every_state_of_a_memory_are_as_described(client: Client) -> None:
    """A-10: full and empty fields, tombstones, explanations, conflicts, pages, what was refused."""
    full = {
        **examples.ADDITION,
        "agent_id": "g",
        "run_id": "r",
        "actor_id": "mara",
        "role": "user",
        "attributed_to": "user",
        "valid_from": "2026-01-01T00:00:00Z",
        "valid_to": "2099-01-01T00:00:00Z",
        "expires_at": "2099-01-01T00:00:00+02:00",
        "source_message_ids": ["m-1"],
        "source_role": "user",
        "source_trust": "user",
        "event_id": "e-1",
        "event_part": 2,
    }
    made = client.post("/v1/memories", json=full).json()
    assert client.post("/v1/memories", json=full).json()["replayed"]
    here = f"/v1/memories/{made['id']}"
    assert client.patch(here, json={"text": "x", "expected_version": 9}).status_code == 409
    client.patch(here, json={"text": "Mara eats all nuts", "valid_to": None})
    same = {name: full[name] for name in ("user_id", "agent_id", "run_id")}
    newer = client.post(f"{here}:supersede", json={"text": "Mara eats nothing", **same}).json()
    assert client.get(here).json()["superseded_by"] == newer["id"]
    client.delete(f"/v1/memories/{newer['id']}", params={"why": "asked"})
    gone = client.get(f"/v1/memories/{newer['id']}", params={"include_deleted": "true"}).json()
    assert gone["tombstone"]["why"] == "asked"
    assert client.get(f"/v1/memories/{newer['id']}").status_code == 404
    assert client.get(f"{here}/history").json()["total"] == 3
    large = client.post("/v1/memories", json={"text": "x" * 70_000, **MARA})
    assert (large.status_code, large.json()["unit"]) == (413, "bytes")


@pytest.mark.parametrize("explain", [True, False])
def test_answers_to_searches_are_as_described(client: Client, *, explain: bool) -> None:
    """A-10: with hits and without, with dropped candidates, beyond `top_k`, below the threshold."""
    for n in range(5):
        client.add(f"Mara swims on day {n}", **MARA, metadata={"n": n})
    question = {"query": "Mara swims", **MARA, "explain": explain}
    for more in ({}, {"top_k": 0}, {"top_k": 2}, {"threshold": 1}, {"filter": {"n": {"gt": 3}}}):
        found = client.post("/v1/search", json={**question, **more}).json()
        assert ("candidates" in found) is explain
    assert client.post("/v1/search", json={**question, "user_id": "nobody"}).json()["items"] == []
    page = client.get("/v1/memories", params={**MARA, "limit": 2}).json()
    cursor = {"cursor": page["next_cursor"], "limit": 2}
    assert len(client.get("/v1/memories", params={**MARA, **cursor}).json()["items"]) == 2


def test_answers_about_projections_are_as_described(api: Api, client: Client) -> None:
    """A-07, A-10: a shard that waits, one that is halted, and a parked memory."""
    memory_id = client.add("Mara swims", **MARA)["id"]
    with api.services.projector.transaction() as conn:
        generation = projections.begin_generation(conn, "vector", "schema", live=True).number
        conn.execute(parked.insert().values(parked_memory(memory_id, generation)))
        conn.execute(watermark.update().where(watermark.c.shard == 3).values(HALTED))
    (vector,) = [
        one for one in client.get("/v1/projections").json()["items"] if one["name"] == "vector"
    ]
    assert (vector["state"], vector["lag"], vector["parked"]) == ("halted", 1, 1)
    listed = client.get("/v1/projections/vector/parked").json()["items"]
    assert [one["memory_id"] for one in listed] == [memory_id]
    again = client.post("/v1/projections/vector/parked:redrive", json={"ids": [memory_id]})
    assert again.json()["count"] == 1
    assert client.get("/readyz").status_code == 503
    assert client.get("/v1/projections/nope/parked").status_code == 404


HALTED = {"halted": True, "error_code": "position_gap", "error": "a hole at 7"}


def parked_memory(memory_id: str, generation: int) -> Json:
    return {
        "tenant": "default",
        "projection": "vector",
        "generation": generation,
        "memory_id": memory_id,
        "shard": 0,
        "first_pos": 1,
        "last_pos": 1,
        "next_try": datetime(2099, 1, 1, tzinfo=UTC),
        "error_code": "model_refused",
        "error": "refused",
    }
