"""What callers ask for, checked: new memories, changes, and keys that make a repeat harmless."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

import orjson

from canonical.domain import door
from canonical.domain.door import LIMITS, Limits
from canonical.domain.records import Kind, Provenance, Trust
from canonical.domain.scope import Scope
from canonical.domain.values import value_object
from canonical.errors import InvalidInputError

SCOPE_FIELDS: Final = frozenset({"user_id", "agent_id", "run_id"})
TIME_FIELDS: Final = ("valid_from", "valid_to", "expires_at")
PROVENANCE_FIELDS: Final = frozenset(
    {"source_message_ids", "source_role", "source_trust", "event_id", "event_part"}
)
NEW_FIELDS: Final = (
    SCOPE_FIELDS
    | PROVENANCE_FIELDS
    | {"text", "actor_id", "role", "attributed_to", "metadata", *TIME_FIELDS}
)
CHANGE_FIELDS: Final = frozenset({"text", "metadata", *TIME_FIELDS})
ATTRIBUTIONS: Final = ("user", "assistant")
NO_PROVENANCE: Final = Provenance()
MAX_EVENT_PART: Final = 2**31 - 1


class NewMemory(NamedTuple):
    """A memory to be added, checked. A tuple, since bulks make millions of them."""

    scope: Scope
    text: str
    metadata: dict[str, Any]
    provenance: Provenance
    kind: Kind = Kind.RAW
    actor_id: str | None = None
    role: str | None = None
    attributed_to: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expires_at: datetime | None = None


class Unset(Enum):
    """The value of a field that a change leaves as it is (None clears it)."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@value_object
class Change:
    """What an update sets; metadata is replaced as a whole."""

    text: str | Unset = UNSET
    metadata: dict[str, Any] | Unset = UNSET
    valid_from: datetime | Unset | None = UNSET
    valid_to: datetime | Unset | None = UNSET
    expires_at: datetime | Unset | None = UNSET


@value_object
class Caller:
    """Who asks: a tenant, the name that history shows, and how far its sources are trusted."""

    tenant: str
    name: str | None = None
    max_trust: Trust = Trust.USER


@value_object
class MutationKey:
    """A caller's key for one command, with the hash of the command's body."""

    mutation_id: str
    command: str
    body_hash: bytes
    chunk: int = 0


def mutation_key(
    mutation_id: object, command: str, body: object, limits: Limits = LIMITS
) -> MutationKey | None:
    """Make the key of a command, or None when the caller named none."""
    if mutation_id is None:
        return None
    checked = door.identifier(mutation_id, "mutation_id", limits)
    return MutationKey(checked, command, body_hash(body))


def body_hash(body: object) -> bytes:
    """Hash a checked JSON body; the order of its keys and its white space don't matter."""
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).digest()


def new_memory(raw: object, caller: Caller, limits: Limits = LIMITS) -> NewMemory:
    """Check one memory as a caller sent it.

    Raises: RejectedError, which names the field; nothing else comes of it.
    """
    given = door.known_fields(raw, NEW_FIELDS)
    valid_from, valid_to, expires_at = _times(given)
    return NewMemory(
        scope=door.scope(given, caller.tenant, limits),
        text=door.text(given.get("text"), "text", limits),
        metadata=door.metadata(given.get("metadata"), limits),
        provenance=_provenance(given, caller, limits),
        actor_id=door.optional_identifier(given.get("actor_id"), "actor_id", limits),
        role=door.optional_identifier(given.get("role"), "role", limits),
        attributed_to=_attribution(given.get("attributed_to")),
        valid_from=valid_from,
        valid_to=valid_to,
        expires_at=expires_at,
    )


def change(raw: object, limits: Limits = LIMITS) -> Change:
    """Check what an update sets; at least one field."""
    given = door.known_fields(raw, CHANGE_FIELDS)
    if not given:
        raise InvalidInputError("body", "changes nothing", ", ".join(sorted(CHANGE_FIELDS)))
    fields: dict[str, Any] = {
        name: door.instant(given[name], name) for name in TIME_FIELDS if name in given
    }
    if "text" in given:
        fields["text"] = door.text(given["text"], "text", limits)
    if "metadata" in given:
        fields["metadata"] = door.metadata(given["metadata"], limits)
    return Change(**fields)


def _times(given: Mapping[str, Any]) -> tuple[datetime | None, datetime | None, datetime | None]:
    valid_from = door.instant(given.get("valid_from"), "valid_from")
    valid_to = door.instant(given.get("valid_to"), "valid_to")
    check_validity(valid_from, valid_to)
    return valid_from, valid_to, door.instant(given.get("expires_at"), "expires_at")


def check_validity(valid_from: datetime | None, valid_to: datetime | None) -> None:
    """Refuse a fact that ends before it begins."""
    if valid_from is not None and valid_to is not None and valid_from >= valid_to:
        raise InvalidInputError("valid_to", "is not after valid_from", "a later time")


def _attribution(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in ATTRIBUTIONS:
        raise InvalidInputError("attributed_to", f"is {value!r:.40}", "user or assistant")
    return value


def _provenance(given: Mapping[str, Any], caller: Caller, limits: Limits) -> Provenance:
    if given.keys().isdisjoint(PROVENANCE_FIELDS):
        return NO_PROVENANCE
    return Provenance(
        source_message_ids=_message_ids(given.get("source_message_ids"), limits),
        source_role=door.optional_identifier(given.get("source_role"), "source_role", limits),
        source_trust=_trust(given.get("source_trust"), caller.max_trust),
        event_id=door.optional_identifier(given.get("event_id"), "event_id", limits),
        event_part=_event_part(given),
    )


def _message_ids(value: object, limits: Limits) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > limits.source_messages:
        raise InvalidInputError(
            "source_message_ids", "is not such a list", f"at most {limits.source_messages} ids"
        )
    return tuple(
        door.identifier(item, f"source_message_ids[{n}]", limits) for n, item in enumerate(value)
    )


def _trust(value: object, cap: Trust) -> Trust | None:
    if value is None:
        return None
    order = list(Trust)
    if not isinstance(value, str) or value not in order:
        raise InvalidInputError("source_trust", f"is {value!r:.40}", ", ".join(order))
    return min(Trust(value), cap, key=order.index)


def _event_part(given: Mapping[str, Any]) -> int:
    part = given.get("event_part")
    if part is None:
        return 0
    if given.get("event_id") is None:
        raise InvalidInputError("event_part", "stands without event_id", "only with event_id")
    return door.whole_number(part, "event_part", 0, MAX_EVENT_PART)
