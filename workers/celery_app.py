"""The Celery application: a task is a hint that there may be work, and never the work itself."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from typing import Any, Final

from celery import Celery, bootsteps
from kombu.entity import Queue

from workers.supervisor import Supervisor

TAIL: Final = "tail"  # generations that serve
REBUILD: Final = "rebuild"  # generations that are being built
RECONCILE: Final = "reconcile"
EXTRACT: Final = "extract"
QUEUES: Final = (TAIL, REBUILD, RECONCILE, EXTRACT)
STATES: Final = {TAIL: "live", REBUILD: "building"}  # what a process that consumes a queue works on

PROJECT: Final = "gnomon.project"
SWEEP: Final = "gnomon.sweep"
HINT_TTL_S: Final = 30  # an older one is news to nobody: the sweep was there
SWEEP_S: Final = 5.0
CONNECT_S: Final = 1.0

OpenSupervisor = Callable[[list[str]], AbstractContextManager[Supervisor]]


def build_app(broker_url: str, *, socket: timedelta) -> Celery:
    """Make the application over a Redis; nothing is connected yet.

    `socket`: how long a Redis that is silent is waited for. Guarantee: nothing is sent twice or
    later by Celery itself, no result is kept, and a worker whose Redis is away goes on looking for
    it for ever, while its loops work.
    Source: docs/adr/0015-celery-hints.md.
    """
    app = Celery("gnomon", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_queues=[Queue(name) for name in QUEUES],  # type: ignore[no-untyped-call]
        task_default_queue=TAIL,
        task_create_missing_queues=False,
        task_ignore_result=True,
        task_acks_late=False,
        task_publish_retry=False,
        broker_connection_timeout=CONNECT_S,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_connect_timeout": CONNECT_S,
            "socket_timeout": socket.total_seconds(),
            "max_retries": 0,
        },
        worker_pool="solo",  # set, it also keeps Celery from forking: see `Loops`
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        beat_scheduler="celery.beat:Scheduler",  # in memory: it has nothing to remember
        beat_schedule={
            SWEEP: {"task": SWEEP, "schedule": SWEEP_S, "options": {"expires": SWEEP_S}}
        },
    )
    return app


def attach_supervisor(app: Celery, open_supervisor: OpenSupervisor) -> None:
    """Let each worker process of `app` run a supervisor beside its consumer.

    `open_supervisor` is given the states of the generations to work on, which the queues
    that are consumed name.
    """
    app.conf.gnomon_open_supervisor = open_supervisor
    app.steps["worker"].add(Loops)


class Loops(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """The projectors' loops of a worker process: they run whether Redis is there or not.

    They are threads with connections of their own, so a pool that forks would double their sockets
    and lose the threads.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, parent: Any, **_: Any) -> None:
        self._stack = ExitStack()
        parent.supervisor = None

    def start(self, parent: Any) -> None:
        """Open the supervisor; what it raises ends the process before it consumes anything."""
        states = [STATES[name] for name in parent.app.amqp.queues.consume_from if name in STATES]
        if states:
            parent.supervisor = parent.app.supervisor = self._stack.enter_context(
                parent.app.conf.gnomon_open_supervisor(states)
            )

    def stop(self, _parent: Any) -> None:
        """Finish the pages at hand, and give the leases back."""
        self._stack.close()

    terminate = stop
