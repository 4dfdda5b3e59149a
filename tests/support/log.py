"""A log to project: writers, a generation, feeds of several owners on one database."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from canonical.domain.clock import SystemClock
from canonical.domain.commands import Caller, new_memory
from canonical.mutations.add import add
from canonical.mutations.writer import Writer
from canonical.store import projections
from canonical.store.database import Database, Role
from canonical.store.feed import FeedSettings, LogFeed

TENANT = "t1"
NAME = "vector"
SHARDS = tuple(range(16))


class Log:
    """One database with a generation of the vector projection that nobody runs yet."""

    def __init__(self, open_database: Callable[[Role], Database]) -> None:
        self.api, self.projector = open_database(Role.API), open_database(Role.PROJECTOR)
        self.owner = open_database(Role.OWNER)
        self.writer = Writer(self.api, Caller(TENANT, "tester"), SystemClock())
        with self.projector.transaction() as conn:
            made = projections.begin_generation(conn, NAME, "schema", live=True)
        self.generation = made.number

    def add(self, said: str, user: str = "u1") -> UUID:
        """Add one memory."""
        new = new_memory({"user_id": user, "text": said}, self.writer.caller)
        return add(self.writer, new).memory_id

    def feed(
        self, owner: str = "one", *, lasting: timedelta = timedelta(seconds=30), cap: int = 1_000
    ) -> LogFeed:
        """Return the log as one process sees it."""
        settings = FeedSettings(
            projection=NAME,
            generation=self.generation,
            epoch=1,
            owner=owner,
            lasting=lasting,
            parked_cap=cap,
        )
        return LogFeed(self.projector, settings)

    def end_leases(self, shards: Sequence[int] = SHARDS) -> None:
        """Let time pass: the leases of these shards have ended."""
        self.execute(
            "UPDATE watermark SET lease_until = now() - interval '1 s' WHERE shard = ANY(:shards)",
            shards=list(shards),
        )

    def execute(self, statement: str, **parameters: object) -> list[tuple[object, ...]]:
        """Run a statement as the owner, past every wall but row-level security's."""
        with self.owner.transaction() as conn:
            found = conn.execute(text(statement), parameters)
            return [tuple(row) for row in found] if found.returns_rows else []

    def lag(self) -> int:
        """Count what the generation has not applied."""
        with self.projector.transaction() as conn:
            return projections.lag(conn, NAME, self.generation)

    def parked(self) -> set[UUID]:
        """List the memories that are parked."""
        return {one.memory_id for one in projections.parked(self.projector, NAME)}
