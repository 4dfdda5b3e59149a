"""The spans that this process makes, kept in memory."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from canonical import tracing
from gnomon import traces

WAIT_S = 30


class Spans:
    """What was exported so far."""

    def __init__(self, flush: Callable[[], bool], exporter: InMemorySpanExporter) -> None:
        self._flush, self._exporter = flush, exporter

    def all(self) -> list[ReadableSpan]:
        self._flush()
        return list(self._exporter.get_finished_spans())

    def of(self, trace_id: int) -> dict[str, ReadableSpan]:
        """Return one trace, by the names of its spans."""
        return {
            s.name: s
            for s in self.all()
            if s.context is not None and s.context.trace_id == trace_id
        }

    def linked(self, trace_id: int) -> list[ReadableSpan]:
        """Return the spans that are linked to a trace."""
        return [s for s in self.all() if any(k.context.trace_id == trace_id for k in s.links)]

    def wait(self, done: Callable[[], bool]) -> None:
        """Return once `done` says so."""
        until = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < until, [span.name for span in self.all()]
            time.sleep(0.05)


@contextmanager
def recorded(share: float = 1.0) -> Iterator[Spans]:
    """Keep this process's spans while the block runs."""
    exporter = InMemorySpanExporter()
    made = traces.provider(exporter, share)
    tracing.use(made)
    try:
        yield Spans(made.force_flush, exporter)
    finally:
        tracing.use(None)
        made.shutdown()
