"""A canonical store, readers and an embedder for search, small enough to lie in every way."""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from canonical.domain.records import Kind, Record, Status
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.errors import GnomonError, PoisonError
from projectors.keyword import analysis
from projectors.keyword.relevance import Statistics, bm25
from projectors.protocol import Hit
from search.answer import Leg

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALICE = Scope("t1", user_id="alice")
BOB = Scope("t1", user_id="bob")
ELSEWHERE = Scope("t2", user_id="alice")
SHARDS = 4
UNRELATED = 0.2

_numbers = itertools.count(1)


def record(text: str, scope: Scope = ALICE, **changes: Any) -> Record:
    """Make an active record; ids rise."""
    plain = Record(
        id=UUID(int=next(_numbers)),
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


def changed(held: Record, **changes: Any) -> Record:
    """Return the next revision of a record."""
    return replace(held, version=held.version + 1, rev=held.rev + 1, **changes)


def visible(scope: Scope = ALICE, **changes: Any) -> Visible:
    return replace(Visible(scope=scope, now=NOW, as_of=NOW), **changes)


@dataclass
class Served:
    generation: int = 1
    state: str = "live"
    marks: Mapping[int, int] = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)
    oldest_unserved_seconds: float | None = None
    halted: bool = False
    error_code: str | None = None


@dataclass
class Tail:
    records: Sequence[Record]
    truncated: bool


class Store:
    """Canonical state with a log of one position per write, and watermarks that tests set."""

    def __init__(self) -> None:
        self.records: dict[UUID, Record] = {}
        self.log: dict[int, list[UUID]] = {shard: [] for shard in range(SHARDS)}
        self.projections: dict[str, Served] = {leg: Served() for leg in Leg}
        self.reads: list[tuple[str, object]] = []

    def write(self, record: Record) -> Record:
        self.records[record.id] = record
        self.log[record.id.int % SHARDS].append(record.id)
        return record

    def project(self, *legs: Leg) -> None:
        """Bring the watermarks of these legs (of all, if none is named) to the log's end."""
        for leg in legs or tuple(Leg):
            ends = {shard: len(ids) for shard, ids in self.log.items()}
            self.projections[leg] = replace(self.projections[leg], marks=ends)

    def current(self, tenant: str, ids: Sequence[UUID], /) -> dict[UUID, Record]:
        self.reads.append(("current", list(ids)))
        found = {i: self.records[i] for i in ids if i in self.records}
        return {i: held for i, held in found.items() if held.scope.tenant == tenant}

    def tail(
        self,
        scope: Scope,
        served: Sequence[Mapping[int, int]],
        *,
        limit: int,
        must_reach: Mapping[int, int] | None,
    ) -> Tail:
        self.reads.append(("tail", list(served)))
        found: dict[UUID, None] = {}
        for shard, ids in self.log.items():
            floor = min((marks.get(shard, 0) for marks in served), default=0)
            found |= dict.fromkeys(ids[floor:])
        records = [self.records[i] for i in found if scope.covers(self.records[i].scope)]
        records.sort(key=lambda r: r.id, reverse=True)
        return Tail(records[:limit], len(records) > limit)

    def served(self, projections: Sequence[str], /) -> dict[str, Served]:
        self.reads.append(("served", list(projections)))
        return {name: self.projections[name] for name in projections if name in self.projections}

    def scope_count(self, scope: Scope, limit: int, /) -> int:
        return min(sum(scope.covers(r.scope) for r in self.records.values()), limit)


class WordEmbedder:
    """Texts with the same words are near; the vector is a hashed bag of them."""

    model, dimension, unrelated = "words", 64, UNRELATED

    def __init__(self) -> None:
        self.error: GnomonError | None = None
        self.refuses: set[str] = set()
        self.waits_for: Event | None = None
        self.embedded = 0

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32] | PoisonError]:
        if self.waits_for is not None:
            assert self.waits_for.wait(30)
        if self.error is not None:
            raise self.error
        self.embedded += len(texts)
        return [PoisonError(t) if t in self.refuses else self._vector(t) for t in texts]

    def _vector(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(self.dimension, dtype=np.float32)
        for word in analysis.terms(text) or ["nothing"]:
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            vector[int.from_bytes(digest) % self.dimension] += 1.0
        return vector / np.float32(math.sqrt(float(np.dot(vector, vector))))


def cosine(embedder: WordEmbedder, one: str, other: str) -> float:
    a, b = embedder.embed([one, other])
    assert not isinstance(a, PoisonError)
    assert not isinstance(b, PoisonError)
    return float(np.dot(a, b))


Lie = Callable[[list[Hit], Visible], list[Hit]]


@dataclass
class Index:
    """What an engine holds: any revisions, right or wrong. `hides`: its filter, by the record.

    `lie` may change what it answers; `error` is raised; `waits_for` makes it late.
    """

    held: list[Record] = field(default_factory=list)
    lie: Lie | None = None
    error: BaseException | None = None
    waits_for: Event | None = None
    asked: list[int] = field(default_factory=list)
    offered: list[Hit] = field(default_factory=list)  # last time, before it was cut

    def put(self, *records: Record) -> None:
        ids = {r.id for r in records}
        self.held = [h for h in self.held if h.id not in ids] + list(records)

    def answer(self, score: Callable[[Record], float], visible: Visible, limit: int) -> list[Hit]:
        self.asked.append(limit)
        if self.waits_for is not None:
            assert self.waits_for.wait(30)
        if self.error is not None:
            raise self.error
        found = [Hit(r.id, r.rev, score(r)) for r in self.held if visible.scope.covers(r.scope)]
        found = [hit for hit in found if hit.score > 0]
        found.sort(key=lambda hit: -hit.score)
        if self.lie is not None:
            found = self.lie(found, visible)
        self.offered = found
        return found[:limit]


class VectorIndex(Index):
    embedder: WordEmbedder

    def nearest(
        self,
        vector: NDArray[np.float32],
        *,
        visible: Visible,
        limit: int,
        timeout: timedelta,
    ) -> list[Hit]:
        def score(record: Record) -> float:
            (made,) = self.embedder.embed([record.text])
            assert not isinstance(made, PoisonError)
            return float(np.dot(vector, made))

        return self.answer(score, visible, limit)

    def answer_for(self, one: Record) -> list[Hit]:
        """Return a hit that the filter should have kept away."""
        return [Hit(one.id, one.rev, 1.0)]


class KeywordIndex(Index):
    def statistics(self, terms: Iterable[str], *, tenant: str) -> Statistics:
        texts = [analysis.terms(r.text) for r in self.held if r.scope.tenant == tenant]
        df = {term: sum(term in text for text in texts) for term in terms}
        return Statistics(len(texts), df, max(sum(map(len, texts)) / max(len(texts), 1), 1.0))

    def best(
        self, terms: Sequence[str], *, visible: Visible, limit: int, timeout: timedelta
    ) -> list[Hit]:
        known = self.statistics(terms, tenant=visible.scope.tenant)
        return self.answer(
            lambda record: bm25(terms, analysis.terms(record.text), known), visible, limit
        )


@dataclass(frozen=True)
class Linked:
    memory_id: UUID
    rev: int
    score: float
    name: str
    similarity: float
    degree: int


class EntityIndex(Index):
    """Names are the words of a query that begin with a capital letter."""

    def names_in(self, text: str, /) -> list[str]:
        return [word.strip("?.!,").lower() for word in text.split() if word[:1].isupper()]

    def linked(self, names: Sequence[str], visible: Visible, limit: int, /) -> list[Linked]:
        degree = {
            name: sum(self._holds(r, name) for r in self.held if visible.scope.covers(r.scope))
            for name in names
        }

        def boost(record: Record) -> float:
            held = [name for name in names if self._holds(record, name)]
            return max((1 / (1 + 0.001 * (degree[name] - 1) ** 2) for name in held), default=0.0)

        by_id = {r.id: r for r in self.held}
        linked = []
        for hit in self.answer(boost, visible, limit):
            held = by_id.get(hit.memory_id)
            name = next((n for n in names if held and self._holds(held, n)), "")
            linked.append(Linked(hit.memory_id, hit.rev, hit.score, name, 1.0, degree.get(name, 0)))
        return linked

    @staticmethod
    def _holds(record: Record, name: str) -> bool:
        return name in record.text.lower().split()


class World:
    """A store and the indexes over it."""

    def __init__(self) -> None:
        self.store = Store()
        self.embedder = WordEmbedder()
        self.vector, self.keyword, self.entity = VectorIndex(), KeywordIndex(), EntityIndex()
        self.vector.embedder = WordEmbedder()

    @property
    def indexes(self) -> dict[Leg, Index]:
        return {Leg.VECTOR: self.vector, Leg.KEYWORD: self.keyword, Leg.ENTITY: self.entity}

    def add(self, *records: Record) -> None:
        """Write records and project them everywhere."""
        for one in records:
            self.store.write(one)
            for index in self.indexes.values():
                index.put(one)
        self.store.project()

    def write(self, one: Record) -> Record:
        """Write a record that no index has seen yet."""
        return self.store.write(one)
