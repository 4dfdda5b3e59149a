"""What a vector index holds after the process that wrote to it was killed."""

import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from canonical.domain.records import Status, guard
from canonical.errors import (
    EngineUnavailableError,
)
from tests.support import vector_child
from tests.support.vector_index import (
    IDS,
    IMPLEMENTATIONS,
    Corner,
    EdgeIndex,
    OpenIndex,
    index_on,
)


class Child:
    """The process of tests/support/vector_child.py, and what it says is durable."""

    def __init__(self, index: OpenIndex, first_page: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", vector_child.__name__, str(first_page), *index.address],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )

    def pages(self, count: int) -> Iterator[int]:
        assert self.process.stdout is not None
        for line in itertools.islice(self.process.stdout, count):
            yield int(line)

    def kill(self) -> list[int]:
        """Kill it, wherever it is, and return what it still had said."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.stdout is not None
        with self.process.stdout as rest:
            said = [int(line) for line in rest if line.endswith(b"\n")]
        self.process.wait(10)
        return said


def expected_after(pages: int) -> dict[UUID, tuple[int, Status]]:
    expected: dict[UUID, tuple[int, Status]] = {}
    for number in range(pages):
        for made in vector_child.page(number):
            expected[made.id] = (guard(1, made.rev), made.status)
    return expected


def settled(index: OpenIndex) -> dict[UUID, tuple[int, Status | None]]:
    """Return what it holds once a server has done what the killed process had still sent."""
    before: dict[UUID, tuple[int, Status | None]] | None = None
    while True:
        now = {memory: (held, status) for memory, held, status in index.scan()}
        if now == before:
            return now
        before = now


@pytest.fixture(params=IMPLEMENTATIONS, ids=IDS)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenIndex]:
    """An index of this test alone, closed."""
    with index_on(request, tmp_path) as made:
        made.close()
        yield made


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_loses_nothing_that_was_applied(index: OpenIndex, seed: int) -> None:
    """P3: SIGKILL at any moment, again and again, in updates and in flushes."""
    rng, done = random.Random(seed), 0
    for _ in range(2):
        child = Child(index, done)
        wanted = rng.randint(1, 25)
        said = [*child.pages(wanted)]
        assert said == list(range(done, done + wanted)), "the child must have come so far"
        done = [done - 1, *said, *child.kill()][-1] + 1
        index.open()
        held = settled(index)
        after = expected_after(done + 1)  # of the page at hand any part may be there
        for memory, expected in expected_after(done).items():
            assert held[memory] in (expected, after[memory])
        assert index.marks()[3].pos >= done
        assert index.marks()[3].pos <= done + 1
        live = {mid for mid, (_, status) in held.items() if status is Status.ACTIVE}
        corner = Corner(index, "t")
        assert set(corner.found("memory", limit=10_000)) == live
        index.close()


def test_a_second_process_is_refused_with_a_clear_word(tmp_path: Path) -> None:
    """W-19: one process at a time; the first goes on undisturbed."""
    index = EdgeIndex(tmp_path / "index")
    index.create()
    index.close()
    child = Child(index, 0)
    try:
        assert list(child.pages(1)) == [0]
        with pytest.raises(EngineUnavailableError, match="another process"):
            index.open()
        assert list(child.pages(2)) == [1, 2]
    finally:
        child.kill()
    index.open()  # the kill freed it
    index.close()
