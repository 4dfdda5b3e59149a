"""How far the projections have come, as `GET /v1/projections` tells it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from canonical.domain.positions import Position
from gnomon.cli.failures import CommandError, Exit

Projection = Mapping[str, Any]


def serving(projection: Projection) -> list[Mapping[str, Any]]:
    """Return the generation that searches use, if there is one: the live one, or the newest."""
    generations: list[Mapping[str, Any]] = projection["generations"]
    return [g for g in generations if g["state"] == "live"] or generations[-1:]


def behind(projection: Projection, target: Position) -> int:
    """Return how many positions a projection has to go to `target`."""
    return sum(
        max(0, target.shards.get(shard["shard"], 0) - shard["pos"])
        for generation in serving(projection)
        for shard in generation["shards"]
    )


def standing(projection: Projection) -> CommandError | None:
    """Tell why a projection will not go on by itself, or None."""
    if projection["paused"]:
        return CommandError(
            "paused",
            f"the projection {projection['name']} is paused",
            f"POST /v1/projections/{projection['name']}:resume lets it go on.",
            Exit.HALT,
        )
    for generation in serving(projection):
        for shard in generation["shards"]:
            if shard["halted"]:
                return CommandError(
                    shard["error_code"] or "halt",
                    f"{projection['name']}, shard {shard['shard']}: {shard['error']}",
                    f"Mend the cause, then POST /v1/projections/{projection['name']}:resume.",
                    Exit.HALT,
                )
    return None


@dataclass(frozen=True)
class Line:
    """One generation of a projection, as a line of the status table."""

    projection: str
    state: str
    applied: int  # events, of all shards
    lag: int
    waiting_s: float | None  # age of the oldest event that is not applied
    parked: int
    error: str | None


def line(projection: Projection, generation: Mapping[str, Any]) -> Line:
    """Sum up a generation; the one that is served has its projection's state."""
    shards = sorted(generation["shards"], key=lambda shard: not shard["halted"])
    held = [shard["error"] for shard in shards if shard["error"]]
    served = generation in serving(projection)
    return Line(
        projection=projection["name"],
        state=projection["state"] if served else generation["state"],
        applied=sum(shard["pos"] for shard in shards),
        lag=generation["lag"],
        waiting_s=generation["waiting_s"],
        parked=generation["parked"],
        error=generation["error"] or next(iter(held), None),
    )


def lines(found: Sequence[Projection]) -> list[Line]:
    """Sum up each projection's generation that is served, and those in the making beside it."""
    return [line(one, generation) for one in found for generation in shown(one)]


def shown(projection: Projection) -> list[Mapping[str, Any]]:
    """Return the generations that matter now: not those that were lost before the served one."""
    served = serving(projection)
    making = [g for g in projection["generations"] if g["state"] == "building" and g not in served]
    return [*served, *making] or [NONE_YET]


NONE_YET: Final[Mapping[str, Any]] = {
    "state": "missing",
    "error": None,
    "lag": 0,
    "waiting_s": None,
    "parked": 0,
    "shards": [],
}
