"""Bulks over raw sockets: what breaks, stalls, comes back late, or is sent again."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text as sql

from canonical.domain.positions import from_token
from gnomon.api.services import ApiSettings
from tests.support.http_server import NDJSON, Api, Client, served

SETTINGS = ApiSettings(upload_idle=timedelta(seconds=1), spool_bytes=4_096, line_bytes=200_000)


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with served(database_url, settings=SETTINGS) as api:
        yield api


@pytest.fixture
def client(api: Api) -> Client:
    return api.client()


def line(text: str, **fields: Any) -> bytes:
    return json.dumps({"text": text, "user_id": "alice", **fields}).encode()


def lines(count: int, first: int = 0) -> bytes:
    return b"\n".join(line(f"memory {n}") for n in range(first, first + count))


def stored(api: Api) -> int:
    with api.owner.transaction() as conn:
        conn.execute(sql("SET LOCAL ROLE gnomon_projector"))
        counts = conn.execute(
            sql("SELECT (SELECT count(*) FROM memory), (SELECT count(*) FROM outbox)")
        ).one()
    assert counts[0] == counts[1], "a record without its event, or an event without its record"
    return int(counts[0])


def wait_for(api: Api, count: int, within_s: float = 20) -> None:
    """Wait until so many records are stored; the database is the only one that tells."""
    deadline = time.monotonic() + within_s
    while stored(api) != count:
        assert time.monotonic() < deadline, f"{stored(api)} of {count}"


def test_one_bad_line_spoils_no_other_and_a_repeat_answers_as_before(
    api: Api, client: Client
) -> None:
    """W-14: a lone surrogate in line 500, broken JSON in 501, no newline after line 1000."""
    parts = lines(1_000).split(b"\n")
    parts[499] = rb'{"text": "a \ud83d b", "user_id": "alice"}'
    parts[500] = b'{"text": "broken'
    first = client.bulk(b"\n".join(parts), "m-1")
    again = client.bulk(b"\n".join(parts) + b"\n", "m-1")
    errors = [one for one in first if "error" in one]
    assert [(one["line"], one["error"]["code"]) for one in errors] == [
        (500, "invalid_input"),
        (501, "malformed_body"),
    ]
    assert errors[0]["error"]["field"] == "text"
    assert [one["line"] for one in first[:-1]] == list(range(1, 1_001))
    summary = first[-1]["summary"]
    assert (summary["written"], summary["refused"], summary["complete"]) == (998, 2, True)
    assert [one.get("id") for one in again] == [one.get("id") for one in first]
    assert [one.get("error") for one in again] == [one.get("error") for one in first]
    assert (again[-1]["summary"]["written"], again[-1]["summary"]["replayed"]) == (0, 998)
    assert again[-1]["summary"]["position"] == summary["position"]
    assert stored(api) == 998


def test_chunks_are_of_exactly_a_thousand_lines_blank_and_refused_ones_counted(
    api: Api, client: Client
) -> None:
    """The size is kept with the mutation, and chunk n is the same n in every repeat."""
    parts = lines(2_500).split(b"\n")
    for n in range(0, 2_500, 10):
        parts[n] = b" \r" if n % 20 else b"{}"
    said = client.bulk(b"\n".join(parts), "m-1")
    summary = said[-1]["summary"]
    assert (summary["lines"], summary["chunks"], summary["chunk_size"]) == (2_500, 3, 1_000)
    assert (summary["blank"], summary["refused"], summary["written"]) == (125, 125, 2_250)
    with api.owner.transaction() as conn:
        conn.execute(sql("SET LOCAL ROLE gnomon_api"))
        conn.execute(sql("SELECT set_config('gnomon.tenant', 'default', true)"))
        found = conn.execute(
            sql("SELECT chunk, cardinality(memory_ids), outcome->>'size' FROM mutation ORDER BY 1")
        ).all()
    assert [tuple(row) for row in found] == [(0, 900, "1000"), (1, 900, "1000"), (2, 450, "1000")]
    assert api.noted.hints == 3


def test_positions_of_lines_and_of_the_whole_agree(client: Client) -> None:
    said = client.bulk(lines(300))
    highest: dict[int, int] = {}
    for one in said[:-1]:
        ((shard, pos),) = from_token(one["position"]).shards.items()
        highest[shard] = max(pos, highest.get(shard, 0))
    assert from_token(said[-1]["summary"]["position"]).shards == highest


def test_an_empty_bulk_is_no_error(api: Api, client: Client) -> None:
    for empty in (b"", b"\n\n"):
        said = client.bulk(empty, "m-1")
        assert said[-1]["summary"]["written"] == 0
    assert stored(api) == 0


def test_a_line_over_the_bound_is_refused_alone(api: Api, client: Client) -> None:
    """W-13"""
    said = client.bulk(b"\n".join([line("a"), line("x" * 300_000), line("b")]))
    assert said[1]["error"]["code"] == "too_large"
    assert "200000" in said[1]["error"]["message"]
    assert stored(api) == 2


def test_another_body_under_a_used_key_is_a_conflict(api: Api, client: Client) -> None:
    """P4: nothing is written when the first transaction meets it."""
    client.bulk(lines(5), "m-1")
    refused = client.bulk_answer(lines(6), "m-1")
    assert (refused.status_code, refused.json()["code"]) == (409, "mutation_conflict")
    assert stored(api) == 5


def test_a_conflict_further_on_ends_the_work_and_says_what_was_done(
    api: Api, client: Client
) -> None:
    """Nothing after it is written, the status is an error's, and the lines before are told."""
    client.bulk(lines(1_500), "m-1")
    answer = client.bulk_answer(lines(3_500), "m-1")
    assert answer.status_code == 409
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    *results, last = map(json.loads, answer.text.splitlines())
    assert [one["line"] for one in results] == list(range(1, 1_001))
    assert last["summary"]["complete"] is False
    assert last["summary"]["error"]["code"] == "mutation_conflict"
    assert stored(api) == 1_500


def test_a_source_event_is_written_once_over_all_lines(api: Api, client: Client) -> None:
    """P4: in one transaction, in two, and in another upload."""
    event = line("from an event", event_id="e-1")
    said = client.bulk(b"\n".join([event, event, lines(1_000), event]))
    same = [said[0], said[1], said[1_002]]
    assert len({one["id"] for one in same}) == 1
    assert [one["replayed"] for one in same] == [False, True, True]
    other = client.bulk(line("another body", event_id="e-1"))
    assert other[0]["error"]["code"] == "mutation_conflict"
    assert stored(api) == 1_001


# Broken, slow and greedy uploads -------------------------------------------------------------


def begin(api: Api, mutation_id: str = "m-1", length: int | None = None) -> socket.socket:
    """Send the head of a bulk, chunked unless it has a length."""
    framing = f"Content-Length: {length}" if length else "Transfer-Encoding: chunked"
    sock = api.socket()
    sock.sendall(
        f"POST /v1/memories:bulk?mutation_id={mutation_id} HTTP/1.1\r\nHost: {api.host}\r\n"
        f"Content-Type: application/x-ndjson\r\n{framing}\r\n\r\n".encode()
    )
    return sock


def piece(raw: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(raw), raw)


def answer_of(sock: socket.socket) -> tuple[int, bytes]:
    """Read an answer that the server ends by closing or by its length."""
    with sock.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        length = 0
        while (header := stream.readline()) != b"\r\n":
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, stream.read(length)


def test_an_upload_that_breaks_off_leaves_whole_transactions_and_can_be_sent_again(
    api: Api, client: Client
) -> None:
    """W-12, A-04: of the chunk at hand nothing, not even its finished lines."""
    whole = lines(2_700)
    sock = begin(api, length=len(whole))
    sock.sendall(whole[: whole.index(b"memory 2600")])
    wait_for(api, 2_000)
    sock.close()
    said = client.bulk(whole, "m-1")
    assert (said[-1]["summary"]["replayed"], said[-1]["summary"]["written"]) == (2_000, 700)
    assert stored(api) == 2_700


def test_a_cut_in_the_middle_of_a_line_never_makes_a_shorter_memory(
    api: Api, client: Client
) -> None:
    """W-12: what was sent so far would be a valid last line."""
    sock = begin(api, length=10_000)
    sock.sendall(line("all of it") + b"\n" + line("a part"))
    sock.shutdown(socket.SHUT_WR)
    sock.recv(1_000)
    client.bulk(line("later"))
    assert stored(api) == 1


def test_a_stalled_upload_is_ended_and_holds_nothing(api: Api, client: Client) -> None:
    """A-11: 408 after the longest pause; what was committed is told, the rest is not written."""
    sock = begin(api)
    sock.sendall(piece(lines(1_010)))
    status, body = answer_of(sock)
    last = json.loads(body.splitlines()[-1])["summary"]
    assert (status, last["complete"], last["written"]) == (408, False, 1_000)
    assert last["error"]["code"] == "upload_too_slow"
    assert stored(api) == 1_000
    assert client.bulk(line("another"))[-1]["summary"]["complete"]


def test_a_slow_upload_that_goes_on_is_taken(api: Api) -> None:
    """Pieces as small as a byte, cut inside of lines and of code points."""
    raw = line("用户 likes tea") + b"\n" + line("b")
    sock = begin(api)
    for n in range(len(raw)):
        sock.sendall(piece(raw[n : n + 1]))
    sock.sendall(b"0\r\n\r\n")
    status, body = answer_of(sock)
    assert status == 200
    assert len(body.splitlines()) == 3
    assert stored(api) == 2


def test_a_client_that_uploads_everything_before_it_reads_does_not_hang(api: Api) -> None:
    """The answer is far larger than any buffer between: it begins after the last line."""
    count = 30_000
    raw = lines(count)
    sock = begin(api, length=len(raw))
    sock.settimeout(60)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    sock.sendall(raw)
    status, body = answer_of(sock)
    assert status == 200
    assert body.count(b"\n") == count + 1
    assert len(body) > 4_000_000


def test_a_client_that_uploads_on_after_an_early_end_can_read_why(api: Api, client: Client) -> None:
    """A conflict in the first transaction of a large upload: 409, not a reset connection."""
    client.bulk(lines(5), "m-1")
    raw = lines(30_000)
    sock = begin(api, length=len(raw))
    sock.settimeout(60)
    sock.sendall(raw)
    status, body = answer_of(sock)
    assert (status, json.loads(body)["code"]) == (409, "mutation_conflict")
    assert stored(api) == 5


def test_a_client_that_goes_before_the_answer_finds_all_of_it_once(
    api: Api, client: Client
) -> None:
    """W-01: whatever became of the first upload, a repeat that may meet it makes it whole."""
    raw = lines(1_500)
    sock = begin(api, length=len(raw))
    sock.sendall(raw)
    sock.close()
    summary = client.bulk(raw, "m-1")[-1]["summary"]
    assert summary["replayed"] + summary["written"] == 1_500
    assert stored(api) == 1_500


def test_twins_of_one_bulk_write_once(api: Api) -> None:
    """W-03, P4"""
    raw = lines(2_500)
    clients = [api.client() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda c: c.bulk(raw, "m-1"), clients))
    assert len({tuple(one["id"] for one in answer[:-1]) for answer in said}) == 1
    assert sum(answer[-1]["summary"]["written"] for answer in said) == 2_500
    assert stored(api) == 2_500


def test_more_bulks_than_there_are_threads_for_are_told_to_come_again(database_url: str) -> None:
    """A-11: a full lane is 503 with Retry-After, and stops no other kind of request."""
    settings = replace(SETTINGS, bulk_threads=2, queue_for=timedelta(seconds=0.2))
    with served(database_url, settings=replace(settings, upload_idle=timedelta(seconds=30))) as api:
        waiting = [begin(api, f"m-{n}") for n in range(2)]
        for sock in waiting:
            sock.sendall(piece(line("first") + b"\n"))
        client = api.client()
        refused = client.bulk_answer(line("third"))
        while refused.is_success:  # the two may not have their threads yet
            refused = client.bulk_answer(line("third"))
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.headers["Retry-After"] == "1"
        assert client.add()["version"] == 1
        assert client.get("/healthz").is_success
        for sock in waiting:
            sock.sendall(b"0\r\n\r\n")
            assert answer_of(sock)[0] == 200
        assert client.bulk(line("third"))[-1]["summary"]["complete"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/json"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/x-ndjson; charset=latin-1"},
        {**NDJSON, "Content-Encoding": "gzip"},
    ],
)
def test_another_media_type_is_refused(api: Api, client: Client, headers: dict[str, str]) -> None:
    """A-04"""
    answer: httpx.Response = client.post("/v1/memories:bulk", content=line("a"), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert stored(api) == 0
