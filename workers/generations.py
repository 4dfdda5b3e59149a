"""Which physical build of a projection is worked on: found and opened, or begun anew if lost."""

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Connection

from canonical.domain.log import Mark
from canonical.errors import EngineMismatchError, EngineUnavailableError
from canonical.store import projections
from canonical.store.database import Database
from canonical.store.projections import Generation

log = logging.getLogger(__name__)


class Engine(Protocol):
    """An open engine: one generation of an index."""

    def marks(self) -> Mapping[int, Mark]:
        """Return how far it has come in each shard."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


E = TypeVar("E", bound=Engine)
Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class Blueprint(Generic[E, Place]):
    """How one projection's engine is made and opened at a place: a folder, or a server's name.

    Both raise EngineMismatchError for what is missing, damaged or there already, and
    EngineUnavailableError when the engine is away.
    """

    name: str
    schema_hash: str
    create: Callable[[Place], E]
    open: Callable[[Place], E]


@dataclass(frozen=True, slots=True)
class Opened(Generic[E]):
    """A generation with its engine."""

    generation: Generation
    engine: E


def require_schema(generation: Generation, name: str, schema_hash: str) -> None:
    """Check that this process writes what the generation was built as.

    Raises: EngineMismatchError, which names both.
    """
    if generation.schema_hash != schema_hash:
        raise EngineMismatchError(
            f"{name}: generation {generation.number} was built as {generation.schema_hash}, this "
            f"process would write {schema_hash}; start with the old settings, or rebuild it: "
            f"`gnomon up --rebuild {name}`, on servers `gnomon rebuild {name}`"
        )


# Embedded engines: one process, a folder a generation -------------------------------------------


def open_embedded(
    blueprint: Blueprint[E, Path], folder: Path, projector: Database, *, rebuild: bool = False
) -> Opened[E]:
    """Open the newest generation, or begin a new one when its engine is lost.

    Guarantee: the engine that is returned holds everything below its generation's watermarks. A
               new generation begins at the start of the log, is `building` until it has caught up,
               and reads canonical state, so nothing but the engine was lost.
    Raises:    EngineMismatchError, when the engine is of another schema or model and `rebuild` is
               not set; EngineUnavailableError (a full disk, say): it is left as it is.
    """
    name = blueprint.name
    with projector.transaction() as conn:
        projections.decide(conn, name)
        found = projections.find_generation(conn, name)
        if found is not None and not rebuild:
            require_schema(found, name, blueprint.schema_hash)
            try:
                due = projections.watermarks(conn, name, found.number)
                return Opened(found, _open_folder(blueprint, folder / str(found.number), due))
            except EngineMismatchError as exc:
                lost = str(exc)
        else:
            lost = "a rebuild was asked for"
        if found is not None:
            projections.set_state(conn, name, found.number, "lost", lost)
        generation = _begin(conn, name, blueprint.schema_hash)
        shutil.rmtree(folder, ignore_errors=True)
        place = folder / str(generation.number)
        place.parent.mkdir(parents=True, exist_ok=True)
        return Opened(generation, blueprint.create(place))


def _open_folder(blueprint: Blueprint[E, Path], folder: Path, due: Mapping[int, int]) -> E:
    if not folder.is_dir():
        raise EngineMismatchError(f"{folder} is gone")
    return _reaching(blueprint.open(folder), due, blueprint.name)


def _reaching(engine: E, due: Mapping[int, int], what: str) -> E:
    """Return the engine if it holds what the log believes that it holds; else close it."""
    with ExitStack() as undo:
        undo.callback(engine.close)
        held = {shard: mark.pos for shard, mark in engine.marks().items()}
        if behind := [shard for shard, pos in due.items() if held.get(shard, 0) < pos]:
            raise EngineMismatchError(
                f"{what}: the engine stands before the watermark in shards {behind}"
            )
        undo.pop_all()
    return engine


def _begin(conn: Connection, name: str, schema_hash: str) -> Generation:
    live = projections.log_is_empty(conn)
    return projections.begin_generation(conn, name, schema_hash, live=live)


# Servers and tables: any number of processes ----------------------------------------------------


def current(projector: Database, name: str, schema_hash: str) -> Generation:
    """Return the newest generation that serves or is being built; the first is begun."""
    with projector.transaction() as conn:
        projections.decide(conn, name)
        return projections.find_generation(conn, name) or _begin(conn, name, schema_hash)


def rebuild(projector: Database, name: str, schema_hash: str) -> Generation:
    """Begin a new generation beside the one that serves, which does so until this has caught up.

    Guarantee: one generation at most is being built; an earlier attempt is given up.
    """
    with projector.transaction() as conn:
        projections.decide(conn, name)
        found = projections.working(conn, [name])[name]
        for one in found:
            if one.state == "building":
                projections.set_state(conn, name, one.number, "old", "a rebuild was begun after it")
        return _begin(conn, name, schema_hash)


def open_on_server(blueprint: Blueprint[E, str], generation: Generation, projector: Database) -> E:
    """Open a generation's engine on its server; one that nothing was written to is made.

    Guarantee: the engine holds everything below the generation's watermarks. What was written to
               and is missing is never made again here: an empty index would serve as if it were
               whole.
    Raises:    EngineUnavailableError, when the server is away: it is lost no more than before.
               EngineMismatchError, which names the generation: it is gone, damaged, set back, of
               another schema, or holds another history than the log.
    """
    name, number = blueprint.name, generation.number
    require_schema(generation, name, blueprint.schema_hash)
    with projector.transaction() as conn:
        due = projections.watermarks(conn, name, number)
    place = place_of(name, number)
    try:
        engine = blueprint.open(place)
    except EngineMismatchError as exc:
        engine = _made(blueprint, number, projector, exc)
    with ExitStack() as undo:
        undo.callback(_reaching(engine, due, place).close)
        if rewound(projector, engine.marks().values()):
            raise EngineMismatchError(
                f"{place}: the index holds a history that the log doesn't; start this process anew,"
                " so that the log's epoch rises over it"
            )
        undo.pop_all()
    return engine


def place_of(name: str, generation: int) -> str:
    """Name the index of a generation on its server."""
    return f"gnomon_{name}_{generation}"


def _made(
    blueprint: Blueprint[E, str], number: int, projector: Database, missing: EngineMismatchError
) -> E:
    """Make an index to which nothing was ever written; of several processes one does."""
    name, place = blueprint.name, place_of(blueprint.name, number)
    with projector.transaction() as conn:
        projections.decide(conn, name)
        if any(projections.watermarks(conn, name, number).values()):
            raise EngineMismatchError(
                f"{place}: {missing}; it was written to, so it is not made again by itself: "
                f"`gnomon rebuild {name}` casts it anew"
            ) from missing
        try:
            return blueprint.open(place)  # another process was first
        except EngineMismatchError:
            return blueprint.create(place)


def rewound(projector: Database, marks: Iterable[Mark]) -> bool:
    """Tell whether an engine has applied an event that the log doesn't hold, or holds otherwise."""
    with projector.transaction() as conn:
        return projections.any_unknown(conn, list(marks))


def go_live(projector: Database, name: str, generation: Generation) -> Callable[[int], None]:
    """Return what makes a generation live once it has caught up with the log.

    It is asked with how many events may have come since it had applied all there was: from then on
    the tail of a search makes up for those, so that a log which never rests is no obstacle.
    """
    state = {"live": generation.state == "live"}

    def caught_up(may_have_come: int) -> None:
        if not state["live"]:
            with projector.transaction() as conn:
                state["live"] = projections.serve(
                    conn, name, generation.number, may_have_come=may_have_come
                )

    return caught_up


def marks_on_server(blueprint: Blueprint[E, str], projector: Database) -> Iterator[Mark]:
    """Yield the marks of what serves or is being built, of those that can be asked now.

    What can't be is asked again when it is opened for work, before anything is written to it.
    """
    name = blueprint.name
    with projector.transaction() as conn:
        found = projections.working(conn, [name])[name]
    for one in found:
        try:
            engine = blueprint.open(place_of(name, one.number))
            try:
                yield from engine.marks().values()
            finally:
                engine.close()
        except (EngineUnavailableError, EngineMismatchError) as exc:
            log.warning("%s generation %d is not asked how far it is: %s", name, one.number, exc)
