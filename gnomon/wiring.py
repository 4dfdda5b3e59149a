"""Puts a serving process together: Postgres, engines, loops, search; closes it in order."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from canonical.errors import StateUnusableError
from canonical.store import epochs, migrate, projections, retention
from canonical.store.caches import EmbeddingCache, NameCache, NoEmbeddingCache
from canonical.store.database import Database, Role, refuse_unsafe
from canonical.store.embedded import EmbeddedPostgres
from canonical.store.feed import FeedSettings, LogFeed
from canonical.store.projections import Generation
from canonical.store.reading import CanonicalReader
from canonical.store.state_lock import StateLock
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
from projectors.keyword.reader import KeywordIndexReader
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Projector
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.reader import PointReader
from projectors.vector.schema import Shape
from projectors.vector.vectors import CachedVectors
from projectors.vector.writer import VectorProjector
from search.diagnostics import Diagnostics
from search.metrics import NoMetrics, SearchMetrics
from search.ports import Engines
from search.searcher import Searcher
from search.settings import SearchSettings
from workers import generations
from workers.generations import Blueprint, E, Opened
from workers.maintenance import Maintenance
from workers.runner import Pace, Runner

# A new state takes 70 MB, and the engines map files: a mapped page that finds no space on the disk
# ends the process as a SIGKILL does, and Postgres stays behind.
LEAST_FREE_BYTES = 100 << 20
API_CONNECTIONS = 20
PROJECTOR_CONNECTIONS = 12
OWNER_CONNECTIONS = 2
# The projections in Postgres have no folder: their schema is the migrations'.
# A page is found by search once all of it is applied: what is slow goes in small ones.
PAGES = {"entity": 256, "keyword": 512}
BY_EVENTS = frozenset({"audit"})  # they look at no records
IN_POSTGRES = {
    "entity": f"entity {entity_schema.VERSION}",
    "audit": f"audit {audit_schema.VERSION}",
}


@dataclass(frozen=True, slots=True)
class Databases:
    """The canonical store, as each role."""

    api: Database
    projector: Database
    owner: Database


@dataclass(frozen=True, slots=True)
class Backend:
    """A running process but for its door: everything is open, the loops run."""

    settings: Settings
    databases: Databases
    reader: CanonicalReader
    searcher: Searcher
    diagnostics: Diagnostics
    runners: tuple[Runner, ...]
    maintenance: Maintenance
    epoch: int

    def ailments(self) -> list[tuple[str, str]]:
        """Name the loops that give no sign of life, or that fail again and again."""
        asked = [(runner.name, runner.ailment()) for runner in self.runners]
        return [(name, ailment) for name, ailment in asked if ailment is not None]

    def leases_lost(self) -> dict[str, int]:
        """Count, for each projection, the leases that this process lost to others."""
        return {runner.name: runner.counts.leases_lost for runner in self.runners}

    def chores_failed(self) -> dict[str, int]:
        """Count how often each chore of this process has failed."""
        return dict(self.maintenance.failures)

    def hint(self) -> None:
        """Wake the loops after a commit; it can't fail, and a lost one costs only time."""
        for runner in self.runners:
            runner.wake()


@contextmanager
def open_databases(settings: Settings) -> Iterator[Databases]:
    """Start or reach Postgres and bring its schema to the head; for commands without a server.

    Raises: StateInUseError, when a server has the state folder; StoreNotStartedError;
            StoreUnavailableError; UnsafeStoreError.
    """
    with ExitStack() as stack:
        if settings.postgres_url is None:
            stack.enter_context(StateLock(settings.folder()))
        yield stack.enter_context(_databases(settings))


@contextmanager
def _databases(settings: Settings) -> Iterator[Databases]:
    with ExitStack() as stack:
        if settings.postgres_url is None:
            server = stack.enter_context(EmbeddedPostgres(settings.folder() / "postgres"))
            url = server.url("gnomon", "gnomon")
        else:
            url = settings.postgres_url.get_secret_value()
        migrate.upgrade(url)
        databases = Databases(
            Database(url, Role.API, connections=API_CONNECTIONS),
            Database(url, Role.PROJECTOR, connections=PROJECTOR_CONNECTIONS),
            Database(url, Role.OWNER, connections=OWNER_CONNECTIONS),
        )
        for database in (databases.api, databases.projector, databases.owner):
            stack.callback(database.close)
        refuse_unsafe(databases.api)
        yield databases


@contextmanager
def open_backend(settings: Settings, *, metrics: SearchMetrics | None = None) -> Iterator[Backend]:
    """Open everything, run the loops, and close it in order at the end.

    Guarantee: one process at a time in a state folder; what its last process held when it was
               killed is free at once. Nothing is served before the epoch is settled. Projections
               that `settings.rebuild` names are built anew from canonical state.
    Raises:    StateInUseError; StateUnusableError; StoreNotStartedError; StoreUnavailableError;
               UnsafeStoreError; EngineMismatchError.
    """
    with ExitStack() as stack:
        state = stack.enter_context(StateLock(settings.folder())).identity
        _require_space(settings.folder())
        databases = stack.enter_context(_databases(settings))
        projections.end_leases_of(databases.projector, state)  # we have the lock, so they are gone
        owner = projections.owner_of(state, secrets.token_hex(8))
        yield _Assembly(settings, databases, metrics or NoMetrics(), stack).backend(owner)


def _require_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise StateUnusableError(
            f"{folder}: {free >> 20} MiB of its disk are free, and a start needs "
            f"{LEAST_FREE_BYTES >> 20} MiB"
        )


class _Assembly:
    """The parts of one process, opened on a stack that closes them in reverse."""

    def __init__(
        self,
        settings: Settings,
        databases: Databases,
        metrics: SearchMetrics,
        stack: ExitStack,
    ) -> None:
        self._settings, self._databases = settings, databases
        self._metrics, self._stack = metrics, stack
        self._embedder = _embedder(settings)
        self._reader = CanonicalReader(databases.api)

    def backend(self, owner: str) -> Backend:
        """Open the engines, then the search, then the loops, whose leases are `owner`'s."""
        vector = self._open(self._vector_blueprint())
        keyword = self._open(
            Blueprint(
                "keyword", keyword_schema.fingerprint(), EmbeddedIndex.create, EmbeddedIndex.open
            )
        )
        epoch = self._settled_epoch([vector.engine, keyword.engine])
        entity, audit = self._in_postgres("entity"), self._in_postgres("audit")
        share = self._settings.diagnostics_share
        diagnostics = Diagnostics(self._reader, sample=share, metrics=self._metrics)
        engines = Engines(
            canonical=self._reader,
            vector=PointReader(vector.engine),
            keyword=KeywordIndexReader(keyword.engine),
            entity=EntityReader(self._databases.api, generation=entity.number),
            embedder=self._embedder,
        )
        searcher = self._searcher(engines, diagnostics)
        vectors = CachedVectors(self._embedder, self._embedding_cache())
        signer = Signer.at(self._settings.folder() / AUDIT_KEY)
        names = self._recogniser(), NameCache(self._databases.projector)
        runners = self._run(
            {
                "vector": (vector.generation, VectorProjector(vector.engine, vectors)),
                "keyword": (keyword.generation, KeywordProjector(keyword.engine)),
                "entity": (entity, EntityProjector(*names, generation=entity.number)),
                "audit": (audit, AuditProjector(signer, generation=audit.number)),
            },
            epoch,
            owner,
        )
        return Backend(
            self._settings,
            self._databases,
            self._reader,
            searcher,
            diagnostics,
            runners,
            self._maintain(),
            epoch,
        )

    def _open(self, blueprint: Blueprint[E]) -> Opened[E]:
        folder: Path = self._settings.folder() / blueprint.name
        opened = generations.open_generation(
            blueprint,
            folder,
            self._databases.projector,
            rebuild=blueprint.name in self._settings.rebuild,
        )
        self._stack.callback(opened.engine.close)
        return opened

    def _vector_blueprint(self) -> Blueprint[EdgeEngine]:
        shape = Shape(self._embedder.model, self._embedder.dimension)
        return Blueprint(
            "vector",
            shape.fingerprint(),
            lambda folder: EdgeEngine.create(folder, shape),
            lambda folder: EdgeEngine.open(folder, shape),
        )

    def _settled_epoch(self, engines: list[EdgeEngine | EmbeddedIndex]) -> int:
        marks = [mark for engine in engines for mark in engine.marks().values()]
        rewound = generations.rewound(self._databases.projector, marks)
        return epochs.settle(self._databases.owner, (mark.epoch for mark in marks), rewound=rewound)

    def _searcher(self, engines: Engines, diagnostics: Diagnostics) -> Searcher:
        settings = SearchSettings(
            over_fetch=self._settings.over_fetch,
            over_fetch_min=self._settings.least_candidates,
            leg_budget=timedelta(seconds=self._settings.leg_timeout_s),
        )
        searcher = Searcher(engines, settings, metrics=self._metrics, diagnostics=diagnostics)
        self._stack.callback(searcher.close)
        return searcher

    def _recogniser(self) -> SpacyRecogniser:
        recogniser = SpacyRecogniser(self._settings.entity_model)
        self._stack.callback(recogniser.close)
        return recogniser

    def _in_postgres(self, name: str) -> Generation:
        return generations.table_generation(
            self._databases.projector,
            name,
            IN_POSTGRES[name],
            rebuild=name in self._settings.rebuild,
        )

    def _embedding_cache(self) -> EmbeddingCache | NoEmbeddingCache:
        if self._settings.embedder == "wordllama":
            return NoEmbeddingCache()
        return EmbeddingCache(self._databases.projector, self._embedder.model)

    def _run(
        self, projectors: dict[str, tuple[Generation, Projector]], epoch: int, owner: str
    ) -> tuple[Runner, ...]:
        runners = tuple(
            self._runner(
                name,
                generation,
                projector,
                FeedSettings(
                    projection=name,
                    generation=generation.number,
                    epoch=epoch,
                    owner=owner,
                    lasting=self._settings.lease(),
                    parked_cap=self._settings.parked_cap,
                    records=name not in BY_EVENTS,
                ),
            )
            for name, (generation, projector) in projectors.items()
        )
        for runner in runners:
            runner.start()
            self._stack.callback(runner.stop)
        return runners

    def _runner(
        self, name: str, generation: Generation, projector: Projector, feed: FeedSettings
    ) -> Runner:
        database = self._databases.projector
        most = PAGES.get(name, self._settings.page_events)
        pace = Pace(
            page_events=min(most, self._settings.page_events), renew_s=self._settings.lease_s / 3
        )
        caught_up = generations.go_live(database, name, generation)
        return Runner(name, LogFeed(database, feed), projector, pace=pace, caught_up=caught_up)

    def _maintain(self) -> Maintenance:
        settings, projector = self._settings, self._databases.projector

        def purge() -> bool:
            return retention.purge(
                projector, keys_days=settings.keys_days, queries_days=settings.queries_days
            )

        maintenance = Maintenance({"purge": purge})
        maintenance.start()
        self._stack.callback(maintenance.stop)
        return maintenance


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
