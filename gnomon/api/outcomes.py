"""What follows a commit: the hint to the projectors, and the counts of writes and refusals."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from canonical import tracing
from canonical.domain.answers import Written
from canonical.errors import GnomonError
from gnomon.api.services import Services

WRITTEN = "written"
REPLAYED = "replayed"


@contextmanager
def counted(services: Services, command: str) -> Iterator[None]:
    """Trace a command, and count one that is refused or fails by its error's code."""
    with tracing.span("write", {"gnomon.command": command}):
        try:
            yield
        except GnomonError as exc:
            services.metrics.wrote(command, exc.code)
            raise


def committed(services: Services, command: str, written: Sequence[Written]) -> None:
    """Count what was committed, and let the projectors know, unless all of it was a repeat."""
    fresh = [one for one in written if not one.replayed]
    announced(services, command, fresh, len(fresh), replayed=len(written) - len(fresh))


def announced(
    services: Services, command: str, fresh: Iterable[Written], count: int, *, replayed: int
) -> None:
    """Count new writes and repeated ones, and let the projectors know of new ones.

    `fresh`: at least the last new write of each shard.
    """
    services.metrics.wrote(command, REPLAYED, replayed)
    if not count:
        return
    services.metrics.wrote(command, WRITTEN, count)
    services.metrics.hinted("given")
    services.hint(frozenset(one.shard for one in fresh))
