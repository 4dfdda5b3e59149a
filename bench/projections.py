"""Projections from the log's start to its end, each against its bare engine.

Ours is the loop as `gnomon up` runs it, with its pages and on a real Postgres. What models say is
in the caches already; how fast the recogniser of names is by itself is a row of its own.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from bench import projection_floors, report, texts
from bench.stored import Silent, Stored, page_events
from canonical.domain.records import Record
from canonical.store.caches import EmbeddingCache, NameCache
from canonical.store.embedded import EmbeddedPostgres
from inference.spacy_recogniser import SpacyRecogniser
from projectors.audit.signing import Signer
from projectors.audit.writer import AuditProjector
from projectors.entity.writer import EntityProjector
from projectors.keyword import mapping as keyword_mapping
from projectors.keyword.documents import document_of
from projectors.keyword.engine import KeywordEngine
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Projector
from projectors.vector import mapping as vector_mapping
from projectors.vector.engine import VectorEngine
from projectors.vector.mapping import Upsert
from projectors.vector.schema import Shape
from projectors.vector.vectors import CachedVectors
from projectors.vector.writer import VectorProjector

SHAPE = Shape(Silent.model, Silent.dimension)
RECOGNISED = 1_000  # texts, for the recogniser's own speed
ENTITY_TABLES = ("entity", "entity_key", "entity_link", "entity_degree")
AIMS = {"vector": 0.8, "keyword": 0.6, "audit": 0.6, "entity": 0.6}

Pair = tuple[float, float]  # ours and the floor, records a second


class Benchmarks:
    """One method a projection; each call casts a new generation and measures its floor beside."""

    def __init__(self, stored: Stored, folder: Path) -> None:
        """Take a full log, and a folder for indexes."""
        self._stored, self._folder = stored, folder
        self._vectors = CachedVectors(Silent(), EmbeddingCache(stored.projector, Silent.model))
        self._points = [self._ready_points(page) for page in stored.pages("vector")]
        self._documents = [
            [document_of(keyword_mapping.write_for(record, epoch=1)) for record in page]
            for page in stored.pages("keyword")
        ]

    def _ready_points(self, page: list[Record]) -> list[projection_floors.Raw]:
        found, points = self._vectors.vectors_for(page), []
        for record in page:
            vector = found[record.id]
            assert not isinstance(vector, Exception)
            write = vector_mapping.write_for(record, vector, epoch=1, dimension=SHAPE.dimension)
            assert isinstance(write, Upsert)
            points.append((write.memory_id, write.vector.tolist(), write.payload))
        return points

    def vector(self) -> Pair:
        """Points with all vectors in the cache, against Edge's upserts of the same points."""
        generation = self._stored.begin("vector")
        with VectorEngine.create(self._folder / f"vector{generation}", SHAPE) as engine:
            ours = self._stored.drain("vector", generation, VectorProjector(engine, self._vectors))
            self._require(engine.count())
        floor = self._folder / f"edge{generation}"
        return ours, projection_floors.edge_rate(floor, SHAPE, self._points)

    def keyword(self) -> Pair:
        """Texts, against tantivy's adding and committing of their finished documents."""
        generation = self._stored.begin("keyword")
        with KeywordEngine.create(self._folder / f"keyword{generation}") as engine:
            ours = self._stored.drain("keyword", generation, KeywordProjector(engine))
            self._require(engine.count())
        floor = self._folder / f"tantivy{generation}"
        return ours, projection_floors.tantivy_rate(floor, self._documents)

    def audit(self) -> Pair:
        """Entries of the chains, against COPY of the same rows."""
        signer = Signer(b"k" * 32)
        return self._in_postgres(
            "audit", lambda number: AuditProjector(signer, generation=number), ("audit",)
        )

    def entity(self) -> Pair:
        """Links with all names in the cache, against COPY of the rows that are there at the end."""
        names = NameCache(self._stored.projector)
        return self._in_postgres(
            "entity",
            lambda number: EntityProjector(Silent(), names, generation=number),
            ENTITY_TABLES,
        )

    def _in_postgres(
        self, name: str, projector: Callable[[int], Projector], tables: Sequence[str]
    ) -> Pair:
        emptied = f"TRUNCATE {', '.join(tables)}"
        self._stored.execute(emptied, "CHECKPOINT")
        generation = self._stored.begin(name)
        ours = self._stored.drain(name, generation, projector(generation))
        rows = projection_floors.dump(self._stored.admin, tables)
        self._stored.execute(emptied, "CHECKPOINT")
        commits = -(-self._stored.count // page_events(name))
        return ours, self._stored.count / projection_floors.copy_s(
            self._stored.admin, rows, commits
        )

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
        gc.freeze()  # what lies ready for the floors must not slow the collections in ours
        seen: dict[str, list[Pair]] = {name: [] for name in only}
        for _ in range(repeats):
            for name in only:
                seen[name].append(getattr(benchmarks, name)())
    rows = [
        report.row(
            f"{name} projection",
            "records/s",
            [ours for ours, _ in pairs],
            [floor for _, floor in pairs],
            AIMS[name],
        )
        for name, pairs in seen.items()
    ]
    return [*rows, _recogniser()] if "entity" in only else rows


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
