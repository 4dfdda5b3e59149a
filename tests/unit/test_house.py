"""The house stands as it is drawn: packages, lock, sizes, and nothing of a machine in it."""

import ast
import importlib
import importlib.util
import re
import re._parser as sre_parse  # type: ignore[import-not-found]
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import shape
from tests.support.shape import CAPS, PACKAGES, PROJECT, ROOT, Cap, Sized

LOCKS = ("requirements.txt", "requirements-dev.txt")
BESIDE = {"tests", "bench"}  # may be packages and aren't installed
NOT_OURS = (
    r"py(pi|thonhosted)\.(org|io)|npmjs\.(org|com)|crates\.io|proxy\.golang|repo1?\.maven",
    r"--(extra-)?index-url|--find-links|--trusted-host",
    r"(^|[\s\"'=(`:])/(work|root|Users|opt|mnt)/\w",
    r"/home/\w+/",
)
RECORDS = ROOT / "docs" / "adr"
CITED = re.compile(r"\badr/(\d{4}(?:-[\w-]+)?)")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)( ; [^\\]+)? \\$")


def tracked() -> list[Path]:
    said = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in said.stdout.split("\0") if name and (ROOT / name).is_file()]


def pins(lock: str) -> dict[str, list[str]]:
    """Name → locked versions (several, where one holds for some Pythons only)."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / lock).read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            match = PIN.match(line)
            assert match is not None, f"{lock}: not a pin: {line}"
            found.setdefault(canonicalize_name(match[1]), []).append(match[2])
    return found


def possessive(parsed: object) -> bool:
    """Tell whether a parsed pattern holds a possessive quantifier or an atomic group."""
    if isinstance(parsed, tuple | list | sre_parse.SubPattern):
        return any(possessive(part) for part in parsed)
    return str(parsed) in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP")


def test_no_pattern_is_of_a_kind_that_an_older_python_gets_wrong() -> None:
    """Before 3.11.5 a possessive quantifier over a group cuts what it has matched."""
    assert possessive(sre_parse.parse("(?:ab*+)*")), "the test itself"
    sources = [path.relative_to(ROOT) for path in tracked() if path.suffix == ".py"]
    names = [
        ".".join(path.with_suffix("").parts)
        for path in sources
        if path.parts[0] in PACKAGES and "re.compile" in (ROOT / path).read_text()
    ]
    patterns = {
        f"{name}.{attribute}": value.pattern
        for name in names
        for attribute, value in vars(importlib.import_module(name)).items()
        if isinstance(value, re.Pattern)
    }
    assert "projectors.keyword.analysis._TOKEN" in patterns
    assert [at for at, said in patterns.items() if possessive(sre_parse.parse(said))] == []


def foreign(text: str) -> list[str]:
    return [m[0] for pattern in NOT_OURS for m in re.finditer(pattern, text, re.MULTILINE)]


def test_no_tracked_file_names_a_registry_or_a_place_on_some_machine() -> None:
    found = {}
    for path in tracked():
        if path == Path(__file__).resolve():
            continue
        hits = foreign(path.read_bytes().decode(errors="replace"))
        if hits:
            found[str(path.relative_to(ROOT))] = hits[:3]
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "see https://pypi." + "org/simple",
        "--index-url=x",
        'open("/work/' + 'main/x")',
        "cd /home/" + "me/gnomon",
    ],
)
def test_the_search_for_foreign_places_finds_them(text: str) -> None:
    assert foreign(text)


def test_there_is_one_lock_and_it_is_ours() -> None:
    assert [p.name for p in tracked() if p.name in ("uv.lock", "poetry.lock", "Pipfile.lock")] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_place_to_get_it_from(lock: str) -> None:
    text = (ROOT / lock).read_text()
    blocks = re.split(r"\n(?=\S)", text)
    assert all("--hash=sha256:" in b for b in blocks if not b.startswith("#"))
    assert "://" not in text


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_holds_what_pyproject_asks_for(lock: str) -> None:
    wanted = [*PROJECT["project"]["dependencies"]]
    if lock == "requirements-dev.txt":
        wanted += PROJECT["project"]["optional-dependencies"]["dev"]
    locked = pins(lock)
    for requirement in map(Requirement, wanted):
        versions = locked.get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement.name} is not locked: make lock"
        assert all(v in requirement.specifier for v in versions), requirement


def test_both_locks_agree() -> None:
    dev = pins("requirements-dev.txt")
    assert {name: dev.get(name) for name in pins("requirements.txt")} == pins("requirements.txt")


def records() -> dict[str, Path]:
    """Number of a decision record → its file."""
    return {path.name[:4]: path for path in RECORDS.glob("[0-9]*.md")}


def cited(text: str) -> set[str]:
    """Return the decision records that a text names, by number or as a whole file."""
    return {m[1] for m in CITED.finditer(text)}


def unknown(names: set[str]) -> list[str]:
    """Return those that are neither a record's number nor its file's name."""
    held = records()
    return sorted(n for n in names if n[:4] not in held or n not in (n[:4], held[n[:4]].stem))


def test_every_decision_that_is_cited_has_its_record() -> None:
    found = {}
    for path in tracked():
        text = path.read_bytes().decode(errors="replace")
        names = cited(text)
        if path.parent == RECORDS:
            names |= set(re.findall(r"\]\((\d{4}[\w-]*)\.md", text))
        if missing := unknown(names):
            found[str(path.relative_to(ROOT))] = missing
    assert found == {}


def test_the_search_for_citations_finds_them() -> None:
    place = "docs/" + "adr/"
    text = f"Source: {place}0001-embedded-postgres.md, and {place}0002; {place}0098-gone.md."
    assert cited(text) == {"0001-embedded-postgres", "0002", "0098-gone"}
    assert unknown({"0001-embedded", "0001-embedded-postgres", "0002", "0098-gone", "0099"}) == [
        "0001-embedded",
        "0098-gone",
        "0099",
    ]


def test_the_table_of_decisions_lists_every_record_with_its_title_and_status() -> None:
    rows = [r for r in (RECORDS / "README.md").read_text().splitlines() if r.startswith("| [")]
    wanted = []
    for path in sorted(records().values()):
        title, _, status = path.read_text().splitlines()[:3]
        name, state = title.removeprefix("# "), status.removeprefix("Status: ")
        wanted.append(f"| [{name}]({path.name}) | {state} |")
    assert rows == wanted
    assert len(wanted) == len(list(RECORDS.glob("[0-9]*.md"))), "a number is taken twice"


def test_every_dependency_has_its_row_in_the_decision_about_them() -> None:
    text = (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text()
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    rows = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert {Requirement(w).name for w in wanted} == rows


def test_the_packages_are_those_that_import_linter_and_the_wheel_know() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - BESIDE
    assert folders == set(PACKAGES)
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_of_that_name_is_ours(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin == str(ROOT / package / "__init__.py")


def test_every_folder_with_code_is_a_package() -> None:
    folders = {p.parent for package in PACKAGES for p in (ROOT / package).rglob("*.py")}
    assert [str(f) for f in folders if not (f / "__init__.py").exists()] in ([], VERSIONS)


VERSIONS = [str(ROOT / "canonical" / "migrations" / "versions")]  # Alembic reads it as a folder


@pytest.mark.parametrize("package", PACKAGES)
def test_an_init_holds_a_docstring_and_nothing_else(package: str) -> None:
    for path in (ROOT / package).rglob("__init__.py"):
        module = ast.parse(path.read_text())
        assert ast.get_docstring(module), path
        assert len(module.body) == 1, path


@pytest.mark.parametrize("kind", CAPS)
def test_nothing_outgrows_its_cap(kind: str) -> None:
    assert shape.over(shape.sizes()[kind], CAPS[kind]) == []


SOURCE = '''
class A:
    """A."""
    @decorated
    def f(
        self,
    ):
        """A.

        B.
        """
        return 1
'''


def test_lines_are_counted_without_docstrings() -> None:
    found = dict(shape._definitions(ast.parse(SOURCE), "p"))
    assert found == {"class": Sized(6, "p:2 A"), "function body": Sized(4, "p:5 f")}


def test_each_cap_is_held_by_itself() -> None:
    cap = Cap(median=2, p95=5, most=9)
    small = [Sized(1, "s")] * 40
    assert shape.over(small, cap) == []
    assert shape.over([*small, Sized(10, "big")], cap) == ["big: 10 lines, at most 9"]
    assert shape.over([Sized(3, "m")] * 9, cap) == ["median 3, at most 2"]
    assert shape.over([*small, *[Sized(6, "l")] * 5], cap) == ["95th percentile 6, at most 5"]
