"""A projector that keeps what it was given in memory, guarded by rev, and can fail on demand."""

from collections.abc import Callable
from uuid import UUID

from canonical.domain.records import Record
from canonical.errors import EngineRefusedError, PoisonError
from projectors.protocol import Applied, Page


class RecordingProjector:
    """Keeps the newest state of each memory; `before` may raise, `refuses` names bad texts."""

    def __init__(self, refuses: str | None = None) -> None:
        self.held: dict[UUID, Record] = {}
        self.applied: list[tuple[int, int]] = []  # (shard, pos) of every event, in order
        self.calls = 0
        self.refuses = refuses
        self.before: Callable[[Page], None] = lambda _page: None

    def apply(self, page: Page) -> Applied:
        self.calls += 1
        self.before(page)
        refused: dict[UUID, PoisonError] = {}
        for memory_id, record in page.records.items():
            if self.refuses is not None and self.refuses in record.text:
                refused[memory_id] = EngineRefusedError(f"{self.refuses!r} is refused")
            elif memory_id not in self.held or self.held[memory_id].rev < record.rev:
                self.held[memory_id] = record
        self.applied += [(event.shard, event.pos) for event in page.events]
        return Applied(refused)
