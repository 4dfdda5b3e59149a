"""What a memory is: its current state, its versions, where it came from."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from canonical.domain.scope import Scope
from canonical.domain.values import named_value_object, value_object

EPOCH_SHIFT = 40  # an engine's guard is `epoch << 40 | rev`: DESIGN §4, fits a signed 64-bit long


class Status(StrEnum):
    """Where a record is in its life."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    ERASED = "erased"

    @property
    def is_live(self) -> bool:
        """Tell whether engines hold its content (the others are tombstones there)."""
        return self in (Status.ACTIVE, Status.SUPERSEDED)


class Kind(StrEnum):
    """How a record came to be."""

    FACT = "fact"
    RAW = "raw"
    PROCEDURE = "procedure"


class Op(StrEnum):
    """What an event announces."""

    ADD = "add"
    UPDATE = "update"
    SUPERSEDE = "supersede"
    DELETE = "delete"
    ERASE = "erase"
    REPAIR = "repair"


class Trust(StrEnum):
    """How far the source of a record is trusted, from the least to the most."""

    EXTERNAL = "external"
    TOOL = "tool"
    ASSISTANT = "assistant"
    USER = "user"


@value_object
class Provenance:
    """Where a record's content came from."""

    source_message_ids: tuple[str, ...] = ()
    source_role: str | None = None
    source_trust: Trust | None = None
    extractor_model: str | None = None
    extractor_version: str | None = None
    extraction_prompt_hash: str | None = None
    extraction_job_id: str | None = None
    event_id: str | None = None
    event_part: int = 0


@value_object
class Link:
    """A relation from this record to another one of its tenant."""

    relation: str  # supersedes, relates_to …
    target: UUID


@value_object
class Tombstone:
    """When, by whom and why a record was deleted."""

    at: datetime
    by: str | None
    why: str | None


@named_value_object
class Record:
    """The current state of a memory.

    `version` is the caller's and rises with every change; `rev` rises with every event, also
    with a repair, and guards what engines hold. `text` is empty once it is erased.
    """

    id: UUID
    scope: Scope
    version: int
    rev: int
    status: Status
    kind: Kind
    text: str
    created_at: datetime
    updated_at: datetime
    actor_id: str | None = None
    role: str | None = None
    attributed_to: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)
    links: tuple[Link, ...] = ()
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expires_at: datetime | None = None
    tombstone: Tombstone | None = None
    superseded_by: UUID | None = None
    legal_hold: bool = False


@value_object
class Version:
    """One state of a memory's past or present, with the position that announced it."""

    memory_id: UUID
    version: int
    op: Op
    status: Status
    text: str
    metadata: Mapping[str, Any]
    valid_from: datetime | None
    valid_to: datetime | None
    expires_at: datetime | None
    shard: int
    pos: int
    at: datetime
    by: str | None
    why: str | None


def guard(epoch: int, rev: int) -> int:
    """Return the number that engines compare: an equal or higher one there makes a write stale."""
    return epoch << EPOCH_SHIFT | rev
