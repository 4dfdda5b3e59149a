"""Links memories to the names that their texts hold; commits together with the watermark."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from psycopg.errors import UniqueViolation
from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError

from canonical.domain.records import Record
from canonical.errors import HaltError, LeaseLostError, PoisonError, StoreUnavailableError
from inference.protocols import Name, Recogniser
from projectors.entity import columns, mapping
from projectors.entity.columns import Columns
from projectors.entity.mapping import Changes, Entity, EntityId, Found, Held, MemoryId, Ref, Wanted
from projectors.entity.schema import named
from projectors.protocol import Applied, Page

T = TypeVar("T")
Names = tuple[Found, ...]
ATTEMPTS = 4  # to link to entities while another shard drops them


class NameCache(Protocol):
    """Names that a model found before, by tenant, model and SHA-256 of the exact text."""

    def get(self, model: str, records: Sequence[Record]) -> Mapping[UUID, Names]:
        """Return the names kept for the records' texts, by memory id; absent: not known."""
        ...

    def put(self, model: str, found: Sequence[tuple[Record, Sequence[Found]]]) -> None:
        """Keep names for the texts of those records that still hold a text.

        The records are named so that they can be locked: an erased text's names must not come back.
        """
        ...


class EntityProjector:
    """The writing side of one generation of the entity projection.

    Guarantee: exactly once, as its rows commit with the watermark. The model is asked outside of
               any transaction.
    """

    def __init__(self, recogniser: Recogniser, cache: NameCache, *, generation: int) -> None:
        """Take who finds the names, and what it found before."""
        self._recogniser, self._cache, self._generation = recogniser, cache, generation

    def apply(self, page: Page) -> Applied:
        """Find the names of the page's live records; the rows are written at the commit.

        Raises: ModelUnavailableError, when the recogniser doesn't answer.
        Cost:   at the commit 5 statements for a page of new records, at most 9 otherwise.
        """
        names, refused = self._names([r for r in page.records.values() if r.status.is_live])
        wanted = [
            mapping.wanted(record, names.get(id_, ()), page.shard_of(id_))
            for id_, record in page.records.items()
            if not refused or id_ not in refused
        ]
        return Applied(refused, lambda conn: _Writing(conn, self._generation).bring_to(wanted))

    def _names(
        self, records: Sequence[Record]
    ) -> tuple[dict[UUID, Names], dict[UUID, PoisonError]]:
        names = dict(self._cache.get(self._recogniser.model, records))
        unknown = [record for record in records if record.id not in names]
        answers = self._recognise({record.text for record in unknown})
        refused: dict[UUID, PoisonError] = {}
        found: list[tuple[Record, Names]] = []
        for record in unknown:
            answer = answers[record.text]
            if isinstance(answer, PoisonError):
                refused[record.id] = answer
            else:
                found.append((record, answer))
        if found:
            self._cache.put(self._recogniser.model, found)
        names.update((record.id, answer) for record, answer in found)
        return names, refused

    def _recognise(self, texts: set[str]) -> dict[str, Names | PoisonError]:
        if not texts:
            return {}
        asked = sorted(texts)  # the same batches when the page is repeated
        return {
            text: answer if isinstance(answer, PoisonError) else _pairs(answer)
            for text, answer in zip(asked, self._recogniser.recognise(asked), strict=True)
        }


class _Writing:
    """The statements of one page, inside the transaction that moves the watermark."""

    def __init__(self, conn: Connection, generation: int) -> None:
        self._conn, self._generation = conn, generation

    def bring_to(self, wanted: Sequence[Wanted]) -> None:
        """Make the tables say what is wanted.

        Raises: LeaseLostError, when another worker wrote the same shard meanwhile. HaltError, when
                the tables contradict themselves.
        """
        if not wanted:
            return
        changes = mapping.changes(wanted, self._held(wanted))
        entities: dict[EntityId, Entity] = {}
        for memory in wanted:
            entities.update(memory.entities)
        try:
            self._write(changes, entities)
        except IntegrityError as exc:
            if isinstance(exc.orig, UniqueViolation):
                raise LeaseLostError("another worker linked memories of this shard") from exc
            raise HaltError(f"entity tables contradict themselves: {exc.orig}") from exc

    def _write(self, changes: Changes, entities: Mapping[EntityId, Entity]) -> None:
        lost = _in_order((tenant, id_) for tenant, _, id_, *_ in changes.removed)
        gained = _in_order((tenant, id_) for tenant, _, id_, *_ in changes.added)
        self._secure([entities[id_] for _, id_ in gained], lost)
        self._write_links(changes)
        steps = mapping.steps(changes)
        self._execute("raise_degrees", columns.of_steps, [s for s in steps if s.by > 0])
        self._execute("lower_degrees", columns.of_steps, [s for s in steps if s.by < 0])
        self._execute("drop_entities", columns.of_refs, lost)

    def _held(self, wanted: Sequence[Wanted]) -> list[Held]:
        rows = self._rows("held_links", columns.of_memories, wanted)
        return [Held(MemoryId(memory), EntityId(entity), rev) for memory, entity, rev in rows]

    def _secure(self, gained: Sequence[Entity], lost: Sequence[Ref]) -> None:
        """Make sure that the entities to be linked exist, and lock all whose links change.

        Most exist, so the lock comes first and tells which don't. One of those may be made by
        another shard before our insert, and be dropped again before our second lock: then once
        more. The order of locks, and what it is good for: docs/adr/0007-entities.md.
        """
        refs = _in_order([*(entity.ref for entity in gained), *lost])
        missing = gained
        for _ in range(ATTEMPTS):
            there = self._lock(refs, alone=bool(lost))
            missing = [entity for entity in missing if entity.ref not in there]
            if not missing:
                return
            self._execute("insert_entities", columns.of_entities, missing)
            refs = [entity.ref for entity in missing]
        raise StoreUnavailableError("entities are dropped as fast as they are made; try again")

    def _lock(self, refs: Sequence[Ref], *, alone: bool) -> set[Ref]:
        statement = "lock_entities_alone" if alone else "lock_entities"
        rows = self._rows(statement, columns.of_refs, refs)
        return {(tenant, EntityId(id_)) for tenant, id_ in rows}

    def _write_links(self, changes: Changes) -> None:
        counts = (
            self._execute("insert_links", columns.of_links, changes.added),
            self._execute("raise_links", columns.of_links, changes.raised),
            self._execute("delete_links", columns.of_links, changes.removed),
        )
        if counts != (len(changes.added), len(changes.raised), len(changes.removed)):
            raise LeaseLostError("another worker wrote the links of this shard")

    def _execute(
        self, name: str, write: Callable[[Sequence[T]], Columns], rows: Sequence[T]
    ) -> int:
        if not rows:
            return 0
        return self._conn.execute(named(name), self._parameters(write(rows))).rowcount

    def _rows(
        self, name: str, write: Callable[[Sequence[T]], Columns], rows: Sequence[T]
    ) -> Sequence[Row[*tuple[Any, ...]]]:
        if not rows:
            return ()
        return self._conn.execute(named(name), self._parameters(write(rows))).all()

    def _parameters(self, rows: Columns) -> dict[str, Any]:
        return {**rows, "generation": self._generation}


def _pairs(names: Sequence[Name]) -> Names:
    return tuple((name.text, name.label) for name in names)


def _in_order(refs: Iterable[Ref]) -> list[Ref]:
    """Return each once, in the one order in which everybody locks."""
    return sorted(set(refs))
