"""The writing side of the keyword projection on tantivy."""

from uuid import UUID

from canonical.errors import PoisonError
from projectors.keyword import mapping
from projectors.keyword.engine import KeywordEngine
from projectors.keyword.mapping import IndexWrite
from projectors.protocol import Applied, Page


class KeywordProjector:
    """Brings pages into an open index, each in one commit."""

    def __init__(self, engine: KeywordEngine) -> None:
        self._engine = engine
        self.stale = 0  # writes that the index was already past, since the start

    def apply(self, page: Page) -> Applied:
        """Bring the index to at least the state of `page.records`, and keep `page.marks`.

        Guarantee: durable and searchable when it returns; an older write changes nothing and is
                   counted in `stale`.
        Raises:    EngineUnavailableError, EngineMismatchError: nothing was changed.
        """
        writes: list[IndexWrite] = []
        refused: dict[UUID, PoisonError] = {}
        for record in page.records.values():
            try:
                writes.append(mapping.write_for(record, epoch=page.epoch))
            except PoisonError as exc:
                refused[record.id] = exc
        written = self._engine.write(writes, page.marks)
        self.stale += written.stale
        return Applied(refused={**refused, **written.refused})
