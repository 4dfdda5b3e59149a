"""Who may ask: keys and their rights, and what an open server on loopback lets in."""

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from canonical.domain.commands import Caller
from canonical.domain.records import Trust
from canonical.errors import ForbiddenError, UnauthenticatedError
from canonical.store.api_keys import ApiKey, Right
from gnomon.api import problems

FRESH_S: Final = 2.0  # how long a key that was found is believed: a revoked one works so long
HELD_KEYS: Final = 1_024
OPEN_NAME: Final = "local"  # in the history of what was written without a key
LOCAL_SITES: Final = frozenset({"same-origin", "none"})

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")

Find = Callable[[str], ApiKey | None]


def check_open(headers: Mapping[str, str], peer: str | None) -> None:
    """Let in what comes from this machine and not from a web page of somebody else.

    A page reaches a loopback port through the visitor's browser: under a name of its own that it
    points at 127.0.0.1 (the Host header tells), or across sites (Origin and Sec-Fetch-Site tell).
    Raises: ForbiddenError.
    """
    if peer is None or not is_loopback(peer):
        raise ForbiddenError("without keys the server answers on loopback only")
    host = headers.get("host", "")
    if not is_loopback(_name(host)):
        raise ForbiddenError(f"Host {host[:80]!r} is no name of this machine's loopback")
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise ForbiddenError(f"Origin {origin[:80]!r} is another site")
    if headers.get("sec-fetch-site", "none") not in LOCAL_SITES:
        raise ForbiddenError("the request comes from another site's page")


def _name(host: str) -> str:
    """Return a Host header's name without its port; of a malformed one, nothing."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1].strip("[]")


def is_loopback(host: str) -> bool:
    """Tell whether a name or an address is this machine's own loopback, without asking a resolver.

    Any other name is not: names resolve to what their owner wants.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the key that a request presents, if it presents one.

    Raises: UnauthenticatedError, when the header is there and is no bearer token.
    """
    given = headers.get("authorization")
    if given is None:
        return None
    scheme, _, secret = given.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret or not secret.isascii():
        raise UnauthenticatedError("Authorization is not `Bearer KEY`")
    return secret


class KeyRing:
    """Keys as this process knows them, read from the store when that is too long ago.

    Guarantee: a request without a valid key is let in only as long as no key was ever made, as far
               as was known some 2 s ago; once keys are known, they are for the life of the process.
    """

    def __init__(self, find: Find, keys_exist: Callable[[], bool], tenant: str) -> None:
        """Read whether there are keys. `tenant`: of requests without one."""
        self._find, self._keys_exist = find, keys_exist
        self._open_caller = Caller(tenant, OPEN_NAME, Trust.USER)
        self._lock = threading.Lock()
        self._held: OrderedDict[bytes, tuple[float, ApiKey]] = OrderedDict()
        self._locked, self._looked = keys_exist(), time.monotonic()

    @property
    def is_open(self) -> bool:
        """Tell whether requests without a key are let in."""
        return not self._locked

    def admitted(self, secret: str | None, right: Right) -> Caller | None:
        """Return who asks, or None when the store must be asked first: see `admit`.

        Raises: UnauthenticatedError; ForbiddenError.
        """
        if secret is None:
            if self._locked:
                raise UnauthenticatedError("there is no key in the request")
            fresh = time.monotonic() - self._looked < FRESH_S
            return self._open_caller if fresh else None
        with self._lock:
            found = self._held.get(_digest(secret))
        if found is None or time.monotonic() - found[0] >= FRESH_S:
            return None
        return _caller(found[1], right)

    def admit(self, secret: str | None, right: Right) -> Caller:
        """Ask the store who asks.

        Raises: UnauthenticatedError; ForbiddenError; StoreUnavailableError.
        """
        if secret is None:
            return self._admit_without()
        at = time.monotonic()
        key = self._find(secret)
        with self._lock:
            self._held.pop(_digest(secret), None)
            if key is not None:
                self._held[_digest(secret)] = (at, key)
            while len(self._held) > HELD_KEYS:
                self._held.popitem(last=False)
        if key is None:
            raise UnauthenticatedError("the key is unknown or revoked")
        return _caller(key, right)

    def _admit_without(self) -> Caller:
        at = time.monotonic()
        self._locked = self._locked or self._keys_exist()
        self._looked = at
        if self._locked:
            raise UnauthenticatedError("there is no key in the request")
        return self._open_caller


def _digest(secret: str) -> bytes:
    return hashlib.blake2b(secret.encode(), digest_size=32).digest()


def _caller(key: ApiKey, right: Right) -> Caller:
    if not key.may(right):
        raise ForbiddenError(f"key {key.name!r} has no right to {right.value}")
    return Caller(key.tenant, key.name, key.max_trust)


class OpenDoor:
    """Middleware: while the server is open, refuse what isn't from this machine, on every path."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on."""
        if scope["type"] == "http" and self._keys.is_open:
            peer = scope["client"][0] if scope.get("client") else None
            try:
                check_open(_decoded(scope), peer)
            except ForbiddenError as exc:
                await problems.response(exc)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _decoded(scope: Scope) -> dict[str, str]:
    """Return the headers; of one that stands twice, all values, so that none is overlooked."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
