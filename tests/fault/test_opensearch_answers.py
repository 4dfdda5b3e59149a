"""No answer of OpenSearch, half of one, a proxy's, or that of another server."""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event
from uuid import UUID, uuid4

import pytest

from canonical.domain.visibility import Visible
from canonical.errors import (
    EngineUnavailableError,
    EngineUnsupportedError,
)
from projectors.keyword.opensearch.engine import OpenSearchIndex
from projectors.protocol import Mark
from tests.support.faulty_proxy import (
    Answer,
    Drip,
    Fault,
    FaultyProxy,
    Instead,
    LostReply,
    Reset,
    Rewritten,
    Silence,
)
from tests.support.keyword_index import NOW, Corner, TestedIndex, opensearch_index, page_of, record
from tests.support.opensearch import settings_at

SHORT = timedelta(seconds=3)
SHORT = timedelta(seconds=3)
MARK = Mark(3, 9, UUID(int=1), 1, 1)
WORD = "heliotrope"


@pytest.fixture
def proxy(opensearch_proxy: FaultyProxy) -> FaultyProxy:
    return opensearch_proxy


@pytest.fixture
def index(proxy: FaultyProxy, name: str) -> Iterator[TestedIndex]:
    """An index behind the proxy, patient for a moment only."""
    made = opensearch_index(settings_at(proxy.url, retry_for=timedelta(seconds=1)), name)
    proxy.seen.clear()
    yield made
    made.close()


@pytest.fixture
def hasty(proxy: FaultyProxy, name: str) -> Iterator[TestedIndex]:
    """An index whose requests end soon."""
    made = opensearch_index(settings_at(proxy.url, timeout=SHORT), name)
    yield made
    made.close()


@pytest.fixture
def corner(index: TestedIndex) -> Corner:
    return Corner(index)


def server(index: TestedIndex) -> OpenSearchIndex:
    assert isinstance(index.engine, OpenSearchIndex)
    return index.engine


# Servers of other kinds


def _info(**version: str) -> Callable[[Answer], Answer]:
    def changed(answer: Answer) -> Answer:
        told = json.loads(answer.body)
        told["version"] |= version
        return replace(answer, body=json.dumps(told).encode())

    return changed


@pytest.mark.parametrize("version", [{"number": "2.19.1"}, {"distribution": "elsewhere"}])
def test_a_server_that_is_too_old_or_another_one_is_refused_by_name(
    proxy: FaultyProxy, index: TestedIndex, version: dict[str, str]
) -> None:
    """E-17: it is no sign that the index is lost."""
    proxy.plan(Rewritten(_info(**version)), method="GET")
    (told,) = version.values()
    with pytest.raises(EngineUnsupportedError, match=rf"{told}.*OpenSearch 3\.0 or newer"):
        index.reopen()


def test_a_server_newer_than_tried_is_warned_of(
    proxy: FaultyProxy, index: TestedIndex, caplog: pytest.LogCaptureFixture
) -> None:
    """E-17."""
    proxy.plan(Rewritten(_info(number="4.0.0-beta1")), method="GET")
    with caplog.at_level(logging.WARNING, "projectors"):
        index.reopen()
    assert "OpenSearch is 4.0.0-beta1; tried with 3.8" in caplog.text


# No answer, or none of OpenSearch's


HTML = {"Content-Type": "text/html"}
JSON = {"Content-Type": "application/json"}
BLOCKED = json.dumps({"error": {"type": "security_exception", "reason": WORD}}).encode()
FAULTS: dict[str, Fault] = {
    "reset": Reset(),
    "lost reply": LostReply(),
    "500": Instead(Answer(500, b'{"error": "oh"}', JSON)),
    "502 of a proxy": Instead(Answer(502, b"<html>bad gateway</html>", HTML)),
    "404 of a proxy": Instead(Answer(404, b"<html>not found</html>", HTML)),
    "page of a proxy": Instead(Answer(200, b"<html>log in</html>", HTML)),
    "401": Instead(Answer(401, b"Unauthorized", {"Content-Type": "text/plain"})),
    "403": Instead(Answer(403, BLOCKED, JSON)),
    "400": Instead(Answer(400, BLOCKED, JSON)),
    "empty": Instead(Answer(200)),
    "nothing in it": Instead(Answer(200, b"{}", JSON)),
    "a list": Instead(Answer(200, b"[]", JSON)),
    "null": Instead(Answer(200, b"null", JSON)),
    "half": Rewritten(lambda answer: replace(answer, body=answer.body[:-7])),
    "no text": Instead(Answer(200, b"\xff\xfe\x00", JSON)),
    "redirect": Instead(Answer(302, b"", {"Location": "http://127.0.0.1:1/"})),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_usable_answer_all_is_held_and_nothing_is_given_up(
    proxy: FaultyProxy, corner: Corner, fault: str
) -> None:
    """P12: also where it came half way, or is a proxy's; afterwards it goes on by itself."""
    index = corner.index
    assert isinstance(index, TestedIndex)
    (held,) = corner.add(WORD)
    page = page_of([replace(held, rev=2)], marks=[MARK])
    for does in (
        lambda: index.projector.apply(page),
        lambda: corner.find(WORD),
        index.marks,
        lambda: index.guards([held.id]),
        lambda: index.count(live=True),
        lambda: list(index.scan()),
        lambda: server(index).publish(f"{server(index).name}-live"),
        index.reopen,
    ):
        proxy.plan(FAULTS[fault], times=1000)
        with pytest.raises(EngineUnavailableError) as told:
            does()
        assert WORD not in str(told.value)
        proxy.heal()
    index.reopen()
    index.projector.apply(page)
    assert [hit.rev for hit in corner.find(WORD)] == [2]
    assert index.marks() == {MARK.shard: MARK}


def test_a_server_that_is_down_is_unavailable_and_no_more(
    proxy: FaultyProxy, corner: Corner
) -> None:
    (held,) = corner.add("tea")
    proxy.down()
    with pytest.raises(EngineUnavailableError, match="no connection"):
        corner.find("tea")
    with pytest.raises(EngineUnavailableError, match="no connection"):
        corner.index.reopen()
    proxy.up()
    corner.index.reopen()
    assert corner.found("tea") == [held.id]


@pytest.mark.parametrize("path", ["_bulk", "_refresh", "_mtermvectors", "_search"])
def test_a_server_that_falls_silent_is_left_in_time(
    proxy: FaultyProxy, hasty: TestedIndex, path: str
) -> None:
    """E-03: done or not, nobody knows: the page is repeated."""
    corner, until, index = Corner(hasty), Event(), hasty
    (held,) = corner.add("tea")
    proxy.plan(Silence(until), path=path)

    def does() -> None:
        corner.apply(replace(held, rev=2))
        visible = Visible(scope=corner.scope, now=NOW, as_of=NOW)
        index.reader.best(["tea"], visible=visible, limit=5, timeout=SHORT)

    with pytest.raises(EngineUnavailableError, match="in time"):
        does()
    until.set()
    corner.apply(replace(held, rev=2))
    assert [hit.rev for hit in corner.find("tea")] == [2]


def test_an_answer_that_drips_is_cut_off(proxy: FaultyProxy, hasty: TestedIndex) -> None:
    """Each byte comes in time, the whole would not for a minute."""
    corner, index = Corner(hasty), hasty
    page = page_of([record("tea", corner.scope, id=uuid4())], marks=[MARK])
    proxy.plan(Drip(0.3), path="_bulk")
    with pytest.raises(EngineUnavailableError, match="in time"):
        index.projector.apply(page)
    index.projector.apply(page)
    assert len(corner.find("tea")) == 1


def test_a_shard_that_does_not_answer_a_refresh_holds_the_page(
    proxy: FaultyProxy, corner: Corner
) -> None:
    """P7: what was written is not seen everywhere, so its watermark must not pass."""

    def failed(answer: Answer) -> Answer:
        body = {"_shards": {"total": 2, "successful": 1, "failed": 1}}
        return replace(answer, body=json.dumps(body).encode())

    proxy.plan(Rewritten(failed), path="_refresh")
    with pytest.raises(EngineUnavailableError, match="some shards"):
        corner.add("tea")


def test_a_search_that_was_cut_short_is_none(proxy: FaultyProxy, corner: Corner) -> None:
    """P6: a part of the hits is not taken for all."""
    corner.add("tea")

    def partial(answer: Answer) -> Answer:
        told = json.loads(answer.body) | {"timed_out": True}
        return replace(answer, body=json.dumps(told).encode())

    proxy.plan(Rewritten(partial), path="/_search")
    with pytest.raises(EngineUnavailableError, match="did not finish"):
        corner.find("tea")
