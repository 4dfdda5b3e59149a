"""The open index on a Qdrant server: guarded writes, marks, searches, scans."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models

from canonical.errors import EngineUnavailableError
from projectors.protocol import Mark
from projectors.vector import mapping, schema
from projectors.vector.mapping import Held, IndexWrite
from projectors.vector.port import Near
from projectors.vector.predicates import LIVE, Predicate
from projectors.vector.qdrant import collection
from projectors.vector.qdrant.client import connect, whole_seconds
from projectors.vector.qdrant.failures import WRITE, in_our_terms
from projectors.vector.qdrant.filters import behind, older_than, qdrant_filter
from projectors.vector.qdrant.requests import cut
from projectors.vector.qdrant.settings import QdrantSettings, Quantisation
from projectors.vector.schema import Shape

SCAN_PAGE: Final = 1_000
MARKS_PAGE: Final = 256  # far more than there are shards in a log


class QdrantIndex:
    """A collection, open. Make it with `create` or `open`; close it, or use it as a context.

    Any number of processes may have it open, and any number of threads may use it.
    """

    def __init__(
        self,
        client: QdrantClient,
        settings: QdrantSettings,
        name: str,
        shape: Shape,
        *,
        alias: str | None = None,
    ) -> None:
        self._client, self._settings = client, settings
        self._name, self._searched, self._shape = name, alias or name, shape
        self._place = settings.place(name)
        self._zeros = [0.0] * shape.dimension
        self._closed, self._shaken = False, False
        self.bare_hits = 0  # hits without a payload, which were dropped

    @classmethod
    def create(cls, settings: QdrantSettings, name: str, shape: Shape) -> Self:
        """Make an empty collection and open it.

        Guarantee: finishes what an attempt that was broken off has left, and touches no other.
        Raises:    EngineMismatchError, when there is another collection of this name.
                   EngineUnsupportedError, when the server is too old. EngineUnavailableError.
        """
        with closing(connect(settings)) as client:
            collection.require_version(client, settings.url)
            collection.create(client, settings, name, shape)
        return cls.open(settings, name, shape)

    @classmethod
    def open(
        cls, settings: QdrantSettings, name: str, shape: Shape, *, alias: str | None = None
    ) -> Self:
        """Open a collection that is there; searches ask `alias`, if it is given.

        Guarantee: never creates one: a lost index is not answered with an empty one. One that
                   stands still after its server was killed goes on.
        Raises:    EngineMismatchError, when there is none, or a half-made one, or one of another
                   layout, model or dimension, or the alias is none: build it again, or publish it.
                   EngineUnsupportedError, when the server is too old. EngineUnavailableError.
        """
        client = connect(settings)
        with ExitStack() as opened:
            opened.callback(client.close)
            collection.require_version(client, settings.url)
            collection.require(client, settings.place(name), name, shape)
            if alias is not None:
                collection.require_alias(client, settings.place(alias), alias)
            opened.pop_all()
        return cls(client, settings, name, shape, alias=alias)

    @staticmethod
    def drop(settings: QdrantSettings, name: str) -> None:
        """Delete a collection for good, with its aliases; nothing happens if it is gone already.

        Raises: EngineUnavailableError.
        """
        with closing(connect(settings)) as client, in_our_terms("drop", settings.place(name)):
            client.delete_collection(name)

    def close(self) -> None:
        """Give the connections up; whoever comes later is told so."""
        self._closed = True
        self._client.close()

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
    def name(self) -> str:
        """Return the collection's name."""
        return self._name

    @property
    def shape(self) -> Shape:
        """Return the model and the dimension of its vectors."""
        return self._shape

    def publish(self, alias: str) -> None:
        """Let an alias name this collection and no other, in one step for those who read it."""
        self._require_open("publish")
        collection.publish(self._client, self._place, self._name, alias)

    def marks(self) -> dict[int, Mark]:
        """Return, per shard, the last event whose page the index holds, whoever wrote it."""
        # Numbers come before UUIDs in the order of ids.
        with self._calling("marks"):
            points, _ = self._client.scroll(
                self._name, limit=MARKS_PAGE, with_payload=[schema.MARK], with_vectors=False
            )
        return {
            point.id: mapping.mark_of(point.id, point.payload or {})
            for point in points
            if isinstance(point.id, int)
        }

    def require_reached(self, watermarks: Mapping[int, int]) -> None:
        """Check that the index holds what the log believes it holds: a position per shard.

        Raises: EngineMismatchError, when it is behind: it was lost, or an old copy came back.
        """
        mapping.require_reached(self.marks(), watermarks, self._place)

    def write(self, writes: Sequence[IndexWrite], marks: Iterable[Mark]) -> int:
        """Write what is newer than what the index holds; then keep the marks.

        Guarantee: applied when it returns, by as many replicas as the collection asks for. An
                   older write changes nothing, also if it was under way while a newer one came.
                   A mark moves forward only, and follows what was written before it.
        Shapes:    returns how many memories the index was already past.
        Cost:      one request to read guards and one to write for each 1,000 points or 16 MiB,
                   and one for the marks.
        Raises:    EngineUnavailableError, EngineMismatchError: a part may have been written, the
                   marks may not have been moved; repeating is harmless. EngineRefusedError: the
                   server refuses some of the content, and doesn't say whose.
        """
        if self._shaken:
            collection.wake(self._client, self._place, self._name)
            self._shaken = False
        wanted = mapping.newest(writes)  # of the same id twice the last would win
        held = self.guards(list(wanted))
        # A write without effect would cost the server as much as another.
        fresh = [w for mid, w in wanted.items() if w.guard > held.get(mid, -1)]
        for request in cut(
            fresh,
            points=self._settings.request_points,
            size_bytes=self._settings.request_bytes,
            dimension=self._shape.dimension,
        ):
            points = [
                _point(str(w.memory_id), mapping.stored_vector(w, self._zeros), w.payload)
                for w in request
            ]
            self._upsert(points, older_than(request))
        if moved := list(mapping.ahead({}, marks).values()):  # after what they speak of was applied
            points = [_point(m.shard, self._zeros, mapping.mark_payload(m)) for m in moved]
            self._upsert(points, behind(moved))
        return len(wanted) - len(fresh)

    def guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the guard of each of these memories that every replica holds, dead or alive."""
        found: dict[UUID, int] = {}
        for start in range(0, len(memory_ids), SCAN_PAGE):
            ids = [str(memory_id) for memory_id in memory_ids[start : start + SCAN_PAGE]]
            with self._calling("guards"):
                points = self._client.retrieve(
                    self._name,
                    ids=ids,
                    with_payload=[schema.GUARD],
                    with_vectors=False,
                    # What only some replicas hold after a write that failed is not held: it would
                    # be left out when the page comes again, and stay missing on the others.
                    consistency=models.ReadConsistencyType.ALL,
                )
            found |= {_uuid(point.id): mapping.held_guard(point.payload) for point in points}
        return found

    def nearest(
        self, vector: NDArray[np.float32], where: Predicate, limit: int, timeout: timedelta
    ) -> list[Near]:
        """Return the nearest points for which `where` holds, best first.

        Guarantee: exact where the server's plan is (small scopes) or `exact` is set.
        """
        with self._calling("search"):
            found = self._client.query_points(
                self._searched,
                query=vector.tolist(),
                query_filter=qdrant_filter(where),
                search_params=_search_params(self._settings),
                limit=limit,
                with_payload=[schema.GUARD],
                timeout=whole_seconds(timeout),
            ).points
        hits = [
            Near(_uuid(point.id), mapping.held_guard(point.payload), point.score)
            for point in found
            if point.payload  # removed between the two steps of a search on several shards
        ]
        self.bare_hits += len(found) - len(hits)
        return hits

    def count(self, *, live: bool = True) -> int:
        """Return how many memories the index holds: those that can be found, or tombstones too."""
        where = qdrant_filter(LIVE) if live else None
        with self._calling("count"):
            found = self._client.count(self._name, count_filter=where, exact=True).count
        return found if live else found - len(self.marks())

    def scan(self) -> Iterator[Held]:
        """Yield everything, once each, in the order of the ids.

        Cost: constant memory, one request per 1,000 points. It is no fixed view: of what is
              written meanwhile some is seen.
        """
        offset: models.ExtendedPointId | None = None
        while True:
            with self._calling("scan"):
                points, offset = self._client.scroll(
                    self._name,
                    limit=SCAN_PAGE,
                    offset=offset,
                    with_payload=[schema.GUARD, schema.STATUS],
                    with_vectors=False,
                )
            for point in points:
                if not isinstance(point.id, int):  # those are marks
                    yield mapping.held(_uuid(point.id), point.payload)
            if offset is None:
                return

    def _upsert(self, points: list[models.PointStruct], replaceable: models.Filter) -> None:
        """Hand points over, each with its guard as a condition: the engine has the last word."""
        with self._calling(WRITE):
            done = self._client.upsert(self._name, points, wait=True, update_filter=replaceable)
        # `acknowledged` is a place in a queue, `wait_timeout` not even an answer.
        if done.status != models.UpdateStatus.COMPLETED:
            self._shaken = True
            raise EngineUnavailableError(f"{WRITE}: {self._place} says no more than {done.status}")

    @contextmanager
    def _calling(self, operation: str) -> Iterator[None]:
        self._require_open(operation)
        try:
            with in_our_terms(operation, self._place):
                yield
        except EngineUnavailableError:
            self._shaken = True  # when it comes back its server may have been killed meanwhile
            raise

    def _require_open(self, operation: str) -> None:
        if self._closed:
            raise EngineUnavailableError(f"{operation}: {self._place} is closed")


def _uuid(point_id: models.ExtendedPointId) -> UUID:
    return point_id if isinstance(point_id, UUID) else UUID(str(point_id))


def _point(
    point_id: models.ExtendedPointId, vector: list[float], payload: dict[str, Any]
) -> models.PointStruct:
    return models.PointStruct(id=point_id, vector=vector, payload=payload)


def _search_params(settings: QdrantSettings) -> models.SearchParams:
    if settings.quantisation is Quantisation.NONE:
        return models.SearchParams(exact=settings.exact)
    by_full_vectors = models.QuantizationSearchParams(rescore=True)
    return models.SearchParams(exact=settings.exact, quantization=by_full_vectors)
