"""A projection that lives in Postgres, cast from a real log by as many workers as a test wants."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from canonical.domain.clock import SystemClock
from canonical.domain.commands import Caller, Change, new_memory
from canonical.domain.scope import Scope
from canonical.errors import ModelRefusedError, PoisonError
from canonical.mutations import add, change
from canonical.mutations.writer import Writer
from canonical.store import projections
from canonical.store.database import Database, Role
from canonical.store.feed import FeedSettings, LogFeed
from inference.protocols import Name
from projectors.loop import At, ignore, retry_parked, run_page
from projectors.protocol import Applied, Page, Projector

TENANT = "t1"
SHARDS = tuple(range(16))


class Lexicon:
    """A recogniser that knows some names, in any case, and remembers what it was asked."""

    model = "lexicon-1"

    def __init__(self, *known: str, refused: str | None = None) -> None:
        self._known, self._refused = known, refused
        self.asked: list[str] = []

    def recognise(self, texts: Sequence[str]) -> list[tuple[Name, ...] | PoisonError]:
        self.asked.extend(texts)
        return [
            ModelRefusedError("no") if said == self._refused else tuple(self._found(said))
            for said in texts
        ]

    def _found(self, said: str) -> list[Name]:
        places = {said.casefold().find(name.casefold()): name for name in self._known}
        places.pop(-1, None)
        return [Name(said[at : at + len(places[at])], "PERSON") for at in sorted(places)]


class Casting:
    """One database, its writers, and the workers of one projection's generation."""

    def __init__(self, open_database: Callable[[Role], Database], name: str) -> None:
        self.name = name
        self.api, self.projector = open_database(Role.API), open_database(Role.PROJECTOR)
        self.owner = open_database(Role.OWNER)
        self.generation = self.begin()

    def begin(self, *, live: bool = True) -> int:
        with self.projector.transaction() as conn:
            return projections.begin_generation(conn, self.name, "schema", live=live).number

    def writer(self, tenant: str = TENANT) -> Writer:
        return Writer(self.api, Caller(tenant, "tester"), SystemClock())

    def add(self, said: str, tenant: str = TENANT, **fields: object) -> UUID:
        writer = self.writer(tenant)
        ids = fields if {"user_id", "agent_id", "run_id"} & fields.keys() else {"user_id": "alice"}
        return add.add(writer, new_memory({"text": said, **ids, **fields}, writer.caller)).memory_id

    def say(self, memory_id: UUID, said: str) -> None:
        change.update(self.writer(), memory_id, Change(text=said))

    def delete(self, memory_id: UUID, tenant: str = TENANT) -> None:
        change.delete(self.writer(tenant), memory_id)

    def delete_scope(self, scope: Scope) -> None:
        change.delete_scope(self.writer(scope.tenant), scope)

    def feed(
        self,
        owner: str = "one",
        *,
        generation: int | None = None,
        lasting: timedelta = timedelta(seconds=30),
    ) -> LogFeed:
        settings = FeedSettings(
            projection=self.name,
            generation=generation or self.generation,
            epoch=1,
            owner=owner,
            lasting=lasting,
        )
        return LogFeed(self.projector, settings)

    def drain(
        self,
        projector: Projector,
        owner: str = "one",
        *,
        shards: Sequence[int] = SHARDS,
        generation: int | None = None,
        limit: int = 500,
        at: At = ignore,
    ) -> int:
        """Run the loop until nothing is left for these shards; returns how many events."""
        feed = self.feed(owner, generation=generation)
        leases, events = feed.claim(shards), 0
        while True:
            progress = run_page(feed, projector, leases, limit=limit, at=at)
            assert progress.halted == {}
            if not progress.events:
                feed.release(leases)
                return events
            leases, events = progress.leases, events + progress.events

    def retry(self, projector: Projector, owner: str = "one") -> None:
        """Try everything again that is parked, without waiting for its time."""
        self.execute("UPDATE parked SET next_try = now()")
        feed = self.feed(owner)
        leases = feed.claim(SHARDS)
        while retry_parked(feed, projector, leases):
            pass  # what is refused again has a later time by now
        feed.release(leases)

    def next_page(self, owner: str = "one") -> Page:
        feed = self.feed(owner)
        return feed.page(feed.read(feed.claim(SHARDS), limit=500).events)

    def write(self, applied: Applied) -> None:
        """Write what a page made, without moving a watermark."""
        assert applied.in_transaction is not None
        with self.projector.transaction() as conn:
            applied.in_transaction(conn)

    def end_leases(self) -> None:
        self.execute("UPDATE watermark SET lease_until = now() - interval '1 s'")

    def execute(self, statement: str, **parameters: object) -> list[tuple[object, ...]]:
        """Run a statement as the owner, who sees every tenant."""
        with self.owner.transaction() as conn:
            found = conn.execute(text(statement), parameters)
            return [tuple(row) for row in found] if found.returns_rows else []

    def waits_for_lock(self) -> bool:
        """Tell whether some connection to this database waits for another one's lock."""
        found = self.execute(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE a.datname = current_database() AND NOT l.granted"
        )
        return found != [(0,)]
