"""Which engines each contract suite ran on, said at the end of a run."""

from collections import defaultdict

import pytest

_SEEN: defaultdict[str, set[str]] = defaultdict(set)


def saw(suite: str, engine: str) -> None:
    """Remember that a suite runs on an engine."""
    _SEEN[suite].add(engine)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for suite, engines in sorted(_SEEN.items()):
        terminalreporter.write_line(f"{suite}: ran on {', '.join(sorted(engines))}")
