"""The tasks: each says that there may be work; losing, doubling or delaying one changes nothing."""

from celery import Celery

from workers.celery_app import HINT_TTL_S, PROJECT, SWEEP
from workers.counts import HintCounts


def register(app: Celery, counts: HintCounts) -> None:
    """Register the tasks; they wake the supervisor of their process, and count if any did.

    A hint at a generation that nobody here works on is `idle`.
    """

    def project(projection: str, generation: int, shard: int) -> None:
        supervisor = getattr(app, "supervisor", None)
        woken = 0 if supervisor is None else supervisor.wake(projection, generation, shard)
        counts.hinted("worked" if woken else "idle")

    def sweep() -> None:
        if (supervisor := getattr(app, "supervisor", None)) is not None:
            supervisor.wake()

    app.task(project, name=PROJECT, expires=HINT_TTL_S)
    app.task(sweep, name=SWEEP, expires=HINT_TTL_S)
