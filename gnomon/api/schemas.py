"""The shapes of bodies and answers, as OpenAPI names them; fields come from the door's own sets."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from canonical.domain.commands import ATTRIBUTIONS, CHANGE_FIELDS, NEW_FIELDS
from canonical.domain.door import LIMITS
from canonical.domain.records import Kind, Op, Status, Trust
from gnomon.api.bulk import CHUNK_LINES
from gnomon.api.memories import CONTROL_FIELDS, LIST_FIELDS, MAX_VERSION
from gnomon.api.projections import MAX_LIMIT, REDRIVE_FIELDS
from gnomon.api.search import MAX_USED, SEARCH_FIELDS, USED_FIELDS
from search.answer import Leg, Shortfall
from search.query import DEFAULT_TOP_K

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Refer to a named shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, most: int | None = None) -> Schema:
    """Return the shape of a list."""
    return {"type": "array", "items": items, **({} if most is None else {"maxItems": most})}


def or_null(schema: Schema) -> Schema:
    """Return a shape that may be null as well."""
    if "type" in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"oneOf": [schema, {"type": "null"}]}


def _choice(values: Iterable[str]) -> Schema:
    return {"type": "string", "enum": [str(value) for value in values]}


TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "number"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}
ANY_OBJECT: Final[Schema] = {"type": "object"}
UUID: Final[Schema] = {"type": "string", "format": "uuid"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": LIMITS.id_chars}
POSITION: Final[Schema] = {
    "type": "string",
    "description": "Opaque: how far the log was. Hand it back as `after` of a search.",
}

# What a caller may send, by field; one meaning whichever body it stands in.
FIELDS: Final[Mapping[str, Schema]] = {
    "text": {"type": "string", "minLength": 1, "description": "1 byte to 64 KiB, not blank."},
    "user_id": {**ID, "description": "Scope: at least one of user_id, agent_id and run_id."},
    "agent_id": ID,
    "run_id": ID,
    "actor_id": {**ID, "description": "Who said it."},
    "role": ID,
    "attributed_to": _choice(ATTRIBUTIONS),
    "metadata": {**ANY_OBJECT, "description": "At most 16 KiB, depth 8, no name of a record."},
    "valid_from": or_null(TIME),
    "valid_to": or_null(TIME),
    "expires_at": or_null(TIME),
    "source_message_ids": array(ID, LIMITS.source_messages),
    "source_role": ID,
    "source_trust": {**_choice(Trust), "description": "Capped by the key."},
    "event_id": {**ID, "description": "The source event: a repeat of it adds nothing."},
    "event_part": {**COUNT, "default": 0},
    "mutation_id": {**ID, "description": "A repeat with the same body has no second effect."},
    "expected_version": {"type": "integer", "minimum": 1, "maximum": MAX_VERSION},
    "query": {"type": "string", "minLength": 1, "description": "1 byte to 8 KiB."},
    "filter": {**ANY_OBJECT, "description": "Narrows the scope by metadata keys."},
    "top_k": {**COUNT, "maximum": LIMITS.top_k, "default": DEFAULT_TOP_K},
    "threshold": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
    "after": {**POSITION, "description": "The position of a write that the answer must know of."},
    "as_of": {**TIME, "description": "Show what was valid then; default: now."},
    "show_expired": {**FLAG, "default": False},
    "include_superseded": {**FLAG, "default": False},
    "explain": {**FLAG, "default": False},
    "packed": array(UUID, MAX_USED),
    "used": array(UUID, MAX_USED),
    "ids": or_null(array(UUID, MAX_LIMIT)),
    "memories": {**array(ref("NewMemory"), LIMITS.list_items), "minItems": 1},
}


def _body(fields: Iterable[str], *required: str) -> Schema:
    """Return the shape of a body that takes exactly these fields."""
    return {
        "type": "object",
        "properties": {name: FIELDS[name] for name in sorted(fields)},
        "required": list(required),
        "additionalProperties": False,
    }


def _answer(fields: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the shape of an answer that has these fields, and maybe some others."""
    return {
        "type": "object",
        "properties": {**fields, **(optional or {})},
        "required": list(fields),
        "additionalProperties": False,
    }


def page(item: str, *, total: bool = False, optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the envelope of a list."""
    envelope = {"items": array(ref(item)), "next_cursor": or_null(TEXT)}
    counted = {"total": COUNT}
    if total:
        return _answer(envelope | counted, optional)
    return _answer(envelope, {**counted, **(optional or {})})


SCOPE: Final = {name: or_null(ID) for name in ("user_id", "agent_id", "run_id")}
TIMES: Final = {name: or_null(TIME) for name in ("valid_from", "valid_to", "expires_at")}
SCORES: Final = {"score": NUMBER, "relevance": NUMBER}
ERROR: Final = {"code": TEXT, "hint": TEXT}
HELD: Final = {"error_code": or_null(TEXT), "error": or_null(TEXT)}
BEHIND: Final = {"lag": COUNT, "waiting_s": or_null(NUMBER), "parked": COUNT}

MEMORY: Final = {
    "id": UUID,
    "version": COUNT,
    "status": _choice(Status),
    "kind": _choice(Kind),
    "text": TEXT,
    **SCOPE,
    "actor_id": or_null(ID),
    "role": or_null(ID),
    "attributed_to": or_null(_choice(ATTRIBUTIONS)),
    "metadata": ANY_OBJECT,
    "provenance": ANY_OBJECT,
    "links": array(_answer({"relation": TEXT, "id": UUID})),
    "superseded_by": or_null(UUID),
    **TIMES,
    "legal_hold": FLAG,
    "tombstone": or_null(ref("Tombstone")),
    "created_at": TIME,
    "updated_at": TIME,
}
WRITE: Final = {
    "id": UUID,
    "version": COUNT,
    "status": _choice(Status),
    "position": POSITION,
    "replayed": FLAG,
}
CONSIDERED: Final = {
    "id": UUID,
    "version": or_null(COUNT),
    "scope_match": or_null(FLAG),
    "sources": array(TEXT),
    "legs": {"type": "object", "additionalProperties": ref("LegScore")},
    "entity": or_null(ref("EntityFactor")),
    "tail": FLAG,
    "rescored": FLAG,
    "relevance": or_null(NUMBER),
    "score": or_null(NUMBER),
    "rank": or_null(COUNT),
    "dropped": or_null(TEXT),
}
SUMMARY: Final = {
    **dict.fromkeys(("lines", "blank", "written", "replayed", "refused", "chunks"), COUNT),
    "chunk_size": {"type": "integer", "enum": [CHUNK_LINES]},
    "position": POSITION,
    "complete": FLAG,
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "NewMemory": _body(NEW_FIELDS, "text"),
    "Addition": _body(NEW_FIELDS | {"mutation_id"}, "text"),
    "ListAddition": _body(LIST_FIELDS, "memories"),
    "Change": _body(CHANGE_FIELDS | CONTROL_FIELDS),
    "Supersession": _body(NEW_FIELDS | CONTROL_FIELDS, "text"),
    "Question": _body(SEARCH_FIELDS, "query"),
    "Usage": _body(USED_FIELDS),
    "Redrive": _body(REDRIVE_FIELDS),
    "Memory": _answer(MEMORY),
    "Hit": _answer(MEMORY | SCORES, {"explain": ref("Considered")}),
    "Tombstone": _answer({"at": TIME, "by": or_null(TEXT), "why": or_null(TEXT)}),
    "Write": _answer(WRITE),
    "ListWrite": _answer({"items": array(ref("Write")), "position": POSITION, "replayed": FLAG}),
    "SupersedeWrite": _answer(WRITE | {"superseded": ref("Write")}),
    "ScopeDelete": _answer(
        {"count": COUNT, "status": TEXT, "position": POSITION, "replayed": FLAG}
    ),
    "Version": _answer(
        {
            "id": UUID,
            "version": COUNT,
            "op": _choice(Op),
            "status": _choice(Status),
            "text": TEXT,
            "metadata": ANY_OBJECT,
            **TIMES,
            "position": POSITION,
            "at": TIME,
            "by": or_null(TEXT),
            "why": or_null(TEXT),
        }
    ),
    "Page": page("Memory"),
    "History": page("Version", total=True),
    "Found": _answer(
        {
            "items": array(ref("Hit")),
            "next_cursor": or_null(TEXT),
            "query_id": UUID,
            "top_k": COUNT,
            "threshold": NUMBER,
            "degraded": array(ref("Degraded")),
        },
        {
            "scope_records": COUNT,
            "candidates": array(ref("Considered")),
            "seconds": {"type": "object", "additionalProperties": NUMBER},
        },
    ),
    "Considered": _answer(CONSIDERED),
    "LegScore": _answer({"rank": or_null(COUNT), "raw": NUMBER, "normalised": NUMBER}),
    "EntityFactor": _answer({"name": TEXT, "similarity": NUMBER, "degree": COUNT, "boost": NUMBER}),
    "Degraded": _answer(
        {
            "leg": _choice([*Leg, "tail", "recheck"]),
            "reason": _choice(Shortfall),
            "code": or_null(TEXT),
            "lag_positions": or_null(COUNT),
            "lag_seconds": or_null(NUMBER),
        }
    ),
    "Used": _answer({"query_id": UUID, "packed": COUNT, "used": COUNT}),
    "Projections": page("Projection", total=True),
    "Projection": _answer(
        {
            "name": TEXT,
            "state": TEXT,
            "paused": FLAG,
            "lag": or_null(COUNT),
            "waiting_s": or_null(NUMBER),
            "parked": COUNT,
            "generations": array(ref("Generation")),
        }
    ),
    "Generation": _answer(
        {
            "generation": COUNT,
            "state": TEXT,
            "error": or_null(TEXT),
            **BEHIND,
            "shards": array(ref("Shard")),
        }
    ),
    "Shard": _answer(
        {
            "shard": COUNT,
            "pos": COUNT,
            "head": COUNT,
            "leased": FLAG,
            "halted": FLAG,
            **HELD,
            "hint": or_null(TEXT),
            "held_s": or_null(NUMBER),
            "moved_s": NUMBER,
            **BEHIND,
        }
    ),
    "Paused": _answer({"name": TEXT, "paused": FLAG}),
    "Resumed": _answer({"name": TEXT, "paused": FLAG, "resumed_shards": COUNT}),
    "ParkedPage": page("Parked"),
    "Parked": _answer(
        {
            "projection": TEXT,
            "generation": COUNT,
            "memory_id": UUID,
            "attempts": COUNT,
            "next_try": TIME,
            "error_code": TEXT,
            "error": TEXT,
        }
    ),
    "Redriven": _answer({"name": TEXT, "count": COUNT}),
    "Alive": _answer({"status": TEXT}),
    "Health": _answer(
        {
            "status": _choice(["ok", "unwell"]),
            "problems": array(_answer({"part": TEXT, "problem": TEXT})),
            "paused": array(TEXT),
        }
    ),
    "BulkLine": {
        "oneOf": [
            _answer({"line": COUNT, **WRITE}),
            _answer(
                {
                    "line": COUNT,
                    "error": _answer({**ERROR, "field": or_null(TEXT), "message": TEXT}),
                }
            ),
            _answer({"summary": _answer(SUMMARY, {"error": ref("Problem")})}),
        ]
    },
    "Problem": _answer(
        {"type": TEXT, "title": TEXT, "status": COUNT, "detail": TEXT, **ERROR},
        {
            "request_id": {**TEXT, "description": "As in X-Request-Id, and in the server's log."},
            "field": {**TEXT, "description": "Which value, when it is one."},
            "expected": COUNT,
            "current": {**COUNT, "description": "The record's current version."},
            "size": COUNT,
            "limit": COUNT,
            "unit": TEXT,
        },
    ),
}
