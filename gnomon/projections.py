"""Each projection as this process casts and reads it: on which engine, and what its page holds."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import SecretStr

from canonical.domain.log import Mark
from canonical.errors import EngineMismatchError, EngineUnavailableError, GnomonError
from canonical.store.caches import EmbeddingCache, NameCache, NoEmbeddingCache
from canonical.store.database import Database
from canonical.store.projections import Generation
from gnomon.settings import AUDIT_KEY, Settings
from inference.local import WordLlamaEmbedder
from inference.openai_compatible import Endpoint, OpenAICompatibleEmbedder
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
from projectors.keyword.opensearch.engine import OpenSearchIndex
from projectors.keyword.opensearch.settings import OpenSearchSettings
from projectors.keyword.port import KeywordEngine
from projectors.keyword.reader import KeywordIndexReader
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Projector, VectorReader
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.port import VectorEngine
from projectors.vector.qdrant.index import QdrantIndex
from projectors.vector.qdrant.settings import QdrantSettings
from projectors.vector.reader import PointReader
from projectors.vector.schema import Shape
from projectors.vector.vectors import CachedVectors
from projectors.vector.writer import VectorProjector
from search.ports import EntityReader as Names
from search.ports import Of, Words, always
from search.readers import ByGeneration
from workers import generations
from workers.generations import Blueprint, E
from workers.lazy import LazyProjector
from workers.runner import Pace
from workers.supervisor import ProjectorSpec

PROJECTIONS: Final = ("vector", "keyword", "entity", "audit")
# A page is found by search once all of it is applied: what is slow goes in small ones.
PAGES: Final = {"entity": 256, "keyword": 512}
BY_EVENTS: Final = frozenset({"audit"})  # they look at no records

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Projection(Generic[R]):
    """One projection in this process.

    spec:   how it is written; None: it can't be, and `ailment` says why.
    marks:   how far its engine has come, as far as the engine could be asked.
    """

    reader: Of[R]
    spec: ProjectorSpec | None
    marks: Callable[[], list[Mark]] = list
    ailment: str | None = None


@dataclass(frozen=True, slots=True)
class Sides(Generic[E, R]):
    """What writes to an open engine, and what reads from it."""

    writer: Callable[[E], Projector]
    reader: Callable[[E], R]


class Projections:
    """The projections of one process; what they open is closed by the stack."""

    def __init__(
        self,
        settings: Settings,
        projector: Database,
        api: Database,
        stack: ExitStack,
        *,
        alone: bool,
    ) -> None:
        """`alone`: this process has the state folder, and so may open embedded engines."""
        self._settings, self._projector, self._api = settings, projector, api
        self._stack, self._alone = stack, alone
        self.embedder = _embedder(settings)

    def of(self, names: Iterable[str]) -> dict[str, Projection[Any]]:
        """Return the projections of these names."""
        return {name: getattr(self, name) for name in names}

    @cached_property
    def vector(self) -> Projection[VectorReader]:
        """Open the vector projection, or prepare it on its server."""
        shape = Shape(self.embedder.model, self.embedder.dimension)
        vectors = CachedVectors(self.embedder, self._embedding_cache())
        sides: Sides[VectorEngine, VectorReader] = Sides(
            lambda engine: VectorProjector(engine, vectors), PointReader
        )
        if (server := self._qdrant()) is not None:
            served: Blueprint[VectorEngine, str] = Blueprint(
                "vector",
                f"qdrant {shape.fingerprint()}",
                lambda place: QdrantIndex.create(server, place, shape),
                lambda place: QdrantIndex.open(server, place, shape),
            )
            return self._on_server(served, sides)
        embedded: Blueprint[VectorEngine, Path] = Blueprint(
            "vector",
            shape.fingerprint(),
            lambda folder: EdgeEngine.create(folder, shape),
            lambda folder: EdgeEngine.open(folder, shape),
        )
        return self._embedded(embedded, sides)

    def _qdrant(self) -> QdrantSettings | None:
        settings = self._settings
        if settings.qdrant_url is None:
            return None
        return QdrantSettings(
            url=settings.qdrant_url, api_key=_value(settings.qdrant_key), ca_file=settings.ca_file
        )

    @cached_property
    def keyword(self) -> Projection[Words]:
        """Open the keyword projection, or prepare it on its server."""
        sides: Sides[KeywordEngine, Words] = Sides(KeywordProjector, KeywordIndexReader)
        if (server := self._opensearch()) is not None:
            served: Blueprint[KeywordEngine, str] = Blueprint(
                "keyword",
                f"opensearch {server.fingerprint()}",
                lambda place: OpenSearchIndex.create(server, place),
                lambda place: OpenSearchIndex.open(server, place),
            )
            return self._on_server(served, sides)
        embedded: Blueprint[KeywordEngine, Path] = Blueprint(
            "keyword", keyword_schema.fingerprint(), EmbeddedIndex.create, EmbeddedIndex.open
        )
        return self._embedded(embedded, sides)

    def _opensearch(self) -> OpenSearchSettings | None:
        settings = self._settings
        if settings.opensearch_url is None:
            return None
        return OpenSearchSettings(
            urls=tuple(settings.opensearch_url.split(",")),
            username=settings.opensearch_user,
            password=_value(settings.opensearch_password),
            ca_file=settings.ca_file,
        )

    @cached_property
    def entity(self) -> Projection[Names]:
        """Prepare the entity projection, in Postgres."""
        names = self._names  # made now, so that it is closed after the loops have ended

        def reader(generation: int) -> Names:
            return EntityReader(self._api, generation=generation)

        def projector(generation: Generation) -> Projector:
            return EntityProjector(*names, generation=generation.number)

        schema_hash = f"entity {entity_schema.VERSION}"
        return Projection(reader, self._spec("entity", schema_hash, projector))

    @cached_property
    def audit(self) -> Projection[None]:
        """Prepare the audit projection, in Postgres; searches don't read it."""

        def projector(generation: Generation) -> Projector:
            return AuditProjector(self._signer, generation=generation.number)

        schema_hash = f"audit {audit_schema.VERSION}"
        return Projection(always(None), self._spec("audit", schema_hash, projector))

    @cached_property
    def _names(self) -> tuple[SpacyRecogniser, NameCache]:
        recogniser = SpacyRecogniser(self._settings.entity_model)
        self._stack.callback(recogniser.close)
        return recogniser, NameCache(self._projector)

    @cached_property
    def _signer(self) -> Signer:
        if (key := _value(self._settings.audit_key)) is not None:
            return Signer(key.encode())
        folder = self._settings.folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Signer.at(folder / AUDIT_KEY)

    def _embedding_cache(self) -> EmbeddingCache | NoEmbeddingCache:
        if self._settings.embedder == "wordllama":
            return NoEmbeddingCache()
        return EmbeddingCache(self._projector, self.embedder.model)

    def _spec(
        self,
        name: str,
        schema_hash: str,
        projector: Callable[[Generation], LazyProjector | Projector],
        *,
        alone: int | None = None,
    ) -> ProjectorSpec:
        settings = self._settings
        most = min(PAGES.get(name, settings.page_events), settings.page_events)
        pace = Pace(
            page_events=most,
            renew_s=settings.lease_s / 3,
            idle_s=settings.idle_s,
            shards=None if self._alone else settings.shards_at_once,
        )
        return ProjectorSpec(
            name, schema_hash, projector, pace, records=name not in BY_EVENTS, alone=alone
        )

    def _embedded(self, blueprint: Blueprint[E, Path], sides: Sides[E, R]) -> Projection[R]:
        """Open an embedded engine; one of another schema or model is left alone, and named."""
        name = blueprint.name
        if not self._alone:
            away = f"the {name} index is embedded in another process; name a server for it"
            return Projection(_raising(EngineUnavailableError(away)), None)
        try:
            opened = generations.open_embedded(
                blueprint,
                self._settings.folder() / name,
                self._projector,
                rebuild=name in self._settings.rebuild,
            )
        except EngineMismatchError as exc:
            return Projection(_raising(exc), None, ailment=str(exc))
        engine = opened.engine
        self._stack.callback(engine.close)
        writer, reader = sides.writer(engine), sides.reader(engine)
        number = opened.generation.number
        spec = self._spec(name, blueprint.schema_hash, lambda _: writer, alone=number)
        return Projection(always(reader), spec, lambda: list(engine.marks().values()))

    def _on_server(self, blueprint: Blueprint[E, str], sides: Sides[E, R]) -> Projection[R]:
        """Prepare a projection on a server: nothing is opened before there is work or a search."""

        def write(generation: Generation) -> tuple[Projector, Callable[[], None]]:
            engine = generations.open_on_server(blueprint, generation, self._projector)
            return sides.writer(engine), engine.close

        def read(generation: int) -> tuple[R, Callable[[], None]]:
            engine = blueprint.open(generations.place_of(blueprint.name, generation))
            return sides.reader(engine), engine.close

        readers = ByGeneration(read)
        self._stack.callback(readers.close)
        spec = self._spec(
            blueprint.name, blueprint.schema_hash, lambda one: LazyProjector(lambda: write(one))
        )
        return Projection(
            readers, spec, lambda: list(generations.marks_on_server(blueprint, self._projector))
        )


def _raising(error: GnomonError) -> Of[R]:
    def refuse(_generation: int) -> R:
        raise error.with_traceback(None)

    return refuse


def _embedder(settings: Settings) -> Embedder:
    if settings.embedder == "wordllama":
        return WordLlamaEmbedder()
    key = settings.embedder_key
    return OpenAICompatibleEmbedder(
        Endpoint(
            base_url=settings.embedder_url or "https://api.openai.com/v1",
            model=settings.embedder_model,
            api_key="none" if key is None else key.get_secret_value(),
            batch_size=settings.embedder_batch,
        )
    )


def _value(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
