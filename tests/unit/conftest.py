"""Unit tests reach no network and no server."""

import socket
from typing import NoReturn

import pytest


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        pytest.fail("a unit test opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
