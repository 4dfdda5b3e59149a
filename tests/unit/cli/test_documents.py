"""What is written down for users is what there is: commands, options, settings, tests, places."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from gnomon.cli import failures
from gnomon.cli.failures import Exit
from gnomon.cli.main import app
from gnomon.settings import Settings
from tests.support.shape import ROOT

REFERENCE = ROOT / "docs" / "reference"
USER_DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    *sorted((ROOT / "docs").glob("[!a]*/*.md")),
]


def commands(group: Any, words: tuple[str, ...] = ("gnomon",)) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(commands(get_command(app)))


def section(name: str) -> str:
    """Return what the reference says of a command, with what it says of all commands."""
    parts = re.split(r"(?m)^### ", (REFERENCE / "cli.md").read_text())
    own = [part for part in parts if re.match(rf"`{re.escape(name)}( |`)", part)]
    assert len(own) == 1, f"{name}: {len(own)} sections"
    return parts[0] + own[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_the_reference(name: str) -> None:
    text = section(name)
    for parameter in COMMANDS[name].params:
        if getattr(parameter, "hidden", False):
            continue
        for option in (o for o in parameter.opts if o.startswith("-")):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), f"{name} {option}"


def test_the_reference_has_no_command_and_no_option_that_is_not_there() -> None:
    text = (REFERENCE / "cli.md").read_text()
    described = re.findall(r"(?m)^### `(gnomon [a-z ]+[a-z])", text)
    assert sorted(described) == sorted(COMMANDS)
    known = {o for command in COMMANDS.values() for p in command.params for o in p.opts}
    written = set(re.findall(r"`(--[a-z-]+)`", text))
    assert written <= known | {"--help", "--version"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does_and_can_print_json(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert "--json" in {o for p in command.params for o in p.opts}
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    assert [p.name for p in shown if not p.help] == []


def test_every_exit_code_is_in_the_reference() -> None:
    rows = re.findall(r"(?m)^\| (\d+) \|", (REFERENCE / "cli.md").read_text())
    assert [int(row) for row in rows] == [code.value for code in Exit]


def test_every_error_of_the_command_line_is_in_the_reference() -> None:
    text = (REFERENCE / "cli.md").read_text()
    found = set[str]()
    for path in (ROOT / "gnomon" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "CommandError":
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.add(first.value)
    assert "server_unreachable" in found
    server = (REFERENCE / "errors.md").read_text()
    assert [code for code in sorted(found) if f"`{code}`" not in text + server] == []


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_in_the_reference_with_its_default(name: str) -> None:
    field = Settings.model_fields[name]
    rows = (REFERENCE / "settings.md").read_text().splitlines()
    (row,) = (r for r in rows if r.startswith(f"| `GNOMON_{name.upper()}` |"))
    default = field.get_default(call_default_factory=True)
    shown = "[]" if default == frozenset() else str(default)
    assert f"| `{shown}` |" in row if default is not None else "| | " in row, row


def test_the_reference_has_no_setting_that_is_not_there() -> None:
    text = (REFERENCE / "settings.md").read_text()
    assert set(re.findall(r"(?m)^\| `GNOMON_(\w+)`", text)) == {
        name.upper() for name in Settings.model_fields
    }


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=lambda path: path.name)
def test_every_link_of_a_document_leads_somewhere(path: Any) -> None:
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_place_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## The tree")[2]
    named = re.findall(r"`([a-z_]+/[\w/.]*)`", text.partition("## Postgres")[0])
    assert len(named) > 15
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_every_package_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = {p.parent for p in ROOT.glob("*/__init__.py")} - {ROOT / "tests", ROOT / "bench"}
    folders = [f for p in packages for f in (p, *p.iterdir()) if (f / "__init__.py").exists()]
    missing = [f for f in folders if f"`{f.relative_to(ROOT)}/" not in text]
    assert [str(f) for f in missing] == []


def test_every_promise_of_the_readme_names_a_test_that_is_there() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) == 8
    for place, test in named:
        assert f"def {test}(" in (ROOT / place).read_text(), f"{place}::{test}"


def test_codes_are_those_that_the_module_documents() -> None:
    assert {code.value for code in Exit} == {0, 1, 2, 3, 4, 5, 130}
    assert "cli.md" in (inspect.getdoc(failures.Exit) or "")
