"""An index and its documents as OpenSearch takes them: pure."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson

from canonical.domain.records import guard
from canonical.errors import EngineRefusedError
from projectors.keyword import schema
from projectors.keyword.mapping import NUMBER_DIGITS, NUMBER_STEPS, IndexWrite, Tombstone, Upsert
from projectors.keyword.mapping import tag as tenant_tag
from projectors.keyword.opensearch.bulk import Item
from projectors.keyword.opensearch.settings import OpenSearchSettings
from projectors.protocol import Mark

# Fields that only this engine has.
MARK = "mark"  # a mark's content, kept and not indexed
ABOUT = "about"  # finds the marks; no memory has it

ABOUT_MARKS = "mark"
MAX_LONG = (1 << 63) - 1
# A number is here by its whole term alone, the last of its steps: there are ranges over terms.
_WHOLE = NUMBER_DIGITS[len(NUMBER_STEPS) - 1]

_EXACT = {"type": "keyword", "doc_values": False}  # asked for, never sorted by or counted
_INTEGER = {"type": "long"}


def writes_alias(name: str) -> str:
    """Return the alias that an index is written by.

    A write to a name that is gone makes an index, with a guessed mapping; a write that asks for an
    alias does not.
    """
    return f"{name}-writes"


def index_body(settings: OpenSearchSettings, name: str) -> dict[str, Any]:
    """Return what a new index is made of."""
    return {
        "aliases": {writes_alias(name): {"is_write_index": True}},
        "settings": {
            "index": {
                "number_of_shards": settings.shards,
                "number_of_replicas": settings.replicas,
                # Said and not left out: else a shard that nobody searches stops refreshing.
                "refresh_interval": settings.refresh_interval,
                # An acknowledged write is on the disk.
                "translog": {"durability": "request"},
                "similarity": {"words": {"type": "BM25", "k1": settings.k1, "b": settings.b}},
            }
        },
        "mappings": {
            "dynamic": "strict",
            "_meta": {"fingerprint": settings.fingerprint()},
            "properties": _properties(),
        },
    }


def _properties() -> dict[str, Any]:
    exact = (schema.TENANT, schema.USER_ID, schema.AGENT_ID, schema.RUN_ID)
    return {
        **dict.fromkeys((*exact, schema.FACETS, schema.NUMBERS, ABOUT), _EXACT),
        **dict.fromkeys((schema.VALID_FROM, schema.VALID_TO, schema.EXPIRES_AT), _INTEGER),
        schema.STATUS: {"type": "keyword"},
        schema.BODY: {
            "type": "text",
            "analyzer": "whitespace",
            "index_options": "freqs",
            "similarity": "words",
        },
        MARK: {"type": "object", "enabled": False},
    }


def item_of(write: IndexWrite, *, routed: bool) -> Item:
    """Translate a write into a bulk request's item.

    Raises: EngineRefusedError, when no document can hold one of its values.
    """
    if write.guard > MAX_LONG:
        raise EngineRefusedError(f"{write.memory_id}: its guard {write.guard} is too high")
    tenant = write.tenant if isinstance(write, Tombstone) else write.scope.tenant
    place = {"routing": routing(tenant)} if routed else {}
    try:
        return _item(write.memory_id, write.memory_id.hex, write.guard, place, _source(write))
    except orjson.JSONEncodeError as exc:
        raise EngineRefusedError(f"{write.memory_id}: {exc}") from exc


def mark_item(mark: Mark) -> Item:
    """Translate a mark into a bulk request's item; its version lets it move forward only."""
    held = {"pos": mark.pos, "memory_id": mark.memory_id.hex, "rev": mark.rev, "epoch": mark.epoch}
    source = {ABOUT: ABOUT_MARKS, MARK: {"shard": mark.shard, **held}}
    return _item(None, f"mark-{mark.shard}", guard(mark.epoch, mark.pos), {}, source)


def mark_of(source: Mapping[str, Any]) -> Mark:
    """Read the mark that `mark_item` wrote."""
    held = source[MARK]
    return Mark(held["shard"], held["pos"], UUID(hex=held["memory_id"]), held["rev"], held["epoch"])


def routing(tenant: str) -> str:
    """Return what chooses a tenant's shard: in a search, a comma would part a tenant's own name."""
    return tenant_tag(tenant)


def _item(
    key: UUID | None, name: str, version: int, place: dict[str, str], source: dict[str, Any]
) -> Item:
    # Higher than what is held: an equal or older write is answered 409, and changes nothing.
    action = {"_id": name, "version": version, "version_type": "external", **place}
    return Item(key, b"%b\n%b\n" % (orjson.dumps({"index": action}), orjson.dumps(source)))


def _source(write: IndexWrite) -> dict[str, Any]:
    match write:
        case Tombstone(tenant=tenant, status=status):
            return {schema.TENANT: tenant, schema.STATUS: status.value}
        case Upsert():
            return {
                schema.TENANT: write.scope.tenant,
                schema.STATUS: write.status.value,
                **write.scope.named(),
                schema.FACETS: write.facets,
                schema.NUMBERS: write.numbers[len(NUMBER_STEPS) - 1 :: len(NUMBER_STEPS)],
                schema.VALID_FROM: write.valid_from,
                schema.VALID_TO: write.valid_to,
                schema.EXPIRES_AT: write.expires_at,
                schema.BODY: write.body,
            }


def whole_number(prefix: str, digits: str) -> str:
    """Return the term that a number is indexed by."""
    return f"{prefix}{_WHOLE}{digits}"
