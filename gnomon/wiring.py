"""Puts a serving process together: Postgres, engines, loops, search; closes it in order."""

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from canonical.domain.log import Mark
from canonical.errors import StateUnusableError
from canonical.store import epochs, migrate, projections, retention
from canonical.store.database import Database, Role, refuse_unsafe
from canonical.store.embedded import EmbeddedPostgres
from canonical.store.reading import CanonicalReader
from canonical.store.state_lock import StateLock
from gnomon.settings import Settings
from gnomon.shadows import Shadow, Shadows
from inference.local import WordLlamaEmbedder
from inference.openai_compatible import Endpoint, OpenAICompatibleEmbedder
from inference.protocols import Embedder
from search.diagnostics import Diagnostics
from search.metrics import NoMetrics, SearchMetrics
from search.ports import Engines
from search.searcher import Searcher
from search.settings import SearchSettings
from workers import generations
from workers.crew import Craft, Crew, CrewSettings
from workers.maintenance import Maintenance
from workers.runner import Runner

# A new state takes 70 MB, and the engines map files: a mapped page that finds no space on the disk
# ends the process as a SIGKILL does, and Postgres stays behind.
LEAST_FREE_BYTES = 100 << 20
API_CONNECTIONS = 20
PROJECTOR_CONNECTIONS = 12
OWNER_CONNECTIONS = 2


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
    crew: Crew
    maintenance: Maintenance
    epoch: int
    left: Mapping[str, str]  # projections that can't be worked on in this process, and why

    @property
    def runners(self) -> list[Runner]:
        """Return the loops at this moment."""
        return self.crew.runners

    def ailments(self) -> list[tuple[str, str]]:
        """Name what is not worked on, and the loops that give no sign of life or fail again."""
        return [*self.left.items(), *self.crew.ailments()]

    def leases_lost(self) -> dict[str, int]:
        """Count, for each projection, the leases that this process lost to others."""
        return self.crew.leases_lost()

    def chores_failed(self) -> dict[str, int]:
        """Count how often each chore of this process has failed."""
        return dict(self.maintenance.failures)

    def hint(self) -> None:
        """Wake the loops after a commit; it can't fail, and a lost one costs only time."""
        self.crew.wake()


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
               UnsafeStoreError.
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
        self._shadows = Shadows(settings, databases.projector, databases.api, self._embedder, stack)

    def backend(self, owner: str) -> Backend:
        """Open the engines, then the search, then the loops, whose leases are `owner`'s."""
        cast = self._shadows
        shadows: dict[str, Shadow[Any]] = {
            "vector": cast.vector,
            "keyword": cast.keyword,
            "entity": cast.entity,
            "audit": cast.audit,
        }
        epoch = self._settled_epoch([mark for one in shadows.values() for mark in one.marks()])
        share = self._settings.diagnostics_share
        diagnostics = Diagnostics(self._reader, sample=share, metrics=self._metrics)
        engines = Engines(
            canonical=self._reader,
            vector=cast.vector.reader,
            keyword=cast.keyword.reader,
            entity=cast.entity.reader,
            embedder=self._embedder,
        )
        searcher = self._searcher(engines, diagnostics)
        self._rebuild([one.craft for one in shadows.values() if one.craft is not None])
        return Backend(
            self._settings,
            self._databases,
            self._reader,
            searcher,
            diagnostics,
            self._crew([one.craft for one in shadows.values() if one.craft is not None], owner),
            self._maintain(),
            epoch,
            {name: one.ailment for name, one in shadows.items() if one.ailment is not None},
        )

    def _settled_epoch(self, marks: Sequence[Mark]) -> int:
        rewound = generations.rewound(self._databases.projector, marks)
        return epochs.settle(self._databases.owner, (mark.epoch for mark in marks), rewound=rewound)

    def _rebuild(self, crafts: Sequence[Craft]) -> None:
        """Begin what the settings name anew; an embedded engine was when it was opened."""
        for craft in crafts:
            if craft.alone is None and craft.name in self._settings.rebuild:
                generations.rebuild(self._databases.projector, craft.name, craft.schema_hash)

    def _searcher(self, engines: Engines, diagnostics: Diagnostics) -> Searcher:
        settings = SearchSettings(
            over_fetch=self._settings.over_fetch,
            over_fetch_min=self._settings.least_candidates,
            leg_budget=timedelta(seconds=self._settings.leg_timeout_s),
        )
        searcher = Searcher(engines, settings, metrics=self._metrics, diagnostics=diagnostics)
        self._stack.callback(searcher.close)
        return searcher

    def _crew(self, crafts: Sequence[Craft], owner: str) -> Crew:
        lasting, cap = self._settings.lease(), self._settings.parked_cap
        settings = CrewSettings(owner=owner, lasting=lasting, parked_cap=cap)
        crew = Crew(self._databases.projector, crafts, settings)
        self._stack.callback(crew.stop)
        crew.start()
        return crew

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
