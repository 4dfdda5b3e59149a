"""The log of a process: ids to follow a request by, and no word of any memory."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NoReturn

import pytest

from canonical.domain.log import Page
from canonical.errors import EngineMismatchError, EngineUnavailableError, PoisonError
from canonical.store.database import Database, Role
from projectors.protocol import Applied
from tests.support.http_server import Api, Client, served, served_apart
from tests.support.log import Log
from tests.support.logs import written
from tests.support.postgres import Server
from workers.runner import Runner

FORMS: Final = ("json", "text")
# Each in a place that a caller fills, or an engine quotes; the log may break at none of them.
WORD: Final = "quetzal"
HOSTILE: Final = (
    WORD,
    f"%s {WORD} %d %(x)s {{}}",
    f'{WORD}\n\r\t\x1b[2J\u2028{{"level":1}}',
    f"\ud800{WORD}",
)


class Broken:
    """An engine, a searcher or a projector that fails and quotes what it was given."""

    def __init__(self, error: Callable[[str], Exception], said: str = WORD) -> None:
        self._error, self._said = error, said

    def search(self, _query: object) -> NoReturn:
        raise self._error(self._said) from KeyError(self._said)

    def apply(self, page: Page) -> Applied:
        said = [record.text for record in page.records.values()]
        raise self._error(f"refused: {said}")


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Literal["text", "json"]:
    return request.param  # type: ignore[no-any-return]


def post(client: Client, path: str, body: object) -> None:
    raw = json.dumps(body).encode()
    client.post(path, content=raw, headers={"Content-Type": "application/json"})


def fill_everything(client: Client, said: str) -> None:
    fields: dict[str, Any] = {"user_id": said, "metadata": {said: said}, "mutation_id": said}
    post(client, "/v1/memories", {"text": said, "user_id": "alice"})
    post(client, "/v1/memories", {"text": said, **fields, said: said})
    post(client, "/v1/memories", {"memories": [{"text": said, "event_id": said}]})
    post(client, "/v1/search", {"query": said, "user_id": "alice", "filter": {said: said}})
    post(client, "/v1/search", {"query": WORD, "user_id": "alice"})
    client.post("/v1/memories:bulk", content=b'{"text": "%s", broken' % WORD.encode())
    for path in (f"/{WORD}", f"/v1/memories/{WORD}", f"/v1/memories?user_id={WORD}&{WORD}=1"):
        client.request("GET", path, headers={"X-Request-Id": f"{WORD} {WORD}"})
        client.request(WORD.upper(), path)


@pytest.mark.parametrize("said", HOSTILE)
def test_no_request_leaves_its_words_in_the_log(
    database_url: str, form: Literal["text", "json"], said: str
) -> None:
    searcher: Any = Broken(ValueError, said.replace("\ud800", ""))
    with written(form) as log, served(database_url, searcher=searcher) as api:
        client = api.client()
        client.headers["Connection"] = "close"  # as the server does, after a fault
        fill_everything(client, said)
    assert WORD not in log.text.lower()
    assert "ValueError at test_logs.py" in log.text, "a fault is told by its class and its places"
    assert "KeyError" in log.text
    if form == "json":
        assert len(log.lines("gnomon.access")) == 9, "a method that is none is no request"


@pytest.mark.parametrize(
    "error", [ValueError, EngineUnavailableError, EngineMismatchError, PoisonError]
)
def test_no_projector_leaves_what_its_engine_quotes(
    open_database: Callable[[Role], Database],
    form: Literal["text", "json"],
    error: Callable[[str], Exception],
) -> None:
    held = Log(open_database)
    held.add(f"{WORD} likes tea")
    runner = Runner("vector", held.feed(), Broken(error))
    with written(form) as log:
        runner.start()
        runner.wait_until(lambda: bool(runner.counts.failures or runner.counts.halts), 20)
        runner.stop()
    assert WORD not in log.text
    assert "vector" in log.text


def test_what_libraries_say_is_left_out_but_for_what_is_known_to_be_harmless() -> None:
    with written("json") as log:
        logging.getLogger("opensearch").warning("POST _bulk %s", WORD, exc_info=ValueError(WORD))
        logging.getLogger("openai").error(f"{WORD} refused")  # noqa: G004
        logging.getLogger("httpx").info("POST %s", WORD)
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        logging.getLogger("search").error("failed", exc_info=EngineUnavailableError(WORD))
    assert WORD not in log.text
    first, second, third, ours = log.lines()
    assert (ours["message"], ours["error"]) == (
        "failed",
        ["EngineUnavailableError (engine_unavailable)"],
    )
    assert re.fullmatch(r"said at test_logs\.py:\d+; left out, as .*", first["message"])
    assert first["error"] == ["ValueError"]
    assert second["logger"] == "openai"
    assert third["message"] == "Invalid HTTP request received."


def test_a_request_is_one_line_with_its_id_its_route_and_nothing_of_its_query(
    database_url: str,
) -> None:
    with written("json", "info") as log, served(database_url) as api:
        client = api.client()
        client.get("/healthz")
        client.get("/v1/memories/nonsense?x=1", headers={"X-Request-Id": "mine-1"})
        found = client.search("tea")
    access = log.lines("gnomon.access")
    assert [(one["method"], one["route"], one["status"]) for one in access] == [
        ("GET", "/healthz", 200),
        ("GET", "/v1/memories/{id}", 422),
        ("POST", "/v1/search", 200),
    ]
    assert access[1]["request_id"] == "mine-1"
    assert access[2]["query_id"] == found["query_id"]
    assert all(one["seconds"] >= 0 and one["level"] == "info" for one in access)


class Saying:
    """A searcher that says something on its way."""

    def search(self, _query: object) -> NoReturn:
        logging.getLogger("search.legs").error("a leg is %s", "gone", extra={"shard": 3})
        raise EngineUnavailableError("gone")


def test_what_is_said_in_the_course_of_a_request_carries_its_id(
    database_url: str, form: Literal["text", "json"]
) -> None:
    """Also on the threads that do its work."""
    searcher: Any = Saying()
    with written(form) as log, served(database_url, searcher=searcher) as api:
        asked = {"query": "tea", "user_id": "alice"}
        api.client().post("/v1/search", json=asked, headers={"X-Request-Id": "mine"})
    if form == "text":
        assert "ERROR search.legs: a leg is gone [request_id=mine]" in log.text.splitlines()
        return
    (line,) = log.lines("search.legs")
    assert {name: line[name] for name in line.keys() - {"time"}} == {
        "level": "error",
        "logger": "search.legs",
        "message": "a leg is gone",
        "request_id": "mine",
        "shard": 3,
    }
    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


IDS: Final = {
    "abc-1.2_X": True,
    "a" * 64: True,
    "a" * 65: False,
    "with space": False,
    "": False,
    "a/b": False,
}


@pytest.fixture(scope="module")
def api(postgres: Server, template: str) -> Iterator[Api]:
    with served_apart(postgres, template) as held:
        yield held


@pytest.mark.parametrize("given", IDS)
@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/v1/memories", "/metrics"])
def test_every_answer_names_its_request(api: Api, path: str, given: str) -> None:
    with Client(api.address) as client:
        answer = client.get(path, headers={"X-Request-Id": given})
    said = answer.headers["X-Request-Id"]
    assert (said == given) is IDS[given]
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", said)
    if not answer.is_success:
        assert answer.json()["request_id"] == said


def test_the_answer_to_a_fault_names_its_request_as_well(database_url: str) -> None:
    broken: Any = Broken(ValueError)
    with written("json") as log, served(database_url, searcher=broken) as api:
        client = api.client()
        answer = client.post("/v1/search", json={"query": "tea", "user_id": "alice"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["X-Request-Id"]
    (fault,) = log.lines("uvicorn.error")
    assert fault["request_id"] == answer.headers["X-Request-Id"]
    assert [one.partition(" at ")[0] for one in fault["error"]] == ["ValueError", "KeyError"]
