"""One engine is dead while the others work: on real engines, with every loop running."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from canonical.errors import EngineUnavailableError, ModelUnavailableError, TransientError
from canonical.store.database import Database, Role
from projectors.protocol import Applied, Page, Projector
from tests.support.projecting import PROJECTIONS, Opened, Shadow
from workers.runner import Pace, Runner

EVENTS = 2_000
BACKOFF_S = 0.05
FAILURES = 6
WITHIN_S = 60
FAULTS = {
    "answers 503": EngineUnavailableError("the engine answered 503"),
    "refuses connections": EngineUnavailableError("connection refused"),
    "its model is away": ModelUnavailableError("no answer"),
}


@dataclass
class Mortal:
    """A projector whose engine is away while `fault` is set; notes when it was tried.

    At each failure somebody commits and hints: that must not shorten the pause which follows.
    """

    inner: Projector
    hint: Callable[[], None] = lambda: None
    fault: TransientError | None = None
    tried: list[float] = field(default_factory=list)

    def apply(self, page: Page) -> Applied:
        if self.fault is not None:
            self.tried.append(time.monotonic())
            self.hint()
            raise self.fault
        return self.inner.apply(page)


class Watched(Runner):
    """Notes when each pass begins."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.began: list[float] = []

    def run_once(self) -> int:  # type: ignore[explicit-override]
        self.began.append(time.monotonic())
        return super().run_once()


@dataclass
class Part:
    """A projection with its loop."""

    shadow: Shadow
    opened: Opened
    mortal: Mortal
    runner: Watched

    def work_off(self) -> None:
        self.runner.wait_until(lambda: self.shadow.lag() == 0, WITHIN_S)
        self.shadow.check(self.opened)

    def held_back(self) -> list[tuple[object, ...]]:
        return self.shadow.execute(
            "SELECT DISTINCT error_code, halted FROM watermark"
            " WHERE projection = :name AND held_since IS NOT NULL",
            name=self.shadow.name,
        )


@pytest.fixture
def parts(
    open_database: Callable[[Role], Database], database_url: str, tmp_path: Path
) -> Iterator[dict[str, Part]]:
    with ExitStack() as stack:
        made = {}
        for name in PROJECTIONS:
            shadow = Shadow(open_database, name, tmp_path, database_url)
            opened = stack.enter_context(shadow.opened())
            mortal = Mortal(opened.projector)
            pace = Pace(page_events=500, idle_s=0.02, backoff_s=BACKOFF_S)
            runner = Watched(name, shadow.feed(), mortal, pace=pace)
            mortal.hint = runner.wake
            made[name] = Part(shadow, opened, mortal, runner)
        for part in made.values():
            stack.callback(part.runner.stop)
        yield made


@pytest.mark.parametrize(
    ("dead", "fault"),
    [
        ("keyword", "answers 503"),
        ("vector", "refuses connections"),
        ("entity", "its model is away"),
    ],
)
def test_a_dead_engine_holds_its_own_shards_back_and_nothing_else(
    parts: dict[str, Part], dead: str, fault: str
) -> None:
    """O-12, O-14: nothing parked, ever longer pauses, the others go on; then lag 0 by itself."""
    part = parts[dead]
    part.mortal.fault = FAULTS[fault]
    part.shadow.fill(EVENTS)
    for one in parts.values():
        one.runner.start()
    for name, one in parts.items():
        if name != dead:
            one.work_off()
    part.runner.wait_until(lambda: part.runner.failures >= FAILURES, WITHIN_S)
    assert part.shadow.lag() == EVENTS
    assert part.shadow.execute("SELECT 1 FROM parked") == []
    assert part.held_back() == [(FAULTS[fault].code, False)]
    for n, failed in enumerate(part.mortal.tried[: FAILURES - 1]):
        again = next(at for at in part.runner.began if at > failed)
        assert again - failed >= BACKOFF_S * 2**n / 2
    part.mortal.fault = None
    part.work_off()
    assert part.held_back() == []
    assert part.shadow.execute("SELECT 1 FROM parked") == []
