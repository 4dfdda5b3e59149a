"""Add many memories in one transaction, staged by COPY."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from canonical.domain.answers import Batch, Refused, Written
from canonical.domain.commands import MutationKey, NewMemory
from canonical.errors import MutationConflictError, RejectedError, StoreUnavailableError
from canonical.mutations.writer import Writer
from canonical.store import keys, staging, statements
from canonical.store.database import one_trip
from canonical.store.staging import Staged, Taken

TWINS = 3


@dataclass(frozen=True, slots=True)
class Chunk:
    """The lines of one transaction: what passed the door and what it refused.

    `items`: (line, memory), ascending. `size`: lines a chunk is cut to, kept with the mutation.
    `all_or_none`: one line that can't be written refuses all of them.
    """

    items: Sequence[tuple[int, NewMemory]]
    refused: tuple[Refused, ...] = ()
    size: int | None = None
    all_or_none: bool = False
    # Made at once, by whoever checks the lines: meanwhile another thread may wait for Postgres.
    staged: Staged = field(init=False)

    def __post_init__(self) -> None:
        """Write the lines in COPY's format."""
        object.__setattr__(self, "staged", staging.staged(self.items))


def refusal(line: int, exc: RejectedError) -> Refused:
    """Say why a line was not written."""
    return Refused(line, exc.code, str(exc), exc.hint, getattr(exc, "field", None))


def add_chunk(writer: Writer, chunk: Chunk, key: MutationKey | None = None) -> Batch:
    """Add the lines of one chunk.

    Guarantee: on return all lines in `written` are committed with their versions and events, in
               one transaction. A repeat of the key, or a line whose source event came before,
               writes nothing more and answers as before; a source event that came before with
               another body is refused by itself.
    Raises:    MutationConflictError, when the key came before with another body or chunk size; and
               of all or none, when a source event came before with another body.
    Cost:      three round trips; one more when a line names a source event.
    """
    for _ in range(TWINS):
        try:
            return writer.database.run(lambda: _attempt(writer, chunk, key))
        except keys.UsedKeyError:
            continue  # a twin has committed: the next attempt finds its answer
    raise StoreUnavailableError("the command's key is being written by others again and again")


def add_chunks(
    writer: Writer, chunks: Iterable[tuple[Chunk, MutationKey | None]]
) -> Iterator[Batch]:
    """Add chunks in their order, each as `add_chunk` does, the next made ready meanwhile.

    Guarantee: a batch is yielded once it is committed; where one fails, none after it is begun.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="bulk") as committer:
        running: Future[Batch] | None = None
        for chunk, key in chunks:
            if running is not None:
                yield running.result()
            running = committer.submit(add_chunk, writer, chunk, key)
        if running is not None:
            yield running.result()


def _attempt(writer: Writer, chunk: Chunk, key: MutationKey | None) -> Batch:
    with writer.database.raw() as conn, keys.refusing_used():
        try:
            if (earlier := _begin(conn, chunk, writer, key)) is not None:
                return earlier
            staging.copy(conn, chunk.staged.data)
            taken = staging.settle(conn, writer.tenant) if chunk.staged.has_events else []
            plan = Plan(chunk, chunk.staged.ids, taken)
            plan.require_all()
            return _finish(conn, plan, writer, key)
        finally:
            conn.rollback()  # after a commit there is nothing left to undo


def _begin(
    conn: psycopg.Connection, chunk: Chunk, writer: Writer, key: MutationKey | None
) -> Batch | None:
    conn.execute(statements.for_driver("set_tenant"), writer.binding())
    conn.execute(statements.for_driver("create_incoming"))
    row = None if key is None else keys.find(conn, writer.tenant, key)
    return None if row is None else _replayed(row, chunk)


class Plan:
    """What a transaction will write and answer, once its source events are settled."""

    def __init__(self, chunk: Chunk, ids: Mapping[int, UUID], taken: Sequence[Taken]) -> None:
        """Put each line into one of: new, taken before, refused."""
        self.chunk = chunk
        self.taken = {one.line: one for one in taken if one.same_body}
        conflicts = [_conflict(one.line) for one in taken if not one.same_body]
        gone = {one.line for one in taken}
        self.ids = {line: i for line, i in ids.items() if line not in gone}
        self.refused = tuple(sorted((*chunk.refused, *conflicts), key=lambda r: r.line))

    def require_all(self) -> None:
        """Refuse the whole chunk when it is all or none and a line can't be written."""
        if self.chunk.all_or_none and self.refused:
            first = self.refused[0]
            raise MutationConflictError(f"memory {first.line}: {first.message}")

    def answer(self) -> dict[int, UUID]:
        """Return the memory of each line that has one, in the order of the lines."""
        earlier = {line: one.memory_id for line, one in self.taken.items()}
        return dict(sorted({**self.ids, **earlier}.items()))

    def outcome(self) -> dict[str, Any]:
        """Return what a repeat needs beside the ids: no text, only lines and codes."""
        return {
            "size": self.chunk.size,
            "lines": list(self.answer()),
            "refused": [[r.line, r.code] for r in self.refused],
        }

    def written(self, placed: Mapping[int, tuple[int, int]]) -> dict[int, Written]:
        """Return what each line wrote or had written before."""
        new = {line: Written(self.ids[line], 1, *place) for line, place in placed.items()}
        by_id = {one.memory_id: one for one in new.values()}
        for line, one in self.taken.items():
            first = by_id.get(one.memory_id)
            shard, pos = (first.shard, first.pos) if first else (one.shard or 0, one.pos or 0)
            new[line] = Written(one.memory_id, 1, shard, pos, replayed=True)
        return dict(sorted(new.items()))


def _finish(conn: psycopg.Connection, plan: Plan, writer: Writer, key: MutationKey | None) -> Batch:
    parameters = {"tenant": writer.tenant, "by": writer.caller.name, "now": writer.clock.now()}
    with one_trip(conn) as cursor:
        if key is not None:
            answer = [(memory_id, 1) for memory_id in plan.answer().values()]
            keys.remember(cursor, writer.tenant, key, answer, plan.outcome())
        cursor.execute(statements.for_driver("insert_incoming"), parameters)
        cursor.execute(statements.for_driver("announce_incoming"), parameters)
    placed = {line: (shard, pos) for line, shard, pos in cursor.fetchall()}
    return Batch(plan.written(placed), plan.refused)


def _conflict(line: int) -> Refused:
    exc = MutationConflictError("the source event was used before with another body")
    return refusal(line, exc)


def _refused_before(line: int, code: str) -> Refused:
    if code == MutationConflictError.code:
        return _conflict(line)
    # The limits have changed since.
    return Refused(line, code, "refused when this mutation was sent first", RejectedError.hint)


def _replayed(row: Mapping[str, Any], chunk: Chunk) -> Batch:
    outcome = row["outcome"]
    if outcome["size"] != chunk.size:
        raise MutationConflictError(
            f"the mutation_id was used before with chunks of {outcome['size']} lines"
        )
    written = dict(zip(outcome["lines"], keys.answer_of(row), strict=True))
    said = {(one.line, one.code): one for one in chunk.refused}
    refused = tuple(
        said.get((line, code)) or _refused_before(line, code) for line, code in outcome["refused"]
    )
    return Batch(written, refused, replayed=True)
