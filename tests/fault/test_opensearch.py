"""An OpenSearch that takes a part of a page, that forgets, that is gone or was made otherwise."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError
from typing_extensions import override

from canonical.domain.records import Record, Status, guard
from canonical.domain.scope import Scope
from canonical.errors import (
    EngineMismatchError,
    EngineRefusedError,
    EngineUnavailableError,
)
from projectors.keyword.mapping import IndexWrite, Upsert, write_for
from projectors.keyword.opensearch import documents, engine
from projectors.keyword.opensearch.engine import OpenSearchIndex
from projectors.keyword.opensearch.sending import Sender
from projectors.protocol import Mark
from tests.support.faulty_proxy import (
    Answer,
    Exchange,
    Fault,
    FaultyProxy,
    Instead,
    LostReply,
    Request,
)
from tests.support.keyword_index import Corner, TestedIndex, opensearch_index, page_of, record
from tests.support.opensearch import settings_at

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
