"""What the client sends, repeats and makes of answers."""

import json

import httpx
import pytest

from gnomon.cli.client import Client
from gnomon.cli.failures import CommandError, Exit
from tests.support.stub_api import Answer, StubApi, problem

WRITE = {"id": "m1", "version": 1, "status": "active", "position": "p", "replayed": False}
GONE = {"count": 2, "status": "deleted", "position": "p", "replayed": False}
BUSY = problem(503, "store_unavailable", "away", hint="again", headers={"Retry-After": "3"})
URL = "http://127.0.0.1:7377"


def client(api: StubApi, waits: list[float] | None = None, key: str | None = None) -> Client:
    transport = httpx.MockTransport(api.handle_request)
    kept = waits if waits is not None else []
    return Client(URL, key, transport=transport, sleep=kept.append)


def failure(api: StubApi, waits: list[float] | None = None) -> CommandError:
    with pytest.raises(CommandError) as caught:
        client(api, waits).add({"text": "x", "user_id": "u"})
    return caught.value


def test_a_busy_server_is_asked_again_after_the_time_it_named() -> None:
    api, waits = StubApi().then(BUSY).says(WRITE, 201), list[float]()
    assert client(api, waits).add({"text": "x", "user_id": "u"})["id"] == "m1"
    assert waits == [3.0]


@pytest.mark.parametrize("first", [BUSY, httpx.ReadError("cut"), httpx.RemoteProtocolError("cut")])
def test_a_repeat_carries_the_same_mutation_id(first: Answer) -> None:
    """A retry that makes a new key doubles the memory."""
    api = StubApi().then(first).says(WRITE, 201)
    client(api).add({"text": "x", "user_id": "u"})
    assert api.body(0) == api.body(1)
    assert api.body(0)["mutation_id"]


@pytest.mark.parametrize("first", [BUSY, httpx.ReadError("cut"), httpx.RemoteProtocolError("cut")])
def test_a_repeated_deletion_of_a_scope_carries_the_same_mutation_id(first: Answer) -> None:
    """Without one, the retry deletes what was added since the first had its effect."""
    api = StubApi().then(first).says(GONE).says(GONE)
    one = client(api)
    assert one.delete_scope({"user_id": "u"}, {"why": "asked"}) == GONE
    one.delete_scope({"user_id": "u"}, {})
    lost, again, other = (dict(request.url.params) for request in api.requests)
    assert lost == again == {"mutation_id": lost["mutation_id"], "user_id": "u", "why": "asked"}
    assert other["mutation_id"] != lost["mutation_id"]


def test_two_commands_never_share_a_mutation_id() -> None:
    api = StubApi().says(WRITE).says(WRITE)
    one = client(api)
    one.add({"text": "x", "user_id": "u"})
    one.add({"text": "x", "user_id": "u"})
    assert api.body(0)["mutation_id"] != api.body(1)["mutation_id"]


def test_a_server_that_stays_busy_is_transient() -> None:
    waits: list[float] = []
    error = failure(StubApi().then(*[BUSY] * 4), waits)
    assert (error.exit, error.code, len(waits)) == (Exit.TRANSIENT, "store_unavailable", 3)


def test_a_lost_answer_is_never_taken_for_a_failure_or_a_success() -> None:
    error = failure(StubApi().then(*[httpx.ReadError("cut")] * 4))
    assert (error.exit, error.code) == (Exit.TRANSIENT, "answer_lost")
    assert "not known" in error.hint


def test_a_timeout_is_not_waited_for_again() -> None:
    error = failure(StubApi().then(httpx.ReadTimeout("slow")))
    assert error.code == "answer_lost"


def test_no_server_says_how_to_start_one() -> None:
    error = failure(StubApi().then(httpx.ConnectError("refused")))
    assert error.exit is Exit.UNREACHABLE
    assert "gnomon up" in error.hint
    assert URL in error.message


@pytest.mark.parametrize(
    ("status", "code"),
    [*((n, Exit.REFUSED) for n in (401, 404, 409, 422)), (500, Exit.HALT), (502, Exit.HALT)],
)
def test_a_refusal_is_shown_as_it_was_said(status: int, code: Exit) -> None:
    said = problem(status, "some_code", "what", hint="do this", field="text")
    error = failure(StubApi().then(said))
    assert (error.exit, error.code, error.message) == (code, "some_code", "what")
    assert (error.hint, error.field) == ("do this", "text")


NOT_OURS = (httpx.Response(404, text='{"detail": "Not Found"}'), httpx.Response(200, text=""))


@pytest.mark.parametrize("said", [*NOT_OURS, httpx.Response(200, text="<html>welcome</html>")])
def test_what_is_not_gnomon_is_not_taken_for_it(said: httpx.Response) -> None:
    error = failure(StubApi().then(said))
    assert (error.exit, error.code) == (Exit.UNREACHABLE, "unexpected_answer")


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a?b=c", "a#b", "%00", "x" * 10_000, "\udc80", "猫"]
)
def test_an_id_stays_one_segment_of_the_path(name: str) -> None:
    """A-01: whatever stands for an id can't lead the request to another route."""
    api = StubApi().then(problem(404, "not_found", "none"))
    with pytest.raises(CommandError):
        client(api).get(name)
    path = api.requests[0].url.raw_path
    assert path.startswith(b"/v1/memories/")
    assert path.count(b"/") == 3
    assert b"?" not in path


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_an_id_that_names_another_path_is_refused_before_it_is_sent(name: str) -> None:
    """A-01: an empty id would turn `delete ID` into the deletion of a scope."""
    api = StubApi()
    with pytest.raises(CommandError) as caught:
        client(api).delete(name, {})
    assert caught.value.exit is Exit.REFUSED
    assert api.requests == []


def test_a_lone_surrogate_travels_to_the_door_that_refuses_it() -> None:
    api = StubApi().says(WRITE)
    client(api).add({"text": "a\udc80b", "user_id": "u"})
    assert api.body()["text"] == "a\udc80b"


def test_the_key_goes_into_the_header_only() -> None:
    api = StubApi().says(WRITE)
    client(api, key="gn_secret").get("m1")
    assert api.requests[0].headers["Authorization"] == "Bearer gn_secret"
    assert "gn_secret" not in str(api.requests[0].url)


@pytest.mark.parametrize("key", ["gn_é", "a\nb", "a\r\nX-Evil: 1"])
def test_a_key_that_can_be_none_is_refused_at_once(key: str) -> None:
    with pytest.raises(CommandError) as caught:
        client(StubApi(), key=key)
    assert caught.value.exit is Exit.USAGE


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://x", "http://", "http://[::1", "http://a:b"])
def test_an_address_that_can_be_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(CommandError) as caught:
        Client(url)
    assert caught.value.exit is Exit.USAGE


def test_a_bulk_answer_that_breaks_off_is_not_taken_for_done() -> None:
    api = StubApi().then(httpx.Response(200, text='{"line":1,"id":"m1"}\n'))
    with pytest.raises(CommandError) as caught:
        client(api).bulk(b"{}\n", "import-1-0")
    assert caught.value.exit is Exit.TRANSIENT


def test_a_bulk_that_ended_early_says_why() -> None:
    error = {"code": "mutation_conflict", "message": "other lines", "hint": "new id"}
    text = '{"line":1}\n' + json.dumps({"summary": {"complete": False, "error": error}})
    said = httpx.Response(409, text=text, headers={"Content-Type": "application/x-ndjson"})
    with pytest.raises(CommandError) as caught:
        client(StubApi().then(said)).bulk(b"{}\n", "import-1-0")
    assert (caught.value.code, caught.value.exit) == ("mutation_conflict", Exit.REFUSED)
