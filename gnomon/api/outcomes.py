"""What follows a commit: the hint to the projectors, and the counts of writes and refusals."""

from collections.abc import Iterator, Sequence
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
    replayed = sum(one.replayed for one in written)
    announced(services, command, len(written) - replayed, replayed=replayed)


def announced(services: Services, command: str, count: int, *, replayed: int) -> None:
    """Count new writes and repeated ones, and let the projectors know of new ones."""
    services.metrics.wrote(command, REPLAYED, replayed)
    if not count:
        return
    services.metrics.wrote(command, WRITTEN, count)
    services.metrics.hinted("given")
    services.hint()
