"""The same file gives the same commands, cut at the same places, and refusals keep their lines."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.domain import positions
from canonical.domain.positions import Position
from canonical.errors import InvalidInputError
from gnomon.cli import upload
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.formats import Format
from gnomon.cli.upload import PART_BYTES, PART_LINES

SIZES = st.lists(st.sampled_from([0, 1, 40, PART_BYTES // 3, PART_BYTES]), max_size=6)


class Server:
    """Takes bulks as the API does: refuses lines that are no JSON, knows repeats by their id."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.known: dict[str, bytes] = {}
        self.dies_at = dies_at

    def bulk(self, lines: bytes, mutation_id: str) -> list[dict[str, Any]]:
        if len(self.known) == self.dies_at:
            raise CommandError("answer_lost", "cut", "", Exit.TRANSIENT)
        replayed = mutation_id in self.known
        assert self.known.setdefault(mutation_id, lines) == lines, "mutation_conflict"
        results = [_result(n, line) for n, line in enumerate(lines.splitlines(), start=1) if line]
        good = sum("id" in result for result in results)
        token = positions.to_token(Position(1, {len(self.known): good})) if good else None
        summary = {
            "lines": lines.count(b"\n"),
            "blank": lines.count(b"\n") - len(results),
            "written": 0 if replayed else good,
            "replayed": good if replayed else 0,
            "refused": len(results) - good,
            "position": token,
        }
        return [*results, {"summary": summary}]


def _result(number: int, line: bytes) -> dict[str, Any]:
    if line.startswith(b"{"):
        return {"line": number, "id": "m"}
    return {"line": number, "error": {"code": "invalid_input", "message": "no JSON", "hint": "h"}}


@given(SIZES)
def test_parts_hold_every_line_once_in_order_within_their_bounds(sizes: list[int]) -> None:
    lines = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)]
    cut = list(upload.parts(lines))
    assert [line for part in cut for line in part.lines] == lines
    assert [part.number for part in cut] == list(range(len(cut)))
    at = 1
    for part in cut:
        assert part.first == at
        assert part.lines
        assert len(part.lines) == 1 or sum(map(len, part.lines)) <= PART_BYTES
        at += len(part.lines)


def test_a_part_holds_a_whole_number_of_the_servers_transactions() -> None:
    cut = list(upload.parts([b"{}"] * (2 * PART_LINES + 1)))
    assert [len(part.lines) for part in cut] == [PART_LINES, PART_LINES, 1]
    assert PART_LINES % 1_000 == 0


def test_sending_again_after_a_break_writes_only_what_is_missing() -> None:
    lines = [b"{}"] * (3 * PART_LINES)
    server = Server(dies_at=2)
    with pytest.raises(CommandError):
        list(upload.send(server, "import-1", upload.parts(lines), list[Any]().append))
    server.dies_at = None
    *_, last = upload.send(server, "import-1", upload.parts(lines), list[Any]().append)
    assert (last.written, last.replayed) == (PART_LINES, 2 * PART_LINES)
    assert len(server.known) == 3


def test_a_refused_line_keeps_its_number_in_the_file_and_its_text() -> None:
    lines = [b"{}"] * PART_LINES + [b"", b"bad \xff", b"{}"]
    rejects: list[dict[str, Any]] = []
    *_, last = upload.send(Server(), "import-1", upload.parts(lines), rejects.append)
    assert rejects == [
        {
            "line": PART_LINES + 2,
            "code": "invalid_input",
            "message": "no JSON",
            "hint": "h",
            "input": "bad \\xff",
        }
    ]
    assert (last.lines, last.blank, last.refused) == (PART_LINES + 3, 1, 1)


def test_the_position_is_past_every_part() -> None:
    lines = [b"{}"] * (2 * PART_LINES)
    *_, last = upload.send(Server(), "import-1", upload.parts(lines), list[Any]().append)
    assert last.position == Position(1, {1: PART_LINES, 2: PART_LINES})
    token = last.token()
    assert token is not None
    assert positions.from_token(token) == last.position


def test_a_position_that_is_none_is_refused() -> None:
    tally = upload.Tally()
    summary = {"lines": 0, "blank": 0, "written": 0, "replayed": 0, "refused": 0}
    with pytest.raises(InvalidInputError):
        tally.add({**summary, "position": "nonsense"})


def test_an_import_is_named_by_its_bytes_its_format_and_its_scope(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"{}\n")
    other.write_bytes(b"{}\n")
    name = upload.import_id(path, Format.JSONL, {})
    assert upload.import_id(other, Format.JSONL, {}) == name
    different = {
        upload.import_id(path, Format.LOCOMO, {}),
        upload.import_id(path, Format.JSONL, {"user_id": "u"}),
        upload.import_id(path, Format.JSONL, {"agent_id": "u"}),
    }
    other.write_bytes(b"{}\n\n")
    different.add(upload.import_id(other, Format.JSONL, {}))
    assert len(different | {name}) == 5
    assert len(name) < 200  # a part's number follows, and an id has at most 256 characters


def test_rejects_can_be_written_as_json() -> None:
    rejects: list[dict[str, Any]] = []
    list(upload.send(Server(), "i", upload.parts([b"\xed\xa0\x80"]), rejects.append))
    assert json.dumps(rejects[0], ensure_ascii=False).encode()
