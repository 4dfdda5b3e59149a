"""Vector indexes to run one contract on, and records to put into them."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import numpy as np
import pytest
from typing_extensions import override

from canonical.domain.records import Kind, Record, Status
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.errors import PoisonError
from inference.fakes import HashEmbedder
from projectors.protocol import Applied, Hit, Mark, Page
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.mapping import IndexWrite
from projectors.vector.port import VectorEngine
from projectors.vector.qdrant.index import QdrantIndex
from projectors.vector.qdrant.settings import QdrantSettings
from projectors.vector.reader import PointReader
from projectors.vector.schema import Shape
from projectors.vector.vectors import Vector, Vectors
from projectors.vector.writer import VectorProjector
from tests.support.qdrant import REAL_URL, stand_in
from tests.support.seen import saw

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOON = timedelta(seconds=10)
DIMENSION = 32
EMBEDDER = HashEmbedder(DIMENSION)
SHAPE = Shape(EMBEDDER.model, DIMENSION)

MakeIndex = Callable[[Path], AbstractContextManager["OpenIndex"]]

_tenants = itertools.count(1)


def new_tenant() -> str:
    """Return a tenant that no other test has used."""
    return f"tenant-{next(_tenants)}"


def record(text: str, scope: Scope, **changes: Any) -> Record:
    plain = Record(
        id=uuid4(),
        scope=scope,
        version=1,
        rev=1,
        status=Status.ACTIVE,
        kind=Kind.RAW,
        text=text,
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(plain, **changes)


def page_of(records: Iterable[Record], *, epoch: int = 1, marks: Iterable[Mark] = ()) -> Page:
    return Page((), {r.id: r for r in records}, tuple(marks), epoch)


def vector_of(text: str) -> Vector:
    (vector,) = HashEmbedder(DIMENSION).embed([text])
    assert isinstance(vector, np.ndarray)
    return vector


class Embedded:
    """Vectors by the fake embedder, without a cache; `before` may wait, count or raise."""

    def __init__(self) -> None:
        self.embedder = HashEmbedder(DIMENSION)
        self.before: Callable[[Sequence[Record]], None] = lambda _records: None

    def vectors_for(self, records: Sequence[Record]) -> Mapping[UUID, Vector | PoisonError]:
        self.before(records)
        found = self.embedder.embed([record.text for record in records])
        return {record.id: answer for record, answer in zip(records, found, strict=True)}


@dataclass
class OpenIndex(ABC):
    """A generation on some engine: opened, closed and opened again as tests like."""

    engine: VectorEngine = field(init=False)
    reader: PointReader = field(init=False)

    @property
    @abstractmethod
    def address(self) -> list[str]:
        """Return where another process finds it."""

    @abstractmethod
    def create(self) -> None: ...

    @abstractmethod
    def open(self, shape: Shape = SHAPE) -> None: ...

    def _serve(self, engine: VectorEngine) -> None:
        self.engine, self.reader = engine, PointReader(engine)

    def projector(self, vectors: Vectors) -> VectorProjector:
        return VectorProjector(self.engine, vectors)

    def write(self, writes: Sequence[IndexWrite], marks: Iterable[Mark]) -> int:
        return self.engine.write(writes, marks)

    def marks(self) -> Mapping[int, Mark]:
        return self.engine.marks()

    def require_reached(self, watermarks: Mapping[int, int]) -> None:
        self.engine.require_reached(watermarks)

    def guards(self, memory_ids: Sequence[UUID]) -> Mapping[UUID, int]:
        return self.engine.guards(memory_ids)

    def scan(self) -> Iterable[tuple[UUID, int, Status | None]]:
        return self.engine.scan()

    def count(self, *, live: bool) -> int:
        return self.engine.count(live=live)

    def open_again(self, shape: Shape) -> None:
        """Open it a second time, as another process or another program would."""
        now = self.engine
        try:
            self.open(shape)
            self.engine.close()
        finally:
            self._serve(now)

    def reopen(self) -> None:
        self.engine.close()
        self.open()

    def close(self) -> None:
        self.engine.close()


@dataclass
class EdgeIndex(OpenIndex):
    """A generation on Qdrant Edge."""

    engine: EdgeEngine = field(init=False)
    directory: Path
    flush_points: int = 20_000

    @property
    @override
    def address(self) -> list[str]:
        return [str(self.directory)]

    @override
    def create(self) -> None:
        self._serve(EdgeEngine.create(self.directory, SHAPE, flush_points=self.flush_points))

    @override
    def open(self, shape: Shape = SHAPE) -> None:
        self._serve(EdgeEngine.open(self.directory, shape, flush_points=self.flush_points))


@dataclass
class ServerIndex(OpenIndex):
    """A generation on a Qdrant server."""

    engine: QdrantIndex = field(init=False)
    settings: QdrantSettings
    name: str = field(default_factory=lambda: f"gnomon_test_{uuid4().hex}")

    @property
    @override
    def address(self) -> list[str]:
        return [self.settings.url, self.name]

    @override
    def create(self) -> None:
        self._serve(QdrantIndex.create(self.settings, self.name, SHAPE))

    @override
    def open(self, shape: Shape = SHAPE) -> None:
        self._serve(QdrantIndex.open(self.settings, self.name, shape))


def at_address(address: list[str]) -> OpenIndex:
    """Find an index by its address, not yet open; Edge's flushes often."""
    if len(address) == 1:
        return EdgeIndex(Path(address[0]), flush_points=70)
    return ServerIndex(QdrantSettings(url=address[0]), address[1])


@contextmanager
def qdrant_edge(directory: Path) -> Iterator[OpenIndex]:
    index = EdgeIndex(directory / "index")
    index.create()
    try:
        yield index
    finally:
        index.close()


@contextmanager
def qdrant_stand_in(directory: Path) -> Iterator[OpenIndex]:
    with stand_in(directory / "server") as server, server_index(server.url) as index:
        yield index


@contextmanager
def qdrant_server(_directory: Path) -> Iterator[OpenIndex]:
    """A collection of its own on the real server that the environment names."""
    assert REAL_URL is not None
    with server_index(REAL_URL) as index:
        yield index


@contextmanager
def server_index(url: str, **changes: Any) -> Iterator[ServerIndex]:
    index = ServerIndex(QdrantSettings(url=url, **changes))
    index.create()
    try:
        yield index
    finally:
        index.close()
        with suppress(httpx.TransportError):  # a test may have ended the server
            httpx.delete(f"{url}/collections/{index.name}", trust_env=False)


IMPLEMENTATIONS: list[MakeIndex] = [
    qdrant_edge,
    qdrant_stand_in,
    *([qdrant_server] if REAL_URL else []),
]
IDS = [make.__name__ for make in IMPLEMENTATIONS]


@contextmanager
def index_on(request: pytest.FixtureRequest, directory: Path) -> Iterator[OpenIndex]:
    """Make an index on the implementation that a fixture is parametrised with, and say so."""
    saw(Path(request.node.path).stem, request.param.__name__)
    with request.param(directory) as index:
        yield index


@dataclass
class Corner:
    """An index with a tenant of its own: what one test or one example may fill."""

    index: OpenIndex
    tenant: str = field(default_factory=new_tenant)
    vectors: Embedded = field(default_factory=Embedded)

    def __post_init__(self) -> None:
        self.projector = self.index.projector(self.vectors)

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, user_id="alice")

    def apply(self, *records: Record, epoch: int = 1, marks: Iterable[Mark] = ()) -> Applied:
        return self.projector.apply(page_of(records, epoch=epoch, marks=marks))

    def add(self, *texts: str, scope: Scope | None = None, **changes: Any) -> list[Record]:
        made = [record(text, scope or self.scope, **changes) for text in texts]
        self.apply(*made)
        return made

    def find(self, text: str = "tea", *, limit: int = 50, **asked: Any) -> list[Hit]:
        plain = Visible(scope=self.scope, now=NOW, as_of=NOW)
        return self.index.reader.nearest(
            vector_of(text), visible=replace(plain, **asked), limit=limit, timeout=SOON
        )

    def found(self, text: str = "tea", **asked: Any) -> list[UUID]:
        return [hit.memory_id for hit in self.find(text, **asked)]
