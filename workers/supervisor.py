"""Keeps a runner at work for each generation that this process may write, as Postgres says."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from canonical.errors import EngineMismatchError, GnomonError
from canonical.store import projections
from canonical.store.database import Database
from canonical.store.feed import FeedSettings, LogFeed
from canonical.store.projections import Generation
from projectors.protocol import Projector
from workers import generations
from workers.counts import Counts, total
from workers.faults import placed, told
from workers.lazy import LazyProjector
from workers.runner import Pace, Runner

log = logging.getLogger(__name__)

LOOK_S = 2.0  # how late a process may notice that another generation is worked on
STATES = ("live", "building")


@dataclass(frozen=True, slots=True)
class ProjectorSpec:
    """How one projection is worked on in this process.

    projector: opens what writes to a generation; see `LazyProjector` for what it may raise.
    alone:     an embedded engine's only generation, whatever others Postgres names.
    """

    name: str
    schema_hash: str
    projector: Callable[[Generation], LazyProjector | Projector]
    pace: Pace
    records: bool = True
    alone: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """What all runners of a process have in common."""

    owner: str
    lasting: timedelta
    parked_cap: int
    states: Sequence[str] = STATES
    threads: int = 1
    look_s: float = LOOK_S


class Key(NamedTuple):
    """Names an assignment. The epoch guards its writes: an assignment of an earlier one ends."""

    name: str
    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """One generation at work in this process."""

    generation: Generation
    projector: LazyProjector | Projector
    runners: Sequence[Runner]


class Supervisor:
    """The runners of one process, for all its projections.

    Guarantee: a generation that another process began, made live, retired or lost is noticed within
               `look_s`, without a restart; one that is built as something else than this process
               writes is left alone and named. Nothing that goes wrong in a look ends it.
    """

    def __init__(
        self, database: Database, specs: Sequence[ProjectorSpec], settings: SupervisorSettings
    ) -> None:
        """`database` serves as the projector. Nothing runs yet."""
        self._database, self._settings = database, settings
        self._specs = {spec.name: spec for spec in specs}
        self._assigned: dict[Key, Assignment] = {}
        self._left: dict[str, str] = {}  # projections that can't be worked on, and why
        self._error: Exception | None = None  # of the last look
        # Of all runners that there ever were: what is counted must never fall.
        self._counts: dict[str, list[Counts]] = {name: [] for name in self._specs}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Look once, then go on looking in a thread until `stop`.

        Raises: StoreUnavailableError.
        """
        self.look()
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """End every runner after the page at hand, all at once, and give the leases back."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._end(list(self._assigned), timeout_s)

    @property
    def projections(self) -> list[str]:
        """Return the names of the projections that are worked on here."""
        return list(self._specs)

    @property
    def runners(self) -> list[Runner]:
        """Return the runners at this moment."""
        return [runner for one in list(self._assigned.values()) for runner in one.runners]

    def wake(
        self,
        projection: str | None = None,
        generation: int | None = None,
        shard: int | None = None,
    ) -> int:
        """Say that there may be work, of one projection or of all; returns how many runners heard.

        It never blocks and never fails, and a lost one costs only time.
        """
        heard = [
            runner
            for key, one in list(self._assigned.items())
            if projection in (None, key.name) and generation in (None, key.generation)
            for runner in one.runners
        ]
        for runner in heard:
            runner.wake(shard)
        return len(heard)

    def ailments(self) -> list[tuple[str, str]]:
        """Name what is not worked on, and the loops that fail again and again."""
        asked = [(runner.name, runner.ailment()) for runner in self.runners]
        ill = [(name, ailment) for name, ailment in asked if ailment is not None]
        if self._error is not None:
            ill.append(("generations", f"they can't be read: {told(self._error)}"))
        return [*self._left.items(), *ill]

    def counts(self) -> dict[str, dict[str, int]]:
        """Count, for each projection, what this process has done since its start.

        `failing` is of this moment: how many passes of its worst loop have failed in a row. While
        it is above 0 that loop waits longer and longer between them.
        """
        failing = dict.fromkeys(self._specs, 0)
        for runner in self.runners:
            failing[runner.name] = max(failing[runner.name], runner.failures)
        return {
            name: {**total(list(counts)), "failing": failing[name]}
            for name, counts in self._counts.items()
        }

    def look(self) -> None:
        """Bring the runners into line with the generations that Postgres names.

        Raises: StoreUnavailableError.
        """
        with self._database.transaction() as conn:
            found = projections.working(conn, list(self._specs))
            epoch = projections.epoch(conn)
        for name, spec in self._specs.items():
            if not found[name] and spec.alone is None:
                found[name] = [generations.current(self._database, name, spec.schema_hash)]
        wanted = {Key(name, one.number, epoch): one for name, one in self._ours(found)}
        self._end([key for key in self._assigned if key not in wanted])
        for key, generation in wanted.items():
            if key not in self._assigned:
                self._assigned[key] = self._begun(self._specs[key.name], generation, epoch)

    def _ours(self, found: Mapping[str, Sequence[Generation]]) -> Iterator[tuple[str, Generation]]:
        left: dict[str, str] = {}
        for name, working in found.items():
            spec = self._specs[name]
            if spec.alone not in (None, *(one.number for one in working)):
                left[name] = f"generation {spec.alone}, which is this process's, was given up"
            for one in working:
                if spec.alone not in (None, one.number) or one.state not in self._settings.states:
                    continue
                try:
                    generations.require_schema(one, name, spec.schema_hash)
                    yield name, one
                except EngineMismatchError as exc:
                    left[name] = str(exc)
        for name in left.keys() - self._left.keys():
            log.error("%s is not worked on: %s", name, left[name])
        self._left = left

    def _begun(self, spec: ProjectorSpec, generation: Generation, epoch: int) -> Assignment:
        projector = spec.projector(generation)
        runners = [
            self._runner(spec, generation, projector, epoch) for _ in range(self._settings.threads)
        ]
        for runner in runners:
            self._counts[spec.name].append(runner.counts)
            runner.start()
        return Assignment(generation, projector, runners)

    def _runner(
        self, spec: ProjectorSpec, generation: Generation, projector: Projector, epoch: int
    ) -> Runner:
        settings = self._settings
        feed = FeedSettings(
            projection=spec.name,
            generation=generation.number,
            epoch=epoch,
            # Runners of one process are as much strangers as those of two.
            owner=f"{settings.owner}.{secrets.token_hex(3)}",
            lasting=settings.lasting,
            parked_cap=settings.parked_cap,
            records=spec.records,
        )
        return Runner(
            spec.name,
            LogFeed(self._database, feed),
            projector,
            pace=spec.pace,
            caught_up=generations.go_live(self._database, spec.name, generation),
        )

    def _end(self, keys: Sequence[Key], timeout_s: float = 30.0) -> None:
        ended = [self._assigned.pop(key) for key in keys]
        for one in ended:
            for runner in one.runners:
                runner.ask_to_stop()
        until = time.monotonic() + timeout_s
        for one in ended:
            for runner in one.runners:
                runner.stop(max(0.0, until - time.monotonic()))
            if isinstance(one.projector, LazyProjector):
                one.projector.close()

    def _run(self) -> None:
        while not self._stop.wait(self._settings.look_s):
            try:
                self.look()
                self._error = None
            # The outermost guard of the thread: if it ended, nothing new would be noticed, unseen.
            except Exception as exc:  # noqa: BLE001
                self._error = exc
                said = exc.code if isinstance(exc, GnomonError) else placed(exc)
                log.warning("generations not read, tried again: %s", said)
