"""A whole server: the backend behind its HTTP application."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import FastAPI

from canonical.domain.clock import SystemClock
from canonical.errors import ForbiddenError
from canonical.store import api_keys
from gnomon import logs, traces, wiring
from gnomon.api.app import create_app
from gnomon.api.security import is_loopback
from gnomon.api.services import Ailment, ApiSettings, Services
from gnomon.metrics import port
from gnomon.metrics.counters import Metrics
from gnomon.settings import Settings
from gnomon.wiring import Backend, open_backend


@dataclass(frozen=True, slots=True)
class Running:
    """A server that needs only a socket."""

    app: FastAPI
    backend: Backend
    is_open: bool  # as it starts: requests without a key are let in


@contextmanager
def open_embedded(settings: Settings) -> Iterator[Running]:
    """Open everything behind the HTTP application, and close it at the end.

    Raises: ForbiddenError, when it would listen beyond loopback without any API key; and whatever
            `open_backend` raises.
    """
    metrics = Metrics()
    with (
        traces.exported(settings),
        open_backend(settings, metrics=metrics, hints=metrics) as backend,
    ):
        running = _running(settings, backend, metrics)
        with port.scraped(settings, metrics.registry):
            yield running


@contextmanager
def open_api(settings: Settings) -> Iterator[Running]:
    """Open one of many HTTP processes over one Postgres; the loops run in workers.

    Raises: ForbiddenError, as above; and whatever `wiring.open_api` raises.
    """
    metrics = Metrics()
    with (
        traces.exported(settings),
        wiring.open_api(settings, metrics=metrics, hints=metrics) as backend,
    ):
        running = _running(settings, backend, metrics)
        with port.scraped(settings, metrics.registry):
            yield running


def application() -> FastAPI:
    """Make the application of one process of `gnomon serve`; what it opens, its end closes."""
    settings, stack = Settings(), ExitStack()
    logs.configure(settings)
    app = stack.enter_context(open_api(settings)).app
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(it: FastAPI) -> AsyncIterator[None]:
        with stack:
            async with inner(it):
                yield

    app.router.lifespan_context = lifespan
    return app


def _running(settings: Settings, backend: Backend, metrics: Metrics) -> Running:
    is_open = not api_keys.any_was_made(backend.databases.owner)
    if is_open and not is_loopback(settings.host):
        raise _beyond_loopback(settings.host)
    metrics.watch_loops(backend.loops)
    metrics.watch_connections(backend.databases.connections())
    metrics.watch_chores(backend.chores_failed)
    services = _services(settings, backend, metrics)
    return Running(create_app(services, version=version("gnomon")), backend, is_open)


def _services(settings: Settings, backend: Backend, metrics: Metrics) -> Services:
    owner = backend.databases.owner
    return Services(
        database=backend.databases.api,
        projector=backend.databases.projector,
        canonical=backend.reader,
        searcher=backend.searcher,
        usage=backend.diagnostics,
        epoch=backend.epoch,
        clock=SystemClock(),
        keys_exist=lambda: api_keys.any_was_made(owner),
        hint=backend.hint,
        health=lambda: [Ailment(part, problem) for part, problem in backend.ailments()],
        metrics=metrics,
        limits=settings.limits(),
        settings=ApiSettings(tenant=settings.tenant),
    )


def _beyond_loopback(host: str) -> ForbiddenError:
    return ForbiddenError(
        f"without an API key the server listens on loopback only, not on {host}: "
        "make a key with `gnomon keys create`, then start again"
    )
