import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from canonical.errors import EngineUnavailableError
from search.readers import ByGeneration

WITHIN_S = 10


class Doors:
    """Readers that are strings; one may be away, and what was closed is noted."""

    def __init__(self) -> None:
        self.is_away = False
        self.opened: list[int] = []
        self.closed: list[int] = []

    def open(self, generation: int) -> tuple[str, Callable[[], None]]:
        self.opened.append(generation)
        if self.is_away:
            raise EngineUnavailableError("away")
        return f"reader {generation}", lambda: self.closed.append(generation)


def test_the_reader_is_that_of_the_generation_asked_for() -> None:
    doors = Doors()
    readers = ByGeneration(doors.open)
    assert [readers(1), readers(1), readers(2), readers(1)] == [
        "reader 1",
        "reader 1",
        "reader 2",
        "reader 1",
    ]
    assert doors.opened == [1, 2]


def test_the_generation_before_stays_open_and_older_ones_are_closed() -> None:
    doors = Doors()
    readers = ByGeneration(doors.open)
    for generation in (1, 2, 3):
        readers(generation)
    assert doors.closed == [1]
    readers.close()
    assert sorted(doors.closed) == [1, 2, 3]


def test_an_engine_that_was_away_is_used_once_it_is_back() -> None:
    doors = Doors()
    readers = ByGeneration(doors.open, again_s=0)
    doors.is_away = True
    with pytest.raises(EngineUnavailableError):
        readers(1)
    doors.is_away = False
    assert readers(1) == "reader 1"


def test_an_engine_that_is_away_is_not_asked_by_every_search() -> None:
    doors = Doors()
    readers = ByGeneration(doors.open, again_s=3600)
    doors.is_away = True
    for _ in range(5):
        with pytest.raises(EngineUnavailableError):
            readers(1)
    assert doors.opened == [1]


def test_a_search_does_not_wait_for_the_opening_of_another_one() -> None:
    opening, go_on = threading.Event(), threading.Event()

    def slow(generation: int) -> tuple[int, Callable[[], None]]:
        opening.set()
        assert go_on.wait(WITHIN_S)
        return generation, lambda: None

    readers = ByGeneration(slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(readers, 1)
        assert opening.wait(WITHIN_S)
        with pytest.raises(EngineUnavailableError):
            readers(1)
        go_on.set()
        assert first.result(WITHIN_S) == 1
