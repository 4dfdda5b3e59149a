"""What every vector index promises, whichever engine holds it."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canonical.domain.filters import parse
from canonical.domain.records import Record, Status, guard
from canonical.domain.scope import Scope
from canonical.errors import (
    EngineMismatchError,
    EngineUnavailableError,
    ModelRefusedError,
    ModelUnavailableError,
)
from projectors.protocol import Mark
from projectors.vector import mapping
from projectors.vector.schema import Shape
from tests.support.vector_index import (
    DIMENSION,
    IDS,
    IMPLEMENTATIONS,
    NOW,
    SHAPE,
    Corner,
    OpenIndex,
    index_on,
    page_of,
    record,
    vector_of,
)

MICROSECOND = timedelta(microseconds=1)
EVERYTHING = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=IMPLEMENTATIONS, ids=IDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An index that tests share: each has a tenant of its own."""
    with index_on(request, tmp_path_factory.mktemp("shared")) as index:
        yield index


@pytest.fixture(params=IMPLEMENTATIONS, ids=IDS)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenIndex]:
    """An index of this test alone."""
    with index_on(request, tmp_path) as made:
        yield made


@pytest.fixture
def corner(shared: OpenIndex) -> Corner:
    return Corner(shared)


def mark(shard: int, pos: int, *, epoch: int = 1) -> Mark:
    return Mark(shard, pos, UUID(int=pos), 1, epoch)


def state_at(memory: UUID, version: int, scope: Scope) -> Record:
    """Return what an event of this version would have made of a memory; the sixth deletes it."""
    status = Status.DELETED if version == 6 else Status.ACTIVE
    text = f"tea number {version}"
    return record(text, scope, id=memory, version=version, rev=version, status=status)


# Guards


@EVERYTHING
@given(data=st.data())
def test_the_highest_version_wins_in_every_order(shared: OpenIndex, data: st.DataObject) -> None:
    """O-04, E-11: versions 1 to 5 and a delete, every order, with repeats, pages of 1 to 6."""
    corner = Corner(shared)
    memories = [uuid4(), uuid4()]
    events = [(memory, version) for memory in memories for version in range(1, 7)]
    repeats = data.draw(st.lists(st.sampled_from(events), max_size=8))
    order = data.draw(st.permutations(events + repeats))
    highest: dict[UUID, int] = {}
    while order:
        size = data.draw(st.integers(1, 6))
        taken, order = order[:size], order[size:]
        writes = [
            mapping.write_for(
                state_at(memory, version, corner.scope),
                vector_of("tea"),
                epoch=1,
                dimension=DIMENSION,
            )
            for memory, version in taken
        ]
        shared.write(writes, [])  # the same memory may occur twice, in any order
        for memory, version in taken:
            highest[memory] = max(version, highest.get(memory, 0))
        assert shared.guards(memories) == {m: guard(1, v) for m, v in highest.items()}
        live = {memory: version for memory, version in highest.items() if version < 6}
        assert {hit.memory_id: hit.rev for hit in corner.find()} == live
    assert corner.found() == []


@EVERYTHING
@given(data=st.data())
def test_any_order_of_pages_ends_in_the_same_index(shared: OpenIndex, data: st.DataObject) -> None:
    """O-04, through the projector: pages are repeated and overtake each other."""
    corner = Corner(shared)
    memories = [uuid4() for _ in range(3)]
    pages = [
        [state_at(m, version, corner.scope) for m in memories[: 1 + version % 3]]
        for version in range(1, 7)
    ]
    repeats = data.draw(st.lists(st.sampled_from(pages), max_size=4))
    for page in data.draw(st.permutations(pages + repeats)):
        corner.apply(*page)
    held = shared.guards(memories)
    assert [held[m] for m in memories] == [guard(1, 6), guard(1, 5), guard(1, 5)]
    assert set(corner.found()) == set(memories[1:])


def test_a_write_that_was_held_up_changes_nothing(corner: Corner) -> None:
    """O-04: a zombie has read version 1; version 2 is applied; then the zombie goes on."""
    memory = uuid4()
    old, new = (state_at(memory, version, corner.scope) for version in (1, 2))
    has_read, may_go_on = threading.Event(), threading.Event()
    zombie = Corner(corner.index, corner.tenant)

    def hold(_records: object) -> None:
        has_read.set()
        assert may_go_on.wait(10)

    zombie.vectors.before = hold
    thread = threading.Thread(target=zombie.apply, args=(old,))
    thread.start()
    assert has_read.wait(10)
    corner.apply(new)
    may_go_on.set()
    thread.join(10)
    assert [hit.rev for hit in corner.find()] == [2]
    assert zombie.projector.stale == 1


def test_an_older_write_is_counted_and_no_error(corner: Corner) -> None:
    """O-04: to be refused is a success."""
    memory = uuid4()
    writes = [
        mapping.write_for(
            state_at(memory, v, corner.scope), vector_of("tea"), epoch=1, dimension=DIMENSION
        )
        for v in (2, 1)
    ]
    assert corner.index.write([writes[0]], []) == 0
    assert corner.index.write([writes[1]], []) == 1
    assert corner.index.write([writes[0]], []) == 1  # the same again


def test_a_new_epoch_wins_over_any_rev(corner: Corner) -> None:
    """R: after a restore revs start lower; the epoch is the higher part of the guard."""
    memory = uuid4()
    corner.apply(state_at(memory, 5, corner.scope), epoch=1)
    corner.apply(state_at(memory, 2, corner.scope), epoch=2)
    assert [hit.rev for hit in corner.find()] == [2]
    corner.apply(state_at(memory, 6, corner.scope), epoch=1)
    assert [hit.rev for hit in corner.find()] == [2]


def test_many_guards_in_one_page(corner: Corner) -> None:
    """Each point has its own guard, however they are sent."""
    memories = [uuid4() for _ in range(40)]
    for rev in (3, 7):
        corner.apply(
            *(record("tea", corner.scope, id=m, rev=rev + n) for n, m in enumerate(memories))
        )
    corner.apply(*(record("tea", corner.scope, id=m, rev=20) for m in memories))
    held = corner.index.guards(memories)
    assert [held[m] for m in memories] == [guard(1, max(7 + n, 20)) for n in range(40)]


def test_a_tombstone_stays_dead_and_keeps_nothing(index: OpenIndex) -> None:
    """E-02: deleted and erased, also after the index was closed and opened."""
    corner = Corner(index)
    deleted, erased, kept = corner.add("tea one", "tea two", "tea three", metadata={"a": 1})
    corner.apply(
        replace(deleted, rev=8, status=Status.DELETED),
        replace(erased, rev=8, status=Status.ERASED, text="", metadata={}),
    )
    for _ in range(2):
        corner.apply(replace(deleted, rev=5), replace(erased, rev=5))
        assert corner.found(include_superseded=True, show_expired=True) == [kept.id]
        assert {i: s for i, _, s in index.scan()} == {
            deleted.id: Status.DELETED,
            erased.id: Status.ERASED,
            kept.id: Status.ACTIVE,
        }
        assert (index.count(live=True), index.count(live=False)) == (1, 3)
        index.reopen()
        corner = Corner(index, corner.tenant)


def test_a_deletion_asks_no_model(corner: Corner) -> None:
    """O: with the model down the deleted are gone all the same."""
    (gone,) = corner.add("tea")
    corner.vectors.embedder.down = True
    corner.apply(replace(gone, rev=2, status=Status.DELETED))
    assert corner.found() == []


# What is in a page


def test_a_record_that_the_model_refuses_is_named_and_the_rest_is_written(corner: Corner) -> None:
    """E-07, P12: one bad record stops nothing."""
    corner.vectors.embedder.refuses = lambda text: "walnuts" in text
    good, bad = record("tea", corner.scope), record("walnuts", corner.scope)
    applied = corner.apply(good, bad, marks=[mark(1, 100)])
    assert list(applied.refused) == [bad.id]
    assert isinstance(applied.refused[bad.id], ModelRefusedError)
    assert corner.found() == [good.id]
    assert corner.index.marks()[1] == mark(1, 100)
    corner.vectors.embedder.refuses = lambda _text: False
    corner.apply(bad)  # redriven
    assert set(corner.found()) == {good.id, bad.id}


def test_a_model_that_is_down_refuses_nothing_and_moves_nothing(index: OpenIndex) -> None:
    """P12: a dead engine is not a bad record."""
    corner = Corner(index)
    corner.vectors.embedder.down = True
    with pytest.raises(ModelUnavailableError):
        corner.apply(record("tea", corner.scope), marks=[mark(0, 1)])
    assert (index.marks(), index.count(live=False)) == ({}, 0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_vector_that_is_not_finite_is_that_records_fault(corner: Corner, bad: float) -> None:
    vector = vector_of("tea")
    vector[3] = bad
    writing = record("tea", corner.scope)
    with pytest.raises(Exception, match="finite") as caught:
        mapping.write_for(writing, vector, epoch=1, dimension=DIMENSION)
    assert type(caught.value).__name__ == "EngineRefusedError"


def test_an_update_leaves_nothing_of_what_was(corner: Corner) -> None:
    """E-04, E-05, E-15: vector, metadata, scope and times are replaced, not merged."""
    (old,) = corner.add("likes tea", metadata={"a": 1, "project": "x"}, expires_at=None)
    corner.apply(
        replace(
            old,
            rev=2,
            text="moved to Osaka",
            metadata={"project": "y"},
            expires_at=NOW + MICROSECOND,
        )
    )
    assert corner.find("moved to Osaka")[0].score == pytest.approx(1, abs=1e-5)
    assert corner.find("likes tea")[0].score < 0.7
    assert corner.found(where=parse({"a": 1})) == []
    assert corner.found(where=parse({"a": {"exists": True}})) == []
    assert corner.found(where=parse({"project": "x"})) == []
    assert corner.found(where=parse({"project": "y"})) == [old.id]
    assert corner.found(now=NOW + MICROSECOND) == []


def test_superseded_facts_are_shown_as_of_their_time_or_when_asked_for(corner: Corner) -> None:
    """P6: the older fact has ended where the newer one begins; an active one that ended is none."""
    ended = NOW - timedelta(minutes=1)
    (older,) = corner.add("tea", status=Status.SUPERSEDED, valid_to=ended)
    (past,) = corner.add("tea", valid_to=ended)
    corner.add("tea", status=Status.SUPERSEDED, valid_from=NOW + timedelta(minutes=1))
    assert corner.found() == []
    assert corner.found(include_superseded=True) == [older.id]
    assert set(corner.found(as_of=NOW - timedelta(hours=1))) == {older.id, past.id}


# Marks


def test_marks_are_kept_with_the_page_and_move_forward_only(index: OpenIndex) -> None:
    corner = Corner(index)
    corner.apply(record("tea", corner.scope), marks=[mark(0, 5), mark(15, 9)])
    corner.apply(record("tea", corner.scope), marks=[mark(0, 4), mark(7, 1)])  # a page again
    expected = {0: mark(0, 5), 15: mark(15, 9), 7: mark(7, 1)}
    assert index.marks() == expected
    corner.apply(marks=[mark(0, 2, epoch=2)])  # the log was restored to an older state
    expected[0] = mark(0, 2, epoch=2)
    index.reopen()
    assert index.marks() == expected
    assert (index.count(live=True), index.count(live=False), len(list(index.scan()))) == (2, 2, 2)
    assert len(Corner(index, corner.tenant).found()) == 2


def test_an_index_behind_its_watermark_is_named(index: OpenIndex) -> None:
    """An old copy of the files came back, or they were lost."""
    Corner(index).apply(marks=[mark(0, 5)])
    index.require_reached({0: 5, 1: 0})
    for watermarks in ({0: 6}, {1: 1}):
        with pytest.raises(EngineMismatchError, match="watermark"):
            index.require_reached(watermarks)


def test_a_scan_names_everything_once_in_the_order_of_ids(index: OpenIndex) -> None:
    corner = Corner(index)
    records = [record("tea", corner.scope, rev=1 + n % 3) for n in range(2_300)]
    corner.apply(*records, marks=[mark(n, 1) for n in range(16)])
    found = list(index.scan())
    expected = sorted((r.id, guard(1, r.rev), Status.ACTIVE) for r in records)
    assert found == expected


# Generations that don't fit


@pytest.mark.parametrize(
    "shape", [Shape("hash", DIMENSION + 1), Shape("another", DIMENSION)], ids=["dimension", "model"]
)
def test_another_model_or_dimension_is_refused_by_name(index: OpenIndex, shape: Shape) -> None:
    """E-06: both numbers and both models are named, and nothing is changed."""
    corner = Corner(index)
    corner.add("tea")
    index.close()
    with pytest.raises(EngineMismatchError) as caught:
        index.open_again(shape)
    said = str(caught.value)
    for word in (str(DIMENSION), str(shape.dimension), SHAPE.model, shape.model):
        assert word in said
    index.reopen()
    assert len(Corner(index, corner.tenant).found()) == 1


def test_a_closed_index_says_so(index: OpenIndex) -> None:
    corner = Corner(index)
    index.close()
    with pytest.raises(EngineUnavailableError):
        corner.find()
    with pytest.raises(EngineUnavailableError):
        corner.apply(record("tea", corner.scope))
    index.reopen()


def test_searches_go_on_while_pages_are_written(corner: Corner) -> None:
    """Many readers, two writers: nothing is lost, and no search sees what it may not."""
    old = corner.add(*(f"tea {n}" for n in range(50)))
    stop, problems = threading.Event(), list[str]()

    def search() -> None:
        while not stop.is_set():
            hits = corner.find(limit=500)
            if not {r.id for r in old} <= {h.memory_id for h in hits}:
                problems.append("a record that nobody touched was not found")

    def write(n: int) -> None:
        mine = Corner(corner.index, corner.tenant)
        for k in range(8):
            mine.apply(*(record(f"coffee {n} {k}", corner.scope) for _ in range(20)))

    readers = [threading.Thread(target=search) for _ in range(3)]
    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join(30)
    stop.set()
    for thread in readers:
        thread.join(30)
    assert problems == []
    assert len(corner.find(limit=1_000)) == 50 + 2 * 8 * 20


def test_a_page_of_nothing_is_nothing(index: OpenIndex) -> None:
    applied = Corner(index).projector.apply(page_of([]))
    assert (dict(applied.refused), index.marks(), index.count(live=False)) == ({}, {}, 0)
