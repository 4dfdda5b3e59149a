"""Keyword indexes to run one contract on, and records to put into them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import UUID, uuid4

from canonical.domain.records import Kind, Record, Status
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from projectors.keyword.analysis import query_terms
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.keyword.reader import KeywordIndexReader
from projectors.keyword.relevance import Statistics
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Applied, Hit, KeywordReader, Mark, Page, Projector

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOON = timedelta(seconds=10)

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


class StatisticsReader(KeywordReader, Protocol):
    def statistics(self, terms: Iterable[str], *, tenant: str) -> Statistics: ...


class KeywordIndex(Protocol):
    """One generation of a keyword index, as its contract sees it."""

    @property
    def projector(self) -> Projector: ...
    @property
    def reader(self) -> StatisticsReader: ...
    def marks(self) -> Mapping[int, Mark]: ...
    def guards(self, memory_ids: Iterable[UUID]) -> Mapping[UUID, int]: ...
    def scan(self) -> Iterable[tuple[UUID, int, Status]]: ...
    def count(self, *, live: bool) -> int: ...
    def reopen(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class TantivyIndex:
    directory: Path
    engine: EmbeddedIndex
    projector: KeywordProjector = field(init=False)
    reader: KeywordIndexReader = field(init=False)

    def __post_init__(self) -> None:
        self._serve()

    @classmethod
    def create(cls, directory: Path) -> Self:
        return cls(directory, EmbeddedIndex.create(directory))

    def _serve(self) -> None:
        self.projector = KeywordProjector(self.engine)
        self.reader = KeywordIndexReader(self.engine)

    def marks(self) -> Mapping[int, Mark]:
        return self.engine.marks()

    def guards(self, memory_ids: Iterable[UUID]) -> Mapping[UUID, int]:
        return self.engine.guards(list(memory_ids))

    def scan(self) -> Iterable[tuple[UUID, int, Status]]:
        return self.engine.scan()

    def count(self, *, live: bool) -> int:
        return self.engine.count(live=live)

    def reopen(self) -> None:
        self.engine.close()
        self.engine = EmbeddedIndex.open(self.directory)
        self._serve()

    def close(self) -> None:
        self.engine.close()


@contextmanager
def tantivy_index(directory: Path) -> Iterator[KeywordIndex]:
    index = TantivyIndex.create(directory / "index")
    try:
        yield index
    finally:
        index.close()


@dataclass
class Corner:
    """An index with a tenant of its own: what one test or one example may fill."""

    index: KeywordIndex
    tenant: str = field(default_factory=new_tenant)

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, user_id="alice")

    def apply(self, *records: Record, epoch: int = 1) -> Applied:
        return self.index.projector.apply(page_of(records, epoch=epoch))

    def add(self, *texts: str, **changes: Any) -> list[Record]:
        made = [record(text, changes.get("scope", self.scope), **_rest(changes)) for text in texts]
        self.apply(*made)
        return made

    def find(self, query: str, *, limit: int = 50, **asked: Any) -> list[Hit]:
        return self.ask(query_terms(query), limit=limit, **asked)

    def ask(self, terms: list[str], *, limit: int = 50, **asked: Any) -> list[Hit]:
        plain = Visible(scope=self.scope, now=NOW, as_of=NOW)
        return self.index.reader.best(
            terms, visible=replace(plain, **asked), limit=limit, timeout=SOON
        )

    def found(self, query: str, **asked: Any) -> list[UUID]:
        return [hit.memory_id for hit in self.find(query, **asked)]


def _rest(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name != "scope"}
