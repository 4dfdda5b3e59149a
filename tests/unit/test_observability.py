"""The dashboard and the alerts name only what a process tells, and each alert has its runbook."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.metrics import families, filled, told

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / "deploy" / "observability"
ALERTS: Final = (PLACE / "alerts.yaml").read_text()
RUNBOOKS: Final = (ROOT / "docs" / "operations" / "alerts.md").read_text()
SCRAPED: Final = frozenset({"job", "instance", "le"})  # Prometheus's own, and a histogram's
SELECTOR: Final = re.compile(r"\b((?:gnomon|process)_\w+|up)\b(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r'(\w+)(=~|!=|!~|=)"([^"]*)"')
GROUPING: Final = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")


def alert_expressions() -> Iterator[str]:
    for rule in ALERTS.split("- alert: ")[1:]:
        expression = re.search(r"expr: (?:>-)?(.*?)\n        (?:for|labels):", rule, re.DOTALL)
        assert expression is not None, rule
        yield expression[1]


def targets(panel: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = panel.get("targets", [])
    return found


def dashboard() -> dict[str, Any]:
    held: dict[str, Any] = json.loads((PLACE / "dashboard.json").read_text())
    return held


def shown() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in targets(panel):
            yield target["expr"], target["legendFormat"]


EXPRESSIONS: Final = [*alert_expressions(), *(expression for expression, _ in shown())]
# What can be asked for, each with its labels and the values that were seen of them.
SERIES: Final[dict[str, dict[str, set[str]]]] = {"up": {}}
for family in families(filled().exposition().decode()):
    for sample in family.samples:
        labels = SERIES.setdefault(sample.name, {})
        for label, seen in sample.labels.items():
            labels.setdefault(label, set()).add(seen)


def wrong(expression: str) -> list[str]:
    """List what an expression names that is not there."""
    found, known = [], set(SCRAPED)
    for name, matchers in SELECTOR.findall(expression):
        if name not in SERIES:
            found.append(name)
            continue
        known |= SERIES[name].keys()
        for label, operator, value in MATCHER.findall(matchers):
            if label not in SERIES[name].keys() | SCRAPED:
                found.append(f"{name}{{{label}}}")
            elif operator == "=" and label in SERIES[name] and value not in SERIES[name][label]:
                found.append(f'{name}{{{label}="{value}"}}')
    grouped = {one.strip() for group in GROUPING.findall(expression) for one in group.split(",")}
    return [*found, *sorted(grouped - known)]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_names_only_what_is_told(expression: str) -> None:
    assert SELECTOR.search(expression), "it names no metric"
    assert wrong(expression.replace('state="building"', 'state="live"')) == []


@pytest.mark.parametrize(
    "expression",
    [
        "gnomon_nothing > 0",
        'gnomon_hints_total{reason="lost"}',
        'gnomon_hints_total{outcome="gone"}',
        "sum by (tenant) (gnomon_hints_total)",
        "rate(gnomon_search_seconds[5m])",  # a histogram's series have an ending
    ],
)
def test_the_search_for_what_is_not_told_finds_it(expression: str) -> None:
    assert wrong(expression)


def test_the_dashboard_shows_every_metric_of_ours_that_an_operator_watches() -> None:
    text = " ".join(expression for expression, _ in shown())
    whole = {name for name in told(filled()) if name.startswith("gnomon_")}
    # Shown by their like: per generation or as a share; a pause and chores have an alert.
    beside = {
        "gnomon_shard_lag_positions",
        "gnomon_shard_lag_seconds",
        "gnomon_projection_paused",
        "gnomon_chore_failures_total",
    }
    assert {name for name in whole if name not in text} == beside


def test_every_legend_names_labels_that_its_expression_keeps() -> None:
    for expression, legend in shown():
        kept = {one.strip() for group in GROUPING.findall(expression) for one in group.split(",")}
        named = set(re.findall(r"{{(\w+)}}", legend))
        if " by (" in expression:
            assert named <= kept, (expression, legend)


def test_every_alert_names_its_runbook_and_every_runbook_has_its_alert() -> None:
    alerts = re.findall(r"- alert: (\w+)", ALERTS)
    runbooks = re.findall(r"runbook: docs/operations/alerts\.md#(\w+)", ALERTS)
    assert runbooks == [name.lower() for name in alerts]
    assert sorted(re.findall(r"^## (Gnomon\w+)$", RUNBOOKS, re.MULTILINE)) == sorted(alerts)
    assert len(re.findall(r"severity: (?:page|look)\b", ALERTS)) == len(alerts) + 1  # the comment


def test_every_alert_is_tried_where_it_must_fire_and_where_it_must_not() -> None:
    tried = (PLACE / "alerts.test.yaml").read_text()
    for name in re.findall(r"- alert: (\w+)", ALERTS):
        assert f"name: {name} fires" in tried
        assert f"name: {name} is quiet" in tried
