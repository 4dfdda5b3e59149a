"""What the API answers when a request is broken or slow, Postgres is away, or a part hangs."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy import text as sql

from canonical.store import migrate
from canonical.store.embedded import EmbeddedPostgres
from gnomon.api import wire
from gnomon.api.routes import ROUTES
from gnomon.api.services import ApiSettings
from gnomon.api.uploads import Body
from search.answer import Answer
from search.query import Query
from tests.support.builders import until
from tests.support.http_server import JSON, Api, Client, served, served_apart
from tests.support.postgres import Server

ALICE = {"user_id": "alice"}
NEW = {"text": "likes tea", **ALICE}
BODY = json.dumps(NEW).encode()
WAIT_S = 20


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with served(database_url) as api:
        yield api


@pytest.fixture(scope="module")
def still(postgres: Server, template: str) -> Iterator[Api]:
    """An API that refuses everything that is asked of it here."""
    with served_apart(postgres, template) as api:
        yield api


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["Content-Type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def holds_nothing(api: Api) -> bool:
    with api.owner.transaction() as conn:
        return conn.execute(sql("SELECT 1 FROM memory LIMIT 1")).first() is None


# Broken requests ------------------------------------------------------------------------------

MALFORMED = (400, "malformed_body")
INVALID = (422, "invalid_input")
BROKEN: list[tuple[bytes, tuple[int, str], str]] = [
    (b"", MALFORMED, "is empty"),
    (b"not json", MALFORMED, "line 1, column 1"),
    (b'{"text": "a",\n "user_id": }', MALFORMED, "line 2"),
    (b'{"text": "a", "text": "b", "user_id": "u"}', MALFORMED, "text: stands twice"),
    (b'{"text": "a", "user_id": "u", "metadata": {"k": 1, "k": 2}}', MALFORMED, "k: stands twice"),
    (b'{"text": "a", "user_id": "u", "metadata": {"n": NaN}}', MALFORMED, "NaN"),
    (b'{"text": "a", "user_id": "u", "metadata": {"n": -Infinity}}', MALFORMED, "-Infinity"),
    (b'{"text": "a", "user_id": "u", "metadata": {"n": 1e400}}', MALFORMED, "1e400"),
    (b'{"text": "a", "user_id": "u", "metadata": {"n": ' + b"9" * 5_000 + b"}}", MALFORMED, "long"),
    (b'{"text": "\xff", "user_id": "u"}', MALFORMED, "UTF-8"),
    (b'\xef\xbb\xbf{"text": "a", "user_id": "u"}', MALFORMED, "line 1, column 1"),
    (b'{"text":' * 100_000, MALFORMED, "nested too deep"),
    (b'{"text": "a", "user_id": "u"} {}', MALFORMED, "column 31"),
    (b"[]", INVALID, "body"),
    (b"null", INVALID, "body"),
    (b'"text"', INVALID, "body"),
    (b'{"text": "a", "user_id": "u", "metadata": {"n": 9223372036854775808}}', INVALID, "metadata"),
]


@pytest.mark.parametrize(("raw", "expected", "place"), BROKEN, ids=[str(b[0][:40]) for b in BROKEN])
def test_a_broken_body_is_refused_with_its_place_and_nothing_is_stored(
    still: Api, raw: bytes, expected: tuple[int, str], place: str
) -> None:
    """A-04: on every route that takes JSON; the server goes on."""
    client = still.client()
    answer = client.raw("POST", "/v1/memories", raw)
    assert code(answer) == expected
    assert place in answer.json()["detail"]
    for route in ROUTES:
        if route.rule.body is Body.JSON and route.path != "/v1/memories":
            path = re.sub(r"{\w+}", "01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44", route.path)
            assert client.raw(route.method, path, raw).status_code in (400, 422), route.path
    assert client.get("/healthz").is_success
    assert holds_nothing(still)


DEEP = '{"NOT":' * 1_000 + '{"a":1}' + "}" * 1_000


@pytest.mark.parametrize(
    "wrong", ["[]", '"x"', "1", '{"a": {}}', '{"AND": {}}', '{"NOT": []}', DEEP]
)
def test_a_broken_filter_is_refused_and_an_empty_one_is_none(still: Api, wrong: str) -> None:
    """A-04: in searches and in lists; the place is named."""
    client = still.client()
    question = f'{{"query": "tea", "user_id": "alice", "filter": {wrong}}}'
    answers = [
        client.raw("POST", "/v1/search", question),
        client.get("/v1/memories", params={**ALICE, "filter": wrong}),
    ]
    assert {code(answer) for answer in answers} <= {INVALID, MALFORMED}
    place = "nested too deep" if wrong == DEEP else "filter"
    assert all(place in answer.json()["detail"] for answer in answers), answers[0].text
    for empty in ("{}", "null"):
        assert client.raw("POST", "/v1/search", question.replace(wrong, empty)).is_success
        assert client.get("/v1/memories", params={**ALICE, "filter": empty}).is_success
    assert code(client.get("/v1/memories", params={**ALICE, "filter": "{"})) == MALFORMED


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {**JSON, "Content-Encoding": "gzip"},
    ],
)
def test_another_media_type_is_refused(still: Api, headers: dict[str, str]) -> None:
    """A-04"""
    answer = still.client().post("/v1/memories", content=BODY, headers=headers)
    assert code(answer) == (415, "unsupported_media_type")
    assert "application/json" in answer.json()["detail"]


def test_json_may_say_that_it_is_utf_8(api: Api) -> None:
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert api.client().post("/v1/memories", content=BODY, headers=headers).status_code == 201


WRONG_IDS = ["GPK0F14H", "..%2Fx", "%00", "x" * 10_000, "%ff", "01997f0c8a5e7cc19f0e3b7d5c1a2e44"]


@pytest.mark.parametrize("wrong", WRONG_IDS, ids=[one[:12] for one in WRONG_IDS])
def test_what_can_be_no_id_is_422_on_every_verb_and_what_is_none_404(
    still: Api, wrong: str
) -> None:
    """A-01: never 5xx, never an empty success."""
    client = still.client()
    for memory_id, expected in ((wrong, 422), ("01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44", 404)):
        path = f"/v1/memories/{memory_id}"
        answers = [
            client.get(path),
            client.get(f"{path}/history"),
            client.patch(path, json={"text": "x"}),
            client.delete(path),
            client.post(f"{path}:supersede", json=NEW),
        ]
        assert [code(answer)[0] for answer in answers] == [expected] * len(answers)
        assert all(answer.json()["hint"] for answer in answers)
    assert holds_nothing(still)


# Large, slow and broken uploads ---------------------------------------------------------------


def head(api: Api, framing: str, path: str = "/v1/memories") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: {api.host}\r\nContent-Type: application/json\r\n"
        f"{framing}\r\n\r\n"
    ).encode()


def answered(sock: socket.socket) -> bytes:
    """Read the beginning of an answer; empty, when the connection was cut instead."""
    with suppress(ConnectionResetError):
        return sock.recv(4_000)
    return b""


def test_a_body_over_the_bound_is_refused_before_it_is_read(still: Api) -> None:
    """A-04: 50 MB by its announced length, and by its real one."""
    client = still.client()
    huge = b'{"text": "' + b"x" * (50 << 20) + b'", "user_id": "u"}'
    refused = client.raw("POST", "/v1/memories", huge)
    assert code(refused) == (413, "too_large")
    assert refused.json()["limit"] == still.services.settings.body_bytes
    with still.socket() as sock:
        sock.settimeout(WAIT_S)
        sock.sendall(head(still, f"Content-Length: {1 << 40}"))
        assert b" 413 " in answered(sock)
    with still.socket() as sock:
        sock.settimeout(WAIT_S)
        sock.sendall(head(still, "Transfer-Encoding: chunked"))
        piece = b"x" * (1 << 20)
        for _ in range(still.services.settings.body_bytes // len(piece) + 1):
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        assert b" 413 " in answered(sock)
    assert client.get("/healthz").is_success
    assert holds_nothing(still)


@pytest.mark.parametrize("end", ["close", "half close", "stall"])
def test_a_body_that_breaks_off_or_stalls_writes_nothing(database_url: str, end: str) -> None:
    """A-04, W-12: what came so far would be a whole memory; the place of work is free again."""
    settings = ApiSettings(upload_idle=timedelta(seconds=0.3), write_threads=1)
    with served(database_url, settings=settings) as api:
        with api.socket() as sock:
            sock.settimeout(WAIT_S)
            sock.sendall(head(api, f"Content-Length: {len(BODY) + 1}") + BODY)
            if end == "half close":
                sock.shutdown(socket.SHUT_WR)
            if end != "close":
                answer = answered(sock)
                assert (b" 408 " in answer) is (end == "stall")
        assert api.client().listed()["items"] == []
        assert api.client().add()["version"] == 1


def test_large_bodies_are_no_heads(api: Api) -> None:
    """A-04: the bound of a head isn't one of what comes with it; two requests in one piece."""
    raw = json.dumps({**NEW, "text": "x" * 60_000, "metadata": {"k": "y" * 10_000}}).encode()
    whole = head(api, f"Content-Length: {len(raw)}") + raw
    with api.socket() as sock:
        sock.settimeout(WAIT_S)
        sock.sendall(whole + whole)
        assert b" 201 " in answered(sock)
        until(lambda: api.client().listed()["total"] == 2, "the second is taken as well")


def test_a_slow_body_that_goes_on_is_taken_whole(api: Api) -> None:
    """A-04: a byte at a time, cut inside of a character."""
    raw = json.dumps({**NEW, "text": "喜欢喝绿茶"}, ensure_ascii=False).encode()
    with api.socket() as sock:
        sock.settimeout(WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(head(api, f"Content-Length: {len(raw)}"))
        for n in range(len(raw)):
            sock.sendall(raw[n : n + 1])
        assert b" 201 " in answered(sock)
    assert api.client().listed()["items"][0]["text"] == "喜欢喝绿茶"


def test_a_head_over_its_bound_is_refused(still: Api) -> None:
    """A-04: many headers, and one that never ends: nobody holds them in memory."""
    for line in (b"X-A: " + b"a" * 10_000 + b"\r\n", b"a" * 10_000):
        with still.socket() as sock:
            sock.settimeout(WAIT_S)
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: a")
            with suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(wire.HEAD_BYTES // 10_000 + 1):
                    sock.sendall(line)
                answer = answered(sock)
                assert answer == b"" or b" 413 " in answer
            sock.settimeout(WAIT_S)
            assert answered(sock) == b"" or b" 200 " not in answer
    large = {"X-Fits": "a" * (wire.HEAD_BYTES // 2)}
    assert still.client().get("/healthz", headers=large).is_success


def test_a_head_that_comes_too_slowly_is_ended(still: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-11: also the second one of a connection; one that is quiet between requests is not."""
    monkeypatch.setattr(wire, "HEAD_S", 0.3)
    whole = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with still.socket() as silent, still.socket() as slow:
        for sock, first in ((silent, b""), (slow, whole)):
            sock.settimeout(WAIT_S)
            sock.sendall(first)
            assert not first or b" 200 " in answered(sock)
        assert b" 408 " in answered(silent)
        slow.sendall(whole)
        assert b" 200 " in answered(slow)
        slow.sendall(whole[:-2])
        assert b" 408 " in answered(slow)
        assert answered(slow) == b""


@pytest.mark.parametrize(
    "raw", [b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x00"]
)
def test_what_is_no_http_is_a_problem_document(still: Api, raw: bytes) -> None:
    with still.socket() as sock:
        sock.settimeout(WAIT_S)
        sock.sendall(raw)
        answer = answered(sock)
    assert b" 400 " in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "malformed_body"


# Postgres is away -----------------------------------------------------------------------------

Calls = dict[tuple[str, str], Callable[[], httpx.Response]]


def calls(client: Client, memory_id: str) -> Calls:
    """Return a good request to every route that asks Postgres."""
    path, projection = f"/v1/memories/{memory_id}", "/v1/projections/{name}"
    question = {"query": "tea", **ALICE}
    used = f"/v1/queries/{memory_id}:used"
    return {
        ("POST", "/v1/memories"): lambda: client.post("/v1/memories", json=NEW),
        ("POST", "/v1/memories:bulk"): lambda: client.bulk_answer(BODY),
        ("GET", "/v1/memories"): lambda: client.get("/v1/memories", params=ALICE),
        ("DELETE", "/v1/memories"): lambda: client.delete("/v1/memories", params=ALICE),
        ("POST", "/v1/memories/{id}:supersede"): lambda: client.post(f"{path}:supersede", json=NEW),
        ("GET", "/v1/memories/{id}/history"): lambda: client.get(f"{path}/history"),
        ("GET", "/v1/memories/{id}"): lambda: client.get(path),
        ("PATCH", "/v1/memories/{id}"): lambda: client.patch(path, json={"text": "x"}),
        ("DELETE", "/v1/memories/{id}"): lambda: client.delete(path),
        ("POST", "/v1/search"): lambda: client.post("/v1/search", json=question),
        ("POST", "/v1/queries/{query_id}:used"): lambda: client.post(used, json={"used": []}),
        ("GET", "/v1/projections"): lambda: client.get("/v1/projections"),
        ("POST", f"{projection}:pause"): lambda: client.post("/v1/projections/audit:pause"),
        ("POST", f"{projection}:resume"): lambda: client.post("/v1/projections/audit:resume"),
        ("GET", f"{projection}/parked"): lambda: client.get("/v1/projections/audit/parked"),
        ("POST", f"{projection}/parked:redrive"): lambda: client.post(
            "/v1/projections/audit/parked:redrive", json={}
        ),
    }


def test_without_postgres_nothing_looks_empty_and_all_comes_back_by_itself(tmp_path: Path) -> None:
    """A-05, A-01: 503 with Retry-After; health names it, liveness doesn't; /metrics says it."""
    with EmbeddedPostgres(tmp_path / "pg", durable=False) as server:
        url = server.url("gnomon", "gnomon")
        migrate.upgrade(url)
        with served(url) as api:
            client = api.client()
            memory_id = client.add("likes tea")["id"]
            asked = calls(client, memory_id)
            assert asked.keys() | {("GET", "/readyz"), ("GET", "/metrics")} == {
                (route.method, route.path) for route in ROUTES
            }
            server.close()
            for route, call in asked.items():
                assert_unavailable(call(), route)
            unknown = api.client("gn_some_key").get("/v1/memories", params=ALICE)
            assert_unavailable(unknown, "a key that can't be looked up")
            assert client.get("/healthz").status_code == 200
            ready = client.get("/readyz")
            assert ready.status_code == 503
            assert "postgres" in [one["part"] for one in ready.json()["problems"]]
            assert "gnomon_postgres_up 0.0" in client.get("/metrics").text
            server.start()
            comes_back(client)
            assert client.get(f"/v1/memories/{memory_id}").json()["text"] == "likes tea"
            assert client.listed()["total"] == 1


def assert_unavailable(answer: Any, what: object) -> None:
    assert code(answer) == (503, "store_unavailable"), what
    assert answer.headers["Retry-After"] == "1", what


def comes_back(client: Client) -> None:
    """Ask until every pooled connection that broke has been replaced."""
    deadline = time.monotonic() + WAIT_S
    answers: list[int] = []
    while answers[-25:] != [200] * 25:
        answers.append(client.get("/v1/memories", params=ALICE).status_code)
        assert set(answers) <= {200, 503}
        assert time.monotonic() < deadline, answers


def test_requests_that_are_cut_in_flight_can_be_sent_again(api: Api, postgres: Server) -> None:
    """W-18: all connections are ended in the middle; later ones succeed without a restart."""
    stop = threading.Event()
    done: list[tuple[str, str]] = []

    def write(n: int) -> None:
        client = api.client()
        for turn in range(5_000):
            if stop.is_set():
                return
            done.append(written(client, f"m-{n}-{turn}"))

    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write, n) for n in range(8)]
        try:
            for _ in range(3):
                goal = len(done) + 40
                until(lambda goal=goal: len(done) >= goal, "writers go on")  # type: ignore[misc]
                end_all_connections(postgres, api)
        finally:
            stop.set()
        for one in writers:
            one.result(WAIT_S)
    client = api.client()
    for key, memory_id in done[:: max(1, len(done) // 50)]:
        assert client.get(f"/v1/memories/{memory_id}").json()["text"] == key
    assert client.listed(limit=1)["total"] == len(done)


def written(client: Client, key: str) -> tuple[str, str]:
    """Write until it is acknowledged, as a caller would who was told to come again."""
    for _ in range(100):
        answer = client.post("/v1/memories", json={**NEW, "text": key, "mutation_id": key})
        if answer.status_code != 503:
            assert answer.is_success, answer.text
            return key, answer.json()["id"]
        assert answer.headers["Retry-After"] == "1"
    pytest.fail("it never comes back")


def end_all_connections(postgres: Server, api: Api) -> None:
    """End them as an administrator does, at whatever they are."""
    with psycopg.connect(postgres.admin, autocommit=True) as conn:
        ended = conn.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
            (make_url(api.url).database,),
        ).fetchone()
    assert ended is not None
    assert ended[0] > 0


# A part hangs or fails ------------------------------------------------------------------------


class SlowSearcher:
    """Fails once it is let go."""

    def __init__(self) -> None:
        self.at_work = threading.Semaphore(0)
        self.go = threading.Event()

    def search(self, query: Query) -> Answer:
        self.at_work.release()
        assert self.go.wait(WAIT_S), query
        raise AssertionError("an inner fault")


def test_slow_searches_stop_nothing_else_and_a_full_lane_says_so(database_url: str) -> None:
    """A-11: 20 searches that hang; health, get, lists and raw adds answer meanwhile."""
    searcher = SlowSearcher()
    settings = ApiSettings(search_threads=4, queue_for=timedelta(seconds=0.3))
    with served(database_url, searcher=searcher, settings=settings) as api:
        client = api.client()
        memory_id = client.add("likes tea")["id"]
        clients = [api.client() for _ in range(20)]
        question = {"query": "tea", **ALICE}
        with ThreadPoolExecutor(20) as pool:
            asked = [pool.submit(c.post, "/v1/search", json=question) for c in clients]
            try:
                for _ in range(4):
                    assert searcher.at_work.acquire(timeout=WAIT_S)
                assert client.get(f"/v1/memories/{memory_id}").is_success
                assert client.add("likes coffee")["version"] == 1
                assert client.get("/healthz").is_success
                assert client.listed()["total"] == 2
                answers = as_completed(asked, timeout=WAIT_S)
                refused = [next(answers).result() for _ in range(16)]
                assert not searcher.go.is_set()
            finally:
                searcher.go.set()
        assert {code(answer) for answer in refused} == {(503, "overloaded")}
        assert {answer.headers["Retry-After"] for answer in refused} == {"1"}


def test_a_fault_of_ours_is_answered_without_its_inside(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """§9: the log has it whole; the caller gets a code, and the server goes on."""
    searcher = SlowSearcher()
    searcher.go.set()
    with served(database_url, searcher=searcher) as api:
        answer = api.client().post("/v1/search", json={"query": "tea", **ALICE})
        assert code(answer) == (500, "internal")
        assert "inner fault" not in answer.text
        assert api.client().add()["version"] == 1
    assert any(record.exc_info for record in caplog.records)
