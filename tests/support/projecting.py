"""Each projection on its real engine: to cast, to compare with canonical state, to run apart."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from canonical.domain.commands import new_memory
from canonical.domain.records import Status, guard
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.store.caches import EmbeddingCache, NameCache
from canonical.store.database import Database, Role
from canonical.store.feed import FeedSettings, LogFeed
from inference.fakes import HashEmbedder
from projectors.audit.signing import Signer
from projectors.audit.verify import verify as verify_chains
from projectors.audit.writer import AuditProjector
from projectors.entity.reader import verify as verify_entities
from projectors.entity.writer import EntityProjector
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.keyword.writer import KeywordProjector
from projectors.protocol import Applied, Page, Projector
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.schema import Shape
from projectors.vector.vectors import CachedVectors
from projectors.vector.writer import VectorProjector
from tests.support.casting import Casting, Lexicon
from workers.runner import Pace, Runner

PROJECTIONS: Final = ("vector", "keyword", "entity", "audit")
PEOPLE: Final = ("Mara Lind", "Ben Okafor", "Yuki Tanaka")
PLACES: Final = ("Lisbon", "Oslo", "Kyoto")
DIMENSION: Final = 32
WAIT_S: Final = 30
READ, APPLIED, MOVED, IDLE = "read", "applied", "moved", "idle"

Held = dict[UUID, tuple[int, Status | None]]
Scan = Callable[[], Iterable[tuple[UUID, int, Status | None]]]


def said(n: int) -> str:
    """Return a text with two names that the recogniser knows."""
    return f"{PEOPLE[n % 3]} keeps key {n} in {PLACES[n // 3 % 3]}"


@dataclass(frozen=True)
class Opened:
    """An open engine: what writes to it, and what it holds (None: it is in Postgres)."""

    projector: Projector
    scan: Scan | None = None


@contextmanager
def open_projection(
    name: str, folder: Path, database: Database, generation: int
) -> Iterator[Opened]:
    """Open one projection's engine, made where it isn't there yet."""
    place = folder / name
    if name == "vector":
        embedder = HashEmbedder(DIMENSION)
        shape = Shape(embedder.model, DIMENSION)
        make = EdgeEngine.open if place.exists() else EdgeEngine.create
        vectors = CachedVectors(embedder, EmbeddingCache(database, embedder.model))
        with make(place, shape) as vector:
            yield Opened(VectorProjector(vector, vectors), vector.scan)
    elif name == "keyword":
        with (EmbeddedIndex.open if place.exists() else EmbeddedIndex.create)(place) as keyword:
            yield Opened(KeywordProjector(keyword), keyword.scan)
    elif name == "entity":
        names = Lexicon(*PEOPLE, *PLACES)
        yield Opened(EntityProjector(names, NameCache(database), generation=generation))
    else:
        signer = Signer.at(folder / "audit.key")
        yield Opened(AuditProjector(signer, generation=generation))


class Shadow(Casting):
    """A log, and one projection of it on its real engine."""

    def __init__(
        self, open_database: Callable[[Role], Database], name: str, folder: Path, url: str
    ) -> None:
        super().__init__(open_database, name)
        self.folder, self.url = folder, url
        self.in_files = name in ("vector", "keyword")

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """Open the engine in this process."""
        with open_projection(self.name, self.folder, self.projector, self.generation) as opened:
            yield opened

    def fill(self, count: int) -> list[UUID]:
        """Add memories in one transaction."""
        writer = self.writer()
        new = [
            new_memory({"text": said(n), "user_id": f"u{n % 2}"}, writer.caller)
            for n in range(count)
        ]
        written = add_chunk(writer, Chunk(list(enumerate(new)))).written
        return [written[line].memory_id for line in sorted(written)]

    def catch_up(self, owner: str = "heir") -> None:
        """Let a successor do what is left, and compare."""
        self.end_leases()
        with self.opened() as opened:
            self.drain(opened.projector, owner)
            self.check(opened)

    def check(self, opened: Opened) -> None:
        """Check that the projection is what canonical state says, each thing once."""
        rows = self.execute("SELECT id, rev, status, text, user_id FROM memory")
        if opened.scan is not None:
            wanted = {i: (guard(1, int(str(rev))), Status(str(s))) for i, rev, s, *_ in rows}
            held = list(opened.scan())
            assert {i: (g, s) for i, g, s in held} == wanted
            assert len(held) == len(wanted)
        elif self.name == "entity":
            self._check_links(rows)
        else:
            self._check_entries()
        assert self.lag() == 0

    def lag(self) -> int:
        """Count the positions that are not applied."""
        ((behind,),) = self.execute(
            "SELECT sum(s.pos - w.pos) FROM watermark w JOIN shard s USING (shard)"
            " WHERE w.projection = :name AND w.generation = :generation",
            name=self.name,
            generation=self.generation,
        )
        return int(str(behind))

    def _check_links(self, rows: Sequence[tuple[object, ...]]) -> None:
        links = self.execute(
            "SELECT l.memory_id, l.rev, e.user_id, e.name FROM entity_link l"
            " JOIN entity e ON (e.tenant, e.generation, e.id)"
            "   = (l.tenant, l.generation, l.entity_id) WHERE l.generation = :generation",
            generation=self.generation,
        )
        wanted = {
            (memory_id, rev, user_id, name.casefold())
            for memory_id, rev, status, text, user_id in rows
            if Status(str(status)).is_live
            for name in (*PEOPLE, *PLACES)
            if name in str(text)
        }
        assert Counter(links) == Counter(wanted)
        with self.projector.transaction() as conn:
            assert verify_entities(conn, self.generation) == []

    def _check_entries(self) -> None:
        entries = self.execute(
            "SELECT memory_id, version FROM audit WHERE generation = :generation",
            generation=self.generation,
        )
        versions = self.execute("SELECT memory_id, version FROM memory_version")
        assert Counter(entries) == Counter(versions)
        with self.owner.transaction() as conn:
            report = verify_chains(conn, self.generation, Signer.at(self.folder / "audit.key"))
        assert report.ok, report.problems

    def worker(self, owner: str, *, lasting_s: float = 30.0, gated: bool = True) -> "Worker":
        """Start a process that projects; gated, it asks at each step whether to go on."""
        return Worker(
            Work(self.url, self.name, self.folder, self.generation, owner, lasting_s, gated)
        )


# A process that projects --------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What a process is to project, and as whom."""

    url: str
    name: str
    folder: Path
    generation: int
    owner: str
    lasting_s: float
    gated: bool


class Gated:
    """Says before and after each page that it is there, and waits to be told to go on."""

    def __init__(self, inner: Projector, ask: Callable[[str], None]) -> None:
        self._inner, self._ask = inner, ask

    def apply(self, page: Page) -> Applied:
        self._ask(READ)
        applied = self._inner.apply(page)
        self._ask(APPLIED)
        return applied


def work(what: Work, pipe: Connection) -> None:
    """Project in this process until the pipe ends; says what it does, and what it lost."""
    database = Database(what.url, Role.PROJECTOR, connections=3)
    settings = FeedSettings(
        projection=what.name,
        generation=what.generation,
        epoch=1,
        owner=what.owner,
        lasting=timedelta(seconds=what.lasting_s),
    )
    feed = LogFeed(database, settings)
    lost = 0

    def ask(step: str) -> None:
        pipe.send((step, lost))
        pipe.recv()

    with open_projection(what.name, what.folder, database, what.generation) as opened:
        pace = Pace(page_events=16, idle_s=0.05, renew_s=what.lasting_s / 3)
        if what.gated:
            runner = Runner(what.name, feed, Gated(opened.projector, ask), pace=pace)
            while True:
                done = runner.run_once()
                lost = runner.counts.leases_lost
                ask(MOVED if done else IDLE)
        runner = Runner(what.name, feed, opened.projector, pace=pace)
        runner.start()
        ask(IDLE)


_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.support.projecting"])


class Worker:
    """A projecting process, as its killer sees it."""

    def __init__(self, what: Work) -> None:
        self._pipe, theirs = _processes.Pipe()
        self._process = _processes.Process(target=work, args=(what, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def reach(self, step: str) -> int:
        """Let it go on until it stands at a step; returns how often it had lost its leases."""
        until = time.monotonic() + WAIT_S
        while self._pipe.poll(max(0.0, until - time.monotonic())):
            at, lost = self._pipe.recv()
            if at == step:
                return int(lost)
            self.go_on()
        raise AssertionError(f"waited {WAIT_S} s in vain for {step!r}")

    def go_on(self) -> None:
        self._pipe.send(None)

    def freeze(self) -> None:
        """Stop it in mid step, as a machine that swaps or is suspended does."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut does."""
        self._process.kill()
        self._process.join(WAIT_S)
        self._pipe.close()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self.kill()
