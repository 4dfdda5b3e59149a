"""The routes of search: ask, and report what became of the hits."""

import math
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from fastapi import Response

from canonical.domain import door, positions
from canonical.domain.ids import parse_id
from canonical.errors import InvalidInputError
from gnomon.api import documents, parameters, questions, rendering
from gnomon.api.gate import Call
from gnomon.api.memories import json_response
from search.query import DEFAULT_TOP_K, Query

SEARCH_FIELDS: Final = questions.VISIBLE_FIELDS | {
    *("query", "top_k", "threshold", "after", "explain"),
}
USED_FIELDS: Final = frozenset({"packed", "used"})
MAX_USED: Final = 1_000
TIMES: Final = "Server-Timing"


def search(call: Call) -> Response:
    """Search a scope's memories."""
    parameters.query(call.query_string, frozenset())
    query = read_query(call, door.known_fields(documents.parse(call.body_bytes), SEARCH_FIELDS))
    answer = call.services.searcher.search(query)
    applied = {"top_k": query.top_k, "threshold": query.threshold}
    items = rendering.listed([rendering.hit(one) for one in answer.hits])
    said = json_response(items | applied | rendering.found(answer, explain=query.explain))
    if answer.seconds:
        said.headers[TIMES] = rendering.timing(answer.seconds)
    return said


def read_query(call: Call, given: Mapping[str, Any]) -> Query:
    """Read a question.

    Raises: InvalidInputError.
    """
    limits = call.services.limits
    after = given.get("after")
    return Query(
        text=door.query_text(given.get("query"), "query", limits),
        visible=questions.visible(call, given),
        top_k=door.whole_number(given.get("top_k", DEFAULT_TOP_K), "top_k", 0, limits.top_k),
        threshold=_threshold(given.get("threshold", 0.0)),
        after=None if after is None else _reached(after, call.services.epoch),
        explain=parameters.boolean(given.get("explain"), "explain"),
    )


def _threshold(value: object) -> float:
    allowed = "a number from 0 to 1"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError("threshold", "is no number", allowed)
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise InvalidInputError("threshold", f"is {value!r:.40}", allowed)
    return float(value)


def _reached(token: object, epoch: int) -> Mapping[int, int]:
    """Read a position that the answer must know of.

    A position of another life of the log says nothing about this one: what it stands for may have
    been lost with that life, and a search can't promise to know of it.
    """
    if not isinstance(token, str):
        raise InvalidInputError("after", "is no text", "the position of a write")
    position = positions.from_token(token)
    if position.epoch != epoch:
        raise InvalidInputError(
            "after",
            "is a position of another life of the log: a restore lies between",
            "a position of a write since then; read the memory to see whether it is still there",
        )
    return position.shards


def used(call: Call) -> Response:
    """Keep what became of a search's hits."""
    parameters.query(call.query_string, frozenset())
    query_id = parse_id(call.path_params["query_id"], "query_id")
    given = door.known_fields(documents.parse(call.body_bytes), USED_FIELDS)
    packed, taken = _ids(given, "packed"), _ids(given, "used")
    call.services.usage.used(call.tenant, query_id, packed=packed, used=taken)
    return json_response({"query_id": query_id, "packed": len(packed), "used": len(taken)})


def _ids(given: Mapping[str, Any], field: str) -> list[UUID]:
    raw = given.get(field, [])
    if not isinstance(raw, list) or len(raw) > MAX_USED:
        raise InvalidInputError(field, "is not such a list", f"at most {MAX_USED} ids")
    return [parse_id(one, f"{field}[{n}]") for n, one in enumerate(raw)]
