"""What is Qdrant Edge's own: guards in the engine, its log, its files, what its failures mean."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from qdrant_edge import EdgeShard, Point, UpdateOperation

from canonical.domain.records import Status, guard
from canonical.domain.scope import Scope
from canonical.errors import EngineMismatchError, EngineUnavailableError
from projectors.protocol import Mark
from projectors.vector import mapping, schema
from projectors.vector.embedded.engine import CALL_POINTS, EdgeEngine
from projectors.vector.mapping import IndexWrite
from tests.support.vector_index import (
    DIMENSION,
    SHAPE,
    Corner,
    EdgeIndex,
    page_of,
    record,
    vector_of,
)

SCOPE = Scope("t", user_id="alice")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[EdgeIndex]:
    made = EdgeIndex(tmp_path / "index")
    made.create()
    yield made
    made.close()


class Shard:
    """A shard of which one update fails; the rest is the real one's."""

    def __init__(self, real: EdgeShard, fails_at: int) -> None:
        self._real, self._left = real, fails_at

    def update(self, operation: UpdateOperation) -> None:
        self._left -= 1
        if self._left == 0:
            raise Exception("No space left on device")  # noqa: TRY002 - as Edge does
        self._real.update(operation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def mark(shard: int, pos: int) -> Mark:
    return Mark(shard, pos, uuid4(), 1, 1)


def write_of(text: str, **changes: Any) -> IndexWrite:
    made = record(text, SCOPE, **changes)
    return mapping.write_for(made, vector_of(text), epoch=1, dimension=DIMENSION)


def plant(index: EdgeIndex, point: Point) -> None:
    index.engine._shard.update(UpdateOperation.upsert_points([point]))


def bytes_of_segments(directory: Path) -> bytes:
    return b"".join(p.read_bytes() for p in (directory / "edge/segments").rglob("*") if p.is_file())


def test_the_engine_refuses_an_older_write_by_itself(
    index: EdgeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-04: with nothing read beforehand, as if another writer had come between."""
    memory = uuid4()
    index.write([write_of("tea", id=memory, rev=5)], [])
    monkeypatch.setattr(index.engine, "_guards", lambda _ids: {})
    index.write([write_of("old tea", id=memory, rev=4)], [])
    index.write([write_of("same tea", id=memory, rev=5)], [])
    monkeypatch.undo()
    (hit,) = Corner(index, "t").find("tea")
    assert hit.rev == 5
    assert hit.score == pytest.approx(1, abs=1e-5)
    index.write([write_of("new tea", id=memory, rev=6)], [])
    assert Corner(index, "t").find("new tea")[0].rev == 6


@pytest.mark.parametrize("payload", [{}, {"guard": "x", "status": 3}, {"status": "active"}])
def test_a_point_without_a_guard_is_seen_and_overwritten(
    index: EdgeIndex, payload: dict[str, Any]
) -> None:
    """E-12: planted under a live record's id; a scan names it, a write mends it."""
    memory = uuid4()
    plant(index, Point(memory, [1.0] * DIMENSION, payload))
    ((found, held, status),) = index.scan()
    assert (found, held) == (memory, -1)
    assert status is (Status.ACTIVE if payload.get("status") == "active" else None)
    index.write([write_of("tea", id=memory)], [])
    assert list(index.scan()) == [(memory, guard(1, 1), Status.ACTIVE)]
    assert Corner(index, "t").found() == [memory]


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_mark_never_stands_without_its_page(index: EdgeIndex, fails_at: int) -> None:
    """P2: a full disk after any of the page's calls; the page is repeated and is whole."""
    records = [record("tea", SCOPE) for _ in range(CALL_POINTS + 1)]
    marks = [mark(0, 1)]
    real = index.engine._shard
    index.engine._shard = Shard(real, fails_at)  # type: ignore[assignment]
    corner = Corner(index, "t")
    with pytest.raises(EngineUnavailableError, match="No space left"):
        corner.projector.apply(page_of(records, marks=marks))
    assert index.marks() == {}
    index.engine._shard = real
    index.reopen()
    assert index.marks() == {}
    again = Corner(index, "t")
    again.projector.apply(page_of(records, marks=marks))
    assert index.marks() == {0: marks[0]}
    assert len(again.find(limit=1_000)) == len(records)


def test_each_page_is_brought_to_the_disk(
    index: EdgeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill can't lose a loss of power could: Edge's log is synced before apply returns."""
    synced: set[int] = set()
    real = os.fsync

    def record_it(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fsync", record_it)
    index.write([write_of("tea")], [])
    log = {path.stat().st_ino for path in (index.directory / "edge/wal").iterdir()}
    assert log
    assert log <= synced
    synced.clear()
    index.write([], [])
    assert not synced  # nothing written, nothing to wait for


def test_writes_without_effect_leave_no_trace(index: EdgeIndex) -> None:
    """E-14: versions that are already there don't grow the log that a start replays."""
    writes = [write_of("tea", id=uuid4()) for _ in range(500)]
    index.write(writes, [])
    index.engine.flush()

    def log_bytes() -> bytes:
        return b"".join(p.read_bytes() for p in sorted((index.directory / "edge/wal").iterdir()))

    before = log_bytes()
    for _ in range(5):
        assert index.write(writes, []) == 500
    assert log_bytes() == before


def test_an_erased_vector_is_overwritten_in_the_segments(index: EdgeIndex) -> None:
    """P10: a vector tells much of its text; a tombstone's zeros lie where it lay."""
    memory = uuid4()
    write = write_of("a secret about green tea", id=memory)
    signature = vector_of("a secret about green tea")[8:16].tobytes()
    index.write([write], [])
    index.engine.flush()
    assert signature in bytes_of_segments(index.directory)
    erased = record("", SCOPE, id=memory, rev=2, status=Status.ERASED)
    index.write([mapping.write_for(erased, None, epoch=1, dimension=DIMENSION)], [])
    index.engine.flush()
    assert signature not in bytes_of_segments(index.directory)


# Generations


def test_an_index_that_is_not_there_is_never_made_by_opening_it(tmp_path: Path) -> None:
    """E-16: lost is lost; a rebuild makes another one."""
    for directory in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(EngineMismatchError, match="no finished index"):
            EdgeEngine.open(directory, SHAPE)
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_was_never_finished_is_refused(index: EdgeIndex) -> None:
    """A kill while it was made: it can't be told from one that lost its indexes."""
    index.close()
    about = index.directory / "about.json"
    content = about.read_text()
    about.unlink()
    with pytest.raises(EngineMismatchError, match="no finished index"):
        index.open()
    about.write_text("{")
    with pytest.raises(EngineMismatchError, match="damaged"):
        index.open()
    about.write_text(content)
    index.open()


def test_nothing_is_made_over_what_is_there(index: EdgeIndex) -> None:
    with pytest.raises(EngineMismatchError, match="not empty"):
        EdgeEngine.create(index.directory, SHAPE)


@pytest.mark.parametrize("harm", ["no segments", "no edge", "cut", "garbage"])
def test_a_damaged_index_is_a_halt(index: EdgeIndex, harm: str) -> None:
    """P8: the caller makes another generation; nothing is answered from half an index."""
    index.write([write_of(f"tea {n}") for n in range(300)], [mark(0, 9)])
    index.close()
    edge = index.directory / "edge"
    match harm:
        case "no segments":
            shutil.rmtree(edge / "segments")
            shutil.rmtree(edge / "wal")
        case "no edge":
            shutil.rmtree(edge)
        case _:
            for path in (edge / "segments").rglob("*.json"):
                path.write_bytes(b"" if harm == "cut" else os.urandom(64))
    try:
        index.open()
        index.require_reached({0: 9})
    except EngineMismatchError:
        pass
    else:
        pytest.fail("a damaged index was taken for a sound one")
    finally:
        shutil.rmtree(index.directory)
        index.create()


def test_an_index_lost_while_it_is_open_is_a_halt(index: EdgeIndex) -> None:
    """E-16: its files were removed under it; it doesn't go on into nowhere."""
    shutil.rmtree(index.directory)
    with pytest.raises(EngineMismatchError, match="gone"):
        index.write([write_of("tea")], [mark(0, 1)])
    assert index.marks() == {}


def test_no_field_is_made_per_metadata_key(index: EdgeIndex) -> None:
    """E-10: 2,000 keys, the same indexed fields."""
    before = set(index.engine._shard.info().payload_schema)
    index.write([write_of("tea", metadata={f"key {n}": n for n in range(2_000)})], [])
    assert set(index.engine._shard.info().payload_schema) == before
    assert before == {*schema.KEYWORDS, *schema.MOMENTS}
