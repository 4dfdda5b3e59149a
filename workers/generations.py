"""Which physical build of a projection this process serves: opened, or begun anew if lost."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from canonical.domain.log import Mark
from canonical.errors import EngineMismatchError
from canonical.store import projections
from canonical.store.database import Database
from canonical.store.projections import Generation


class Engine(Protocol):
    """An open engine that lives in one folder."""

    def marks(self) -> Mapping[int, Mark]:
        """Return how far it has come in each shard."""
        ...

    def close(self) -> None:
        """Let go of the folder."""
        ...


E = TypeVar("E", bound=Engine)


@dataclass(frozen=True, slots=True)
class Blueprint(Generic[E]):
    """How one embedded projection's engine is made and opened."""

    name: str
    schema_hash: str
    create: Callable[[Path], E]
    open: Callable[[Path], E]


@dataclass(frozen=True, slots=True)
class Opened(Generic[E]):
    """A generation with its engine."""

    generation: Generation
    engine: E


def open_generation(
    blueprint: Blueprint[E], folder: Path, projector: Database, *, rebuild: bool = False
) -> Opened[E]:
    """Open the generation that is served, or begin a new one when its engine is lost.

    Guarantee: the engine that is returned holds everything below its generation's watermarks. A
               new generation begins at the start of the log, is `building` until it has caught up,
               and reads canonical state, so nothing but the engine was lost.
    Raises:    EngineMismatchError, when the engine is of another schema or model and `rebuild` is
               not set; EngineUnavailableError (a full disk, say): it is left as it is.
    """
    with projector.transaction() as conn:
        found = projections.find_generation(conn, blueprint.name)
        due = projections.watermarks(conn, blueprint.name, found.number) if found else {}
    if found is not None and not rebuild:
        _require_schema(blueprint, found)
        try:
            return Opened(found, _open(blueprint, folder / str(found.number), due))
        except EngineMismatchError as exc:
            lost = str(exc)
    else:
        lost = "a rebuild was asked for"
    return _begin(blueprint, folder, projector, found, lost)


def _open(blueprint: Blueprint[E], folder: Path, due: Mapping[int, int]) -> E:
    if not folder.is_dir():
        raise EngineMismatchError(f"{folder} is gone")
    engine = blueprint.open(folder)
    held = {shard: mark.pos for shard, mark in engine.marks().items()}
    behind = [shard for shard, pos in due.items() if held.get(shard, 0) < pos]
    if behind:
        engine.close()
        raise EngineMismatchError(
            f"{blueprint.name}: the engine stands before the watermark in shards {behind}"
        )
    return engine


def _require_schema(blueprint: Blueprint[E], found: Generation) -> None:
    if found.schema_hash != blueprint.schema_hash:
        raise EngineMismatchError(
            f"{blueprint.name}: generation {found.number} was built as {found.schema_hash}, this "
            f"process would write {blueprint.schema_hash}; start with the old settings, or rebuild "
            f"it with `gnomon up --rebuild {blueprint.name}`"
        )


def _begin(
    blueprint: Blueprint[E],
    folder: Path,
    projector: Database,
    found: Generation | None,
    lost: str,
) -> Opened[E]:
    with projector.transaction() as conn:
        if found is not None:
            projections.set_state(conn, blueprint.name, found.number, "lost", lost)
        empty = projections.log_is_empty(conn)
        generation = projections.begin_generation(
            conn, blueprint.name, blueprint.schema_hash, live=empty
        )
        shutil.rmtree(folder, ignore_errors=True)
        place = folder / str(generation.number)
        place.parent.mkdir(parents=True, exist_ok=True)
        engine = blueprint.create(place)
    return Opened(generation, engine)


def table_generation(
    projector: Database, name: str, schema_hash: str, *, rebuild: bool = False
) -> Generation:
    """Return the generation of a projection that lives in Postgres, begun if there is none."""
    with projector.transaction() as conn:
        found = projections.find_generation(conn, name)
        if found is not None and found.schema_hash == schema_hash and not rebuild:
            return found
        if found is not None:
            projections.set_state(conn, name, found.number, "old", "a rebuild was asked for")
        empty = projections.log_is_empty(conn)
        return projections.begin_generation(conn, name, schema_hash, live=empty)


def rewound(projector: Database, marks: Iterable[Mark]) -> bool:
    """Tell whether an engine has applied an event that the log doesn't hold, or holds otherwise."""
    with projector.transaction() as conn:
        return projections.any_unknown(conn, list(marks))


def go_live(projector: Database, name: str, generation: Generation) -> Callable[[int], None]:
    """Return what makes a generation live once it has caught up with the log, and does it once.

    It is asked with how many events may have come since it had applied all there was: from then on
    the tail of a search makes up for those, so that a log which never rests is no obstacle.
    """
    state = {"live": generation.state == "live"}

    def caught_up(may_have_come: int) -> None:
        if state["live"]:
            return
        with projector.transaction() as conn:
            if projections.lag(conn, name, generation.number) <= may_have_come:
                projections.set_state(conn, name, generation.number, "live")
                state["live"] = True

    return caught_up
