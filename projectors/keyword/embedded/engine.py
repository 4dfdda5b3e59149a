"""The one place that holds a tantivy index: its files, its writer, what it has committed.

One process may have an index open (tantivy's writer lock, which the system frees when a process
dies); in it, one thread writes at a time and any number read. A search sees the last commit.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self
from uuid import UUID

import tantivy

from canonical.domain.records import Status
from canonical.errors import EngineMismatchError, EngineUnavailableError, PoisonError
from projectors.keyword import schema
from projectors.keyword.embedded.documents import (
    ABOUT_ID,
    about,
    build_schema,
    document_of,
)
from projectors.keyword.embedded.failures import in_our_terms
from projectors.keyword.embedded.queries import Queries
from projectors.keyword.embedded.snapshot import Snapshot, place_of
from projectors.keyword.embedded.view import EmbeddedView
from projectors.keyword.mapping import IndexWrite
from projectors.keyword.port import Written
from projectors.protocol import Mark

WRITER_BYTES = 64 << 20  # tantivy's buffer; a page of 2,000 texts of 64 KiB overflows it harmlessly


class EmbeddedIndex:
    """An open index. Make it with `create` or `open`; close it, or use it as a context."""

    def __init__(self, directory: Path, index: tantivy.Index, writer_bytes: int) -> None:
        self._directory = directory
        self._queries = Queries(index.schema)
        self._index = index
        self._writer_bytes = writer_bytes
        self._writing = Lock()
        self._writer: tantivy.IndexWriter | None = index.writer(writer_bytes, 1)
        self._closed = False
        self._marks: dict[int, Mark] = {}
        self._snapshot: Snapshot | None = None

    @classmethod
    def create(cls, directory: Path, *, writer_bytes: int = WRITER_BYTES) -> Self:
        """Make an empty index in a directory that is empty or not there, and open it.

        Raises: EngineMismatchError, when something is there. EngineUnavailableError.
        """
        with in_our_terms(directory, "create"):
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise EngineMismatchError(f"create: {directory} is not empty")
            index = tantivy.Index(build_schema(), str(directory))
            index.config_reader("manual")
            engine = cls(directory, index, writer_bytes)
            with engine._all_or_nothing():
                engine._open_writer().add_document(about({}))
        return engine

    @classmethod
    def open(cls, directory: Path, *, writer_bytes: int = WRITER_BYTES) -> Self:
        """Open an index that is there, and become its only process.

        Guarantee: never creates one: a lost index is not answered with an empty one.
        Raises:    EngineMismatchError, when there is none, or one that is damaged, half made or of
                   another schema or analysis: build it again, elsewhere. EngineUnavailableError,
                   when another process has it open.
        """
        with in_our_terms(directory, "open"):
            if not (directory / "meta.json").is_file():
                raise EngineMismatchError(f"open: there is no index in {directory}")
            index = tantivy.Index(build_schema(), str(directory))
            index.config_reader("manual")
            engine = cls(directory, index, writer_bytes)
            with ExitStack() as opened:
                opened.callback(engine.close)
                engine._load()
                opened.pop_all()
        return engine

    def close(self) -> None:
        """Give the index up; what was not committed is dropped. Running searches end well."""
        with self._writing:
            self._closed, self._writer, self._snapshot = True, None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def directory(self) -> Path:
        """Return where the index lies."""
        return self._directory

    def marks(self) -> dict[int, Mark]:
        """Return, per shard, the last event whose page the last commit holds."""
        return dict(self._marks)

    def snapshot(self) -> Snapshot:
        """Return the last commit; it stays readable while others follow.

        Raises: EngineUnavailableError, when the index was closed.
        """
        if (held := self._snapshot) is None:
            raise EngineUnavailableError(f"the index in {self._directory} is closed")
        return held

    def view(self, tenant: str, *, timeout: timedelta) -> EmbeddedView:  # noqa: ARG002 - see there
        """Return what a search of this tenant reads: the last commit.

        Raises: EngineUnavailableError, when the index was closed.
        """
        return EmbeddedView(self.snapshot(), self._queries, self._directory, tenant)

    def write(
        self,
        wanted: Mapping[UUID, int],
        write_for: Callable[[UUID], IndexWrite],
        marks: Iterable[Mark],
    ) -> Written:
        """Write what is newer than what the index holds, with the marks, in one commit.

        Guarantee: all or nothing, durable when it returns, and seen by every later search. A mark
                   moves forward only (by epoch, then position).
        Shapes:    `wanted`: the guard of each memory; `write_for` is asked for those that are newer
                   than here, and may raise a PoisonError: that memory is left out and named.
        Raises:    EngineUnavailableError, EngineMismatchError: nothing was changed.
        """
        with self._writing, in_our_terms(self._directory, "write"):
            self._open_writer()  # after a failure this reads the last commit anew
            held = self.snapshot().guards(list(wanted))
            fresh = [mid for mid, guard in wanted.items() if guard > held.get(mid, -1)]
            ahead = self._ahead(marks)
            refused: dict[UUID, PoisonError] = {}
            if fresh or ahead != self._marks:
                with self._all_or_nothing():
                    refused = self._add(fresh, write_for, held.keys())
                    self._open_writer().delete_documents_by_term(schema.MEMORY_ID, ABOUT_ID)
                    self._open_writer().add_document(about(ahead))
                self._marks = ahead
            return Written(len(wanted) - len(fresh), refused)

    def guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the guard of each of these memories that the index holds, dead or alive."""
        with in_our_terms(self._directory, "guards"):
            return self.snapshot().guards(memory_ids)

    def count(self, *, live: bool = True) -> int:
        """Return how many memories the index holds: those that can be found, or tombstones too."""
        with in_our_terms(self._directory, "count"):
            return self.snapshot().count(live=live)

    def scan(self) -> Iterator[tuple[UUID, int, Status]]:
        """Yield (memory id, guard, status) of everything that the last commit holds, once each.

        Cost: constant memory; one walk over a column per 10,000 memories.
        """
        snapshot, after = self.snapshot(), -1
        while page := self._scan_page(snapshot, after):
            yield from page
            after = place_of(page[-1][0])

    def _scan_page(self, snapshot: Snapshot, after: int) -> list[tuple[UUID, int, Status]]:
        with in_our_terms(self._directory, "scan"):
            return snapshot.scan_page(after)

    def _ahead(self, marks: Iterable[Mark]) -> dict[int, Mark]:
        ahead = dict(self._marks)
        for mark in marks:
            held = ahead.get(mark.shard)
            if held is None or (mark.epoch, mark.pos) > (held.epoch, held.pos):
                ahead[mark.shard] = mark
        return ahead

    def _add(
        self,
        memory_ids: Iterable[UUID],
        write_for: Callable[[UUID], IndexWrite],
        held: Container[UUID],
    ) -> dict[UUID, PoisonError]:
        """Hand each document over as soon as it is made: tantivy indexes while the next is made."""
        refused: dict[UUID, PoisonError] = {}
        for memory_id in memory_ids:
            try:
                document = document_of(write_for(memory_id))
            except PoisonError as exc:
                refused[memory_id] = exc
                continue
            if memory_id in held:
                self._open_writer().delete_documents_by_term(schema.MEMORY_ID, memory_id.hex)
            self._open_writer().add_json(document)
        return refused

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Commit what is done to the writer; afterwards every search sees it, or nobody does."""
        with ExitStack() as undo:
            # What the writer had taken in must not slip into the next commit: a fresh one starts
            # from the last commit.
            undo.callback(setattr, self, "_writer", None)
            yield
            self._open_writer().commit()
            self._refresh()
            undo.pop_all()

    def _open_writer(self) -> tantivy.IndexWriter:
        """Return the writer, a fresh one after a failure.

        No name but `self._writer` may hold it: an error's traceback keeps the names of its frames
        alive, and with them the lock that a fresh writer, or the next process, needs.
        """
        if self._closed:
            raise EngineUnavailableError(f"the index in {self._directory} is closed")
        if self._writer is None:
            self._load()
            self._writer = self._index.writer(self._writer_bytes, 1)
        return self._writer

    def _load(self) -> None:
        """Take over what the last commit says of itself."""
        self._refresh()
        self._marks = self.snapshot().marks()

    def _refresh(self) -> None:
        self._snapshot = Snapshot.of(self._index)
