"""Puts a serving process together: Postgres, engines, loops, search; closes it in order."""

import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from canonical.errors import InvalidInputError, StateUnusableError
from canonical.store import epochs, migrate, projections, retention
from canonical.store.database import Database, Role, refuse_unsafe
from canonical.store.embedded import EmbeddedPostgres
from canonical.store.reading import CanonicalReader
from canonical.store.state_lock import StateLock
from gnomon.metrics.counters import Metrics
from gnomon.projections import PROJECTIONS, Projection, Projections
from gnomon.settings import Settings
from search.diagnostics import Diagnostics
from search.metrics import NoMetrics, SearchMetrics
from search.ports import Engines
from search.searcher import Searcher
from search.settings import SearchSettings
from workers import generations
from workers.counts import HintCounts
from workers.hints import Hints, NoHintCounts, over_redis
from workers.maintenance import Maintenance
from workers.runner import Runner
from workers.supervisor import STATES, ProjectorSpec, Supervisor, SupervisorSettings

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

    def connections(self) -> dict[str, Callable[[], tuple[int, int, int]]]:
        """Return, for each role, what reads its pool: connections in use, idle and at most."""
        held = {"api": self.api, "projector": self.projector, "owner": self.owner}
        return {role: database.connections for role, database in held.items()}


def _anybody() -> str:
    return projections.owner_of(secrets.token_hex(8), secrets.token_hex(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a process of workers does.

    projections: none: all whose engine it reaches.
    threads:     loops of each.
    states:      of the generations it works on.
    stop_s:      how long a page may take to its end when the process is told to stop.
    """

    projections: Sequence[str] = ()
    threads: int = 1
    states: Sequence[str] = STATES
    stop_s: float = 20.0
    owner: str = field(default_factory=_anybody)


@dataclass(frozen=True, slots=True)
class Backend:
    """A running process but for its door: everything is open, the loops run, if it has any."""

    settings: Settings
    databases: Databases
    reader: CanonicalReader
    searcher: Searcher
    diagnostics: Diagnostics
    supervisor: Supervisor | None
    hints: Hints | None
    maintenance: Maintenance
    epoch: int
    left: Mapping[str, str]  # projections that can't be worked on in this process, and why

    @property
    def runners(self) -> list[Runner]:
        """Return the loops at this moment."""
        return [] if self.supervisor is None else self.supervisor.runners

    def ailments(self) -> list[tuple[str, str]]:
        """Name what is not worked on, and the loops that give no sign of life or fail again."""
        return [
            *self.left.items(),
            *([] if self.supervisor is None else self.supervisor.ailments()),
        ]

    def loops(self) -> Mapping[str, Mapping[str, int]]:
        """Count, for each projection, what the loops of this process have done."""
        return {} if self.supervisor is None else self.supervisor.counts()

    def chores_failed(self) -> dict[str, int]:
        """Count how often each chore of this process has failed."""
        return dict(self.maintenance.failures)

    def hint(self, shards: Collection[int]) -> None:
        """Wake the loops after a commit, here and elsewhere; it can't fail or block."""
        if self.supervisor is not None:
            self.supervisor.wake()
        if self.hints is not None:
            self.hints.hint(shards)


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
        pooled = settings.postgres_pooler
        databases = Databases(
            Database(url, Role.API, connections=API_CONNECTIONS, pooled=pooled),
            Database(url, Role.PROJECTOR, connections=PROJECTOR_CONNECTIONS, pooled=pooled),
            Database(url, Role.OWNER, connections=OWNER_CONNECTIONS, pooled=pooled),
        )
        for database in (databases.api, databases.projector, databases.owner):
            stack.callback(database.close)
        refuse_unsafe(databases.api)
        yield databases


@contextmanager
def open_backend(
    settings: Settings, *, metrics: SearchMetrics | None = None, hints: HintCounts | None = None
) -> Iterator[Backend]:
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
        assembly = _Assembly(settings, databases, metrics or NoMetrics(), stack, alone=True)
        yield assembly.backend(owner, hints)


@contextmanager
def open_api(
    settings: Settings, *, metrics: SearchMetrics | None = None, hints: HintCounts | None = None
) -> Iterator[Backend]:
    """Open what an HTTP process needs beside workers: any number of them over one Postgres.

    Guarantee: nothing is served before the epoch is settled. An engine that is away, or embedded in
               another process, makes searches say so, and is used once it is there.
    Raises:    InvalidInputError, when no Postgres is named. StoreUnavailableError;
               UnsafeStoreError.
    """
    with ExitStack() as stack:
        databases = stack.enter_context(_shared_databases(settings))
        assembly = _Assembly(settings, databases, metrics or NoMetrics(), stack, alone=False)
        yield assembly.backend(None, hints)


@contextmanager
def open_workers(
    settings: Settings, plan: Plan, *, metrics: Metrics | None = None
) -> Iterator[Supervisor]:
    """Run loops over what others write, until the block ends: any number of processes.

    Guarantee: at the end each loop has finished its page, or given it up after `plan.stop_s`, and
               its leases are free.
    Raises:    InvalidInputError, when no Postgres is named, or a projection whose engine is
               embedded in another process. StoreUnavailableError; UnsafeStoreError.
    """
    with ExitStack() as stack:
        databases = stack.enter_context(_shared_databases(settings))
        assembly = _Assembly(settings, databases, NoMetrics(), stack, alone=False)
        supervisor = assembly.workers(plan)
        if metrics is not None:
            metrics.watch_loops(supervisor.counts)
            metrics.watch_connections(databases.connections())
        yield supervisor


def require_ready(settings: Settings) -> None:
    """Check that `open_api` will find its Postgres, at the schema's head.

    Raises: as `open_api`.
    """
    with _shared_databases(settings):
        pass


def begin_rebuild(settings: Settings, name: str) -> int:
    """Begin a new generation of a projection beside the one that serves; return its number.

    Raises: InvalidInputError, when its engine is embedded in another process;
            StoreUnavailableError.
    """
    with ExitStack() as stack:
        databases = stack.enter_context(_shared_databases(settings))
        mine = Projections(settings, databases.projector, databases.api, stack, alone=False)
        spec = _reached(name, mine.of([name])[name])
        return generations.rebuild(databases.projector, name, spec.schema_hash).number


def _reached(name: str, projection: Projection[Any]) -> ProjectorSpec:
    if projection.spec is None:
        allowed = "projections on a server or in Postgres"
        raise InvalidInputError(name, "is embedded in another process", allowed)
    return projection.spec


@contextmanager
def _shared_databases(settings: Settings) -> Iterator[Databases]:
    if settings.postgres_url is None:
        raise InvalidInputError(
            "GNOMON_POSTGRES_URL", "is not set", "a Postgres that all processes reach"
        )
    with _databases(settings) as databases:
        yield databases


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
        *,
        alone: bool,
    ) -> None:
        self._settings, self._databases = settings, databases
        self._metrics, self._stack = metrics, stack
        self._reader = CanonicalReader(databases.api)
        self._projections = Projections(
            settings, databases.projector, databases.api, stack, alone=alone
        )

    def backend(self, owner: str | None, counts: HintCounts | None) -> Backend:
        """Open engines, then the search, then the loops, whose leases are `owner`'s, if named."""
        mine = self._projections
        projections = mine.of(PROJECTIONS)
        epoch = self._settled_epoch(projections.values())
        share = self._settings.diagnostics_share
        diagnostics = Diagnostics(self._reader, sample=share, metrics=self._metrics)
        engines = Engines(
            canonical=self._reader,
            vector=mine.vector.reader,
            keyword=mine.keyword.reader,
            entity=mine.entity.reader,
            embedder=mine.embedder,
        )
        return Backend(
            self._settings,
            self._databases,
            self._reader,
            self._searcher(engines, diagnostics),
            diagnostics,
            None if owner is None else self._supervisor(_specs(projections), Plan(owner=owner)),
            self._hints(counts),
            self._maintain(),
            epoch,
            {name: one.ailment for name, one in projections.items() if one.ailment is not None},
        )

    def workers(self, plan: Plan) -> Supervisor:
        """Run the loops of those projections that are named, or of all that can be worked on."""
        projections = self._projections.of(plan.projections or PROJECTIONS)
        for name in plan.projections:
            _reached(name, projections[name])
        self._settled_epoch(projections.values())
        return self._supervisor(_specs(projections), plan)

    def _settled_epoch(self, projections: Iterable[Projection[Any]]) -> int:
        marks = [mark for projection in projections for mark in projection.marks()]
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

    def _supervisor(self, specs: Sequence[ProjectorSpec], plan: Plan) -> Supervisor:
        self._rebuild(specs)
        settings = SupervisorSettings(
            owner=plan.owner,
            lasting=self._settings.lease(),
            parked_cap=self._settings.parked_cap,
            states=plan.states,
            threads=plan.threads,
        )
        supervisor = Supervisor(self._databases.projector, specs, settings)
        self._stack.callback(supervisor.stop, plan.stop_s)
        supervisor.start()
        return supervisor

    def _hints(self, counts: HintCounts | None) -> Hints | None:
        if self._settings.redis_url is None:
            return None
        url = self._settings.redis_url.get_secret_value()
        hints = over_redis(url, self._databases.projector, PROJECTIONS, counts or NoHintCounts())
        hints.start()
        self._stack.callback(hints.stop)
        return hints

    def _rebuild(self, specs: Sequence[ProjectorSpec]) -> None:
        """Begin what the settings name anew; an embedded engine was when it was opened."""
        for spec in specs:
            if spec.alone is None and spec.name in self._settings.rebuild:
                generations.rebuild(self._databases.projector, spec.name, spec.schema_hash)

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


def _specs(projections: Mapping[str, Projection[Any]]) -> list[ProjectorSpec]:
    return [one.spec for one in projections.values() if one.spec is not None]
