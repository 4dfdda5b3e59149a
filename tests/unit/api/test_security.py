from datetime import UTC, datetime

import pytest

from canonical.domain.records import Trust
from canonical.errors import ForbiddenError, UnauthenticatedError
from canonical.store.api_keys import ApiKey, Right
from gnomon.api import security
from gnomon.api.security import KeyRing, bearer, check_open, is_loopback

HERE = {"host": "127.0.0.1:7377"}
READER = ApiKey(
    "k1", "t1", "reader", frozenset({Right.READ}), Trust.TOOL, datetime(2026, 3, 1, tzinfo=UTC)
)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.8.8", "::1"])
def test_loopback_is_known_without_a_resolver(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "0.0.0.0", "::", "10.0.0.1", "127.0.0.1.nip.io", "localhost.evil.example"),  # noqa: S104
        *("gnomon", "2130706433", "0177.0.0.1", "127.1", "::ffff:10.0.0.1"),
    ],
)
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:7377"},
        {"host": "localhost"},
        {"host": "[::1]:7377"},
        {"host": "127.0.0.1:7377", "origin": "http://127.0.0.1:7377"},
        {"host": "localhost:7377", "origin": "http://LOCALHOST:7377"},
        {"host": "127.0.0.1:7377", "sec-fetch-site": "same-origin"},
        {"host": "127.0.0.1:7377", "sec-fetch-site": "none"},
    ],
)
def test_this_machine_is_let_in(headers: dict[str, str]) -> None:
    check_open(headers, "127.0.0.1")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": ""},
        {"host": "evil.example:7377"},  # rebinding: a page's own name, pointed at 127.0.0.1
        {"host": "127.0.0.1.evil.example"},
        {"host": "127.0.0.1, evil.example"},
        {"host": "localhost@evil.example"},
        {"host": "[::1].evil.example"},
        {**HERE, "origin": "http://evil.example"},
        {**HERE, "origin": "null"},
        {**HERE, "origin": "http://127.0.0.1:3000"},
        {**HERE, "origin": "http://127.0.0.1:7377@evil.example"},
        {**HERE, "origin": ""},
        {**HERE, "sec-fetch-site": "cross-site"},
        {**HERE, "sec-fetch-site": "same-site"},
    ],
)
def test_another_site_is_not_let_in(headers: dict[str, str]) -> None:
    """S-14: a web page reaches a loopback port through its visitor's browser."""
    with pytest.raises(ForbiddenError):
        check_open(headers, "127.0.0.1")


@pytest.mark.parametrize("peer", [None, "10.0.0.7", "192.168.1.2", "testclient", "fe80::1"])
def test_another_machine_is_not_let_in(peer: str | None) -> None:
    """S-14"""
    with pytest.raises(ForbiddenError):
        check_open(HERE, peer)


@pytest.mark.parametrize("given", ["Bearer gn_x", "bearer  gn_x ", "BEARER gn_x"])
def test_a_bearer_token_is_read(given: str) -> None:
    assert bearer({"authorization": given}) == "gn_x"
    assert bearer({}) is None


@pytest.mark.parametrize("given", ["", "gn_x", "Basic gn_x", "Bearer", "Bearer ", "Bearer gn_ü"])
def test_another_authorization_is_refused_and_not_taken_for_none(given: str) -> None:
    """S-14: on an open server too."""
    with pytest.raises(UnauthenticatedError):
        bearer({"authorization": given})


class Store:
    def __init__(self) -> None:
        self.keys: dict[str, ApiKey] = {}
        self.looks = 0
        self.ever = False

    def find(self, secret: str) -> ApiKey | None:
        self.looks += 1
        return self.keys.get(secret)

    def ring(self) -> KeyRing:
        return KeyRing(self.find, lambda: self.ever, "default")


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("gnomon.api.security.time.monotonic", lambda: now[0])
    return now


def test_without_any_key_the_caller_is_the_default_tenant(store: Store) -> None:
    caller = store.ring().admitted(None, Right.ADMIN)
    assert caller is not None
    assert (caller.tenant, caller.name) == ("default", "local")


def test_the_first_key_closes_an_open_server_that_runs(store: Store, clock: list[float]) -> None:
    """S-14"""
    ring = store.ring()
    store.ever = True
    clock[0] += 3
    assert ring.admitted(None, Right.READ) is None
    with pytest.raises(UnauthenticatedError):
        ring.admit(None, Right.READ)
    assert not ring.is_open


def test_a_server_that_was_closed_never_opens_again(store: Store, clock: list[float]) -> None:
    """S-14: not when the last key is revoked."""
    store.ever = True
    ring = store.ring()
    store.ever = False
    clock[0] += 60
    with pytest.raises(UnauthenticatedError):
        ring.admitted(None, Right.READ)
    with pytest.raises(UnauthenticatedError):
        ring.admit(None, Right.READ)


def test_a_key_is_looked_up_once_and_again_when_that_is_too_long_ago(
    store: Store, clock: list[float]
) -> None:
    store.keys["s"] = READER
    ring = store.ring()
    assert ring.admitted("s", Right.READ) is None
    assert ring.admit("s", Right.READ).tenant == "t1"
    clock[0] += 1.9
    known = ring.admitted("s", Right.READ)
    assert known is not None
    assert (known.tenant, known.name, known.max_trust) == ("t1", "reader", Trust.TOOL)
    clock[0] += 0.2
    assert ring.admitted("s", Right.READ) is None
    assert store.looks == 1


def test_a_revoked_key_is_forgotten(store: Store, clock: list[float]) -> None:
    store.keys["s"] = READER
    ring = store.ring()
    ring.admit("s", Right.READ)
    del store.keys["s"]
    clock[0] += 2.1
    with pytest.raises(UnauthenticatedError):
        ring.admit("s", Right.READ)
    assert ring.admitted("s", Right.READ) is None


@pytest.mark.parametrize("right", [Right.WRITE, Right.ADMIN])
def test_a_right_that_a_key_lacks_is_refused_known_or_not(store: Store, right: Right) -> None:
    """S-14"""
    store.keys["s"] = READER
    ring = store.ring()
    with pytest.raises(ForbiddenError, match=right.value):
        ring.admit("s", right)
    with pytest.raises(ForbiddenError, match=right.value):
        ring.admitted("s", right)


def test_an_unknown_key_is_refused_on_an_open_server_too(store: Store) -> None:
    """S-14: a key cut by one character."""
    ring = store.ring()
    assert ring.admitted("s", Right.READ) is None
    with pytest.raises(UnauthenticatedError):
        ring.admit("s", Right.READ)


def test_the_number_of_keys_that_are_held_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "HELD_KEYS", 3)
    ring = store.ring()
    for n in range(9):
        store.keys[f"s{n}"] = READER
        ring.admit(f"s{n}", Right.READ)
    assert len(ring._held) == 3
    assert ring.admitted("s8", Right.READ) is not None
