"""A server with indexes by name, as decisions about generations see one: away, gone, emptied."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from canonical.domain.log import Mark
from canonical.domain.records import Record
from canonical.errors import EngineMismatchError, EngineUnavailableError
from projectors.protocol import Applied, Page
from workers.generations import Blueprint


@dataclass
class Index:
    """What one index holds."""

    marks: dict[int, Mark] = field(default_factory=dict)
    records: dict[UUID, Record] = field(default_factory=dict)


class IndexServer:
    """Many processes' server. `is_away`: it answers nobody."""

    def __init__(self) -> None:
        self.indexes: dict[str, Index] = {}
        self.is_away = False
        self.created: list[str] = []
        self.before_create: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def blueprint(self, name: str, schema_hash: str = "schema") -> "Blueprint[OpenIndex, str]":
        return Blueprint(name, schema_hash, self.create, self.open)

    def create(self, place: str) -> "OpenIndex":
        self.require_up()
        self.before_create()
        with self._lock:
            if place in self.indexes:
                raise EngineMismatchError(f"{place} is there already")
            self.indexes[place] = Index()
            self.created.append(place)
        return OpenIndex(self, place)

    def open(self, place: str) -> "OpenIndex":
        opened = OpenIndex(self, place)
        opened.index()
        return opened

    def require_up(self) -> None:
        if self.is_away:
            raise EngineUnavailableError("nobody answers")


class OpenIndex:
    """An index as one process has it open; also what writes to it."""

    def __init__(self, server: IndexServer, place: str) -> None:
        self._server, self.place = server, place
        self.is_closed = False

    def index(self) -> Index:
        self._server.require_up()
        if self.is_closed:
            raise EngineUnavailableError(f"{self.place} is closed")
        if self.place not in self._server.indexes:
            raise EngineMismatchError(f"there is no index {self.place}")
        return self._server.indexes[self.place]

    def marks(self) -> Mapping[int, Mark]:
        return self.index().marks

    def apply(self, page: Page) -> Applied:
        index = self.index()
        for memory_id, record in page.records.items():
            held = index.records.get(memory_id)
            if held is None or held.rev < record.rev:
                index.records[memory_id] = record
        index.marks |= {mark.shard: mark for mark in page.marks}
        return Applied()

    def texts(self) -> Sequence[str]:
        return [record.text for record in self.index().records.values()]

    def close(self) -> None:
        self.is_closed = True
