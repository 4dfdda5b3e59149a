"""The writing side of the keyword projection, on whichever engine holds the index."""

from canonical.domain.records import guard
from projectors.keyword import mapping
from projectors.keyword.port import KeywordEngine
from projectors.protocol import Applied, Page


class KeywordProjector:
    """Brings pages into an open index."""

    def __init__(self, engine: KeywordEngine) -> None:
        self._engine = engine
        self.stale = 0  # writes that the index was already past, since the start

    def apply(self, page: Page) -> Applied:
        """Bring the index to at least the state of `page.records`, and keep `page.marks`.

        Guarantee: durable and searchable when it returns; an older write changes nothing and is
                   counted in `stale`.
        Raises:    EngineUnavailableError, EngineMismatchError: the marks are as they were.
        """
        records, epoch = page.records, page.epoch
        wanted = {memory_id: guard(epoch, record.rev) for memory_id, record in records.items()}
        written = self._engine.write(
            wanted, lambda memory_id: mapping.write_for(records[memory_id], epoch=epoch), page.marks
        )
        self.stale += written.stale
        return Applied(refused=written.refused, stale=written.stale, again=written.again)
