"""An OpenSearch that refuses, forgets, is gone, or answers what it should not."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError
from typing_extensions import override

from canonical.domain.records import Record, Status, guard
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.errors import (
    EngineMismatchError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineUnsupportedError,
)
from projectors.keyword.mapping import IndexWrite, Upsert, write_for
from projectors.keyword.opensearch import documents, engine
from projectors.keyword.opensearch.engine import OpenSearchIndex
from projectors.keyword.opensearch.sending import Sender
from projectors.protocol import Mark
from tests.support.faulty_proxy import (
    Answer,
    Drip,
    Exchange,
    Fault,
    FaultyProxy,
    Instead,
    LostReply,
    Request,
    Reset,
    Rewritten,
    Silence,
    proxied,
)
from tests.support.keyword_index import NOW, Corner, TestedIndex, opensearch_index, page_of, record
from tests.support.opensearch import settings_at

SHORT = timedelta(seconds=3)
MARK = Mark(3, 9, UUID(int=1), 1, 1)
WORD = "heliotrope"


@pytest.fixture
def proxy(opensearch_url: str) -> Iterator[FaultyProxy]:
    with proxied(opensearch_url) as made:
        yield made


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


def served(made: OpenSearchIndex) -> TestedIndex:
    return TestedIndex(made, lambda: made)


# Bulk requests of which a part fails


@dataclass
class PartlyBusy(Fault):
    """Some items never reach the server, which says so with these statuses."""

    statuses: Mapping[int, int]

    @override
    def __call__(self, exchange: Exchange) -> None:
        lines = exchange.request.body.splitlines()
        pairs = [lines[at : at + 2] for at in range(0, len(lines), 2)]
        passed = [pair for at, pair in enumerate(pairs) if at not in self.statuses]
        body = b"".join(b"%b\n" % line for pair in passed for line in pair)
        answer = Exchange(
            exchange._proxy, exchange._handler, replace(exchange.request, body=body)
        ).forward()
        told, rest = json.loads(answer.body), iter(json.loads(answer.body)["items"])
        told["items"] = [
            _refusal(self.statuses[at]) if at in self.statuses else next(rest)
            for at in range(len(pairs))
        ]
        exchange.reply(replace(answer, body=json.dumps(told).encode()))


def _refusal(status: int) -> dict[str, Any]:
    error = {"type": "rejected_execution_exception", "reason": WORD}
    return {"index": {"_id": "x", "status": status, "error": error}}


def ids_sent(request: Request) -> list[str]:
    """List what a bulk request writes."""
    actions = [json.loads(line) for line in request.body.splitlines()[::2]]
    return [action["index"]["_id"] for action in actions]


def unfit(held: Record) -> IndexWrite:
    """A document that this server can't index: a term of more than 32,766 bytes."""
    write = write_for(held, epoch=1)
    assert isinstance(write, Upsert)
    return replace(write, scope=Scope(held.scope.tenant, user_id=WORD * 4000))


def test_each_item_of_a_bulk_request_is_judged_by_itself(
    proxy: FaultyProxy, index: TestedIndex
) -> None:
    """E-01: of a hundred, three are too many now, one can't be indexed, one is old, one is lost."""
    records = [record(f"n{n} all", Scope("acme", "alice")) for n in range(100)]
    index.projector.apply(page_of([replace(records[50], rev=7)]))
    proxy.seen.clear()
    busy = {5: 429, 6: 429, 90: 429, 40: 503}
    proxy.plan(PartlyBusy(busy), path="_bulk")
    by_id = {r.id: r for r in records}
    bad = records[20].id
    written = index.engine.write(
        {r.id: guard(1, r.rev) for r in records},
        lambda mid: unfit(by_id[mid]) if mid == bad else write_for(by_id[mid], epoch=1),
        [MARK],
    )
    assert list(written.refused) == [bad]
    assert isinstance(written.refused[bad], EngineRefusedError)
    assert WORD not in str(written.refused[bad])
    assert written.stale == 1
    assert written.again == len(busy)
    held = index.guards(by_id)
    assert set(held) == by_id.keys() - {bad}
    assert held[records[50].id] == guard(1, 7)
    first, second, third = map(ids_sent, proxy.sent("POST", "_bulk"))
    assert len(first) == 100
    assert second == [records[at].id.hex for at in sorted(busy)]
    assert third == [f"mark-{MARK.shard}"]
    assert index.marks() == {MARK.shard: MARK}


@pytest.mark.parametrize("status", [429, 503])
def test_what_stays_refused_under_load_holds_the_page_and_parks_nothing(
    proxy: FaultyProxy, name: str, status: int
) -> None:
    """E-01, O-12: whole requests too; with pauses that grow, inside a bound."""
    pauses: list[float] = []
    settings = settings_at(proxy.url, retry_for=SHORT)
    with OpenSearchIndex.create(settings, name, pause=pauses.append) as made:
        index = served(made)
        proxy.plan(Instead(Answer(status, b"busy")), path="_bulk", times=1000)
        page = page_of([record("x", Scope("acme", "alice"))], marks=[MARK])
        with pytest.raises(EngineUnavailableError, match=f"status {status}"):
            index.projector.apply(page)
        assert sum(pauses) == pytest.approx(SHORT.total_seconds())
        assert pauses[:3] == sorted(pauses[:3])
        assert len(proxy.sent("POST", "_bulk")) == len(pauses) + 1 < 10
        assert index.marks() == {}
        proxy.heal()
        assert not index.projector.apply(page).refused
        assert index.marks() == {MARK.shard: MARK}


def test_a_reply_that_was_lost_costs_a_repeat_and_nothing_else(
    proxy: FaultyProxy, index: TestedIndex
) -> None:
    """E-01: applied, and nobody heard of it."""
    page = page_of([record(f"n{n}", Scope("acme", "alice")) for n in range(20)], marks=[MARK])
    proxy.plan(LostReply(), path="_bulk")
    with pytest.raises(EngineUnavailableError):
        index.projector.apply(page)
    assert index.marks() == {}
    assert len(proxy.sent("POST", "_bulk")) == 1  # the client repeats nothing by itself
    assert not index.projector.apply(page).refused
    assert index.projector.stale == index.count(live=False) == 20
    assert index.marks() == {MARK.shard: MARK}


@pytest.mark.parametrize("block", ["write", "read_only", "read_only_allow_delete"])
def test_a_blocked_index_holds_the_page_and_goes_on_once_it_is_free(
    index: TestedIndex, raw: OpenSearch, name: str, block: str
) -> None:
    """E-01: 403 and 429 on each item: never the document's fault."""
    corner = Corner(index)
    raw.indices.put_settings(index=name, body={f"index.blocks.{block}": True})
    with pytest.raises(EngineUnavailableError, match="cluster_block_exception"):
        corner.add("tea")
    raw.indices.put_settings(index=name, body={f"index.blocks.{block}": None})
    (held,) = corner.add("coffee")
    assert corner.found("coffee") == [held.id]


@dataclass
class AtMost(Fault):
    """A server, or a proxy before it, that takes bodies up to a size only."""

    size: int

    @override
    def __call__(self, exchange: Exchange) -> None:
        if len(exchange.request.body) > self.size:
            exchange.reply(Answer(413, b"<html>too large</html>", {"Content-Type": "text/html"}))
        else:
            exchange.reply(exchange.forward())


def test_a_request_that_is_too_large_is_parted_and_one_document_refused(
    proxy: FaultyProxy, index: TestedIndex
) -> None:
    corner = Corner(index)
    proxy.plan(AtMost(8_000), path="_bulk", times=100)
    small = [record(f"small n{n}", corner.scope) for n in range(40)]
    large = record(" ".join(f"large{n}" for n in range(2_000)), corner.scope)
    refused = corner.apply(*small[:20], large, *small[20:]).refused
    assert list(refused) == [large.id]
    assert set(corner.found("small")) == {r.id for r in small}


def test_requests_are_bounded_in_bytes_and_in_items(proxy: FaultyProxy, name: str) -> None:
    settings = settings_at(proxy.url, bulk_bytes=5_000, bulk_items=7)
    with OpenSearchIndex.create(settings, name) as made:
        corner = Corner(served(made))
        corner.add(*["tea"] * 20, *["word " * 400] * 4, " ".join(f"w{n}" for n in range(2_000)))
        sizes = [(len(ids_sent(r)), len(r.body)) for r in proxy.sent("POST", "_bulk")]
        assert sum(items for items, _ in sizes) == 25
        assert all(items <= 7 and (items == 1 or size <= 5_000) for items, size in sizes)
        assert len(corner.find("tea")) == 20


# What comes back from the dead


def test_a_late_write_revives_nothing_after_the_server_forgot_its_deletes(
    index: TestedIndex, raw: OpenSearch, name: str
) -> None:
    """E-02: its memory of deletes is gone once the shard was closed, as a restart closes it."""
    corner = Corner(index)
    raw.indices.put_settings(index=name, body={"index.gc_deletes": "1s"})
    (held,) = corner.add("the secret word", rev=4)
    corner.apply(replace(held, rev=8, status=Status.DELETED))
    raw.indices.flush(index=name)
    raw.indices.close(index=name)
    raw.indices.open(index=name)
    raw.cluster.health(index=name, params={"wait_for_status": "yellow"})
    corner.apply(replace(held, rev=5))
    assert corner.found("secret word", include_superseded=True, show_expired=True) == []
    assert index.guards([held.id]) == {held.id: guard(1, 8)}
    assert [status for mid, _, status in index.scan() if mid == held.id] == [Status.DELETED]


def test_a_tombstone_holds_nothing_of_the_text(index: TestedIndex, raw: OpenSearch) -> None:
    corner = Corner(index)
    (held,) = corner.add(WORD, metadata={"k": 1})
    corner.apply(replace(held, rev=2, status=Status.ERASED))
    found = raw.search(index=server(index).name, body={"query": {"match_all": {}}})
    (document,) = [hit["_source"] for hit in found["hits"]["hits"]]
    assert document == {"tenant": corner.tenant, "status": "erased"}


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_two_revisions_in_one_request_the_newer_wins(
    index: TestedIndex, *, newest_first: bool
) -> None:
    """E-11."""
    corner = Corner(index)
    held = record("version4", corner.scope, rev=4)
    writes = [write_for(r, epoch=1) for r in (held, replace(held, rev=9, text="version9"))]
    items = [documents.item_of(write, routed=True) for write in writes]
    sender: Sender = server(index)._sender
    sender.send(reversed(items) if newest_first else items)
    corner.add("refresh")
    assert index.guards([held.id]) == {held.id: guard(1, 9)}
    assert corner.found("version9") == [held.id]
    assert corner.found("version4") == []


def test_metadata_of_any_type_adds_no_field(index: TestedIndex, raw: OpenSearch, name: str) -> None:
    """E-10: no mapping error, no growth per key."""
    before = raw.indices.get_mapping(index=name)
    corner = Corner(index)
    values: list[Any] = [3, "high", {"level": 1}, None, [1, "x"]]
    made = [record("word", corner.scope, metadata={"priority": value}) for value in values]
    made.append(record("word", corner.scope, metadata={f"key{n}": n for n in range(200)}))
    assert not corner.apply(*made).refused
    assert set(corner.found("word")) == {r.id for r in made}
    assert raw.indices.get_mapping(index=name) == before


# What is not there


def test_an_index_that_was_lost_is_not_made_by_a_write(
    index: TestedIndex, raw: OpenSearch, name: str
) -> None:
    """E-16: nor opened, nor searched as if it were empty."""
    corner = Corner(index)
    corner.add("tea")
    raw.indices.delete(index=name)
    for does in (
        lambda: corner.add("more tea"),
        lambda: corner.find("tea"),
        index.marks,
        lambda: index.count(live=True),
        lambda: list(index.scan()),
        lambda: OpenSearchIndex.open(settings_at(corner_url(index)), name),
    ):
        with pytest.raises(EngineMismatchError, match="gone"):
            does()
    with pytest.raises(NotFoundError):
        raw.indices.get(index=f"{name},{documents.writes_alias(name)}")


def corner_url(index: TestedIndex) -> str:
    return server(index)._settings.urls[0]


def test_an_index_without_its_alias_for_writes_halts(
    index: TestedIndex, raw: OpenSearch, name: str
) -> None:
    """E-16: a write by the alias's name would make an index of that name."""
    alias = documents.writes_alias(name)
    raw.indices.delete_alias(index=name, name=alias)
    with pytest.raises(EngineMismatchError, match="gone"):
        Corner(index).add("tea")
    assert not raw.indices.exists(index=alias)
    with pytest.raises(EngineMismatchError, match="by hand"):
        index.reopen()


def test_an_index_is_not_made_over_another(index: TestedIndex, name: str) -> None:
    corner = Corner(index)
    corner.add("tea")
    for taken in (name, documents.writes_alias(name)):
        with pytest.raises(EngineMismatchError, match=taken):
            OpenSearchIndex.create(settings_at(corner_url(index)), taken)
    assert len(corner.find("tea")) == 1


@pytest.mark.parametrize("changes", [{"k1": 1.3}, {"b": 0.5}, {"route_by_tenant": False}])
def test_an_index_that_was_made_otherwise_is_refused(
    index: TestedIndex, name: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(EngineMismatchError, match="another"):
        OpenSearchIndex.open(settings_at(corner_url(index), **changes), name)


def test_an_index_that_may_lose_what_it_acknowledged_is_refused(
    index: TestedIndex, raw: OpenSearch, name: str
) -> None:
    raw.indices.put_settings(index=name, body={"index.translog.durability": "async"})
    with pytest.raises(EngineMismatchError, match="durable"):
        index.reopen()


# Aliases


def test_searches_follow_the_alias_and_writes_do_not(
    opensearch_url: str, name: str, raw: OpenSearch
) -> None:
    alias, settings = f"{name}-live", settings_at(opensearch_url)
    indexes = [OpenSearchIndex.create(settings, f"{name}-{n}") for n in (1, 2)]
    first, second = (Corner(served(made), tenant="acme") for made in indexes)
    (old,), (new,) = first.add("tea"), second.add("tea")
    with pytest.raises(EngineMismatchError, match="no alias"):
        OpenSearchIndex.open(settings, f"{name}-1", alias=alias)
    indexes[0].publish(alias)
    with OpenSearchIndex.open(settings, f"{name}-1", alias=alias) as opened:
        reading = Corner(served(opened), tenant="acme")
        assert reading.found("tea") == [old.id]
        indexes[1].publish(alias)
        assert list(raw.indices.get_alias(name=alias)) == [f"{name}-2"]
        assert reading.found("tea") == [new.id]
        reading.add("tea")
    assert len(first.found("tea")) == 2
    for made in indexes:
        made.close()
        OpenSearchIndex.drop(settings, made.name)
        OpenSearchIndex.drop(settings, made.name)
    assert not raw.indices.exists(index=f"{name}-1,{name}-2")


def test_an_alias_whose_name_an_index_has_is_told(
    index: TestedIndex, raw: OpenSearch, name: str
) -> None:
    raw.indices.create(index=f"{name}-live")
    with pytest.raises(EngineMismatchError, match="is the name of an index"):
        server(index).publish(f"{name}-live")
    with pytest.raises(EngineMismatchError, match="no alias"):
        OpenSearchIndex.open(settings_at(corner_url(index)), name, alias=f"{name}-live")


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


# The scan


def test_a_scan_gives_each_memory_once_while_others_are_written(
    index: TestedIndex, monkeypatch: pytest.MonkeyPatch, raw: OpenSearch
) -> None:
    monkeypatch.setattr(engine, "SCAN_PAGE", 4)
    corner = Corner(index)
    made = corner.add(*["tea"] * 22)
    corner.apply(replace(made[3], rev=2, status=Status.DELETED))
    scan = iter(index.scan())
    first = [next(scan) for _ in range(5)]
    corner.add(*["later"] * 5)
    corner.apply(*[replace(r, rev=3) for r in made])
    seen = [*first, *scan]
    assert sorted(mid for mid, _, _ in seen) == sorted(r.id for r in made)
    assert {held for _, held, _ in seen} == {guard(1, 1), guard(1, 2)}
    before = views(raw)
    left = index.engine.scan()
    next(left)
    assert views(raw) > before
    left.close()  # type: ignore[attr-defined]
    assert views(raw) <= before


def views(raw: OpenSearch) -> set[str]:
    """List what the server keeps open for scans."""
    try:
        found = raw.transport.perform_request("GET", "/_search/point_in_time/_all")
    except NotFoundError:
        return set()
    return {view["pit_id"] for view in found["pits"]}


def test_a_closed_index_answers_that_it_is_closed(corner: Corner) -> None:
    corner.index.close()
    for does in (lambda: corner.find("tea"), lambda: corner.add("tea"), corner.index.marks):
        with pytest.raises(EngineUnavailableError, match="closed"):
            does()
