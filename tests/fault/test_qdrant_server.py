"""Faults of a Qdrant server and of the way to it: nothing acknowledged is lost, nothing revived."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from canonical.domain.records import Record, Status, guard
from canonical.domain.scope import Scope
from canonical.errors import EngineMismatchError, EngineUnavailableError
from projectors.protocol import Mark
from projectors.vector import mapping
from projectors.vector.mapping import IndexWrite
from projectors.vector.port import Near
from projectors.vector.predicates import LIVE
from projectors.vector.qdrant.index import QdrantIndex
from projectors.vector.qdrant.settings import QdrantSettings
from tests.support.faulty_proxy import (
    Answer,
    Fault,
    FaultyProxy,
    Instead,
    LostReply,
    Reset,
    Rewritten,
    Silence,
    Then,
    proxied,
)
from tests.support.qdrant import REAL_URL, StandIn, stand_in
from tests.support.vector_index import (
    DIMENSION,
    SHAPE,
    SOON,
    Corner,
    ServerIndex,
    record,
    server_index,
    vector_of,
)

SCOPE = Scope("t", user_id="alice")
UPSERT = ("PUT", "/points?")
GUARDS = ("POST", "/points?consistency=all")


@pytest.fixture(scope="module", params=["stand-in", *([REAL_URL] if REAL_URL else [])])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandIn | None]:
    """A server that tests share, each with collections of its own; None: the real one."""
    if request.param == REAL_URL:
        yield None
        return
    with stand_in(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def url(server: StandIn | None) -> str:
    """Return where the server is, without a proxy."""
    return server.url if server else str(REAL_URL)


@pytest.fixture
def killable(server: StandIn | None) -> StandIn:
    """Return the server's process; a test leaves it running."""
    if server is None:
        pytest.skip("the real server's process is not ours")
    return server


@pytest.fixture
def proxy(url: str) -> Iterator[FaultyProxy]:
    with proxied(url) as between:
        yield between


@pytest.fixture
def index(proxy: FaultyProxy) -> Iterator[ServerIndex]:
    with server_index(proxy.url, request_points=10) as made:
        proxy.seen.clear()
        yield made


def mark(shard: int, pos: int, *, epoch: int = 1) -> Mark:
    return Mark(shard, pos, UUID(int=pos), 1, epoch)


def write_of(text: str, **changes: Any) -> IndexWrite:
    made = record(text, SCOPE, **changes)
    return mapping.write_for(made, vector_of(text), epoch=1, dimension=DIMENSION)


def status_of(url: str, index: ServerIndex) -> str:
    return str(asked(url, f"/collections/{index.name}")["status"])


def asked(url: str, path: str) -> dict[str, Any]:
    return dict(httpx.get(url + path, trust_env=False).json()["result"])


def points_in(proxy: FaultyProxy) -> list[list[dict[str, Any]]]:
    """List the points of each upsert that was sent, without the marks."""
    bodies = [json.loads(request.body) for request in proxy.sent(*UPSERT)]
    sent = [[p for p in body["points"] if isinstance(p["id"], str)] for body in bodies]
    return [points for points in sent if points]


def page_and_expected(count: int = 25) -> tuple[list[Record], dict[UUID, tuple[int, Status]]]:
    records = [record(f"tea {n}", SCOPE, rev=1 + n % 3) for n in range(count)]
    return records, {r.id: (guard(1, r.rev), Status.ACTIVE) for r in records}


def held_by(index: ServerIndex) -> dict[UUID, tuple[int, Status | None]]:
    return {memory: (held, status) for memory, held, status in index.scan()}


# A page whose way is broken is repeated, and is whole then

BROKEN: dict[str, Fault] = {
    "500": Instead(Answer(500, b'{"status":{"error":"Service internal error"},"time":0}')),
    "503 of a proxy": Instead(Answer(503, b"<html>no upstream</html>")),
    "429": Instead(Answer(429, b"{}", {"Retry-After": "3"})),
    "reset": Reset(),
    "reply lost": LostReply(),
    "acknowledged": Rewritten(
        lambda a: replace(a, body=a.body.replace(b'"completed"', b'"acknowledged"'))
    ),
    "wait_timeout": Rewritten(
        lambda a: replace(a, body=a.body.replace(b'"completed"', b'"wait_timeout"'))
    ),
    "cut answer": Rewritten(lambda a: replace(a, body=a.body[:20])),
    "empty answer": Rewritten(lambda a: replace(a, body=b"{}")),
}


@pytest.fixture(scope="module")
def common(url: str) -> Iterator[tuple[FaultyProxy, ServerIndex]]:
    """A collection that tests share, each with memories and shards of its own."""
    with proxied(url) as proxy, server_index(proxy.url, request_points=10) as index:
        yield proxy, index


shards = itertools.count()


@pytest.mark.parametrize("nth", [0, 2, 3], ids=["first", "last", "marks"])
@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN)
def test_a_page_that_was_broken_off_is_repeated_and_whole(
    common: tuple[FaultyProxy, ServerIndex], fault: Fault, nth: int
) -> None:
    """E-03, P2, P3: at each request of a page; no mark stands before what it speaks of."""
    proxy, index = common
    records, expected = page_and_expected()
    guards = {memory: held for memory, (held, _) in expected.items()}
    reached = mark(next(shards), 25)
    corner = Corner(index)
    proxy.plan(Then(lambda: None), *UPSERT, times=nth)
    proxy.plan(fault, *UPSERT)
    with pytest.raises(EngineUnavailableError):
        corner.apply(*records, marks=[reached])
    assert proxy.unused() == 0
    if reached.shard in index.marks():
        assert nth == 3
        assert index.guards(list(guards)) == guards
    corner.apply(*records, marks=[reached])
    assert index.guards(list(guards)) == guards
    assert index.marks()[reached.shard] == reached


def test_a_write_that_times_out_is_unknown(proxy: FaultyProxy) -> None:
    """E-03: it may have been applied all the same; doing it again is no harm."""
    until = Event()
    with server_index(proxy.url) as made:
        made.settings = replace(made.settings, timeout=timedelta(seconds=1))
        made.reopen()
        proxy.plan(Silence(until), *UPSERT)
        records, expected = page_and_expected()
        corner = Corner(made, "t")
        with pytest.raises(EngineUnavailableError):
            corner.apply(*records, marks=[mark(4, 25)])
        until.set()
        assert made.marks() == {}
        corner.apply(*records, marks=[mark(4, 25)])
        assert (held_by(made), made.marks()) == (expected, {4: mark(4, 25)})


def test_a_server_that_refuses_connections_is_waited_for(
    index: ServerIndex, proxy: FaultyProxy
) -> None:
    """P12: a dead engine is not a bad record; it goes on when it is back."""
    records, expected = page_and_expected()
    corner = Corner(index, "t")
    proxy.down()
    with pytest.raises(EngineUnavailableError):
        corner.apply(*records)
    with pytest.raises(EngineUnavailableError):
        corner.find()
    proxy.up()
    corner.apply(*records)
    assert held_by(index) == expected


# kill -9


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_server_killed_in_a_page_keeps_what_it_acknowledged(
    killable: StandIn, index: ServerIndex, proxy: FaultyProxy, nth: int, *, after: bool
) -> None:
    """P2, P3: the page is repeated; what had been acknowledged before is there at once."""
    first, before = page_and_expected(12)
    corner = Corner(index, "t")
    corner.apply(*first, marks=[mark(4, 12)])
    records, expected = page_and_expected()
    proxy.plan(Then(lambda: None), *UPSERT, times=nth)
    proxy.plan(Then(killable.kill, after=after), *UPSERT)
    if not (after and nth == 3):
        with pytest.raises(EngineUnavailableError):
            corner.apply(*records, marks=[mark(4, 37)])
    else:
        corner.apply(*records, marks=[mark(4, 37)])
    killable.start()
    held = held_by(index)
    assert before.items() <= held.items()
    assert index.marks() in ({4: mark(4, 12)}, {4: mark(4, 37)})
    if index.marks() == {4: mark(4, 37)}:
        assert held == before | expected
    corner.apply(*records, marks=[mark(4, 37)])
    assert held_by(index) == before | expected
    assert index.marks() == {4: mark(4, 37)}


def test_a_collection_that_comes_back_grey_is_started_by_whoever_opens_it(
    killable: StandIn, index: ServerIndex
) -> None:
    Corner(index, "t").add("tea")
    killable.kill()
    killable.start()
    assert status_of(killable.url, index) == "grey"
    index.reopen()
    assert status_of(killable.url, index) == "green"


def test_a_collection_that_comes_back_grey_is_started_by_whoever_has_it_open(
    killable: StandIn, index: ServerIndex
) -> None:
    """Nobody opens it again: a worker goes on with its next page."""
    corner = Corner(index, "t")
    corner.add("tea")
    killable.kill()
    with pytest.raises(EngineUnavailableError):
        corner.add("tea")
    killable.start()
    assert status_of(killable.url, index) == "grey"
    corner.add("tea")
    assert status_of(killable.url, index) == "green"


# The engine has the last word


@pytest.mark.parametrize("many", [False, True], ids=["one guard", "many guards"])
def test_an_older_write_under_way_loses_in_the_engine(
    url: str, index: ServerIndex, proxy: FaultyProxy, *, many: bool
) -> None:
    """O-04: a newer one lands between the reading of guards and the writing."""
    memories = [uuid4() for _ in range(4)]
    old = [write_of("old", id=m, rev=1 + n * many) for n, m in enumerate(memories)]
    new = [write_of("new", id=m, rev=2 + n * many) for n, m in enumerate(memories[:2])]

    def overtake() -> None:
        with QdrantIndex.open(QdrantSettings(url=url), index.name, SHAPE) as other:
            other.write(new, [])

    proxy.plan(Then(overtake, after=True), *GUARDS)
    assert index.write(old, []) == 0  # the answer doesn't say what was skipped
    assert proxy.unused() == 0
    expected = {w.memory_id: w.guard for w in old} | {w.memory_id: w.guard for w in new}
    assert index.guards(memories) == expected
    assert Corner(index, "t").find("new")[0].score == pytest.approx(1, abs=1e-5)


def test_a_mark_of_another_process_is_never_set_back(index: ServerIndex, url: str) -> None:
    """P3: a zombie's mark loses, by position and by epoch; a restored log's wins."""
    with QdrantIndex.open(QdrantSettings(url=url), index.name, SHAPE) as other:
        other.write([], [mark(0, 9), mark(1, 9)])
        index.write([], [mark(0, 5), mark(1, 12), mark(2, 3)])
        assert index.marks() == {0: mark(0, 9), 1: mark(1, 12), 2: mark(2, 3)}
        index.write([], [mark(0, 2, epoch=2)])
        other.write([], [mark(0, 99)])
        assert other.marks()[0] == mark(0, 2, epoch=2)


def test_guards_are_read_as_all_replicas_hold_them(index: ServerIndex, proxy: FaultyProxy) -> None:
    """A write that only one replica took is not taken for done when the page comes again."""
    index.write([write_of("tea")], [])
    assert len(proxy.sent(*GUARDS)) == 1


# Requests


def test_pages_go_as_few_large_requests_whatever_their_guards(proxy: FaultyProxy) -> None:
    """E-14: a guarded request makes the server drain its queue first."""
    with server_index(proxy.url) as made:
        proxy.seen.clear()
        writes = [write_of("tea", rev=1 + n % 700) for n in range(2_300)]
        made.write(writes, [mark(n, 1) for n in range(16)])
        assert [len(points) for points in points_in(proxy)] == [1_000, 1_000, 300]
        assert len(proxy.sent(*UPSERT)) == 4
        proxy.seen.clear()
        assert made.write(writes, []) == 2_300
        assert proxy.sent(*UPSERT) == []
        held = made.guards([w.memory_id for w in writes])
        assert held == {w.memory_id: w.guard for w in writes}


def test_no_request_is_larger_than_its_bound(proxy: FaultyProxy) -> None:
    """E-14: metadata may be large; the server refuses a request over its own bound."""
    bound = 200_000
    with server_index(proxy.url, request_bytes=bound) as made:
        proxy.seen.clear()
        many = {f"key {n}": "x" * 20 for n in range(60)}
        made.write([write_of("tea", metadata=many) for _ in range(300)], [])
        sizes = [len(request.body) for request in proxy.sent(*UPSERT)]
        assert len(sizes) > 3
        assert max(sizes) <= bound
        assert max(sizes) > bound / 2  # and they are not small


def test_an_id_is_in_a_request_once(index: ServerIndex, proxy: FaultyProxy) -> None:
    """E-11: of the same id twice the last would win, even if it is older."""
    memory = uuid4()
    writes = [write_of(f"tea {rev}", id=memory, rev=rev) for rev in (4, 9, 5)]
    index.write(writes, [])
    assert [[p["id"] for p in points] for points in points_in(proxy)] == [[str(memory)]]
    assert index.guards([memory]) == {memory: guard(1, 9)}


def test_nothing_is_ever_deleted_from_the_collection(
    index: ServerIndex, proxy: FaultyProxy
) -> None:
    """E-02, E-12: a hard delete would let a late write in; tombstones stay, without vector."""
    corner = Corner(index, "t")
    (gone,) = corner.add("tea")
    corner.apply(replace(gone, rev=8, status=Status.DELETED))
    corner.apply(replace(gone, rev=5))
    assert held_by(index) == {gone.id: (guard(1, 8), Status.DELETED)}
    assert [r for r in proxy.seen if r.method == "DELETE" or "delete" in r.path] == []
    (tombstone,) = points_in(proxy)[-1]
    assert set(tombstone["vector"]) == {0.0}


@pytest.mark.parametrize("payload", [{}, {"guard": "x", "status": 3}, {"status": "active"}])
def test_a_point_without_a_guard_is_seen_and_overwritten(
    url: str, index: ServerIndex, payload: dict[str, Any]
) -> None:
    """E-12: planted under a live record's id; a scan names it, a write mends it."""
    memory = uuid4()
    planted = {"id": str(memory), "vector": [1.0] * DIMENSION, "payload": payload}
    where = f"{url}/collections/{index.name}/points?wait=true"
    httpx.put(where, json={"points": [planted]}, trust_env=False).raise_for_status()
    ((found, held, status),) = index.scan()
    assert (found, held) == (memory, -1)
    assert status is (Status.ACTIVE if payload.get("status") == "active" else None)
    index.write([write_of("tea", id=memory)], [])
    assert held_by(index) == {memory: (guard(1, 1), Status.ACTIVE)}


def test_a_hit_without_its_payload_is_dropped_and_counted(
    index: ServerIndex, proxy: FaultyProxy
) -> None:
    corner = Corner(index, "t")
    kept, _ = corner.add("tea", "coffee")

    def bare(answer: Answer) -> Answer:
        told = json.loads(answer.body)
        del told["result"]["points"][1]["payload"]
        return replace(answer, body=json.dumps(told).encode())

    proxy.plan(Rewritten(bare), path="/points/query")
    assert corner.found("tea") == [kept.id]
    assert index.engine.bare_hits == 1


# What is lost is not made again by accident


def test_a_collection_that_is_gone_is_named_and_never_made_again(
    url: str, index: ServerIndex
) -> None:
    """E-16: the writer stops, a search says so; an open finds none and makes none."""
    corner = Corner(index, "t")
    corner.add("tea")
    httpx.delete(f"{url}/collections/{index.name}", trust_env=False).raise_for_status()
    with pytest.raises(EngineMismatchError, match=index.name):
        corner.apply(record("tea", SCOPE), marks=[mark(0, 1)])
    with pytest.raises(EngineMismatchError, match=index.name):
        corner.apply(marks=[mark(0, 1)])
    with pytest.raises(EngineMismatchError, match=index.name):
        corner.find()
    with pytest.raises(EngineMismatchError, match=index.name):
        index.reopen()
    assert asked(url, f"/collections/{index.name}/exists") == {"exists": False}


def test_an_alias_names_one_collection_and_searches_follow_it(index: ServerIndex) -> None:
    """P8, E-16: switched in one step, back again as well; a missing one is named."""
    settings, alias = index.settings, f"served-{index.name}"
    with pytest.raises(EngineMismatchError, match=alias):
        QdrantIndex.open(settings, index.name, SHAPE, alias=alias)
    index.engine.publish(alias)
    (old,) = Corner(index, "t").add("tea")
    with server_index(settings.url) as newer:
        (new,) = Corner(newer, "t").add("tea")
        with QdrantIndex.open(settings, index.name, SHAPE, alias=alias) as one:
            assert [hit.memory_id for hit in nearest(one)] == [old.id]
            newer.engine.publish(alias)
            assert [hit.memory_id for hit in nearest(one)] == [new.id]
            assert list(one.guards([old.id, new.id])) == [old.id]  # only searches follow
            index.engine.publish(alias)
            assert [hit.memory_id for hit in nearest(one)] == [old.id]
    index.engine.drop(settings, index.name)
    index.engine.drop(settings, index.name)
    with pytest.raises(EngineMismatchError):
        QdrantIndex.open(settings, index.name, SHAPE)


def nearest(index: QdrantIndex) -> list[Near]:
    return index.nearest(vector_of("tea"), LIVE, 9, SOON)


@pytest.mark.parametrize("fault", [Reset(), LostReply()], ids=["not done", "reply lost"])
@pytest.mark.parametrize("nth", [0, 1, 9, 10])  # the collection, nine indexes, the last word
def test_a_creation_that_was_broken_off_is_no_index_and_is_finished_by_the_next(
    url: str, proxy: FaultyProxy, nth: int, fault: Fault
) -> None:
    """E-16: an index without its indexes is never served."""
    settings, name = QdrantSettings(url=proxy.url), f"g{uuid4().hex}"
    proxy.plan(Then(lambda: None), "PUT", name, times=min(nth, 10))
    proxy.plan(fault, "PUT" if nth < 10 else "PATCH", name)
    with pytest.raises(EngineUnavailableError):
        QdrantIndex.create(settings, name, SHAPE)
    assert proxy.unused() == 0
    if nth < 10 or isinstance(fault, Reset):
        with pytest.raises(EngineMismatchError, match=name):
            QdrantIndex.open(settings, name, SHAPE)
        QdrantIndex.create(settings, name, SHAPE).close()
    schema = asked(url, f"/collections/{name}")["payload_schema"]
    assert len(schema) == 9
    assert schema["tenant"]["params"]["is_tenant"] is True
    QdrantIndex.open(settings, name, SHAPE).close()


def test_an_index_that_is_there_is_not_made_again(index: ServerIndex) -> None:
    corner = Corner(index, "t")
    corner.add("tea")
    with pytest.raises(EngineMismatchError, match=index.name):
        QdrantIndex.create(index.settings, index.name, SHAPE)
    assert len(corner.found()) == 1
