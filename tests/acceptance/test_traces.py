"""Traces through a whole server: from a caller's request to the pages that project its write."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from gnomon.serving import open_embedded
from gnomon.settings import Settings
from tests.support.http_server import Client, serving
from tests.support.tracing import Spans, recorded

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
INDEXES = ("vector", "keyword")
WORD = "quetzal"  # in every place that a caller can fill


class Traced(NamedTuple):
    spans: Spans
    client: Client


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    settings = Settings(_env_file=None, state=tmp_path_factory.mktemp("traced"))
    with (
        recorded() as spans,
        open_embedded(settings) as running,
        serving(running.app) as address,
        Client(address) as client,
    ):
        yield Traced(spans, client)


def parent(trace: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{CALLER}-{flags}"}


def pages(spans: Spans, trace: str) -> dict[object, ReadableSpan]:
    """Return the pages that are linked to a trace, by projection."""
    found = spans.linked(int(trace, 16))
    return {(span.attributes or {})["gnomon.projection"]: span for span in found}


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def add(client: Client, headers: dict[str, str]) -> None:
    body = {"text": f"{WORD} likes tea", "user_id": WORD, "metadata": {WORD: WORD}}
    assert client.post("/v1/memories", json=body, headers=headers).status_code == 201


def test_a_trace_leads_from_a_request_to_the_pages_that_project_its_write(traced: Traced) -> None:
    spans, client = traced
    add(client, parent(TRACE))
    spans.wait(lambda: pages(spans, TRACE).keys() >= set(INDEXES))
    own = spans.of(int(TRACE, 16))
    request, write = own["POST /v1/memories"], own["write"]
    assert request.parent is not None
    assert request.parent.span_id == int(CALLER, 16)
    assert write.parent is not None
    assert write.parent.span_id == ids(request)[1]
    for name in INDEXES:
        page = pages(spans, TRACE)[name]
        assert [link.context.span_id for link in page.links] == [ids(write)[1]]
        written = spans.of(ids(page)[0])["write engine"]
        assert written.parent is not None
        assert written.parent.span_id == ids(page)[1]


def test_the_writes_of_a_bulk_are_linked_as_well(traced: Traced) -> None:
    """They commit on a thread of their own."""
    spans, client = traced
    trace = TRACE[::-1]
    lines = b"".join(b'{"text":"line %d","user_id":"u"}\n' % n for n in range(3))
    headers = {**parent(trace), "Content-Type": "application/x-ndjson"}
    assert client.post("/v1/memories:bulk", content=lines, headers=headers).is_success
    spans.wait(lambda: pages(spans, trace).keys() >= set(INDEXES))


def test_a_search_shows_its_legs_its_tail_and_its_recheck(traced: Traced) -> None:
    spans, client = traced
    trace = "a" * 32
    found = client.post(
        "/v1/search", json={"query": f"{WORD} Mara", "user_id": WORD}, headers=parent(trace)
    )
    spans.wait(lambda: "POST /v1/search" in spans.of(int(trace, 16)))
    own = spans.of(int(trace, 16))
    parts = {"search vector", "search keyword", "search entity", "search tail", "search recheck"}
    assert own.keys() >= parts | {"search"}
    for part in parts:
        assert (own[part].parent or own[part].context) is not None
        assert own[part].parent.span_id == ids(own["search"])[1]  # type: ignore[union-attr]
    query_id = found.json()["query_id"]
    assert (own["search"].attributes or {})["gnomon.query_id"] == query_id
    assert (own["POST /v1/search"].attributes or {})["gnomon.query_id"] == query_id


def test_what_the_caller_does_not_sample_is_not_recorded(traced: Traced) -> None:
    spans, client = traced
    quiet, loud = "b" * 32, "c" * 32
    add(client, parent(quiet, flags="00"))
    add(client, parent(loud))
    spans.wait(lambda: pages(spans, loud).keys() >= set(INDEXES))
    assert spans.of(int(quiet, 16)) == {}
    assert spans.linked(int(quiet, 16)) == []


def test_no_span_holds_what_a_caller_wrote(traced: Traced) -> None:
    spans, client = traced
    trace = "d" * 32
    add(client, parent(trace))
    for method, path in (("GET", f"/v1/memories/{WORD}"), ("GET", f"/{WORD}"), (WORD, "/")):
        client.request(method, f"{path}?user_id={WORD}", headers=parent(trace))
    client.post("/v1/memories", json={"text": WORD, WORD: WORD}, headers=parent(trace))
    spans.wait(lambda: pages(spans, trace).keys() >= set(INDEXES))
    said = [span.to_json() for span in spans.all()]
    assert len(said) > 10
    assert [one for one in said if WORD in one.lower() or '"default"' in one] == []
