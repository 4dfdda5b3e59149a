"""How records, versions and provenance become rows, and rows become them again."""

import hashlib
import hmac
import json
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from canonical.domain.commands import NO_PROVENANCE, NewMemory, body_hash
from canonical.domain.records import (
    Kind,
    Link,
    Op,
    Provenance,
    Record,
    Status,
    Tombstone,
    Trust,
    Version,
)
from canonical.domain.scope import Scope

Row = Mapping[str, Any]
# Of every candidate of every search: a look-up costs a tenth of the call.
_STATUSES = {status.value: status for status in Status}
_KINDS = {kind.value: kind for kind in Kind}


def content_hash(text: str) -> bytes:
    """Hash a text so that composed and decomposed forms meet; never an idempotency key."""
    normal = text if text.isascii() else unicodedata.normalize("NFC", text)
    return hashlib.sha256(normal.encode()).digest()


class Content(Protocol):
    """What a version says and a search shows or filters by."""

    @property
    def text(self) -> str:
        """What it says."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What its caller keeps with it."""
        ...

    @property
    def valid_from(self) -> datetime | None:
        """Since when the fact holds."""
        ...

    @property
    def valid_to(self) -> datetime | None:
        """Until when."""
        ...

    @property
    def expires_at(self) -> datetime | None:
        """From when on it is hidden."""
        ...


def content_mac(content: Content, salt: bytes) -> bytes:
    """Return what the audit holds of a content: it proves it only together with the salt."""
    return hmac.digest(salt, content_bytes(content), "sha256")


def content_bytes(content: Content) -> bytes:
    """Write text, metadata, validity and expiry so that unlike contents have unlike bytes.

    A text that stands alone is itself. All else begins with NUL, which no text holds. Numbers are
    written by their value, as jsonb gives 1e2 back as 100.
    """
    times = content.valid_from, content.valid_to, content.expires_at
    if not content.metadata and times == (None, None, None):
        return content.text.encode()
    instants = [None if time is None else time.astimezone(UTC).isoformat() for time in times]
    document = [content.text, _by_value(content.metadata), *instants]
    return b"\0" + json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _by_value(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _by_value(one) for key, one in value.items()}
    return [_by_value(one) for one in value] if isinstance(value, list) else value


def fingerprint(new: NewMemory) -> bytes | None:
    """Hash what a source event made, so that a repeat of it with another body is seen."""
    if new.provenance.event_id is None:
        return None
    source = new.provenance  # not its trust: that is capped by the key that is presented
    return body_hash(
        [
            *(new.scope.named(), new.text, new.metadata, new.actor_id, new.role, new.kind),
            *(new.attributed_to, new.valid_from, new.valid_to, new.expires_at),
            *(source.source_message_ids, source.source_role),
        ]
    )


def to_record(row: Row, links: tuple[Link, ...] = ()) -> Record:
    """Read a row of `memory`."""
    return Record(
        id=row["id"],
        scope=Scope(row["tenant"], row["user_id"], row["agent_id"], row["run_id"]),
        version=row["version"],
        rev=row["rev"],
        status=_STATUSES[row["status"]],
        kind=_KINDS[row["kind"]],
        text=row["text"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        actor_id=row["actor_id"],
        role=row["role"],
        attributed_to=row["attributed_to"],
        metadata=row["metadata"],
        provenance=from_provenance(row["provenance"]),
        links=links,
        valid_from=row["valid_from"],
        valid_to=row["valid_to"],
        expires_at=row["expires_at"],
        tombstone=_tombstone(row),
        superseded_by=row["superseded_by"],
        legal_hold=row["legal_hold"],
    )


def _tombstone(row: Row) -> Tombstone | None:
    if row["deleted_at"] is None:
        return None
    return Tombstone(row["deleted_at"], row["deleted_by"], row["deleted_why"])


def to_version(row: Row) -> Version:
    """Read a row of `memory_version`."""
    return Version(
        memory_id=row["memory_id"],
        version=row["version"],
        op=Op(row["op"]),
        status=Status(row["status"]),
        text=row["text"],
        metadata=row["metadata"],
        valid_from=row["valid_from"],
        valid_to=row["valid_to"],
        expires_at=row["expires_at"],
        shard=row["shard"],
        pos=row["pos"],
        at=row["at"],
        by=row["by"],
        why=row["why"],
    )


def provenance_document(given: Provenance) -> dict[str, Any]:
    """Write provenance as a JSON object without empty fields."""
    if given is NO_PROVENANCE:
        return {}
    document: dict[str, Any] = {
        name: value
        for name in Provenance.__dataclass_fields__
        if (value := getattr(given, name)) not in (None, (), 0)
    }
    if "source_message_ids" in document:
        document["source_message_ids"] = list(given.source_message_ids)
    return document


def from_provenance(document: Mapping[str, Any]) -> Provenance:
    """Read provenance from its JSON object."""
    if not document:
        return NO_PROVENANCE
    # What newer code has written beside this is none of ours, and no reason to fail.
    fields = {n: value for n, value in document.items() if n in Provenance.__dataclass_fields__}
    fields["source_message_ids"] = tuple(fields.get("source_message_ids", ()))
    if "source_trust" in fields:
        fields["source_trust"] = Trust(fields["source_trust"])
    return Provenance(**fields)
