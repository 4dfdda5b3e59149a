"""What the description says of each route: its parameters, bodies and answers, with examples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST

from gnomon.api import bulk, examples, health, memories, projections, search
from gnomon.api.gate import Endpoint
from gnomon.api.schemas import FIELDS, FLAG, TEXT, Schema

JSON: Final = "application/json"
OK: Final = 200
CREATED: Final = 201
UNAVAILABLE: Final = 503

# By the name of a shape, an example of it.
Shown = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route, described. `answers` by their status; what isn't in it is a problem document.

    `headers`: of every answer, each in words.
    """

    answers: Mapping[int, Shown]
    parameters: frozenset[str] = frozenset()
    body: Shown = field(default_factory=dict)
    media_type: str = JSON  # of the body
    answer_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def _made(shown: Shown) -> Mapping[int, Shown]:
    """Describe a write that makes a memory, or is the repeat of one."""
    again = {name: {**example, "replayed": True} for name, example in shown.items()}
    return {CREATED: shown, OK: again}


PARAMETERS: Final[Mapping[str, Schema]] = {
    **FIELDS,
    "why": {**TEXT, "description": "Stands in the history."},
    "cursor": {**TEXT, "description": "The next_cursor of the page before."},
    "include_deleted": {**FLAG, "default": False, "description": "Show a deleted one's tombstone."},
    "filter": {**TEXT, "description": "A filter over metadata, as JSON."},
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": memories.MAX_LIMIT,
        "default": memories.DEFAULT_LIMIT,
    },
}

WRITE: Final = examples.WRITE
PLACE: Final = {"position": examples.POSITION}
NAME: Final = {"name": "vector"}

OPERATIONS: Final[Mapping[Endpoint, Operation]] = {
    memories.post: Operation(
        body={"Addition": examples.ADDITION, "ListAddition": examples.LIST_ADDITION},
        answers=_made(
            {"Write": WRITE, "ListWrite": {"items": [WRITE], **PLACE, "replayed": False}}
        ),
    ),
    bulk.post: Operation(
        parameters=bulk.PARAMETERS,
        body={"BulkLines": examples.LINES},
        media_type=bulk.MEDIA_TYPE,
        answers={OK: {"BulkResults": examples.RESULTS}},
        answer_type=bulk.MEDIA_TYPE,
    ),
    memories.list_page: Operation(
        parameters=memories.LIST_PARAMETERS,
        answers={OK: {"Page": examples.listed(examples.MEMORY, total=1)}},
    ),
    memories.delete_scope: Operation(
        parameters=memories.DELETE_SCOPE_PARAMETERS,
        answers={OK: {"ScopeDelete": examples.SCOPE_DELETE}},
    ),
    memories.get: Operation(
        parameters=memories.GET_PARAMETERS, answers={OK: {"Memory": examples.MEMORY}}
    ),
    memories.history: Operation(
        answers={OK: {"History": examples.listed(examples.VERSION, total=1)}}
    ),
    memories.patch: Operation(
        body={"Change": examples.CHANGE}, answers={OK: {"Write": {**WRITE, "version": 2}}}
    ),
    memories.supersede: Operation(
        body={"Supersession": examples.SUPERSESSION},
        answers=_made({"SupersedeWrite": {**WRITE, "superseded": examples.SUPERSEDED}}),
    ),
    memories.delete: Operation(
        parameters=memories.DELETE_PARAMETERS,
        answers={OK: {"Write": {**WRITE, "version": 2, "status": "deleted"}}},
    ),
    search.search: Operation(
        body={"Question": examples.QUESTION},
        answers={OK: {"Found": examples.FOUND}},
        headers={search.TIMES: "How long each part took, in milliseconds."},
    ),
    search.used: Operation(
        body={"Usage": examples.USAGE},
        answers={OK: {"Used": {"query_id": examples.QUERY_ID, "packed": 1, "used": 1}}},
    ),
    projections.status: Operation(
        answers={OK: {"Projections": examples.listed(examples.PROJECTION, total=1)}}
    ),
    projections.pause: Operation(answers={OK: {"Paused": {**NAME, "paused": True}}}),
    projections.resume: Operation(
        answers={OK: {"Resumed": {**NAME, "paused": False, "resumed_shards": 1}}}
    ),
    projections.parked: Operation(
        parameters=projections.PARKED_PARAMETERS,
        answers={OK: {"ParkedPage": examples.listed(examples.PARKED)}},
    ),
    projections.redrive: Operation(
        body={"Redrive": examples.REDRIVE}, answers={OK: {"Redriven": {**NAME, "count": 1}}}
    ),
    health.ready: Operation(
        answers={
            OK: {"Health": examples.HEALTH},
            UNAVAILABLE: {"Health": examples.UNWELL},
        }
    ),
    health.metrics: Operation(
        answers={OK: {"Exposition": examples.EXPOSITION}}, answer_type=CONTENT_TYPE_LATEST
    ),
}
