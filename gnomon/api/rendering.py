"""Records, versions and answers as JSON: one shape per thing, whichever route shows it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from canonical.domain.answers import Written, position
from canonical.domain.positions import Position, to_token
from canonical.domain.records import Provenance, Record, Status, Version
from search.answer import Answer, Considered, Degraded, EntityFactor, Hit

OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_NON_STR_KEYS
NO_PROVENANCE: Final = Provenance()

Json = dict[str, Any]


def line(value: object) -> bytes:
    """Write JSON that ends its line, as a terminal wants it of a whole answer."""
    return dumps(value) + b"\n"


def dumps(value: object) -> bytes:
    """Write JSON; times end in Z."""
    try:
        return orjson.dumps(value, option=OPTIONS)
    except orjson.JSONEncodeError:
        # Metadata that was put into the database by hand, such as a whole number over 64 bits.
        return json.dumps(value, default=_foreign, ensure_ascii=False).encode()


def _foreign(value: object) -> object:
    if isinstance(value, datetime | UUID):
        return orjson.loads(orjson.dumps(value, option=OPTIONS))
    raise TypeError(type(value).__name__)


def memory(record: Record) -> Json:
    """Write a record."""
    owner, gone = record.scope, record.tombstone
    return {
        "id": record.id,
        "version": record.version,
        "status": record.status,
        "kind": record.kind,
        "text": record.text,
        "user_id": owner.user_id,
        "agent_id": owner.agent_id,
        "run_id": owner.run_id,
        "actor_id": record.actor_id,
        "role": record.role,
        "attributed_to": record.attributed_to,
        "metadata": record.metadata,
        "provenance": provenance(record.provenance),
        "links": [{"relation": link.relation, "id": link.target} for link in record.links],
        "superseded_by": record.superseded_by,
        "valid_from": record.valid_from,
        "valid_to": record.valid_to,
        "expires_at": record.expires_at,
        "legal_hold": record.legal_hold,
        "tombstone": gone and {"at": gone.at, "by": gone.by, "why": gone.why},
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }


def provenance(given: Provenance) -> Json:
    """Write where a record came from, without what is not known."""
    if given == NO_PROVENANCE:
        return {}
    fields = {name: getattr(given, name) for name in Provenance.__dataclass_fields__}
    if given.event_id is None:
        del fields["event_part"]
    return {name: value for name, value in fields.items() if value not in (None, ())}


def version(one: Version, epoch: int) -> Json:
    """Write one state of a record's past or present."""
    return {
        "id": one.memory_id,
        "version": one.version,
        "op": one.op,
        "status": one.status,
        "text": one.text,
        "metadata": one.metadata,
        "valid_from": one.valid_from,
        "valid_to": one.valid_to,
        "expires_at": one.expires_at,
        "position": token(epoch, {one.shard: one.pos}),
        "at": one.at,
        "by": one.by,
        "why": one.why,
    }


def token(epoch: int, shards: dict[int, int]) -> str:
    """Write a position as callers hand it back."""
    return to_token(Position(epoch, shards))


def past(epoch: int, written: Sequence[Written]) -> str:
    """Write the place past everything that was written."""
    return to_token(position(epoch, list(written)))


def write(one: Written, epoch: int, status: Status = Status.ACTIVE) -> Json:
    """Write what a command did to one memory."""
    return {
        "id": one.memory_id,
        "version": one.version,
        "status": status,
        "position": token(epoch, {one.shard: one.pos}),
        "replayed": one.replayed,
    }


def listed(items: list[Json], *, next_cursor: str | None = None, total: int | None = None) -> Json:
    """Write the envelope of every list; `total` is left out where counting costs too much."""
    counted = {} if total is None else {"total": total}
    return {"items": items, "next_cursor": next_cursor, **counted}


def found(answer: Answer, *, explain: bool) -> Json:
    """Write what a search answers beside the envelope."""
    said: Json = {
        "query_id": answer.query_id,
        "degraded": [degraded(one) for one in answer.degraded],
    }
    if answer.scope_records is not None:
        said["scope_records"] = answer.scope_records
    if explain:
        said["candidates"] = [considered(one) for one in answer.considered]
        said["seconds"] = dict(answer.seconds)
    return said


def timing(seconds: Mapping[str, float]) -> str:
    """Write how long parts took as a `Server-Timing` header, which is in milliseconds."""
    return ", ".join(f"{part};dur={took * 1_000:.3f}" for part, took in seconds.items())


def hit(one: Hit) -> Json:
    """Write a record that was found."""
    said = {**memory(one.record), "score": one.score, "relevance": one.relevance}
    if one.explain is not None:
        said["explain"] = considered(one.explain)
    return said


def degraded(one: Degraded) -> Json:
    """Write in which way a part of a search fell short."""
    return {
        "leg": one.leg,
        "reason": one.reason,
        "code": one.code,
        "lag_positions": one.lag_positions,
        "lag_seconds": one.lag_seconds,
    }


def considered(one: Considered) -> Json:
    """Write what became of a candidate."""
    return {
        "id": one.memory_id,
        "version": one.version,
        "scope_match": one.scope_match,
        "sources": list(one.sources),
        "legs": {
            leg.value: {"rank": score.rank, "raw": score.raw, "normalised": score.normalised}
            for leg, score in one.legs.items()
        },
        "entity": one.entity and _entity(one.entity),
        "tail": one.tail,
        "rescored": one.rescored,
        "relevance": one.relevance,
        "score": one.score,
        "rank": one.rank,
        "dropped": one.dropped,
    }


def _entity(factor: EntityFactor) -> Json:
    return {
        "name": factor.name,
        "similarity": factor.similarity,
        "degree": factor.degree,
        "boost": factor.boost,
    }
