"""The way of every request: who asks, what came, a thread for it, and errors as problems."""

import functools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request, Response
from fastapi.routing import APIRoute

from canonical.domain.commands import Caller
from canonical.errors import GnomonError
from canonical.mutations.writer import Writer
from canonical.store import api_keys
from canonical.store.api_keys import Right
from gnomon.api import lanes, problems, uploads
from gnomon.api.lanes import Kind
from gnomon.api.security import KeyRing, bearer
from gnomon.api.services import Services
from gnomon.api.uploads import Body, Upload


@dataclass(frozen=True, slots=True)
class Rule:
    """What a route asks of a request: a right, unless anyone may ask; a body; threads."""

    right: Right | None
    kind: Kind
    body: Body | None = None


class Call(Request):
    """A request that was let in."""

    services: Services
    caller: Caller
    body_bytes: bytes  # the whole body of a route that takes JSON
    upload: Upload  # the body of a route that takes lines

    @property
    def tenant(self) -> str:
        """Return the tenant that everything is read and written for."""
        return self.caller.tenant

    @property
    def query_string(self) -> bytes:
        """Return the query string as it was sent."""
        raw: bytes = self.scope["query_string"]
        return raw

    def writer(self) -> Writer:
        """Return the caller at the canonical store."""
        return Writer(self.services.database, self.caller, self.services.clock)


Endpoint = Callable[[Call], Response]
Handler = Callable[[Request], Awaitable[Response]]


class Gate:
    """Lets requests in, one way for all routes."""

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self._services = services
        self.keys = KeyRing(
            lambda secret: api_keys.find(services.database, secret),
            services.keys_exist,
            settings.tenant,
        )
        self._lanes = lanes.lanes(settings)
        self._nobody = Caller(settings.tenant)

    def close(self) -> None:
        """Take no more requests."""
        for lane in self._lanes.values():
            lane.close()

    def handler(self, route: str, endpoint: Endpoint, rule: Rule) -> Handler:
        """Return what answers the requests of one route."""
        times = self._services.metrics.requests

        async def handle(request: Request) -> Response:
            began = time.perf_counter()
            try:
                response = await self._answer(request, endpoint, rule)
            except GnomonError as exc:
                response = problems.response(exc)
            times.labels(route, response.status_code).observe(time.perf_counter() - began)
            return response

        return handle

    async def _answer(self, request: Request, endpoint: Endpoint, rule: Rule) -> Response:
        call = Call(request.scope, request.receive)
        call.services = self._services
        call.caller = await self._admit(request, rule)
        await self._receive(call, rule.body)
        return await self._lanes[rule.kind].run(functools.partial(endpoint, call))

    async def _admit(self, request: Request, rule: Rule) -> Caller:
        if rule.right is None:
            return self._nobody
        secret = bearer(request.headers)
        known = self.keys.admitted(secret, rule.right)
        if known is not None:
            return known
        ask = functools.partial(self.keys.admit, secret, rule.right)
        return await self._lanes[Kind.READ].run(ask)

    async def _receive(self, call: Call, body: Body | None) -> None:
        settings = self._services.settings
        match body:
            case None:
                return
            case Body.JSON:
                uploads.check_media_type(call.headers, body)
                call.body_bytes = await uploads.read_whole(
                    call.headers, call.receive, settings.body_bytes, settings.upload_idle
                )
            case Body.LINES:
                uploads.check_media_type(call.headers, body)
                call.upload = Upload(call.receive, settings.upload_idle)


def route_class(gate: Gate, rules: dict[Callable[..., object], Rule]) -> type[APIRoute]:
    """Return the class of routes that go through `gate`; it passes FastAPI's own injection by."""

    class GatedRoute(APIRoute):
        # typing has `override` from Python 3.12 on.
        def get_route_handler(self) -> Handler:  # type: ignore[override,explicit-override]
            return gate.handler(self.path_format, self.endpoint, rules[self.endpoint])

    return GatedRoute
