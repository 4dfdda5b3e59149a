"""How large files, classes and functions are, beside the caps that the house sets."""

import ast
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["importlinter"]["root_packages"]


@dataclass(frozen=True)
class Cap:
    """The most lines that a kind of thing may have: in the middle, at the 95th percentile, ever."""

    median: float
    p95: float
    most: int


CAPS = {
    "function body": Cap(8, 30, 60),
    "file": Cap(120, 400, 600),
    "class": Cap(200, 200, 200),
}


@dataclass(frozen=True)
class Sized:
    """Something with a number of lines."""

    lines: int
    place: str


def sizes(packages: Sequence[str] = PACKAGES) -> dict[str, list[Sized]]:
    """Return every file, class and function of the packages, by kind.

    Classes and functions count from their first word to their end without docstrings. A package's
    `__init__` holds a docstring only and isn't counted.
    """
    found: dict[str, list[Sized]] = {kind: [] for kind in CAPS}
    for path in sorted(p for package in packages for p in (ROOT / package).rglob("*.py")):
        if path.name == "__init__.py":
            continue
        text, place = path.read_text(), str(path.relative_to(ROOT))
        found["file"].append(Sized(len(text.splitlines()), place))
        for kind, sized in _definitions(ast.parse(text), place):
            found[kind].append(sized)
    return found


def _definitions(module: ast.Module, place: str) -> Iterator[tuple[str, Sized]]:
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield "class", Sized(_code_lines(node), f"{place}:{node.lineno} {node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "function body", Sized(_code_lines(node), f"{place}:{node.lineno} {node.name}")


def _code_lines(definition: ast.stmt) -> int:
    said = [
        node.body[0]
        for node in ast.walk(definition)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    ]
    return _lines(definition) - sum(map(_lines, said))


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def distribution(found: Sequence[Sized]) -> Cap:
    """Return the median, the 95th percentile and the largest."""
    lines = [sized.lines for sized in found]
    p95 = quantiles(lines, n=20, method="inclusive")[-1] if len(lines) > 1 else max(lines)
    return Cap(median(lines), p95, max(lines))


def over(found: Sequence[Sized], cap: Cap) -> list[str]:
    """Say what is larger than the cap allows; empty if all is well."""
    if not found:
        return []
    said = [f"{s.place}: {s.lines} lines, at most {cap.most}" for s in found if s.lines > cap.most]
    seen = distribution(found)
    if seen.median > cap.median:
        said.append(f"median {seen.median:g}, at most {cap.median:g}")
    if seen.p95 > cap.p95:
        said.append(f"95th percentile {seen.p95:g}, at most {cap.p95:g}")
    return said


def main() -> int:
    """Print the distribution of each kind and its largest; fail when a cap is broken."""
    broken = False
    for kind, found in sizes().items():
        if not found:
            continue
        seen, cap = distribution(found), CAPS[kind]
        sys.stdout.write(
            f"{kind:14} {len(found):5}   median {seen.median:g} (cap {cap.median:g})   "
            f"p95 {seen.p95:.0f} ({cap.p95:g})   most {seen.most} ({cap.most})\n"
        )
        for sized in sorted(found, key=lambda sized: -sized.lines)[:5]:
            sys.stdout.write(f"    {sized.lines:5}  {sized.place}\n")
        for line in over(found, cap):
            broken = True
            sys.stdout.write(f"    over the cap: {line}\n")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
