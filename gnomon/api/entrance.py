"""What surrounds every request: its id, its span in the caller's trace, and its line in the log."""

import logging
import re
import time
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from canonical import tracing
from canonical.domain.ids import new_id

ID_HEADER: Final = "X-Request-Id"
SANE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
PLAIN: Final = frozenset({"/healthz", "/openapi.json"})  # Starlette's own routes: no template
NOWHERE: Final = "-"  # instead of a route: the path itself may hold anything
FAULT: Final = 500
METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"})

log = logging.getLogger("gnomon.access")


class Entrance:
    """The outermost middleware.

    Guarantee: every answer names the request's id in X-Request-Id: the caller's own, if it is a
               sane one. What is said of a request, here and in its span, holds no path, no query
               and nothing of its body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through."""
        if scope["type"] == "http":
            await self._through(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _through(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status, headers = time.perf_counter(), FAULT, Headers(scope=scope)
        request_id = _id_of(headers)
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        tracing.begin(request_id)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[ID_HEADER] = request_id
            await send(message)

        with tracing.request(method, headers) as span:
            try:
                await self._app(scope, receive, answer)
            finally:
                route = route_of(scope)
                tracing.answered(span, method, route, status)
                _log(method, route, status, time.perf_counter() - began)


def _id_of(headers: Headers) -> str:
    given = headers.get(ID_HEADER, "")
    return given if SANE.fullmatch(given) else new_id().hex


def route_of(scope: Scope) -> str:
    """Return the template of the route that a request took; `-`: none."""
    if (template := getattr(scope.get("route"), "path_format", None)) is not None:
        return str(template)
    return scope["path"] if scope["path"] in PLAIN else NOWHERE


def _log(method: str, route: str, status: int, seconds: float) -> None:
    if log.isEnabledFor(logging.INFO):
        said = {"method": method, "route": route, "status": status, "seconds": round(seconds, 6)}
        log.info("%s %s %d in %.4f s", method, route, status, seconds, extra=said)
