"""The port of each process's own metrics."""

import urllib.request
from contextlib import ExitStack

import pytest

from canonical.errors import InvalidInputError
from gnomon.metrics import port
from gnomon.metrics.counters import Metrics
from gnomon.settings import Settings
from tests.support.metrics import value


def at(first: int) -> Settings:
    return Settings(_env_file=None, metrics_port=first)


def read(taken: int | None) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{taken}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_processes_of_one_setting_are_told_apart_and_a_new_one_takes_the_place_of_the_old() -> None:
    one, two = Metrics(), Metrics()
    two.hinted("lost", 2)
    with ExitStack() as others:
        first = others.enter_context(port.scraped(at(0), one.registry))
        assert first is not None
        with port.scraped(at(first), two.registry) as second:
            assert second != first
            assert value(read(first), "gnomon_hints_total", outcome="lost") == 0
            assert value(read(second), "gnomon_hints_total", outcome="lost") == 2
        with port.scraped(at(first), two.registry) as third:
            assert third == second


def test_no_port_is_opened_unless_one_is_named() -> None:
    with port.scraped(Settings(_env_file=None), Metrics().registry) as taken:
        assert taken is None


def test_that_none_is_free_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "PORTS", 1)
    registry = Metrics().registry
    with (
        port.scraped(at(0), registry) as taken,
        pytest.raises(InvalidInputError, match=r"GNOMON_METRICS_PORT: .* is in use"),
        port.scraped(at(taken or 0), registry),
    ):
        pass
