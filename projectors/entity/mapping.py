"""What a record's names mean for the tables: pure decisions, no database."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, NewType
from uuid import UUID, uuid5

from canonical.domain.records import Record
from canonical.domain.scope import Scope
from projectors.entity.names import CACHED, normalise, words_of
from projectors.entity.schema import PARTIAL

NAMESPACE = UUID("6f1c9a52-7f0e-5c7b-9d52-3a1b8c9e4d10")  # random, for ever: entity ids hang on it


# Ids are hexadecimal: a page compares, sorts and sends thousands, and UUID does that in Python.
MemoryId = NewType("MemoryId", str)
EntityId = NewType("EntityId", str)
Ref = tuple[str, EntityId]  # an entity: its tenant and its id
Found = tuple[str, str]  # a name as it stands in a text, and its label


class Entity(NamedTuple):
    """One name in one exact scope."""

    id: EntityId
    scope: Scope
    name: str  # normalised
    display: str
    label: str

    @property
    def ref(self) -> Ref:
        """Return what names it in the tables."""
        return self.scope.tenant, self.id


class Key(NamedTuple):
    """What an entity is found by, and how similar it is to a query that says only that."""

    key: str
    share: float


class Held(NamedTuple):
    """A link as the table holds it."""

    memory_id: MemoryId
    entity_id: EntityId
    rev: int


class Link(NamedTuple):
    """A link that changes."""

    tenant: str
    memory_id: MemoryId
    entity_id: EntityId
    shard: int
    rev: int


class Step(NamedTuple):
    """By how much an entity's degree in a shard changes."""

    tenant: str
    entity_id: EntityId
    shard: int
    by: int


class Wanted(NamedTuple):
    """What the tables should say about one memory."""

    tenant: str
    memory_id: MemoryId
    shard: int
    rev: int
    entities: Mapping[EntityId, Entity]


@dataclass(frozen=True, slots=True)
class Changes:
    """What turns the links held into the links wanted."""

    added: list[Link] = field(default_factory=list)
    removed: list[Link] = field(default_factory=list)
    raised: list[Link] = field(default_factory=list)  # stays, at a higher rev


def wanted(record: Record, names: Iterable[Found], shard: int) -> Wanted:
    """Say which entities a record names: none, unless it is live."""
    entities = entities_of(record.scope, names) if record.status.is_live else {}
    return Wanted(record.scope.tenant, MemoryId(record.id.hex), shard, record.rev, entities)


def entities_of(scope: Scope, names: Iterable[Found]) -> dict[EntityId, Entity]:
    """Return the entities of a scope that the names stand for, each once, the first form shown."""
    owner = (scope.tenant, scope.user_id, scope.agent_id, scope.run_id)
    entities: dict[EntityId, Entity] = {}
    for text, label in names:
        entity = _entity(*owner, text, label)
        if entity is not None:
            entities.setdefault(entity.id, entity)
    return entities


@lru_cache(maxsize=CACHED)
def _entity(  # plain strings: the cache compares them fast
    tenant: str, user: str | None, agent: str | None, run: str | None, text: str, label: str
) -> Entity | None:
    scope, name = Scope(tenant, user, agent, run), normalise(text)
    return Entity(entity_id(scope, name), scope, name, text, label) if name else None


def entity_id(scope: Scope, name: str) -> EntityId:
    """Return the id that one normalised name has in one exact scope, in any process."""
    parts = (scope.tenant, scope.user_id, scope.agent_id, scope.run_id, name)
    return EntityId(uuid5(NAMESPACE, json.dumps(parts)).hex)


def keys_of(name: str) -> list[Key]:
    """Return what an entity of this normalised name is found by."""
    words = words_of(name) if " " in name else []
    return [Key(name, 1.0)] + [Key(w, PARTIAL / len(words)) for w in words if w != name]


def changes(wanted: Sequence[Wanted], held: Iterable[Held]) -> Changes:
    """Compare; a memory of which a newer revision is held is left alone."""
    found: dict[MemoryId, dict[EntityId, int]] = {}
    for memory_id, id_, rev in held:
        found.setdefault(memory_id, {})[id_] = rev
    result = Changes()
    for memory in wanted:
        if memory.memory_id in found:
            _compare(memory, found[memory.memory_id], result)
        else:
            result.added.extend(_links(memory, memory.entities))
    return result


def _compare(memory: Wanted, held: Mapping[EntityId, int], result: Changes) -> None:
    if max(held.values()) > memory.rev:
        return
    entities = memory.entities
    result.added.extend(_links(memory, (id_ for id_ in entities if id_ not in held)))
    result.removed.extend(_links(memory, (id_ for id_ in held if id_ not in entities)))
    kept = (id_ for id_ in entities if held.get(id_, memory.rev) < memory.rev)
    result.raised.extend(_links(memory, kept))


def _links(memory: Wanted, ids: Iterable[EntityId]) -> list[Link]:
    tenant, memory_id, shard, rev, _ = memory
    return [Link(tenant, memory_id, id_, shard, rev) for id_ in ids]


def steps(changes: Changes) -> list[Step]:
    """Sum the changes of degree, in the order of (tenant, entity id, shard)."""
    sums = Counter((tenant, id_, shard) for tenant, _, id_, shard, _ in changes.added)
    sums.subtract((tenant, id_, shard) for tenant, _, id_, shard, _ in changes.removed)
    return [Step(*key, by) for key, by in sorted(sums.items()) if by]
