"""Chores that fail: in whichever way, the thread lives, and somebody learns of it."""

import logging
import threading

import pytest

from canonical.errors import StoreUnavailableError
from workers.maintenance import Maintenance

WAIT_S = 20


@pytest.mark.parametrize("error", [ValueError, StoreUnavailableError])
def test_a_chore_that_fails_is_tried_again_soon_and_holds_no_other(
    caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """The log and a count say so, without the message: it may hold a tenant's text."""
    tries = []
    third, other = threading.Event(), threading.Event()

    def fails_twice() -> bool:
        tries.append(1)
        if len(tries) <= 2:
            raise error("a secret fact")
        third.set()
        return False

    def goes_well() -> bool:
        if len(tries) == 1:
            other.set()
        return False

    chores = {"purge": fails_twice, "other": goes_well}
    maintenance = Maintenance(chores, every_s=3600, again_s=0.001)
    with caplog.at_level(logging.ERROR):
        maintenance.start()
        try:
            assert third.wait(WAIT_S)
            assert other.is_set()
        finally:
            maintenance.stop()
    assert maintenance.failures == {"purge": 2, "other": 0}
    assert len(caplog.records) == 2
    assert f"purge failed, tried again in 0.001 s: {error.__name__} at test_main" in caplog.text
    assert "secret" not in caplog.text


def test_a_chore_goes_on_while_there_is_more_to_do() -> None:
    portions = iter([True, True, False])
    assert Maintenance({"purge": lambda: next(portions)}).run_once()
    assert list(portions) == []


def test_a_stop_waits_for_one_portion_only() -> None:
    begun = threading.Event()

    def never_done() -> bool:
        begun.set()
        return True

    maintenance = Maintenance({"purge": never_done})
    maintenance.start()
    assert begun.wait(WAIT_S)
    maintenance.stop()
    assert maintenance.failures == {"purge": 0}
