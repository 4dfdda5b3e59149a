"""Rows of the entity tables, at least one, as the parallel arrays that statements take."""

from collections.abc import Mapping, Sequence

from canonical.store.arrays import numbers, texts, words
from projectors.entity.mapping import Entity, Link, Ref, Step, Wanted, keys_of

Columns = Mapping[str, str]


def of_refs(refs: Sequence[Ref]) -> Columns:
    """Write tenants and ids."""
    tenants, ids = zip(*refs, strict=True)
    return {"tenants": texts(tenants), "ids": words(ids)}


def of_memories(wanted: Sequence[Wanted]) -> Columns:
    """Write the memories of a page."""
    tenants, memory_ids, *_ = zip(*wanted, strict=True)
    return {"tenants": texts(tenants), "memory_ids": words(memory_ids)}


def of_entities(entities: Sequence[Entity]) -> Columns:
    """Write entities and their keys."""
    keys = [(entity.ref, key) for entity in entities for key in keys_of(entity.name)]
    return {
        "tenants": texts(e.scope.tenant for e in entities),
        "ids": words(e.id for e in entities),
        "user_ids": texts(e.scope.user_id for e in entities),
        "agent_ids": texts(e.scope.agent_id for e in entities),
        "run_ids": texts(e.scope.run_id for e in entities),
        "names": texts(e.name for e in entities),
        "displays": texts(e.display for e in entities),
        "labels": texts(e.label for e in entities),
        "key_tenants": texts(ref[0] for ref, _ in keys),
        "key_ids": words(ref[1] for ref, _ in keys),
        "keys": texts(key.key for _, key in keys),
        "shares": numbers(key.share for _, key in keys),
    }


def of_links(links: Sequence[Link]) -> Columns:
    """Write links that come, stay or go."""
    tenants, memory_ids, entity_ids, shards, revs = zip(*links, strict=True)
    return {
        "tenants": texts(tenants),
        "memory_ids": words(memory_ids),
        "entity_ids": words(entity_ids),
        "shards": numbers(shards),
        "revs": numbers(revs),
    }


def of_steps(steps: Sequence[Step]) -> Columns:
    """Write changes of degree."""
    tenants, entity_ids, shards, by = zip(*steps, strict=True)
    return {
        "tenants": texts(tenants),
        "entity_ids": words(entity_ids),
        "shards": numbers(shards),
        "steps": numbers(by),
    }
