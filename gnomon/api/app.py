"""Puts the HTTP API together: routes, the gate before them, problems for all that goes wrong."""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from canonical.errors import GnomonError
from canonical.store import projections
from gnomon.api import gate, health, openapi, problems
from gnomon.api.entrance import Entrance
from gnomon.api.gate import Gate
from gnomon.api.refusals import MalformedBodyError, MethodNotAllowedError, NoSuchRouteError
from gnomon.api.routes import ROUTES
from gnomon.api.security import OpenDoor
from gnomon.api.services import Services

NOT_FOUND: Final = 404
NOT_ALLOWED: Final = 405


def create_app(services: Services, *, version: str) -> FastAPI:
    """Make the application over services that are open.

    Guarantee: every answer that isn't a success is a problem document; what the server answers
               without keys is only for this machine.
    Raises:    StoreUnavailableError: whether there are keys is read once at the start.
    """
    door = Gate(services)
    app = FastAPI(
        title="Gnomon",
        version=version,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(door),
    )
    app.add_exception_handler(HTTPException, _unrouted)
    app.add_exception_handler(Exception, _fault)
    app.openapi = functools.partial(openapi.document, version)  # type: ignore[method-assign]
    app.add_middleware(OpenDoor, keys=door.keys)
    inside = app.build_middleware_stack
    # Around all of it, also around Starlette's own answer to a fault.
    app.build_middleware_stack = lambda: Entrance(inside())  # type: ignore[method-assign]
    app.router.route_class = gate.route_class(door, {r.endpoint: r.rule for r in ROUTES})
    for route in ROUTES:
        app.router.add_api_route(
            route.pattern, route.endpoint, methods=[route.method], response_model=None
        )
    app.router.add_route("/healthz", health.alive)
    services.metrics.watch(functools.partial(projections.status, services.projector))
    return app


def _lifespan(door: Gate) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        door.close()

    return lifespan


def _unrouted(request: Request, exc: Exception) -> Response:
    """Answer what the router itself refuses."""
    assert isinstance(exc, HTTPException)
    path = request.url.path[:80]
    refusal: GnomonError
    if exc.status_code == NOT_FOUND:
        refusal = NoSuchRouteError(f"there is nothing at {path!r}")
    elif exc.status_code == NOT_ALLOWED:
        refusal = MethodNotAllowedError(f"{request.method[:20]!r} is not possible at {path!r}")
        return problems.response(refusal, {"Allow": _methods_at(request)})
    else:
        refusal = MalformedBodyError(str(exc.detail), "request")
    return problems.response(refusal, exc.headers)


def _fault(_request: Request, _exc: Exception) -> Response:
    """Answer a fault of our own; whoever runs the server finds it in the log."""
    return problems.response(problems.INTERNAL)


def _methods_at(request: Request) -> str:
    """List the methods of all routes that are at a request's path."""
    at = [r for r in request.app.routes if r.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in at for method in route.methods}))
