"""The file of exported heads: read whole or refused, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

import pytest

from gnomon.cli import heads
from gnomon.cli.failures import CommandError, Exit

REPORT: dict[str, Any] = {
    "ok": True,
    "generation": 1,
    "entries": 7,
    "heads": [{"shard": 0, "pos": 3, "hash": "ab" * 32}, {"shard": 15, "pos": 4, "hash": "0" * 64}],
}


def test_what_was_written_is_read_and_so_is_the_report_itself(tmp_path: Path) -> None:
    file = tmp_path / "heads.json"
    file.write_text("older")
    heads.write(file, REPORT)
    found = heads.read(file)
    assert [(one.shard, one.pos, one.hash) for one in found] == [
        (0, 3, "ab" * 32),
        (15, 4, "0" * 64),
    ]
    assert list(tmp_path.iterdir()) == [file]
    file.write_text(json.dumps(REPORT))
    assert heads.read(file) == found


@pytest.mark.parametrize(
    "said",
    [
        *("", "[]", "7", "null", "{}", '{"heads": 7}', '{"heads": [7]}', '{"heads": []}'),
        *('{"heads": [{"shard": 0, "pos": 3}]}', "[" * 100_000, "\x00\x00"),
        json.dumps({"heads": [{"shard": 0, "pos": 3, "hash": "AB" * 32}]}),
        json.dumps({"heads": [{"shard": 0, "pos": 3, "hash": 7}]}),
        json.dumps({"heads": [{"shard": "0", "pos": 3, "hash": "ab" * 32}]}),
        json.dumps({"heads": [{"shard": 0, "pos": True, "hash": "ab" * 32}]}),
    ],
    ids=range(15),
)
def test_a_file_without_heads_is_refused_and_proves_nothing(tmp_path: Path, said: str) -> None:
    (tmp_path / "heads.json").write_text(said)
    with pytest.raises(CommandError) as caught:
        heads.read(tmp_path / "heads.json")
    assert (caught.value.code, caught.value.exit) == ("no_file", Exit.USAGE)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    for attempt in (heads.read, lambda path: heads.write(path, REPORT)):
        with pytest.raises(CommandError, match=r"no/heads\.json: No such file or directory"):
            attempt(tmp_path / "no" / "heads.json")
