"""How a benchmark's figures are shown and kept: ours, the floor, their ratio, what was aimed at."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One line. `ratio`: the median of ours to floor, run by run; `aim`: the bound on it."""

    name: str
    unit: str
    ours: float
    floor: float | None
    ratio: float | None
    aim: float | None
    met: bool | None


def row(
    name: str,
    unit: str,
    ours: Sequence[float],
    floor: Sequence[float],
    aim: float | None = None,
    *,
    lower_is_better: bool = False,
) -> Row:
    """Compare runs pair by pair."""
    ratio = statistics.median(a / b for a, b in zip(ours, floor, strict=True))
    met = None if aim is None else ratio <= aim if lower_is_better else ratio >= aim
    return Row(name, unit, statistics.median(ours), statistics.median(floor), ratio, aim, met)


def figure(name: str, unit: str, value: float, aim: float | None = None) -> Row:
    """Show a figure without a floor; `aim` is an upper bound on it."""
    return Row(name, unit, value, None, None, aim, None if aim is None else value <= aim)


def show(name: str, rows: Sequence[Row]) -> None:
    """Print rows and write them as JSON."""
    print(f"\n{name}\n{'':2}{'what':58} {'ours':>12} {'floor':>12} {'ratio':>7} {'aim':>7}")
    for one in rows:
        floor = "" if one.floor is None else f"{one.floor:12,.2f}"
        ratio = "" if one.ratio is None else f"{one.ratio:7.2f}"
        aim = "" if one.aim is None else f"{one.aim:7.2f}"
        mark = {True: "", False: "  not met", None: ""}[one.met]
        print(
            f"  {one.name:50} {one.unit:>7} {one.ours:12,.2f} {floor:>12} {ratio:>7} {aim:>7}{mark}"
        )
    RESULTS.mkdir(exist_ok=True)
    content = json.dumps([asdict(one) for one in rows], indent=2)
    (RESULTS / f"{name}.json").write_text(content + "\n", encoding="utf-8")
