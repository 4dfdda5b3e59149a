"""The routes of memories: add, read, list, change, supersede, delete."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response

from canonical.domain import commands, door
from canonical.domain.answers import Batch, Written
from canonical.domain.commands import CHANGE_FIELDS, NEW_FIELDS, SCOPE_FIELDS, NewMemory
from canonical.domain.ids import parse_id
from canonical.domain.records import Status
from canonical.errors import InvalidInputError, NotFoundError, TooLargeError
from canonical.mutations import add, bulk, change
from canonical.mutations.bulk import Chunk
from gnomon.api import cursors, documents, outcomes, parameters, questions, rendering
from gnomon.api.gate import Call

LIST_FIELDS: Final = frozenset({"memories", "mutation_id"})
CONTROL_FIELDS: Final = frozenset({"expected_version", "mutation_id"})
ADD_FIELDS: Final = NEW_FIELDS | {"mutation_id"}
UPDATE_FIELDS: Final = CHANGE_FIELDS | CONTROL_FIELDS
SUPERSEDE_FIELDS: Final = NEW_FIELDS | CONTROL_FIELDS
DELETE_PARAMETERS: Final = CONTROL_FIELDS | {"why"}
DELETE_SCOPE_PARAMETERS: Final = SCOPE_FIELDS | {"mutation_id", "why"}
GET_PARAMETERS: Final = frozenset({"include_deleted"})
LIST_PARAMETERS: Final = questions.VISIBLE_FIELDS | {"limit", "cursor"}

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000
MAX_VERSION: Final = 2**31 - 1

CREATED: Final = 201
OK: Final = 200
MEDIA_TYPE: Final = "application/json"


def json_response(body: Mapping[str, Any], status: int = OK) -> Response:
    """Answer with JSON."""
    return Response(rendering.line(body), status, media_type=MEDIA_TYPE)


def post(call: Call) -> Response:
    """Add one memory, or a list in one transaction."""
    parameters.query(call.query_string, frozenset())
    body = documents.parse(call.body_bytes)
    if isinstance(body, dict) and "memories" in body:
        with outcomes.counted(call.services, "add_list"):
            return _add_list(call, door.known_fields(body, LIST_FIELDS))
    with outcomes.counted(call.services, "add"):
        return _add_one(call, door.known_fields(body, ADD_FIELDS))


def _add_one(call: Call, given: dict[str, Any]) -> Response:
    limits = call.services.limits
    mutation_id = given.pop("mutation_id", None)
    new = commands.new_memory(given, call.caller, limits)
    key = commands.mutation_key(mutation_id, "add", given, limits)
    written = add.add(call.writer(), new, key)
    outcomes.committed(call.services, "add", [written])
    return _write_response(call, written, OK if written.replayed else CREATED)


def _add_list(call: Call, given: dict[str, Any]) -> Response:
    limits = call.services.limits
    raw = given["memories"]
    if not isinstance(raw, list) or not 0 < len(raw) <= limits.list_items:
        raise InvalidInputError(
            "memories", "is not such a list", f"1 to {limits.list_items} memories"
        )
    items = [(n, _listed_memory(call, one, n)) for n, one in enumerate(raw)]
    key = commands.mutation_key(given.get("mutation_id"), "add_list", raw, limits)
    batch = bulk.add_chunk(call.writer(), Chunk(items, all_or_none=True), key)
    written = list(batch.written.values())
    outcomes.committed(call.services, "add_list", written)
    return _list_response(call, batch)


def _listed_memory(call: Call, raw: object, n: int) -> NewMemory:
    try:
        return commands.new_memory(raw, call.caller, call.services.limits)
    except InvalidInputError as exc:
        raise InvalidInputError(f"memories[{n}].{exc.field}", exc.problem, exc.allowed) from None
    except TooLargeError as exc:
        field = f"memories[{n}].{exc.field}"
        raise TooLargeError(field, exc.size, exc.limit, exc.unit) from None


def _list_response(call: Call, batch: Batch) -> Response:
    epoch, written = call.services.epoch, list(batch.written.values())
    replayed = all(one.replayed for one in written)
    body = {
        "items": [rendering.write(one, epoch) for one in written],
        "position": rendering.past(epoch, written),
        "replayed": replayed,
    }
    return json_response(body, OK if replayed else CREATED)


def _write_response(
    call: Call, written: Written, status: int = OK, state: Status = Status.ACTIVE
) -> Response:
    return json_response(rendering.write(written, call.services.epoch, state), status)


def get(call: Call) -> Response:
    """Read one memory."""
    memory_id = parse_id(call.path_params["id"])
    given = parameters.query(call.query_string, GET_PARAMETERS)
    record = call.services.canonical.get(call.tenant, memory_id)
    if not record.status.is_live and not parameters.flag(given, "include_deleted"):
        raise NotFoundError(
            f"memory {memory_id} is {record.status.value}; `include_deleted` shows its tombstone"
        )
    return json_response(rendering.memory(record))


def history(call: Call) -> Response:
    """Read every version of one memory."""
    parameters.query(call.query_string, frozenset())
    memory_id = parse_id(call.path_params["id"])
    versions = call.services.canonical.history(call.tenant, memory_id)
    items = [rendering.version(one, call.services.epoch) for one in versions]
    return json_response(rendering.listed(items, total=len(items)))


def list_page(call: Call) -> Response:
    """List a page of a scope's memories."""
    given = parameters.query(call.query_string, LIST_PARAMETERS)
    question = _question(given)
    visible = questions.visible(call, question)
    # Of the door's own readings: two spellings of one question share their cursors.
    bound = [call.tenant, visible.scope.named(), question]
    limit = door.whole_number(
        parameters.number(given, "limit", DEFAULT_LIMIT), "limit", 1, MAX_LIMIT
    )
    after = cursors.read(given["cursor"], bound) if "cursor" in given else None
    reader = call.services.canonical
    records, last = reader.page(visible, after=after, limit=limit)
    items = [rendering.memory(record) for record in records]
    total = reader.count(visible) if after is None and last is not None else None
    return json_response(
        rendering.listed(
            items,
            next_cursor=None if last is None else cursors.write(last, bound),
            total=len(items) if after is None and last is None else total,
        )
    )


def _question(given: Mapping[str, str]) -> dict[str, Any]:
    """Return a list's parameters as the JSON that a search would hold."""
    question: dict[str, Any] = {
        name: given[name] for name in SCOPE_FIELDS | {"as_of"} if name in given
    }
    if "filter" in given:
        question["filter"] = documents.parse(given["filter"].encode(), "filter")
    return question | {name: parameters.flag(given, name) for name in questions.FLAGS}


def patch(call: Call) -> Response:
    """Change one memory."""
    parameters.query(call.query_string, frozenset())
    memory_id = parse_id(call.path_params["id"])
    given = door.known_fields(documents.parse(call.body_bytes), UPDATE_FIELDS)
    with outcomes.counted(call.services, "update"):
        fields = {name: given[name] for name in given.keys() & CHANGE_FIELDS}
        checked = commands.change(fields, call.services.limits)
        expected = _expected_version(given.get("expected_version"))
        key = _key(call, "update", given, [str(memory_id), fields, expected])
        written = change.update(call.writer(), memory_id, checked, key, expected_version=expected)
    outcomes.committed(call.services, "update", [written])
    return _write_response(call, written)


def supersede(call: Call) -> Response:
    """Put a new memory in the place of an older one.

    Both must be of one scope: the new memory's `user_id`, `agent_id` and `run_id` are those of the
    older one, else the answer is 422 `scope_mismatch` and nothing is written. What a search of
    someone's scope shows is never changed by a memory that this search can't find.
    """
    parameters.query(call.query_string, frozenset())
    old_id = parse_id(call.path_params["id"])
    given = door.known_fields(documents.parse(call.body_bytes), SUPERSEDE_FIELDS)
    with outcomes.counted(call.services, "supersede"):
        fields = {name: given[name] for name in given.keys() & NEW_FIELDS}
        new = commands.new_memory(fields, call.caller, call.services.limits)
        expected = _expected_version(given.get("expected_version"))
        key = _key(call, "supersede", given, [str(old_id), fields, expected])
        older, newer = change.supersede(call.writer(), old_id, new, key, expected_version=expected)
    outcomes.committed(call.services, "supersede", [older, newer])
    epoch = call.services.epoch
    superseded = {"superseded": rendering.write(older, epoch, Status.SUPERSEDED)}
    body = {**rendering.write(newer, epoch), "position": rendering.past(epoch, [older, newer])}
    return json_response(body | superseded, OK if newer.replayed else CREATED)


def delete(call: Call) -> Response:
    """Delete one memory."""
    memory_id = parse_id(call.path_params["id"])
    given = parameters.query(call.query_string, DELETE_PARAMETERS)
    with outcomes.counted(call.services, "delete"):
        expected = _expected_version(parameters.number(given, "expected_version"))
        why = door.note(given.get("why"), "why", call.services.limits)
        key = _key(call, "delete", given, [str(memory_id), expected, why])
        written = change.delete(call.writer(), memory_id, key, expected_version=expected, why=why)
    outcomes.committed(call.services, "delete", [written])
    return _write_response(call, written, state=Status.DELETED)


def delete_scope(call: Call) -> Response:
    """Delete a scope's memories.

    Those that were there when the command began. A repeat of its `mutation_id` deletes none that
    came later, and goes on with the first one's work where that was cut short; `replayed` says that
    nothing was left to be done.
    """
    given = parameters.query(call.query_string, DELETE_SCOPE_PARAMETERS)
    limits = call.services.limits
    with outcomes.counted(call.services, "delete_scope"):
        scope = door.scope(given, call.tenant, limits)
        why = door.note(given.get("why"), "why", limits)
        key = _key(call, "delete_scope", given, [scope.named(), why])
        deleted = change.delete_scope(call.writer(), scope, key, why=why)
    fresh = deleted.count - deleted.repeated
    outcomes.announced(
        call.services, "delete_scope", deleted.written, fresh, replayed=deleted.repeated
    )
    body = {
        "count": deleted.count,
        "status": Status.DELETED,
        "position": rendering.past(call.services.epoch, deleted.written),
        "replayed": deleted.replayed,
    }
    return json_response(body)


def _key(
    call: Call, command: str, given: Mapping[str, Any], body: object
) -> commands.MutationKey | None:
    return commands.mutation_key(given.get("mutation_id"), command, body, call.services.limits)


def _expected_version(value: object) -> int | None:
    if value is None:
        return None
    return door.whole_number(value, "expected_version", 1, MAX_VERSION)
