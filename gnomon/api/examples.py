"""One example for each route, of what is sent and what comes back: a family's allergies."""

from typing import Any, Final

Example = dict[str, Any]

MEMORY_ID: Final = "01997f0c-8a5e-7cc1-9f0e-3b7d5c1a2e44"
OLDER_ID: Final = "01997e01-11c0-7a52-8f3b-0d9a6be4c7f1"
QUERY_ID: Final = "01997f10-02d4-7b10-a6c5-5f3f5d0f9a0b"
PATHS: Final[Example] = {"id": MEMORY_ID, "query_id": QUERY_ID, "name": "vector"}
QUERIES: Final[Example] = {
    "user_id": "mara",
    "filter": '{"topic": "health"}',
    "limit": 100,
    "mutation_id": "import-7",
    "why": "asked to forget it",
}
POSITION: Final = "AQAAAAAAAAABAAcAAAAAAAAAKrMmDqo"
AT: Final = "2026-03-01T09:30:00.123456Z"

ADDITION: Final[Example] = {
    "text": "Mara is allergic to walnuts",
    "user_id": "mara",
    "metadata": {"topic": "health"},
    "mutation_id": "chat-17-turn-4",
}
LIST_ADDITION: Final[Example] = {
    "memories": [
        {"text": "Mara is allergic to walnuts", "user_id": "mara"},
        {"text": "Mara swims before work", "user_id": "mara", "valid_from": "2026-01-01T00:00:00Z"},
    ],
    "mutation_id": "chat-17",
}
LINES: Final = (
    '{"text":"Mara is allergic to walnuts","user_id":"mara","event_id":"e-1"}\n'
    '{"text":"Mara swims before work","user_id":"mara","event_id":"e-2"}\n'
)
CHANGE: Final[Example] = {"text": "Mara is allergic to all nuts", "expected_version": 1}
SUPERSESSION: Final[Example] = {
    "text": "Mara eats almonds again",
    "user_id": "mara",
    "valid_from": "2026-03-01T09:30:00+01:00",
}
QUESTION: Final[Example] = {
    "query": "what must Mara not eat?",
    "user_id": "mara",
    "filter": {"topic": "health"},
    "top_k": 5,
    "explain": True,
}
USAGE: Final[Example] = {"packed": [MEMORY_ID], "used": [MEMORY_ID]}
REDRIVE: Final[Example] = {"ids": [MEMORY_ID]}

WRITE: Final[Example] = {
    "id": MEMORY_ID,
    "version": 1,
    "status": "active",
    "position": POSITION,
    "replayed": False,
}
SUPERSEDED: Final[Example] = {
    **WRITE,
    "id": OLDER_ID,
    "version": 2,
    "status": "superseded",
}
SCOPE_DELETE: Final[Example] = {
    "count": 2,
    "status": "deleted",
    "position": POSITION,
    "replayed": False,
}
MEMORY: Final[Example] = {
    "id": MEMORY_ID,
    "version": 1,
    "status": "active",
    "kind": "raw",
    "text": "Mara is allergic to walnuts",
    "user_id": "mara",
    "agent_id": None,
    "run_id": None,
    "actor_id": None,
    "role": None,
    "attributed_to": None,
    "metadata": {"topic": "health"},
    "provenance": {"source_message_ids": ["m-17"], "source_trust": "user"},
    "links": [],
    "superseded_by": None,
    "valid_from": None,
    "valid_to": None,
    "expires_at": None,
    "legal_hold": False,
    "tombstone": None,
    "created_at": AT,
    "updated_at": AT,
}
VERSION: Final[Example] = {
    "id": MEMORY_ID,
    "version": 1,
    "op": "add",
    "status": "active",
    "text": "Mara is allergic to walnuts",
    "metadata": {"topic": "health"},
    "valid_from": None,
    "valid_to": None,
    "expires_at": None,
    "position": POSITION,
    "at": AT,
    "by": "ingest",
    "why": None,
}
CONSIDERED: Final[Example] = {
    "id": MEMORY_ID,
    "version": 1,
    "scope_match": True,
    "sources": ["vector", "keyword", "entity"],
    "legs": {
        "vector": {"rank": 1, "raw": 0.62, "normalised": 1.0},
        "keyword": {"rank": 2, "raw": 4.1, "normalised": 0.83},
    },
    "entity": {"name": "mara", "similarity": 1.0, "degree": 12, "boost": 0.05},
    "tail": False,
    "rescored": False,
    "relevance": 0.71,
    "score": 0.93,
    "rank": 1,
    "dropped": None,
}
FOUND: Final[Example] = {
    "items": [{**MEMORY, "score": 0.93, "relevance": 0.71, "explain": CONSIDERED}],
    "next_cursor": None,
    "top_k": 5,
    "threshold": 0.0,
    "query_id": QUERY_ID,
    "degraded": [
        {
            "leg": "entity",
            "reason": "lagging",
            "code": None,
            "lag_positions": 1204,
            "lag_seconds": 3.5,
        }
    ],
    "candidates": [CONSIDERED],
    "seconds": {"vector": 0.004, "keyword": 0.002, "recheck": 0.001, "total": 0.009},
}
RESULTS: Final = (
    f'{{"line":1,"id":"{MEMORY_ID}","version":1,"status":"active","position":"{POSITION}",'
    '"replayed":false}\n'
    '{"line":2,"error":{"code":"invalid_input","field":"text","message":"text: is blank; allowed: '
    'a text of 1 to 65536 bytes","hint":"Change the named field as the message says."}}\n'
    '{"summary":{"lines":2,"blank":0,"written":1,"replayed":0,"refused":1,"chunks":1,'
    f'"chunk_size":1000,"position":"{POSITION}","complete":true}}}}\n'
)
SHARD: Final[Example] = {
    "shard": 0,
    "pos": 42,
    "head": 42,
    "leased": True,
    "halted": False,
    "error_code": None,
    "error": None,
    "hint": None,
    "held_s": None,
    "moved_s": 0.8,
    "waiting_s": None,
    "parked": 1,
    "lag": 0,
}
PROJECTION: Final[Example] = {
    "name": "vector",
    "state": "current",
    "paused": False,
    "lag": 0,
    "waiting_s": None,
    "parked": 1,
    "generations": [
        {
            "generation": 1,
            "state": "live",
            "error": None,
            "lag": 0,
            "waiting_s": None,
            "parked": 1,
            "shards": [SHARD],
        }
    ],
}
PARKED: Final[Example] = {
    "projection": "vector",
    "generation": 1,
    "memory_id": MEMORY_ID,
    "attempts": 3,
    "next_try": "2026-03-01T09:40:00Z",
    "error_code": "model_refused",
    "error": "the model refused the text",
}
HEALTH: Final[Example] = {"status": "ok", "problems": [], "paused": ["audit"]}
UNWELL: Final[Example] = {
    "status": "unwell",
    "problems": [
        {
            "part": "vector generation 1 shard 3",
            "problem": "120 positions wait, the oldest for 31 s, and the watermark stands for 31 s",
        }
    ],
    "paused": [],
}
EXPOSITION: Final = 'gnomon_writes_total{command="add",outcome="written"} 17.0\n'
PROBLEM: Final[Example] = {
    "type": "urn:gnomon:error:invalid_input",
    "title": "A value can't be accepted",
    "status": 422,
    "detail": "text: is blank; allowed: a text of 1 to 65536 bytes",
    "code": "invalid_input",
    "hint": "Change the named field as the message says.",
    "request_id": "019ad5b2c0de7a1b8c2d3e4f5a6b7c8d",
    "field": "text",
}


def listed(*items: Example, total: int | None = None) -> Example:
    """Return an example of a list."""
    counted = {} if total is None else {"total": total}
    return {"items": list(items), "next_cursor": None, **counted}
