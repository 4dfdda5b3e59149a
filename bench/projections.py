"""Projections from the log's start to its end, each against its bare engine.

*Writing alone* is the projector by itself: from a page of records at hand, with the vectors and
names that models gave of them, until what it writes is durable. *Whole loop* is what `gnomon up`
runs, with the same pages: it also reads the log, records and caches, and moves the watermarks. Both
are set against one floor; the aims speak of writing. How fast the recogniser of names is by itself
is a row of its own.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bench import projection_floors, report, texts
from bench.projection_floors import Raw
from bench.stored import NamesAtHand, Silent, Stored, VectorsAtHand
from canonical.store.caches import EmbeddingCache, NameCache
from canonical.store.embedded import EmbeddedPostgres
from inference.spacy_recogniser import SpacyRecogniser
from projectors.audit.signing import Signer
from projectors.audit.writer import AuditProjector
from projectors.entity.writer import EntityProjector
from projectors.entity.writer import NameCache as Names
from projectors.keyword import mapping as keyword_mapping
from projectors.keyword.embedded.documents import document_of
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Page, Projector
from projectors.vector import mapping as vector_mapping
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.mapping import Upsert
from projectors.vector.schema import Shape
from projectors.vector.vectors import CachedVectors
from projectors.vector.writer import VectorProjector

SHAPE = Shape(Silent.model, Silent.dimension)
RECOGNISED = 1_000  # texts, for the recogniser's own speed
ENTITY_TABLES = ("entity", "entity_key", "entity_link", "entity_degree")
AIMS = {"vector": 0.8, "keyword": 0.6, "audit": 0.6, "entity": 0.6}


class Rates(NamedTuple):
    """Records a second."""

    writing: float
    whole: float
    floor: float


class Benchmarks:
    """One method a projection; each call casts new generations and measures the floor beside."""

    def __init__(self, stored: Stored, folder: Path) -> None:
        """Take a full log, and a folder for indexes."""
        self._stored, self._folder, self._number = stored, folder, count()
        self._cached = CachedVectors(Silent(), EmbeddingCache(stored.projector, Silent.model))
        self._pages = {name: stored.pages(name) for name in AIMS}
        records = [record for page in self._pages["vector"] for record in page.records.values()]
        self._vectors = VectorsAtHand(self._cached.vectors_for(records))
        self._names = NamesAtHand(NameCache(stored.projector).get(Silent.model, records))
        self._points = [self._ready_points(page) for page in self._pages["vector"]]
        self._documents = [
            [
                projection_floors.finished(document_of(keyword_mapping.write_for(record, epoch=1)))
                for record in page.records.values()
            ]
            for page in self._pages["keyword"]
        ]

    def _ready_points(self, page: Page) -> list[Raw]:
        found, points = self._vectors.vectors_for(list(page.records.values())), []
        for record in page.records.values():
            vector = found[record.id]
            assert not isinstance(vector, Exception)
            write = vector_mapping.write_for(record, vector, epoch=1, dimension=SHAPE.dimension)
            assert isinstance(write, Upsert)
            points.append((write.memory_id, write.vector, write.payload))
        return points

    def vector(self) -> Rates:
        """Points with vectors at hand (whole loop: in the cache), against Edge's best upserts."""
        with EdgeEngine.create(self._next_folder(), SHAPE) as engine:
            writing = self._write("vector", VectorProjector(engine, self._vectors), engine.count)
        with EdgeEngine.create(self._next_folder(), SHAPE) as engine:
            whole = self._drain("vector", VectorProjector(engine, self._cached), engine.count)
        floor = projection_floors.edge_rate(self._next_folder, SHAPE, self._points)
        return Rates(writing, whole, floor)

    def keyword(self) -> Rates:
        """Texts, against tantivy's adding and committing of their finished documents."""
        with EmbeddedIndex.create(self._next_folder()) as engine:
            writing = self._write("keyword", KeywordProjector(engine), engine.count)
        with EmbeddedIndex.create(self._next_folder()) as engine:
            whole = self._drain("keyword", KeywordProjector(engine), engine.count)
        floor = projection_floors.tantivy_rate(self._next_folder(), self._documents)
        return Rates(writing, whole, floor)

    def audit(self) -> Rates:
        """Entries of the chains, against COPY of the same rows."""
        signer = Signer(b"k" * 32)

        def projector(generation: int, _: Names) -> Projector:
            return AuditProjector(signer, generation=generation)

        return self._in_postgres("audit", projector, ("audit",))

    def entity(self) -> Rates:
        """Links with names at hand (whole loop: in the cache), against COPY of the rows.

        The rows are those that the four tables hold at the end: a degree that rises from page to
        page is one row for COPY, and several for the projector.
        """

        def projector(generation: int, names: Names) -> Projector:
            return EntityProjector(Silent(), names, generation=generation)

        return self._in_postgres("entity", projector, ENTITY_TABLES)

    def _in_postgres(
        self, name: str, projector: Callable[[int, Names], Projector], tables: Sequence[str]
    ) -> Rates:
        emptied = f"TRUNCATE {', '.join(tables)}"
        self._stored.execute(emptied, "CHECKPOINT")
        generation = self._stored.begin(name)
        writing = self._stored.write(projector(generation, self._names), self._pages[name])
        self._stored.execute(emptied, "CHECKPOINT")
        cached = NameCache(self._stored.projector)
        whole = self._stored.drain(name, generation, projector(generation, cached))
        rows = projection_floors.dump(self._stored.admin, tables)
        self._stored.execute(emptied, "CHECKPOINT")
        took_s = projection_floors.copy_s(self._stored.admin, rows, len(self._pages[name]))
        return Rates(writing, whole, self._stored.count / took_s)

    def _next_folder(self) -> Path:
        return self._folder / f"index{next(self._number)}"

    def _write(self, name: str, projector: Projector, held: Callable[[], int]) -> float:
        rate = self._stored.write(projector, self._pages[name])
        self._require(held())
        return rate

    def _drain(self, name: str, projector: Projector, held: Callable[[], int]) -> float:
        rate = self._stored.drain(name, self._stored.begin(name), projector)
        self._require(held())
        return rate

    def _require(self, held: int) -> None:
        if held != self._stored.count:
            raise AssertionError(f"{held} of {self._stored.count} records in the index")


def run(records: int, repeats: int, only: Sequence[str] = tuple(AIMS)) -> list[report.Row]:
    """Measure, ours and floor in turn, and return medians of both sides and of their ratio."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder) / "pg") as server,
        closing(Stored(server, records)) as stored,
    ):
        benchmarks = Benchmarks(stored, Path(folder))
        gc.collect()
        gc.freeze()  # what lies ready must not slow the collections in ours
        seen: dict[str, list[Rates]] = {name: [] for name in only}
        for _ in range(repeats):
            for name in only:
                seen[name].append(getattr(benchmarks, name)())
    rows = [row for name, rates in seen.items() for row in _rows(name, rates)]
    return [*rows, _recogniser()] if "entity" in only else rows


def _rows(name: str, rates: Sequence[Rates]) -> list[report.Row]:
    writing, whole, floor = zip(*rates, strict=True)
    unit = "records/s"
    return [
        report.row(f"{name} projection, writing alone", unit, writing, floor, AIMS[name]),
        report.row(f"{name} projection, whole loop", unit, whole, floor),
    ]


def _recogniser() -> report.Row:
    """Measure how fast names are found, in the recogniser's own process and apart from all else."""
    said = [str(raw["text"]) for raw in texts.memories(RECOGNISED)]
    with closing(SpacyRecogniser()) as recogniser:
        recogniser.recognise(said[:1])  # starts the process and loads the model
        began = time.perf_counter()
        recogniser.recognise(said)
        rate = len(said) / (time.perf_counter() - began)
    return report.figure("names found by the recogniser, apart", "texts/s", rate)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=AIMS, action="append")
    options = parser.parse_args()
    report.show("projections", run(options.records, options.repeats, options.only or tuple(AIMS)))
