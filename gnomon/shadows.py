"""Each projection as this process casts and reads it: on which engine, and what its page holds."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Generic, TypeVar

from canonical.domain.log import Mark
from canonical.errors import EngineMismatchError
from canonical.store.caches import EmbeddingCache, NameCache, NoEmbeddingCache
from canonical.store.database import Database
from canonical.store.projections import Generation
from gnomon.settings import AUDIT_KEY, Settings
from inference.protocols import Embedder
from inference.spacy_recogniser import SpacyRecogniser
from projectors.audit import schema as audit_schema
from projectors.audit.signing import Signer
from projectors.audit.writer import AuditProjector
from projectors.entity import schema as entity_schema
from projectors.entity.reader import EntityReader
from projectors.entity.writer import EntityProjector
from projectors.keyword import schema as keyword_schema
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.keyword.port import KeywordEngine
from projectors.keyword.reader import KeywordIndexReader
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Projector, VectorReader
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.port import VectorEngine
from projectors.vector.reader import PointReader
from projectors.vector.schema import Shape
from projectors.vector.vectors import CachedVectors
from projectors.vector.writer import VectorProjector
from search.ports import EntityReader as Names
from search.ports import Of, Words, always
from search.readers import ByGeneration
from workers import generations
from workers.crew import Craft
from workers.generations import Blueprint, E
from workers.late import LateProjector
from workers.runner import Pace

PROJECTIONS: Final = ("vector", "keyword", "entity", "audit")
# A page is found by search once all of it is applied: what is slow goes in small ones.
PAGES: Final = {"entity": 256, "keyword": 512}
BY_EVENTS: Final = frozenset({"audit"})  # they look at no records

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Shadow(Generic[R]):
    """One projection in this process.

    craft:   how it is written; None: it can't be, and `ailment` says why.
    marks:   how far its engine has come, as far as the engine could be asked.
    """

    reader: Of[R]
    craft: Craft | None
    marks: Callable[[], list[Mark]] = list
    ailment: str | None = None


@dataclass(frozen=True, slots=True)
class Sides(Generic[E, R]):
    """What writes to an open engine, and what reads from it."""

    writer: Callable[[E], Projector]
    reader: Callable[[E], R]


class Shadows:
    """The projections of one process; what they open is closed by the stack."""

    def __init__(
        self,
        settings: Settings,
        projector: Database,
        api: Database,
        embedder: Embedder,
        stack: ExitStack,
    ) -> None:
        self._settings, self._projector, self._api = settings, projector, api
        self._embedder, self._stack = embedder, stack

    @cached_property
    def vector(self) -> Shadow[VectorReader]:
        """Open the vector projection."""
        shape = Shape(self._embedder.model, self._embedder.dimension)
        vectors = CachedVectors(self._embedder, self._embedding_cache())
        blueprint: Blueprint[VectorEngine, Path] = Blueprint(
            "vector",
            shape.fingerprint(),
            lambda folder: EdgeEngine.create(folder, shape),
            lambda folder: EdgeEngine.open(folder, shape),
        )
        sides: Sides[VectorEngine, VectorReader] = Sides(
            lambda engine: VectorProjector(engine, vectors), PointReader
        )
        return self._embedded(blueprint, sides)

    @cached_property
    def keyword(self) -> Shadow[Words]:
        """Open the keyword projection."""
        blueprint: Blueprint[KeywordEngine, Path] = Blueprint(
            "keyword", keyword_schema.fingerprint(), EmbeddedIndex.create, EmbeddedIndex.open
        )
        sides: Sides[KeywordEngine, Words] = Sides(KeywordProjector, KeywordIndexReader)
        return self._embedded(blueprint, sides)

    @cached_property
    def entity(self) -> Shadow[Names]:
        """Prepare the entity projection, in Postgres."""
        names = self._names  # made now, so that it is closed after the loops have ended

        def reader(generation: int) -> Names:
            return EntityReader(self._api, generation=generation)

        def projector(generation: Generation) -> Projector:
            return EntityProjector(*names, generation=generation.number)

        schema_hash = f"entity {entity_schema.VERSION}"
        return Shadow(reader, self._craft("entity", schema_hash, projector))

    @cached_property
    def audit(self) -> Shadow[None]:
        """Prepare the audit projection, in Postgres; searches don't read it."""

        def projector(generation: Generation) -> Projector:
            return AuditProjector(self._signer, generation=generation.number)

        schema_hash = f"audit {audit_schema.VERSION}"
        return Shadow(always(None), self._craft("audit", schema_hash, projector))

    @cached_property
    def _names(self) -> tuple[SpacyRecogniser, NameCache]:
        recogniser = SpacyRecogniser(self._settings.entity_model)
        self._stack.callback(recogniser.close)
        return recogniser, NameCache(self._projector)

    @cached_property
    def _signer(self) -> Signer:
        return Signer.at(self._settings.folder() / AUDIT_KEY)

    def _embedding_cache(self) -> EmbeddingCache | NoEmbeddingCache:
        if self._settings.embedder == "wordllama":
            return NoEmbeddingCache()
        return EmbeddingCache(self._projector, self._embedder.model)

    def _craft(
        self,
        name: str,
        schema_hash: str,
        projector: Callable[[Generation], LateProjector | Projector],
        *,
        alone: int | None = None,
    ) -> Craft:
        settings = self._settings
        most = min(PAGES.get(name, settings.page_events), settings.page_events)
        pace = Pace(page_events=most, renew_s=settings.lease_s / 3)
        return Craft(name, schema_hash, projector, pace, records=name not in BY_EVENTS, alone=alone)

    def _embedded(self, blueprint: Blueprint[E, Path], sides: Sides[E, R]) -> Shadow[R]:
        """Open an embedded engine; one of another schema or model is left alone, and named."""
        name = blueprint.name
        try:
            opened = generations.open_embedded(
                blueprint,
                self._settings.folder() / name,
                self._projector,
                rebuild=name in self._settings.rebuild,
            )
        except EngineMismatchError as exc:
            return Shadow(_raising(exc), None, ailment=str(exc))
        engine = opened.engine
        self._stack.callback(engine.close)
        writer, reader = sides.writer(engine), sides.reader(engine)
        number = opened.generation.number
        craft = self._craft(name, blueprint.schema_hash, lambda _: writer, alone=number)
        return Shadow(always(reader), craft, lambda: list(engine.marks().values()))

    def on_server(self, blueprint: Blueprint[E, str], sides: Sides[E, R]) -> Shadow[R]:
        """Prepare a projection on a server: nothing is opened before there is work or a search."""

        def write(generation: Generation) -> tuple[Projector, Callable[[], None]]:
            engine = generations.open_on_server(blueprint, generation, self._projector)
            return sides.writer(engine), engine.close

        def read(generation: int) -> tuple[R, Callable[[], None]]:
            engine = blueprint.open(generations.place_of(blueprint.name, generation))
            return sides.reader(engine), engine.close

        readers = ByGeneration(read)
        self._stack.callback(readers.close)
        craft = self._craft(
            blueprint.name, blueprint.schema_hash, lambda one: LateProjector(lambda: write(one))
        )
        return Shadow(
            readers, craft, lambda: list(generations.marks_on_server(blueprint, self._projector))
        )


def _raising(error: EngineMismatchError) -> Of[R]:
    def refuse(_generation: int) -> R:
        raise error.with_traceback(None)

    return refuse
