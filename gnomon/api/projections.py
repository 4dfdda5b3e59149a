"""The routes of operators: how far projections have come, pauses, parked memories."""

from dataclasses import asdict
from typing import Any, Final

from fastapi import Response

from canonical.domain import door
from canonical.domain.ids import parse_id
from canonical.domain.places import shown
from canonical.errors import InvalidInputError, NotFoundError, hint_of
from canonical.store import projections
from canonical.store.projections import GenerationStatus, Parked, ProjectionStatus, ShardStatus
from gnomon.api import documents, parameters, rendering
from gnomon.api.gate import Call
from gnomon.api.memories import json_response

PARKED_PARAMETERS: Final = frozenset({"limit"})
REDRIVE_FIELDS: Final = frozenset({"ids"})
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000


def status(call: Call) -> Response:
    """Read every projection's state, over all tenants."""
    parameters.query(call.query_string, frozenset())
    items = [_projection(one) for one in projections.status(call.services.projector)]
    return json_response(rendering.listed(items, total=len(items)))


def pause(call: Call) -> Response:
    """Stop a projection's loops, wherever they run."""
    name = _name(call)
    projections.pause(call.services.database, name, paused=True)
    return json_response({"name": name, "paused": True})


def resume(call: Call) -> Response:
    """Let a projection's loops go on, and its halted shards with them."""
    name = _name(call)
    projections.pause(call.services.database, name, paused=False)
    halted = projections.resume_halted(call.services.projector, name)
    call.services.hint(())
    return json_response({"name": name, "paused": False, "resumed_shards": halted})


def parked(call: Call) -> Response:
    """List the tenant's memories that a projection has parked."""
    given = parameters.query(call.query_string, PARKED_PARAMETERS)
    limit = door.whole_number(
        parameters.number(given, "limit", DEFAULT_LIMIT), "limit", 1, MAX_LIMIT
    )
    name = _known(call)
    found = projections.parked(call.services.database, name, tenant=call.tenant, limit=limit)
    return json_response(rendering.listed([_parked(one) for one in found]))


def redrive(call: Call) -> Response:
    """Let the tenant's parked memories be tried at once: those that are named, or all."""
    parameters.query(call.query_string, frozenset())
    given = door.known_fields(documents.parse(call.body_bytes), REDRIVE_FIELDS)
    raw = given.get("ids")
    if raw is not None and (not isinstance(raw, list) or not 0 < len(raw) <= MAX_LIMIT):
        raise InvalidInputError("ids", "is not such a list", f"1 to {MAX_LIMIT} ids; null: all")
    ids = None if raw is None else [parse_id(one, f"ids[{n}]") for n, one in enumerate(raw)]
    name = _known(call)
    count = projections.redrive(call.services.database, name, ids, tenant=call.tenant)
    call.services.hint(())
    return json_response({"name": name, "count": count})


def _name(call: Call) -> str:
    parameters.query(call.query_string, frozenset())
    name: str = call.path_params["name"]
    return name


def _known(call: Call) -> str:
    """Return the projection's name: of none, an empty list must not say that all is well."""
    name: str = call.path_params["name"]
    names = [one.name for one in projections.status(call.services.database)]
    if name not in names:
        raise NotFoundError(f"no projection {shown(name)!r}; there are {', '.join(names)}")
    return name


def _projection(one: ProjectionStatus) -> dict[str, Any]:
    live = next((g for g in one.generations if g.state == "live"), None)
    serving = live or (one.generations[-1] if one.generations else None)
    return {
        "name": one.name,
        "state": _state(one, serving),
        "paused": one.paused,
        "lag": serving and serving.lag,
        "waiting_s": serving and serving.waiting_s,
        "parked": serving.parked if serving else 0,
        "generations": [_generation(g) for g in one.generations],
    }


def _state(one: ProjectionStatus, generation: GenerationStatus | None) -> str:
    """Say in one word how a projection is, the worst first."""
    if generation is None:
        return "missing"
    if generation.state != "live":
        return generation.state
    if any(shard.halted for shard in generation.shards):
        return "halted"
    if one.paused:
        return "paused"
    if any(shard.held_s is not None for shard in generation.shards):
        return "held"
    return "lagging" if generation.lag else "current"


def _generation(one: GenerationStatus) -> dict[str, Any]:
    return {
        "generation": one.generation,
        "state": one.state,
        "error": one.error,
        "lag": one.lag,
        "waiting_s": one.waiting_s,
        "parked": one.parked,
        "shards": [_shard(shard) for shard in one.shards],
    }


def _shard(one: ShardStatus) -> dict[str, Any]:
    return {**asdict(one), "lag": one.lag, "hint": hint_of(one.error_code)}


def _parked(one: Parked) -> dict[str, Any]:
    said = asdict(one)
    del said["tenant"]
    return said
