"""The one place that holds a Qdrant Edge shard: its files, what is durable, what is written.

One process may have an index open (Edge's lock on its log, which the system frees when a process
dies, but which a forked child keeps). Edge holds the interpreter's lock in every call, so calls
never overlap; what takes long is therefore cut into short calls, between which other threads run.
Edge's optimiser is never called: it would stop the whole process for half a minute at 50,000
points, and minutes at 100,000. Search is exact without it (docs/adr/0003).
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeVectorParams,
    IntegerIndexParams,
    KeywordIndexParams,
    Point,
    Query,
    QueryRequest,
    ScrollRequest,
    SearchParams,
    UpdateOperation,
)

from canonical.errors import EngineMismatchError
from projectors.protocol import Mark
from projectors.vector import mapping, schema
from projectors.vector.embedded.failures import in_our_terms
from projectors.vector.embedded.filters import edge_filter, older_than
from projectors.vector.mapping import Held, IndexWrite
from projectors.vector.port import Near
from projectors.vector.predicates import LIVE, Predicate
from projectors.vector.schema import Shape

FLUSH_POINTS: Final = 20_000  # 28 MB of log, a second of replay after a kill; flushing takes .3 s
CALL_POINTS: Final = 250  # in one call to Edge: some 15 ms during which no other thread runs
SCAN_PAGE: Final = 1_000
_ABOUT: Final = "about.json"
_EDGE: Final = "edge"


class EdgeEngine:
    """An open index. Make it with `create` or `open`; close it, or use it as a context."""

    def __init__(
        self, directory: Path, shape: Shape, shard: EdgeShard, *, flush_points: int
    ) -> None:
        self._directory, self._shape, self._shard = directory, shape, shard
        self._writing = Lock()
        self._flush_points, self._unflushed = flush_points, 0
        self._zeros = [0.0] * shape.dimension
        self._marks: dict[int, Mark] = {}

    @classmethod
    def create(cls, directory: Path, shape: Shape, *, flush_points: int = FLUSH_POINTS) -> Self:
        """Make an empty index in a directory that is empty or not there, and open it.

        Raises: EngineMismatchError, when something is there. EngineUnavailableError.
        """
        with in_our_terms(directory, "create"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise EngineMismatchError(f"create: {directory} is not empty")
            home = directory / _EDGE
            home.mkdir()
            vectors = EdgeVectorParams(size=shape.dimension, distance=Distance.Dot)
            shard = EdgeShard.create(str(home), EdgeConfig(vectors=vectors))
            for operation in _indexes():
                shard.update(operation)
            shard.flush()
            _write_durably(directory / _ABOUT, _about(shape))  # last: it says that all is there
        return cls(directory, shape, shard, flush_points=flush_points)

    @classmethod
    def open(cls, directory: Path, shape: Shape, *, flush_points: int = FLUSH_POINTS) -> Self:
        """Open an index that is there, and become its only process.

        Guarantee: never creates one: a lost index is not answered with an empty one.
        Raises:    EngineMismatchError, when there is none, or one that is damaged, half made, or
                   of another layout, model or dimension: build it again, elsewhere.
                   EngineUnavailableError, when another process has it open.
        """
        with in_our_terms(directory, "open"):
            _require(directory, shape)
            shard = EdgeShard.load(str(directory / _EDGE))  # replays what a kill left in the log
            engine = cls(directory, shape, shard, flush_points=flush_points)
            with ExitStack() as opened:
                opened.callback(shard.close)
                engine._marks = engine._stored_marks()
                opened.pop_all()
        return engine

    def close(self) -> None:
        """Flush and give the index up; a search that comes later is told so."""
        with self._writing, in_our_terms(self._directory, "close"):
            self._shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        """Return where the index lies."""
        return self._directory

    @property
    def shape(self) -> Shape:
        """Return the model and the dimension of its vectors."""
        return self._shape

    def marks(self) -> dict[int, Mark]:
        """Return, per shard, the last event whose page the index holds."""
        return dict(self._marks)

    def require_reached(self, watermarks: Mapping[int, int]) -> None:
        """Check that the index holds what the log believes it holds: a position per shard.

        Raises: EngineMismatchError, when it is behind: files were lost or an old copy came back.
        """
        mapping.require_reached(self._marks, watermarks, str(self._directory))

    def write(self, writes: Sequence[IndexWrite], marks: Iterable[Mark]) -> int:
        """Write what is newer than what the index holds; then keep the marks.

        Guarantee: durable when it returns, against a kill and against a loss of power. Readers
                   may see a part of it earlier. A mark moves forward only, and never stands in
                   the index without what was written before it.
        Shapes:    returns how many memories the index was already past.
        Raises:    EngineUnavailableError, EngineMismatchError: a part may have been written, the
                   marks were not moved; repeating is harmless.
        """
        with self._writing, in_our_terms(self._directory, "write"):
            wanted = mapping.newest(writes)
            held = self._guards(list(wanted))
            # What has no effect stays out of Edge's log, which would grow and be replayed.
            fresh = [w for mid, w in wanted.items() if w.guard > held.get(mid, -1)]
            moved = mapping.ahead(self._marks, marks)
            self._upsert(fresh)
            self._keep(moved)
            if fresh or moved:
                self._sync(len(fresh))
            self._marks |= moved
        return len(wanted) - len(fresh)

    def flush(self) -> None:
        """Move what is in Edge's log into its segments, so that opening has nothing to replay."""
        with self._writing, in_our_terms(self._directory, "flush"):
            self._shard.flush()
            self._unflushed = 0

    def nearest(
        self,
        vector: NDArray[np.float32],
        where: Predicate,
        limit: int,
        timeout: timedelta,  # noqa: ARG002 - a call within the process can't be broken off
    ) -> list[Near]:
        """Return the nearest points for which `where` holds: exactly, best first."""
        request = QueryRequest(
            limit=limit,
            query=Query.Nearest(vector.tolist()),
            filter=edge_filter(where),
            with_payload=[schema.GUARD],
            params=SearchParams(exact=True),
        )
        with in_our_terms(self._directory, "search"):
            found = self._shard.query(request)
        return [
            Near(_uuid(point.id), mapping.held_guard(point.payload), point.score) for point in found
        ]

    def guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the guard of each of these memories that the index holds, dead or alive."""
        with in_our_terms(self._directory, "guards"):
            return self._guards(memory_ids)

    def count(self, *, live: bool = True) -> int:
        """Return how many memories the index holds: those that can be found, or tombstones too."""
        with in_our_terms(self._directory, "count"):
            if live:
                return self._shard.count(CountRequest(filter=edge_filter(LIVE), exact=True))
            return self._shard.count(CountRequest(exact=True)) - len(self._marks)

    def scan(self) -> Iterator[Held]:
        """Yield everything, once each, in the order of the ids.

        Cost: constant memory, one call per 1,000 points. It is no fixed view: of what is written
              meanwhile some is seen.
        """
        offset: int | UUID | str | None = None
        while True:
            request = ScrollRequest(
                limit=SCAN_PAGE, offset=offset, with_payload=[schema.GUARD, schema.STATUS]
            )
            with in_our_terms(self._directory, "scan"):
                points, offset = self._shard.scroll(request)
            for point in points:
                if isinstance(point.id, UUID):  # the others are marks
                    yield mapping.held(point.id, point.payload)
            if offset is None:
                return

    def _guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        if not memory_ids:
            return {}
        found: dict[UUID, int] = {}
        for start in range(0, len(memory_ids), SCAN_PAGE):
            ids: list[int | UUID | str] = list(memory_ids[start : start + SCAN_PAGE])
            points = self._shard.retrieve(ids, with_payload=[schema.GUARD], with_vector=False)
            found |= {_uuid(point.id): mapping.held_guard(point.payload) for point in points}
        return found

    def _upsert(self, writes: Sequence[IndexWrite]) -> None:
        """Hand points over, with the guard as a condition: the engine has the last word.

        The condition belongs to a whole request, so a request holds points of one guard.
        """
        for same in mapping.by_guard(writes, CALL_POINTS):
            points = [self._point(write) for write in same]
            self._shard.update(UpdateOperation.upsert_points(points, older_than(same[0].guard)))

    def _point(self, write: IndexWrite) -> Point:
        return Point(write.memory_id, mapping.stored_vector(write, self._zeros), write.payload)

    def _keep(self, marks: Mapping[int, Mark]) -> None:
        """Write marks after what they speak of: Edge's log keeps the order, also after a crash."""
        if marks:
            points = [
                Point(shard, self._zeros, mapping.mark_payload(mark))
                for shard, mark in marks.items()
            ]
            self._shard.update(UpdateOperation.upsert_points(points))

    def _sync(self, points: int) -> None:
        """Make what was written survive a loss of power.

        After an update it is in Edge's log, which is a mapped file: a kill loses nothing, but
        Edge brings it to the disk in `flush` only. That also rewrites the segments (60 ms for a
        page of 500); the log alone takes 4 ms.
        """
        for path in (self._directory / _EDGE / "wal").iterdir():
            _fsync(path)
        self._unflushed += points
        if self._unflushed >= self._flush_points:
            self._shard.flush()
            self._unflushed = 0

    def _stored_marks(self) -> dict[int, Mark]:
        # Numbers come before UUIDs in the order of ids, and there are far fewer shards than this.
        points, _ = self._shard.scroll(ScrollRequest(limit=SCAN_PAGE, with_payload=[schema.MARK]))
        return {
            point.id: mapping.mark_of(point.id, point.payload or {})
            for point in points
            if isinstance(point.id, int)
        }


def _indexes() -> Iterator[UpdateOperation]:
    """Name the indexed fields. Made before anything is loaded, as Edge asks."""
    for name in schema.KEYWORDS:
        params = KeywordIndexParams(is_tenant=name == schema.TENANT)
        yield UpdateOperation.create_field_index(name, params)
    for name in schema.MOMENTS:
        yield UpdateOperation.create_field_index(name, IntegerIndexParams(lookup=False, range=True))


def _require(directory: Path, shape: Shape) -> None:
    path = directory / _ABOUT
    if not path.is_file():
        raise EngineMismatchError(f"open: there is no finished index in {directory}")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        same = held["fingerprint"] == shape.fingerprint()
        holds = f"{held['dimension']} dimensions of {held['model']}"
    except (ValueError, TypeError, KeyError) as exc:
        raise EngineMismatchError(f"open: {path} is damaged: {exc!r}") from exc
    if not same:
        raise EngineMismatchError(
            f"open: the index in {directory} holds {holds} (layout {held['fingerprint'][:8]}), "
            f"asked for are {shape.dimension} dimensions of {shape.model} "
            f"(layout {shape.fingerprint()[:8]})"
        )


def _about(shape: Shape) -> dict[str, Any]:
    return {
        "model": shape.model,
        "dimension": shape.dimension,
        "fingerprint": shape.fingerprint(),
    }


def _write_durably(path: Path, content: Mapping[str, Any]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content), encoding="utf-8")
    _fsync(fresh)
    fresh.rename(path)
    _fsync(path.parent)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _uuid(point_id: int | UUID | str) -> UUID:
    assert isinstance(point_id, UUID), "memories have UUIDs; marks are never selected"
    return point_id
