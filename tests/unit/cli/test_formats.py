"""Files of other programs become memories: one a turn, one an exchange, one a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from canonical.errors import InvalidInputError
from gnomon.cli import formats
from gnomon.cli.formats import MAX_LINE_BYTES, Format

LOCOMO = [
    {
        "sample_id": "conv-26",
        "conversation": {
            "speaker_a": "Ann",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "Hi!"},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "See", "blip_caption": "a dog"},
            ],
            "session_2_date_time": "2:00 pm on 9 May, 2023",  # a session without turns
            "session_3_date_time": "3:00 pm on 9 May, 2023",
            "session_3": [{"speaker": "Ann", "dia_id": "D3:1", "text": "Bye"}],
        },
        "observation": {"session_1_observation": {"Ann": [["made up", "D1:1"]]}},
    }
]
MEMORYBANK = {
    "王峰 ": {
        "name": "王峰",
        "summary": "not a memory",
        "history": {"2023-04-27": [{"query": "我喜欢绿茶", "response": "好的"}]},
    }
}


def read(path: Path, form: Format, scope: dict[str, str] | None = None) -> list[Any]:
    return [json.loads(line) for line in formats.lines(path, form, scope or {})]


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def test_locomo_gives_a_memory_a_turn_with_its_picture_and_its_place(tmp_path: Path) -> None:
    turns = read(written(tmp_path / "locomo.json", LOCOMO), Format.LOCOMO)
    assert [turn["text"] for turn in turns] == ["Ann: Hi!", "Bo: See [image: a dog]", "Ann: Bye"]
    assert [turn["metadata"]["dia_id"] for turn in turns] == ["D1:1", "D1:2", "D3:1"]
    assert turns[2]["metadata"]["session"] == 3
    assert {turn["user_id"] for turn in turns} == {"conv-26"}
    assert turns[1]["source_message_ids"] == ["D1:2"]


def test_memorybank_gives_a_memory_an_exchange(tmp_path: Path) -> None:
    (one,) = read(written(tmp_path / "cn.json", MEMORYBANK), Format.MEMORYBANK)
    expected = {"user_id": "王峰", "text": "我喜欢绿茶\n→ 好的", "metadata": {"date": "2023-04-27"}}
    assert one == expected


def test_memorybank_is_read_an_exchange_a_line_as_well(tmp_path: Path) -> None:
    line = {"user": "Emily", "date": "d", "lang": "en", "query": "Hi", "response": "Hello"}
    path = tmp_path / "flat.jsonl"
    path.write_text(json.dumps(line) + "\n\n" + json.dumps(line) + "\n")
    flat = read(path, Format.MEMORYBANK)
    assert len(flat) == 2
    assert flat[0]["metadata"] == {"date": "d", "lang": "en"}


@pytest.mark.parametrize("form", [Format.LOCOMO, Format.MEMORYBANK])
@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}', '"x"', "[" * 100_000, "null"])
def test_a_file_of_another_format_is_refused_as_a_whole(
    tmp_path: Path, form: Format, text: str
) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InvalidInputError):
        formats.lines(path, form, {})


def test_a_fault_at_the_end_of_a_document_lets_nothing_through(tmp_path: Path) -> None:
    path = written(tmp_path / "bad.json", [*LOCOMO, {"sample_id": "x", "conversation": None}])
    with pytest.raises(InvalidInputError):
        formats.lines(path, Format.LOCOMO, {})


def test_json_lines_pass_as_they_are_also_those_that_are_none(tmp_path: Path) -> None:
    """A-04: the server judges each line; the command line hides and repairs none."""
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(b'{"text": "a"}\r\n\n{"broken\n\xff\xfe\n[1]\nlast')
    lines = list(formats.lines(path, Format.JSONL, {}))
    assert lines == [b'{"text": "a"}', b"", b'{"broken', b"\xff\xfe", b"[1]", b"last"]


def test_a_scope_is_put_only_where_a_memory_names_none(tmp_path: Path) -> None:
    path = tmp_path / "scope.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "b", "user_id": "own"}\n[1]\n\nnot json\n')
    lines = list(formats.lines(path, Format.JSONL, {"user_id": "given"}))
    assert [json.loads(line).get("user_id") for line in lines[:2]] == ["given", "own"]
    assert lines[2:] == [b"[1]", b"", b"not json"]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"x" * (5 * MAX_LINE_BYTES) + b"\n" + b"after\n")
    cut, after = formats.lines(path, Format.JSONL, {})
    assert len(cut) == MAX_LINE_BYTES + 1  # over the bound, so that the server refuses it
    assert after == b"after"
