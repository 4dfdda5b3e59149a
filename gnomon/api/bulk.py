"""The route of bulks: a memory a line in, a result a line out, a transaction a thousand lines."""

import tempfile
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Any, Final

from fastapi import Response

from canonical import tracing
from canonical.domain import answers, commands, door
from canonical.domain.answers import Batch, Refused, Written
from canonical.domain.commands import MutationKey, NewMemory
from canonical.domain.positions import Position, to_token
from canonical.errors import GnomonError, RejectedError, TooLargeError
from canonical.mutations.bulk import Chunk, add_chunk, refusal
from gnomon.api import documents, lines, outcomes, parameters, problems, rendering
from gnomon.api.gate import Call
from gnomon.api.lines import Line, LineChunk
from gnomon.api.refusals import UploadBrokenError, UploadTooSlowError
from gnomon.api.spool import SpooledResponse

CHUNK_LINES: Final = 1_000
COMMAND: Final = "bulk"
PARAMETERS: Final = frozenset({"mutation_id"})
MEDIA_TYPE: Final = "application/x-ndjson"
OK: Final = 200
STOPPED: Final = (UploadBrokenError, UploadTooSlowError)  # nothing more will come


def post(call: Call) -> Response:
    """Add a memory a line.

    Guarantee: each transaction of 1,000 lines is all or nothing, and idempotent under the
               mutation's id and its number. The answer begins when nothing is left to be read.
    Cost:      constant memory, whatever the number of lines.
    """
    given = parameters.query(call.query_string, PARAMETERS)
    limits = call.services.limits
    mutation_id = door.optional_identifier(given.get("mutation_id"), "mutation_id", limits)
    with ExitStack() as opened:
        answer = opened.enter_context(
            tempfile.SpooledTemporaryFile(call.services.settings.spool_bytes)
        )
        run = Run(call, mutation_id, answer)
        response = _response(run, answer, run.through())
        opened.pop_all()  # the response sends it after this function has returned, and closes it
    return response


def _response(run: "Run", answer: IO[bytes], error: GnomonError | None) -> Response:
    if error is not None and not run.tally.chunks:
        answer.close()
        return problems.response(error)
    answer.write(run.summary(error))
    status, headers = (OK, {}) if error is None else (error.status, problems.headers_of(error))
    return SpooledResponse(answer, status, headers, MEDIA_TYPE)


@dataclass(slots=True)
class Tally:
    """What became of the lines so far; `position`: past everything that was written."""

    position: Position
    lines: int = 0
    blank: int = 0
    written: int = 0
    replayed: int = 0
    refused: int = 0
    chunks: int = 0

    def add(self, prepared: "Prepared", batch: Batch) -> None:
        """Count a chunk."""
        written = list(batch.written.values())
        replayed = sum(one.replayed for one in written)
        self.chunks += 1
        self.lines += len(prepared.source.lines)
        self.blank += prepared.blank
        self.written += len(written) - replayed
        self.replayed += replayed
        self.refused += len(batch.refused)
        self.position = self.position.joined(answers.position(self.position.epoch, written))

    def document(self) -> dict[str, Any]:
        """Return the counts."""
        names = ("lines", "blank", "written", "replayed", "refused", "chunks")
        counts: dict[str, Any] = {name: getattr(self, name) for name in names}
        return {**counts, "chunk_size": CHUNK_LINES, "position": to_token(self.position)}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A chunk that passed the door."""

    source: LineChunk
    chunk: Chunk
    blank: int
    key: MutationKey | None


class Run:
    """One bulk: reads and checks a chunk while the one before is being committed."""

    def __init__(self, call: Call, mutation_id: str | None, answer: IO[bytes]) -> None:
        """Read nothing yet."""
        self._upload, self._services = call.upload, call.services
        self._mutation_id, self._answer = mutation_id, answer
        self._writer = call.writer()
        self._at_work: tuple[Prepared, Future[Batch]] | None = None
        self.tally = Tally(Position(call.services.epoch))

    def through(self) -> GnomonError | None:
        """Write all chunks, and return the error that ended the work early, if one did."""
        with ThreadPoolExecutor(1, thread_name_prefix="api-bulk-commit") as committer:
            try:
                self._write_all(committer)
            except STOPPED as exc:
                return exc
            except GnomonError as exc:
                with suppress(*STOPPED):
                    self._upload.drain()
                return exc
        return None

    def summary(self, error: GnomonError | None) -> bytes:
        """Return the answer's last line."""
        said = {**self.tally.document(), "complete": error is None}
        if error is not None:
            said["error"] = problems.document(error)
        return rendering.dumps({"summary": said}) + lines.LF

    def _write_all(self, committer: Executor) -> None:
        line_bytes = self._services.settings.line_bytes
        try:
            for source in lines.cut(self._upload.read, CHUNK_LINES, line_bytes):
                prepared = self._prepare(source)
                self._settle()
                self._at_work = prepared, committer.submit(tracing.carried(self._commit), prepared)
        finally:
            self._settle()

    def _prepare(self, source: LineChunk) -> Prepared:
        items: list[tuple[int, NewMemory]] = []
        refused: list[Refused] = []
        for number, line in enumerate(source.lines, source.first):
            if line == b"":
                continue
            try:
                items.append((number, self._memory(line)))
            except RejectedError as exc:
                refused.append(refusal(number, exc))
        key = self._mutation_id and MutationKey(
            self._mutation_id, COMMAND, source.body_hash(), source.number
        )
        blank = len(source.lines) - len(items) - len(refused)
        return Prepared(source, Chunk(items, tuple(refused), CHUNK_LINES), blank, key or None)

    def _memory(self, line: Line) -> NewMemory:
        if isinstance(line, int):
            raise TooLargeError("line", line, self._services.settings.line_bytes)
        value = documents.parse(line, "line")
        return commands.new_memory(value, self._writer.caller, self._services.limits)

    def _commit(self, prepared: Prepared) -> Batch:
        with outcomes.counted(self._services, COMMAND):
            if not prepared.chunk.items and prepared.key is None:
                return Batch({}, prepared.chunk.refused)
            return add_chunk(self._writer, prepared.chunk, prepared.key)

    def _settle(self) -> None:
        """Wait for the chunk that is being committed, and put its results aside."""
        if self._at_work is None:
            return
        (prepared, future), self._at_work = self._at_work, None
        batch = future.result()
        self.tally.add(prepared, batch)
        self._answer.write(_results(batch, self.tally.position.epoch))
        outcomes.committed(self._services, COMMAND, list(batch.written.values()))
        for one in batch.refused:
            self._services.metrics.wrote(COMMAND, one.code)


def _results(batch: Batch, epoch: int) -> bytes:
    said = {line: _written(line, one, epoch) for line, one in batch.written.items()}
    said.update((one.line, _refused(one)) for one in batch.refused)
    return b"".join(said[line] for line in sorted(said))


def _written(line: int, one: Written, epoch: int) -> bytes:
    position = to_token(Position(epoch, {one.shard: one.pos}))
    return (
        f'{{"line":{line},"id":"{one.memory_id}","version":{one.version},"status":"active",'
        f'"position":"{position}","replayed":{"true" if one.replayed else "false"}}}\n'
    ).encode()


def _refused(one: Refused) -> bytes:
    error = {"code": one.code, "field": one.field, "message": one.message, "hint": one.hint}
    return rendering.dumps({"line": one.line, "error": error}) + lines.LF
