"""The routes of whoever watches: is it alive, does the work go on, what does it count."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from canonical.errors import StoreUnavailableError, hint_of
from canonical.store import projections
from canonical.store.projections import GenerationStatus, ProjectionStatus, ShardStatus
from gnomon.api import problems
from gnomon.api.gate import Call
from gnomon.api.memories import json_response
from gnomon.api.services import Ailment

UNAVAILABLE: Final = 503
OK: Final = 200


async def alive(_request: Request) -> Response:
    """Say that the process answers: it asks nothing and nobody, no thread and no store."""
    return json_response({"status": "ok"})


def ready(call: Call) -> Response:
    """Say whether the work goes on, and what doesn't."""
    services = call.services
    ailments = list(services.health())
    found: Sequence[ProjectionStatus] = []
    try:
        found = projections.status(services.projector)
    except StoreUnavailableError as exc:
        ailments.append(Ailment("postgres", str(exc)))
    ailments += standing_still(found, services.settings.stuck_after)
    body = {
        "status": "unwell" if ailments else "ok",
        "problems": [{"part": one.part, "problem": one.problem} for one in ailments],
        "paused": [one.name for one in found if one.paused],
    }
    response = json_response(body, UNAVAILABLE if ailments else OK)
    if ailments:
        response.headers["Retry-After"] = str(problems.RETRY_AFTER_S)
    return response


def standing_still(found: Sequence[ProjectionStatus], stuck_after: timedelta) -> Iterator[Ailment]:
    """Name each shard whose head moved while its watermark didn't, and what is halted or lost.

    A quiet log is well, a lag that shrinks is well, and a pause is somebody's wish. What is being
    built serves nothing yet, and what was lost is missed until a later one serves.
    """
    for projection in found:
        if not projection.generations:
            yield Ailment(projection.name, "no generation of it was ever begun")
        serves = max((g.generation for g in projection.generations if g.state == "live"), default=0)
        for generation in projection.generations:
            part = f"{projection.name} generation {generation.generation}"
            if generation.state == "lost" and generation.generation > serves:
                yield Ailment(part, "lost: its index is gone or unreadable")
            elif generation.state == "live":
                yield from _shards(part, generation, projection, stuck_after)


def _shards(
    part: str, generation: GenerationStatus, projection: ProjectionStatus, stuck_after: timedelta
) -> Iterator[Ailment]:
    for shard in generation.shards:
        if shard.halted:
            at = f"halted at position {shard.pos + 1}: {shard.error_code}"
            hint = hint_of(shard.error_code)
            yield Ailment(f"{part} shard {shard.shard}", f"{at}. {hint}" if hint else at)
        elif not projection.paused and _is_stuck(shard, stuck_after):
            because = f" ({shard.error_code})" if shard.error_code else ""
            yield Ailment(
                f"{part} shard {shard.shard}",
                f"{shard.lag} positions wait, the oldest for {shard.waiting_s:.0f} s, and the "
                f"watermark stands for {shard.moved_s:.0f} s{because}",
            )


def _is_stuck(shard: ShardStatus, stuck_after: timedelta) -> bool:
    limit_s = stuck_after.total_seconds()
    return shard.waiting_s is not None and min(shard.waiting_s, shard.moved_s) >= limit_s


def metrics(call: Call) -> Response:
    """Return the process's counters in Prometheus's text format."""
    return Response(call.services.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)
