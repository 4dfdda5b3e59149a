"""A write, and what an index says of itself, as tantivy's documents."""

import json
from collections.abc import Mapping
from uuid import UUID

import orjson
import tantivy
from tantivy import Document

from canonical.domain.records import Status
from canonical.errors import EngineMismatchError, EngineRefusedError
from projectors.keyword import schema
from projectors.keyword.mapping import IndexWrite, Tombstone, Upsert
from projectors.protocol import Mark

# Fields that only this engine has.
ID_HIGH, ID_LOW = "id_high", "id_low"  # the id as numbers: read from columns, not from documents
LOW_HALF = (1 << 64) - 1
MAX_INTEGER = (1 << 63) - 1
ABOUT = "about"  # marks and fingerprint, in the one document that is no memory

# The document `about` is found by a memory id and a body term that no memory can have.
ABOUT_ID = "about"
ABOUT_TERM = "about"

STATUS_CODES: Mapping[Status, int] = {
    Status.ACTIVE: 0,
    Status.SUPERSEDED: 1,
    Status.DELETED: 2,
    Status.ERASED: 3,
}
STATUSES = {code: status for status, code in STATUS_CODES.items()}


def build_schema() -> tantivy.Schema:
    """Return the index's fields in tantivy's terms. Nothing of a text or of metadata is stored."""
    builder = tantivy.SchemaBuilder()
    for name in (schema.MEMORY_ID, schema.TENANT, schema.USER_ID, schema.AGENT_ID, schema.RUN_ID):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    for name in (schema.FACETS, schema.NUMBERS):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field(schema.STATUS, indexed=True, fast=True)
    for name in (ID_HIGH, ID_LOW):
        builder.add_unsigned_field(name, fast=True)
    for name in (schema.GUARD, schema.VALID_FROM, schema.VALID_TO, schema.EXPIRES_AT):
        builder.add_integer_field(name, fast=True)
    builder.add_text_field(schema.BODY, tokenizer_name="whitespace", index_option="freq")
    builder.add_bytes_field(ABOUT, stored=True)
    return builder.build()


def document_of(write: IndexWrite) -> str:
    """Translate a write into tantivy's document, as JSON.

    Cost:   filled field by field, a document takes twice as long to reach the index.
    Raises: EngineRefusedError, when tantivy can't hold one of its values.
    """
    if write.guard > MAX_INTEGER:
        raise EngineRefusedError(f"{write.memory_id}: its guard {write.guard} is too high")
    try:
        return orjson.dumps(_values(write)).decode()
    except orjson.JSONEncodeError as exc:
        raise EngineRefusedError(f"{write.memory_id}: {exc}") from exc


def _values(write: IndexWrite) -> dict[str, object]:
    number = write.memory_id.int
    values: dict[str, object] = {
        schema.MEMORY_ID: write.memory_id.hex,
        ID_HIGH: number >> 64,
        ID_LOW: number & LOW_HALF,
        schema.STATUS: STATUS_CODES[write.status],
        schema.GUARD: write.guard,
    }
    match write:
        case Tombstone(tenant=tenant):
            return {**values, schema.TENANT: tenant}
        case Upsert():
            return {
                **values,
                schema.TENANT: write.scope.tenant,
                **write.scope.named(),
                schema.FACETS: write.facets,
                schema.NUMBERS: write.numbers,
                schema.VALID_FROM: write.valid_from,
                schema.VALID_TO: write.valid_to,
                schema.EXPIRES_AT: write.expires_at,
                schema.BODY: write.body,
            }


def about(marks: Mapping[int, Mark]) -> Document:
    """Return the document that says how far the index is and by which rules it was made."""
    said = {
        "fingerprint": schema.fingerprint(),
        "marks": [[m.shard, m.pos, m.memory_id.hex, m.rev, m.epoch] for m in marks.values()],
    }
    document = Document()
    document.add_text(schema.MEMORY_ID, ABOUT_ID)
    document.add_text(schema.BODY, ABOUT_TERM)
    document.add_bytes(ABOUT, json.dumps(said).encode())
    return document


def marks_in(stored: bytes) -> dict[int, Mark]:
    """Read the marks that `about` wrote.

    Raises: EngineMismatchError, when another schema or analysis wrote them.
    """
    said = json.loads(stored)
    if said["fingerprint"] != schema.fingerprint():
        raise EngineMismatchError("the index was made by another schema or analysis")
    marks = (Mark(shard, pos, UUID(mid), rev, at) for shard, pos, mid, rev, at in said["marks"])
    return {mark.shard: mark for mark in marks}
