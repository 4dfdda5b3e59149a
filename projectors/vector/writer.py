"""The writing side of the vector projection, whichever engine holds the index."""

from collections.abc import Mapping
from uuid import UUID

from canonical.domain.records import Record
from canonical.errors import PoisonError
from projectors.protocol import Applied, Page
from projectors.vector import mapping
from projectors.vector.mapping import IndexWrite
from projectors.vector.port import VectorEngine
from projectors.vector.vectors import Vector, Vectors


class VectorProjector:
    """Brings pages into an open index."""

    def __init__(self, engine: VectorEngine, vectors: Vectors) -> None:
        self._engine, self._vectors = engine, vectors
        self.stale = 0  # writes that the index was already past, since the start

    def apply(self, page: Page) -> Applied:
        """Bring the index to at least the state of `page.records`, and keep `page.marks`.

        Guarantee: durable when it returns; an older write changes nothing and is counted in
                   `stale`. Tombstones ask no model.
        Raises:    ModelUnavailableError, StoreUnavailableError, EngineUnavailableError,
                   EngineMismatchError: a part may have been written, the marks were not moved.
        """
        live = [record for record in page.records.values() if record.status.is_live]
        found = self._vectors.vectors_for(live) if live else {}
        writes: list[IndexWrite] = []
        refused: dict[UUID, PoisonError] = {}
        for record in page.records.values():
            try:
                writes.append(self._write_for(record, found, page.epoch))
            except PoisonError as exc:
                refused[record.id] = exc
        stale = self._engine.write(writes, page.marks)
        self.stale += stale
        return Applied(refused=refused, stale=stale)

    def _write_for(
        self, record: Record, found: Mapping[UUID, Vector | PoisonError], epoch: int
    ) -> IndexWrite:
        vector = found[record.id] if record.status.is_live else None
        if isinstance(vector, PoisonError):
            raise vector
        dimension = self._engine.shape.dimension
        return mapping.write_for(record, vector, epoch=epoch, dimension=dimension)
