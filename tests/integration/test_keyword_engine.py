"""The tantivy index as files and processes: kills, locks, damage, failures, threads."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from threading import Event
from uuid import UUID

import pytest
import tantivy

from canonical.domain.records import Record, Status
from canonical.errors import EngineMismatchError, EngineUnavailableError, PoisonError
from projectors.keyword import schema
from projectors.keyword.embedded import snapshot
from projectors.keyword.embedded.documents import build_schema, document_of
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.keyword.mapping import write_for
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Mark
from tests.support import keyword_writer
from tests.support.keyword_index import Corner, TantivyIndex, page_of, record
from tests.support.keyword_writer import PAGE, memory

ROOT = Path(__file__).parents[2]
KILLS = 4


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TantivyIndex]:
    made = TantivyIndex.create(tmp_path / "index")
    yield made
    made.close()


@pytest.fixture
def corner(index: TantivyIndex) -> Corner:
    return Corner(index)


# Other processes


@contextmanager
def writing(directory: Path, first_page: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", keyword_writer.__name__, str(directory), str(first_page)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """P3, DESIGN §5: SIGKILL at any moment, again and again; the lock goes with the process."""
    directory, done = tmp_path / "index", 0
    EmbeddedIndex.create(directory).close()
    for kill in range(KILLS):
        with writing(directory, done) as process:
            assert process.stdout is not None
            for _ in range(2 + 3 * kill):
                done = int(process.stdout.readline()) + 1
            process.kill()
            rest = process.stdout.read().split()
            done = int(rest[-1]) + 1 if rest else done
        with EmbeddedIndex.open(directory) as engine:
            done = _holds_whole_pages(engine, done)


def _holds_whole_pages(engine: EmbeddedIndex, acknowledged: int) -> int:
    """Check that the index holds pages 0 … n, whole, with their marks; return n + 1."""
    marked = max(mark.pos for mark in engine.marks().values()) + 1
    assert acknowledged <= marked <= acknowledged + 1
    held = {memory_id for memory_id, _, _ in engine.scan()}
    assert held == {memory(n) for n in range(marked * PAGE)}
    assert engine.count() == len(held)
    return marked


def test_a_second_process_is_refused_and_told_why(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    EmbeddedIndex.create(directory).close()
    with writing(directory, 0) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(EngineUnavailableError, match="another process has the index"):
            EmbeddedIndex.open(directory)
    EmbeddedIndex.open(directory).close()


# What can't be opened


def test_an_index_that_is_not_there_is_not_made_by_accident(tmp_path: Path) -> None:
    """E-16."""
    with pytest.raises(EngineMismatchError, match="no index"):
        EmbeddedIndex.open(tmp_path / "lost")
    assert not (tmp_path / "lost").exists()


def test_an_index_is_not_made_over_another(index: TantivyIndex) -> None:
    with pytest.raises(EngineMismatchError, match="not empty"):
        EmbeddedIndex.create(index.directory)


def test_an_index_of_another_analysis_is_refused(
    index: TantivyIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.close()
    with monkeypatch.context() as other:
        other.setattr(schema, "ANALYSIS", "another")
        with pytest.raises(EngineMismatchError, match="another schema or analysis"):
            EmbeddedIndex.open(index.directory)
    EmbeddedIndex.open(index.directory).close()  # the refusal kept no lock


def test_an_index_of_other_fields_is_refused(tmp_path: Path) -> None:
    other = tantivy.SchemaBuilder().add_text_field("title").build()
    tantivy.Index(other, str(tmp_path))
    with pytest.raises(EngineMismatchError, match="damaged"):
        EmbeddedIndex.open(tmp_path)


def test_an_index_that_was_never_finished_is_refused(tmp_path: Path) -> None:
    tantivy.Index(build_schema(), str(tmp_path))
    with pytest.raises(EngineMismatchError, match="never finished"):
        EmbeddedIndex.open(tmp_path)


@pytest.mark.parametrize("suffix", [".idx", ".term", ".fast", ".store", ".fieldnorm", "meta.json"])
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_index_is_refused(corner: Corner, suffix: str, damage: str) -> None:
    """E-16, Q-08: to be built again, not served."""
    index = corner.index
    assert isinstance(index, TantivyIndex)
    corner.add("green tea")
    index.close()
    for path in [p for p in index.directory.iterdir() if p.name.endswith(suffix)]:
        if damage == "missing":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(EngineMismatchError):
        EmbeddedIndex.open(index.directory)


# Failures while it is open


class FullDisk:
    """A writer whose commit fails, as that of a full disk."""

    def __init__(self, real: tantivy.IndexWriter) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def commit(self) -> int:
        del self._real  # the error's traceback keeps this object
        raise ValueError("IoError: No space left on device (os error 28)")


def test_a_failed_commit_leaves_no_trace_and_the_next_one_works(corner: Corner) -> None:
    """P3: also while the error is kept: its frames must not keep the lock."""
    index = corner.index
    assert isinstance(index, TantivyIndex)
    (held,) = corner.add("before")
    index.engine._writer = FullDisk(index.engine._writer)  # type: ignore[assignment, arg-type]
    lost, mark = record("lost", corner.scope), Mark(0, 9, held.id, 1, 1)
    newer = replace(held, rev=2, text="after")
    with pytest.raises(EngineUnavailableError, match="No space left") as kept:
        index.projector.apply(page_of([lost, newer], marks=[mark]))
    assert index.marks() == {}
    assert corner.found("before") == [held.id]
    index.projector.apply(page_of([newer], marks=[mark]))
    assert kept.value is not None
    assert corner.found("lost") == []
    assert corner.found("before") == []
    assert corner.found("after") == [held.id]
    assert index.marks() == {0: mark}


def test_a_commit_that_could_not_be_seen_is_not_applied_twice(
    corner: Corner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit went through, the reload failed: the repeat finds what is there."""
    index = corner.index
    assert isinstance(index, TantivyIndex)
    page = page_of([record("once", corner.scope)], marks=[Mark(0, 1, UUID(int=1), 1, 1)])
    with monkeypatch.context() as broken:
        broken.setattr(index.engine, "_refresh", _failing)
        with pytest.raises(EngineUnavailableError):
            index.projector.apply(page)
    index.projector.apply(page)
    assert len(corner.find("once")) == index.count(live=False) == 1


def _failing() -> None:
    raise OSError("the reload failed")


def test_an_index_deleted_under_the_process_halts(corner: Corner) -> None:
    """E-16."""
    index = corner.index
    assert isinstance(index, TantivyIndex)
    corner.add("green tea")
    shutil.rmtree(index.directory)
    with pytest.raises(EngineMismatchError, match="gone"):
        corner.add("more tea")
    assert not index.directory.exists()


def test_a_kept_refusal_keeps_no_lock(corner: Corner) -> None:
    index = corner.index
    refused = corner.apply(record("x", corner.scope, metadata={"n": 10**400})).refused
    assert all(isinstance(error, PoisonError) for error in refused.values())
    index.reopen()
    assert len(refused) == 1


def test_a_closed_index_answers_that_it_is_closed(corner: Corner) -> None:
    corner.index.close()
    with pytest.raises(EngineUnavailableError, match="closed"):
        corner.find("tea")
    with pytest.raises(EngineUnavailableError, match="closed"):
        corner.add("tea")


# Reading while it is written


def test_a_search_sees_each_page_whole_and_each_memory_once(corner: Corner) -> None:
    """While one thread writes, others find every memory in exactly one state."""
    held = corner.add(*["state0"] * 30)
    stop = Event()

    def read() -> int:
        searches = 0
        while not stop.is_set() or not searches:
            hits = corner.find("state0 state1 state2 state3 state4 state5", limit=99)
            assert sorted(hit.memory_id for hit in hits) == sorted(r.id for r in held)
            assert len({hit.rev for hit in hits}) == 1
            searches += 1
        return searches

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for n in range(1, 6):
                corner.apply(*[replace(r, rev=n + 1, text=f"state{n}") for r in held])
        finally:
            stop.set()
        assert all(reader.result(timeout=30) for reader in readers)


def test_a_commit_lets_other_threads_run(corner: Corner) -> None:
    """The interpreter's lock is not held: Python goes on while tantivy works."""
    index = corner.index
    assert isinstance(index, TantivyIndex)
    turns, started, stop = count(), Event(), Event()

    def turn() -> None:
        started.set()
        while not stop.wait(0.0001):
            next(turns)

    for n in range(3000):
        document = document_of(write_for(record(f"word{n} " * 20, corner.scope), epoch=1))
        index.engine._open_writer().add_json(document)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(turn)
        started.wait(timeout=10)
        before = next(turns)
        index.engine._open_writer().commit()
        after = next(turns)
        stop.set()
        running.result(timeout=10)
    assert after - before > 1


def test_writers_of_several_threads_take_turns(corner: Corner) -> None:
    """O-04: zombies and their successors, at the same time."""
    index = corner.index
    assert isinstance(index, TantivyIndex)
    base = [record("v1", corner.scope) for _ in range(5)]

    def write(rev: int) -> None:
        corner.apply(*[replace(r, rev=rev, text=f"v{rev}") for r in base])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, [3, 1, 6, 2, 5, 4, 6, 1]))
    assert {hit.rev for hit in corner.find("v6")} == {6}
    assert index.count(live=True) == len(base)
    assert isinstance(index.projector, KeywordProjector)
    assert index.projector.stale >= len(base)


# The scan


def test_a_scan_gives_each_memory_once_over_many_pages(
    corner: Corner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where many ids share the half that the pages go by."""
    monkeypatch.setattr(snapshot, "SCAN_PAGE", 4)
    alike = [UUID(int=(n + 1) << 64 | 7) for n in range(11)]
    spread = [UUID(int=n << 60 | n) for n in range(1, 30)]
    top = [UUID(int=(1 << 128) - 1), UUID(int=5 << 64)]
    made: list[Record] = [record("x", corner.scope, id=mid) for mid in (*alike, *spread, *top)]
    made[0] = replace(made[0], status=Status.DELETED)
    corner.apply(*made)
    scanned = list(islice(corner.index.scan(), 2 * len(made)))
    assert sorted(mid for mid, _, _ in scanned) == sorted(r.id for r in made)
    assert {mid: status for mid, _, status in scanned} == {r.id: r.status for r in made}
