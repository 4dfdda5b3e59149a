"""What operators see and steer: generations, watermarks against heads, pauses, parked memories."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from canonical.domain.log import Mark
from canonical.errors import NotFoundError
from canonical.store.database import Database
from canonical.store.statements import named


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """How far one generation has come in one shard."""

    shard: int
    pos: int
    head: int
    leased: bool
    halted: bool
    error_code: str | None
    error: str | None
    held_s: float | None  # since when it doesn't go on
    moved_s: float  # since when the watermark stands
    waiting_s: float | None  # age of the oldest event that is not applied; None: none waits
    parked: int

    @property
    def lag(self) -> int:
        """Return how many positions it is behind."""
        return max(0, self.head - self.pos)


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """One physical build of a projection. `state`: building, live or lost."""

    generation: int
    state: str
    error: str | None
    shards: tuple[ShardStatus, ...]

    @property
    def lag(self) -> int:
        """Return how many positions all its shards are behind."""
        return sum(shard.lag for shard in self.shards)

    @property
    def waiting_s(self) -> float | None:
        """Return the age of the oldest event that it hasn't applied."""
        return max((s.waiting_s for s in self.shards if s.waiting_s is not None), default=None)

    @property
    def parked(self) -> int:
        """Return how many memories are parked."""
        return sum(shard.parked for shard in self.shards)


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """A projection with its generations, the oldest first."""

    name: str
    paused: bool
    generations: tuple[GenerationStatus, ...]


@dataclass(frozen=True, slots=True)
class Parked:
    """A memory that one generation can't project, with its error."""

    tenant: str
    projection: str
    generation: int
    memory_id: UUID
    attempts: int
    next_try: datetime
    error_code: str
    error: str


def status(database: Database) -> list[ProjectionStatus]:
    """Read every projection's state, in one snapshot. `database`: API or projector.

    The counts of parked memories are those that the role may see.
    """
    with database.transaction() as conn:
        found = conn.execute(named("projection_status")).mappings().all()
    projections: dict[str, dict[int, list[Any]]] = {}
    paused = {row["projection"]: bool(row["paused"]) for row in found}
    for row in found:
        generations = projections.setdefault(row["projection"], {})
        if row["generation"] is not None:
            generations.setdefault(row["generation"], []).append(row)
    return [
        ProjectionStatus(name, paused[name], tuple(map(_generation, generations.values())))
        for name, generations in projections.items()
    ]


def _generation(found: Sequence[Any]) -> GenerationStatus:
    first = found[0]
    shards = tuple(
        ShardStatus(**{name: row[name] for name in ShardStatus.__dataclass_fields__})
        for row in found
    )
    return GenerationStatus(first["generation"], first["state"], first["generation_error"], shards)


def pause(database: Database, projection: str, *, paused: bool) -> None:
    """Stop or let go a projection's loops, wherever they run; `database`: API.

    Raises: NotFoundError.
    """
    with database.transaction() as conn:
        parameters = {"projection": projection, "paused": paused}
        if conn.execute(named("pause"), parameters).first() is None:
            raise NotFoundError(f"no projection {projection!r}")


def resume_halted(projector: Database, projection: str) -> int:
    """Let halted shards be claimed again; returns how many. `projector` serves as that role."""
    with projector.transaction() as conn:
        return conn.execute(named("resume_shards"), {"projection": projection}).rowcount


def end_leases_of(projector: Database, family: str) -> int:
    """End the leases of every owner of a family (`owner_of`); returns how many there were.

    Only for whoever knows that no process of the family lives. One that does is fenced as by any
    other take-over: its compare-and-set finds another owner, and it drops its work.
    """
    with projector.transaction() as conn:
        parameters = {"beginning": owner_of(family, "")}
        return conn.execute(named("end_leases_of"), parameters).rowcount


def owner_of(family: str, process: str) -> str:
    """Name the owner of a process's leases: of one family are those that follow one another."""
    return f"{family}.{process}"


def parked(
    database: Database, projection: str, *, tenant: str | None = None, limit: int = 100
) -> list[Parked]:
    """List what generations that are building or live have parked.

    Of one tenant (API), or of all (projector).
    """
    with database.transaction(tenant) as conn:
        parameters = {"projection": projection, "limit": limit}
        found = conn.execute(named("list_parked"), parameters).mappings().all()
    return [Parked(**{n: row[n] for n in Parked.__dataclass_fields__}) for row in found]


def redrive(
    database: Database,
    projection: str,
    ids: Sequence[UUID] | None = None,
    *,
    tenant: str | None = None,
) -> int:
    """Let what `parked` lists be tried at once; returns how many. Watermarks are not touched."""
    with database.transaction(tenant) as conn:
        parameters = {"projection": projection, "ids": None if ids is None else list(ids)}
        return conn.execute(named("redrive"), parameters).rowcount


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation that is served or being built."""

    number: int
    state: str
    schema_hash: str


def decide(conn: Connection, projection: str) -> None:
    """Be alone in deciding about a projection's generations, until the transaction ends.

    Raises: StoreUnavailableError, when another one takes longer than the lock's time-out.
    """
    conn.execute(named("decide_generation"), {"projection": projection})


def working(conn: Connection, names: Sequence[str]) -> dict[str, list[Generation]]:
    """Return the generations of projections that serve or are being built, the oldest first."""
    found = conn.execute(named("working_generations"), {"projections": list(names)}).all()
    return {
        name: [
            Generation(row.generation, row.state, row.schema_hash)
            for row in found
            if row.projection == name
        ]
        for name in names
    }


def epoch(conn: Connection) -> int:
    """Return the log's epoch."""
    return int(conn.execute(named("epoch")).scalar_one())


def serve(conn: Connection, projection: str, generation: int, *, may_have_come: int) -> bool:
    """Let a generation serve in the place of the one before, if it is still built and caught up.

    `may_have_come`: positions that it may be behind. Guarantee: of several processes at once one
    does it, and no older generation ever takes the place of a newer one.
    """
    decide(conn, projection)
    named_one = {"projection": projection, "generation": generation}
    asked = {**named_one, "may_have_come": may_have_come}
    if not conn.execute(named("may_serve"), asked).scalar_one():
        return False
    conn.execute(named("retire"), {**named_one, "error": f"generation {generation} serves"})
    set_state(conn, projection, generation, "live")
    return True


def find_generation(conn: Connection, projection: str) -> Generation | None:
    """Return the newest generation of a projection that is live or being built, locked."""
    row = conn.execute(named("find_generation"), {"projection": projection}).one_or_none()
    return None if row is None else Generation(row.generation, row.state, row.schema_hash)


def live(conn: Connection, projection: str) -> int:
    """Return the number of a projection's generation that is live or being built.

    Raises: NotFoundError, when nothing was ever projected.
    """
    number = conn.execute(named("live_generation"), {"projection": projection}).scalar()
    if number is None:
        raise NotFoundError(f"{projection} has no generation yet: start `gnomon up` once")
    return int(number)


def begin_generation(
    conn: Connection, projection: str, schema_hash: str, *, live: bool
) -> Generation:
    """Make the next generation, with its watermarks at the start of the log.

    `live`: the log is empty, so there is nothing to build.
    """
    state = "live" if live else "building"
    parameters = {"projection": projection, "state": state, "schema_hash": schema_hash}
    number = conn.execute(named("begin_generation"), parameters).scalar_one()
    conn.execute(named("begin_watermarks"), {"projection": projection, "generation": number})
    return Generation(number, state, schema_hash)


def set_state(
    conn: Connection, projection: str, generation: int, state: str, error: str | None = None
) -> None:
    """Move a generation to its next state."""
    parameters = {"projection": projection, "generation": generation}
    conn.execute(named("set_generation_state"), {**parameters, "state": state, "error": error})


def lag(conn: Connection, projection: str, generation: int) -> int:
    """Count the positions that a generation is behind."""
    parameters = {"projection": projection, "generation": generation}
    count: int = conn.execute(named("generation_lag"), parameters).scalar_one()
    return count


def log_is_empty(conn: Connection) -> bool:
    """Tell whether nothing was ever written."""
    return bool(conn.execute(named("log_is_empty")).scalar_one())


def watermarks(conn: Connection, projection: str, generation: int) -> dict[int, int]:
    """Return a generation's watermark in each shard."""
    parameters = {"projection": projection, "generation": generation}
    return {row.shard: row.pos for row in conn.execute(named("watermarks"), parameters)}


def any_unknown(conn: Connection, marks: Sequence[Mark]) -> bool:
    """Tell whether some mark of an engine names an event that the log has not at that place.

    An event of a segment that retention dropped is past every live watermark, and not asked for.
    """
    parameters = {
        "shards": [mark.shard for mark in marks],
        "positions": [mark.pos for mark in marks],
        "ids": [mark.memory_id for mark in marks],
        "revs": [mark.rev for mark in marks],
        "epochs": [mark.epoch for mark in marks],
    }
    return bool(conn.execute(named("unknown_marks"), parameters).scalar_one())
