"""How far the projections have come, as `GET /v1/projections` tells it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canonical.domain.positions import Position
from gnomon.cli.failures import CommandError, Exit

Projection = Mapping[str, Any]


def serving(projection: Projection) -> list[Mapping[str, Any]]:
    """Return the generations that searches use: the live one, or the first one in the making."""
    generations: list[Mapping[str, Any]] = projection["generations"]
    return [g for g in generations if g["state"] == "live"] or generations


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
    position: int
    lag: int
    waiting_s: float | None  # age of the oldest event that is not applied
    parked: int
    error: str | None


def line(projection: Projection, generation: Mapping[str, Any]) -> Line:
    """Sum up a generation's shards."""
    shards = generation["shards"]
    halted = [shard for shard in shards if shard["halted"]]
    held = [shard["error"] for shard in (*halted, *shards) if shard["error"]]
    state = "paused" if projection["paused"] else "halted" if halted else generation["state"]
    waiting = [shard["waiting_s"] for shard in shards if shard["waiting_s"] is not None]
    return Line(
        projection["name"],
        state,
        sum(shard["pos"] for shard in shards),
        sum(max(0, shard["head"] - shard["pos"]) for shard in shards),
        max(waiting, default=None),
        sum(shard["parked"] for shard in shards),
        generation["error"] or next(iter(held), None),
    )


def lines(found: Sequence[Projection]) -> list[Line]:
    """Sum up each generation of each projection."""
    return [line(one, generation) for one in found for generation in one["generations"]]
