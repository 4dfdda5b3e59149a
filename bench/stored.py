"""A real log with its records and full caches, to cast projections from again and again."""

import time
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray

from bench import texts
from canonical.domain.clock import SystemClock
from canonical.domain.commands import Caller, new_memory
from canonical.domain.records import Record
from canonical.errors import PoisonError
from canonical.mutations import bulk
from canonical.mutations.writer import Writer
from canonical.store import migrate, projections
from canonical.store.caches import EmbeddingCache, FoundNames, NameCache, text_key
from canonical.store.database import Database, Role
from canonical.store.embedded import EmbeddedPostgres
from canonical.store.feed import FeedSettings, LogFeed
from gnomon.projections import BY_EVENTS, PAGES
from gnomon.settings import Settings
from inference.local import WordLlamaEmbedder
from inference.protocols import Name
from projectors.protocol import Applied, Page, Projector
from projectors.vector.vectors import CacheRow, Vector
from workers.runner import Pace, Runner

CHUNK = 1_000
CALLER = Caller("default", "bench")


class Silent:
    """Models of whose answers every one is in a cache: to ask is a mistake of the benchmark."""

    model, dimension, unrelated = "silent", 256, 0.0

    def embed(self, asked: Sequence[str]) -> list[NDArray[np.float32] | PoisonError]:
        """Refuse to work."""
        raise AssertionError(f"{len(asked)} texts have no vector in the cache")

    def recognise(self, asked: Sequence[str]) -> list[tuple[Name, ...] | PoisonError]:
        """Refuse to work."""
        raise AssertionError(f"{len(asked)} texts have no names in the cache")


class VectorsAtHand:
    """Vectors of all records, as a model has just given them."""

    def __init__(self, found: Mapping[UUID, Vector | PoisonError]) -> None:
        """Take them all."""
        self._found = found

    def vectors_for(self, records: Sequence[Record]) -> dict[UUID, Vector | PoisonError]:
        """Return the records' vectors."""
        return {record.id: self._found[record.id] for record in records}


class NamesAtHand:
    """Names in all records, as a model has just given them."""

    def __init__(self, found: Mapping[UUID, FoundNames]) -> None:
        """Take them all."""
        self._found = found

    def get(self, _model: str, records: Sequence[Record]) -> dict[UUID, FoundNames]:
        """Return the records' names."""
        return {record.id: self._found[record.id] for record in records}

    def put(self, _model: str, found: Sequence[tuple[Record, Sequence[tuple[str, str]]]]) -> None:
        """Refuse: nothing new can be found."""
        raise AssertionError(f"names of {len(found)} records were not at hand")


class Stored:
    """A log that nobody writes to any more, its records, and their vectors and names in caches.

    Shapes: `admin`: a URL past every wall.
    """

    def __init__(self, server: EmbeddedPostgres, count: int) -> None:
        """Write `count` records through bulk and fill the caches."""
        url = server.url("gnomon", "gnomon")
        migrate.upgrade(url)
        self.count, self.admin = count, server.url(database="gnomon")
        self._api = Database(url, Role.API, connections=2)
        self.projector = Database(url, Role.PROJECTOR, connections=4)
        for _ in bulk.add_chunks(Writer(self._api, CALLER, SystemClock()), _chunks(count)):
            pass
        self.execute("VACUUM ANALYZE")
        self._fill_caches()
        self.execute("VACUUM ANALYZE")

    def _fill_caches(self) -> None:
        vectors = EmbeddingCache(self.projector, Silent.model)
        names, embedder = NameCache(self.projector), WordLlamaEmbedder()
        for page in self.pages("vector"):
            records = list(page.records.values())
            found = embedder.embed([record.text for record in records])
            vectors.put(
                [
                    CacheRow(record.id, *text_key(record), vector)
                    for record, vector in zip(records, found, strict=True)
                    if not isinstance(vector, PoisonError)
                ]
            )
            names.put(Silent.model, [(record, _names_in(record.text)) for record in records])

    def close(self) -> None:
        """Close the pools."""
        self._api.close()
        self.projector.close()

    def pages(self, name: str) -> list[Page]:
        """Return the whole log in the pages in which a projection gets it."""
        seen = _Seen()
        self.drain(name, self.begin(name), seen)
        return seen.pages

    def begin(self, name: str) -> int:
        """Make the projection's next generation, at the log's start."""
        with self.projector.transaction() as conn:
            return projections.begin_generation(conn, name, "bench", live=False).number

    def drain(self, name: str, generation: int, projector: Projector) -> float:
        """Bring a generation from the log's start to its end; returns records a second."""
        settings = FeedSettings(
            projection=name,
            generation=generation,
            epoch=1,
            owner="bench",
            records=name not in BY_EVENTS,
        )
        pace = Pace(page_events=page_events(name))
        runner = Runner(name, LogFeed(self.projector, settings), projector, pace=pace)
        began = time.perf_counter()
        while runner.run_once():
            pass
        took = time.perf_counter() - began
        counts = runner.counts
        if (counts.events, counts.refused, counts.leases_lost) != (self.count, 0, 0):
            raise AssertionError(f"{name}: {counts} for {self.count} records")
        return self.count / took

    def write(self, projector: Projector, pages: Sequence[Page]) -> float:
        """Bring pages at hand into a new generation, each committed; returns records a second."""
        began = time.perf_counter()
        for page in pages:
            applied = projector.apply(page)
            if applied.in_transaction is not None:
                with self.projector.transaction() as conn:
                    applied.in_transaction(conn)
            if applied.refused:
                raise AssertionError(f"{len(applied.refused)} records were refused")
        return self.count / (time.perf_counter() - began)

    def execute(self, *statements: str) -> None:
        """Run statements past every wall, each by itself."""
        with psycopg.connect(self.admin, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())


class _Seen:
    """A projection that only looks."""

    def __init__(self) -> None:
        self.pages: list[Page] = []

    def apply(self, page: Page) -> Applied:
        self.pages.append(page)
        return Applied()


def page_events(name: str) -> int:
    """Return how many events a projection's page has, as `gnomon up` sets it."""
    default = int(Settings.model_fields["page_events"].default)
    return min(default, PAGES.get(name, default))


def _names_in(said: str) -> list[tuple[str, str]]:
    """Find the names that the made-up texts are made of, as a model would."""
    found = [(name, "PERSON") for name in texts.PEOPLE] + [(name, "GPE") for name in texts.PLACES]
    return [one for one in found if one[0] in said]


def _chunks(count: int) -> Iterator[tuple[bulk.Chunk, None]]:
    raws = texts.memories(count)
    for start in range(0, count, CHUNK):
        lines = enumerate(raws[start : start + CHUNK], 1)
        items = [(line, new_memory(raw, CALLER)) for line, raw in lines]
        yield bulk.Chunk(items, size=CHUNK), None
