"""What the command line says when something is off, and how much it says when nothing is."""

from pathlib import Path
from typing import Any

import pytest

from gnomon.cli import screen, status
from gnomon.cli.failures import CommandError, Exit
from gnomon.cli.imports import Rejects
from gnomon.cli.screen import MOST_CHARACTERS, clipped
from tests.support.command import quick


@pytest.mark.parametrize(
    "arguments",
    [
        ("search",),
        ("search", "x", "--top-k", "-1"),
        ("search", "x", "--no-such-option"),
        ("import", "x", "--format", "csv"),
        ("keys", "revoke"),
        ("no-such-command",),
    ],
)
def test_with_json_a_refused_command_line_is_a_json_error(arguments: tuple[str, ...]) -> None:
    ran = quick(*arguments, "--json")
    assert (ran.code, ran.out, ran.error["code"]) == (Exit.USAGE, "", "usage")
    plain = quick(*arguments)
    assert plain.code == Exit.USAGE
    assert plain.err.startswith("Usage: ")


@pytest.mark.parametrize("command", [("up", "--port", "0"), ("keys", "list"), ("audit", "verify")])
def test_a_state_folder_that_cannot_be_used_is_no_crash(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    folder = tmp_path / "taken"
    folder.touch()
    ran = quick(*command, "--json", env={"GNOMON_STATE": str(folder)})
    assert (ran.code, ran.error["code"]) == (Exit.REFUSED, "state_unusable")
    assert str(folder) in ran.error["message"]


def test_a_host_that_is_not_found_is_said_in_words(tmp_path: Path) -> None:
    ran = quick("up", "--json", "--state", str(tmp_path), "--host", "nowhere.invalid")
    assert (ran.code, ran.error["code"]) == (Exit.REFUSED, "cannot_listen")
    assert "nowhere.invalid" in ran.error["message"]
    assert "Unknown error" not in ran.error["message"]


def test_refused_lines_that_cannot_be_written_name_the_way_out(tmp_path: Path) -> None:
    with (
        pytest.raises(CommandError, match="for refused lines: ") as caught,
        Rejects(tmp_path) as it,
    ):
        it.add({"line": 1})
    assert (caught.value.code, caught.value.exit) == ("no_file", Exit.USAGE)
    assert "--rejects" in caught.value.hint


def test_a_long_text_is_cut_and_says_so() -> None:
    assert clipped("y" * MOST_CHARACTERS) == "y" * MOST_CHARACTERS
    assert clipped("y" * (MOST_CHARACTERS + 1)) == "y" * (MOST_CHARACTERS - 1) + "…"


@pytest.mark.parametrize(
    ("path", "here", "said"),
    [("", ".venv/bin/gnomon", ".venv/bin/gnomon"), ("bin", "bin/gnomon", "gnomon")],
)
def test_what_to_type_next_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, here: str, said: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gnomon").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / path))
    monkeypatch.setattr("sys.argv", [here])
    assert screen.program() == said


@pytest.mark.parametrize(
    ("error", "waiting", "more"),
    [(None, None, set()), ("broken", None, {"error"}), (None, 2.0, {"oldest waits"})],
)
def test_a_status_column_that_says_nothing_is_left_out(
    error: str | None, waiting: float | None, more: set[str]
) -> None:
    generation: dict[str, Any] = {
        "generation": 1,
        "state": "live",
        "lag": 0,
        "waiting_s": waiting,
        "parked": 0,
        "error": error,
        "shards": [],
    }
    item = {"name": "vector", "state": "current", "generations": [generation]}
    headers = {
        column.header for column in status.table({"items": [item], "next_cursor": None}).columns
    }
    assert headers == {"projection", "state", "applied", "lag", "parked", *more}
