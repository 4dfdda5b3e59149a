"""Where this process's spans go: to an OTLP collector, if the settings name one."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from canonical import tracing
from gnomon.settings import Settings

SEND_S: Final = 5.0  # a collector that doesn't answer holds up the end of a process no longer


class Linked(Sampler):
    """Samples what is linked to a sampled trace, so that no trace ends before its page."""

    def __init__(self, otherwise: Sampler) -> None:
        self._otherwise = otherwise

    # typing has `override` from Python 3.12 on.
    def should_sample(  # type: ignore[explicit-override]  # noqa: PLR0913, PLR0917 - OpenTelemetry's shape
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide by the links, else as for any other span."""
        sampled = any(link.context.trace_flags.sampled for link in links or ())
        sampler = ALWAYS_ON if sampled else self._otherwise
        return sampler.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:  # type: ignore[explicit-override]
        """Name it."""
        return f"Linked({self._otherwise.get_description()})"


def provider(exporter: SpanExporter, share: float) -> TracerProvider:
    """Return what makes spans for an exporter: of a share of requests, if nobody else decided."""
    named = {"service.name": "gnomon", "service.version": version("gnomon")}
    made = TracerProvider(
        sampler=Linked(ParentBased(TraceIdRatioBased(share))),
        resource=Resource(named).merge(OTELResourceDetector().detect()),
        shutdown_on_exit=False,
    )
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


@contextmanager
def exported(settings: Settings) -> Iterator[None]:
    """Send this process's spans while the block runs, if `settings.traces_url` is set.

    Guarantee: a collector that is away costs spans, never a request; what is left at the end is
               sent within SEND_S, or given up.
    """
    if settings.traces_url is None:
        yield
        return
    sending = provider(OTLPSpanExporter(settings.traces_url, timeout=SEND_S), settings.traces_share)
    tracing.use(sending)
    try:
        yield
    finally:
        tracing.use(None)
        closing = threading.Thread(target=sending.shutdown, daemon=True)
        closing.start()
        closing.join(SEND_S)
