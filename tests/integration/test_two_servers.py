"""Two server processes over one Postgres: what one has written the other knows, and once."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.support.api_process import served_by_another_process
from tests.support.builders import at_once
from tests.support.http_server import Api, Client, served, texts

NEW = {"text": "Mara Lind swims before work", "user_id": "alice"}
LINES = b"\n".join(json.dumps({**NEW, "text": f"line {n}"}).encode() for n in range(3))
ROUNDS = 4
TWINS = 4  # at each server

Send = Callable[[Client], httpx.Response]


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with served(database_url) as api:
        yield api


@pytest.fixture
def pairs(api: Api, database_url: str) -> Iterator[list[tuple[Client, Client]]]:
    """Clients of this process's server, each with one of the other's."""
    with served_by_another_process(database_url) as other, api.stack:
        there = [api.stack.enter_context(Client(other)) for _ in range(TWINS)]
        yield [(api.client(), client) for client in there]


def added(_first: Client, n: int) -> Send:
    return lambda c: c.post("/v1/memories", json={**NEW, "mutation_id": f"m-{n}"})


def evented(_first: Client, n: int) -> Send:
    return lambda c: c.post("/v1/memories", json={**NEW, "event_id": "e", "event_part": n})


def keyed_event(_first: Client, n: int) -> Send:
    """A source event that each sends under a mutation of its own."""
    return lambda c: c.post(
        "/v1/memories",
        json={**NEW, "event_id": f"k-{n}", "mutation_id": f"m-{n}-{os.urandom(4).hex()}"},
    )


def listed(_first: Client, n: int) -> Send:
    return lambda c: c.post("/v1/memories", json={"memories": [NEW, NEW], "mutation_id": f"m-{n}"})


def bulked(_first: Client, n: int) -> Send:
    return lambda c: c.bulk_answer(LINES, f"m-{n}")


def updated(first: Client, n: int) -> Send:
    path = f"/v1/memories/{first.add()['id']}"
    return lambda c: c.patch(
        path, json={"text": "swims", "expected_version": 1, "mutation_id": f"m-{n}"}
    )


def deleted(first: Client, n: int) -> Send:
    path = f"/v1/memories/{first.add()['id']}"
    return lambda c: c.delete(path, params={"mutation_id": f"m-{n}"})


def superseded(first: Client, n: int) -> Send:
    path = f"/v1/memories/{first.add()['id']}:supersede"
    return lambda c: c.post(path, json={**NEW, "mutation_id": f"m-{n}"})


# Each with the events that one effect has, and what it needs beforehand.
VERBS: dict[Callable[[Client, int], Send], int] = {
    added: 1,
    evented: 1,
    keyed_event: 1,
    listed: 2,
    bulked: 3,
    updated: 2,
    deleted: 2,
    superseded: 3,
}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_twins_at_two_servers_have_one_effect(
    api: Api, pairs: list[tuple[Client, Client]], verb: Callable[[Client, int], Send]
) -> None:
    """W-03 a, W-01, P4: the same answer for all, and one of them is not marked as a repeat."""
    clients = [client for pair in pairs for client in pair]
    for n in range(ROUNDS):
        send = verb(clients[0], n)
        answers = at_once([partial(send, client) for client in clients])
        told = [said(answer) for answer in answers]
        assert len({json.dumps(plain) for plain, _ in told}) == 1, told
        assert sorted(replayed for _, replayed in told) == [False] + [True] * (2 * TWINS - 1)
        with api.owner.transaction() as conn:
            events = conn.exec_driver_sql("SELECT count(*) FROM outbox").scalar_one()
        assert events == (n + 1) * VERBS[verb]


def said(answer: httpx.Response | Exception) -> tuple[Any, bool]:
    """Return what an answer says but for the marks of repeats, and whether it is one."""
    assert isinstance(answer, httpx.Response), answer
    assert answer.is_success, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    for line in lines:
        line.get("summary", {}).pop("written", None)  # by this answer, rather than by its twin
    marks = list(taken(lines))
    assert len(set(marks)) == 1
    return lines, marks[0]


def taken(value: Any) -> Iterator[bool]:
    """Take the marks of repeats out of a document, and give them."""
    if isinstance(value, dict):
        mark = value.pop("replayed", None)
        if mark is not None:
            yield bool(mark)  # a bulk's last line counts them
        for inner in value.values():
            yield from taken(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from taken(inner)


def test_equal_texts_at_two_servers_are_records_of_their_own(
    pairs: list[tuple[Client, Client]],
) -> None:
    """W-03 b: a text's hash is no key."""
    clients = [client for pair in pairs for client in pair]
    answers = at_once([partial(client.post, "/v1/memories", json=NEW) for client in clients])
    ids = {said(answer)[0][0]["id"] for answer in answers}
    assert len(ids) == len(clients)
    assert {item["id"] for item in clients[0].listed()["items"]} == ids


def test_what_one_server_has_written_the_other_reads_and_finds(
    pairs: list[tuple[Client, Client]],
) -> None:
    """Q-02, Q-01, P7: right after the answer, by its id, in lists, and by the position it gave."""
    here, there = pairs[0]
    for writer, reader in ((here, there), (there, here)):
        for n in range(8):
            made = writer.add(f"the code word is heliotrope {n}", user_id=f"u{n}")
            read = reader.get(f"/v1/memories/{made['id']}")
            assert (read.status_code, read.json()["version"]) == (200, 1)
            asked = {"user_id": f"u{n}", "after": made["position"]}
            assert made["id"] in [
                hit["id"] for hit in reader.search("heliotrope", **asked)["items"]
            ]
            changed = writer.patch(f"/v1/memories/{made['id']}", json={"text": f"amaranth {n}"})
            asked["after"] = changed.json()["position"]
            assert f"amaranth {n}" in texts(reader.search("amaranth", **asked))
            assert "heliotrope" not in json.dumps(reader.listed(user_id=f"u{n}"))
            gone = writer.delete(f"/v1/memories/{made['id']}").json()
            asked["after"] = gone["position"]
            assert made["id"] not in json.dumps(reader.search("amaranth", **asked)["items"])
            assert reader.get(f"/v1/memories/{made['id']}").status_code == 404
