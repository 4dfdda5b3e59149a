"""This installation's Celery application: `celery -A gnomon worker`, `celery -A gnomon beat`."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from canonical.errors import InvalidInputError
from gnomon import logs, traces, wiring
from gnomon.metrics import port
from gnomon.metrics.counters import Metrics
from gnomon.settings import Settings
from workers import celery_app, tasks
from workers.supervisor import Supervisor

_settings = Settings()
if _settings.redis_url is None:
    raise InvalidInputError("GNOMON_REDIS_URL", "is not set", "a Redis that carries the hints")

_metrics = Metrics()


@contextmanager
def _open_supervisor(states: list[str]) -> Iterator[Supervisor]:
    logs.configure(_settings)
    plan = wiring.Plan(
        projections=sorted(_settings.projections), threads=_settings.threads, states=states
    )
    with (
        traces.exported(_settings),
        wiring.open_workers(_settings, plan, metrics=_metrics) as supervisor,
        port.scraped(_settings, _metrics.registry),
    ):
        yield supervisor


app = celery_app.build_app(_settings.redis_url.get_secret_value(), socket=timedelta(seconds=10))
tasks.register(app, _metrics)
celery_app.attach_supervisor(app, _open_supervisor)
