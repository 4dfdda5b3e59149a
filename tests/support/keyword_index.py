"""Keyword indexes to run one contract on, and records to put into them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import UUID, uuid4

import pytest

from canonical.domain.records import Kind, Record, Status
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from projectors.keyword.analysis import query_terms
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.keyword.opensearch.engine import OpenSearchIndex
from projectors.keyword.opensearch.settings import OpenSearchSettings
from projectors.keyword.port import KeywordEngine
from projectors.keyword.reader import KeywordIndexReader
from projectors.keyword.relevance import Statistics
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Applied, Hit, KeywordReader, Mark, Page, Projector
from tests.support.opensearch import drop, new_name, settings_at
from tests.support.seen import saw

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
class TestedIndex:
    """An engine with the writer and the reader that use it."""

    __test__ = False  # not a class of tests
    engine: KeywordEngine
    open_again: Callable[[], KeywordEngine]
    projector: KeywordProjector = field(init=False)
    reader: KeywordIndexReader = field(init=False)

    def __post_init__(self) -> None:
        self._serve()

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
        self.engine = self.open_again()
        self._serve()

    def close(self) -> None:
        self.engine.close()


@dataclass
class TantivyIndex(TestedIndex):
    """One in a directory, for tests of what only tantivy does."""

    engine: EmbeddedIndex

    @property
    def directory(self) -> Path:
        return self.engine.directory

    @classmethod
    def create(cls, directory: Path) -> Self:
        return cls(EmbeddedIndex.create(directory), lambda: EmbeddedIndex.open(directory))


def opensearch_index(settings: OpenSearchSettings, name: str) -> TestedIndex:
    made = OpenSearchIndex.create(settings, name)
    return TestedIndex(made, lambda: OpenSearchIndex.open(settings, name))


ENGINES = ("tantivy", "opensearch")
SPREAD = "opensearch-spread"  # tenants lie in several shards


@pytest.fixture(scope="module", params=ENGINES)
def keyword_index(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KeywordIndex]:
    """An index on each engine, made once for a module: each test works in a tenant of its own."""
    suite = Path(request.node.path).stem
    if request.param == "tantivy":
        index: TestedIndex = TantivyIndex.create(tmp_path_factory.mktemp("keyword") / "index")
        saw(suite, request.param)
        yield index
        index.close()
        return
    url: str = request.getfixturevalue("opensearch_url")
    name = new_name()
    spread = {"shards": 3, "route_by_tenant": False} if request.param == SPREAD else {}
    index = opensearch_index(settings_at(url, **spread), name)
    saw(suite, f"{request.param} at {url}")
    yield index
    index.close()
    drop(url, name)


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
