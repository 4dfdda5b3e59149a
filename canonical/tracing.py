"""What the work at hand belongs to: its span, its request and search, and who asked for it.

Spans go to the provider that `use` names; until then nothing is made and next to nothing is paid.
A span or a log line says ids, counts and codes: no text, no metadata, no tenant and nobody's name.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from typing import Final, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from canonical.errors import GnomonError

T = TypeVar("T")
Attributes = Mapping[str, AttributeValue]

LINKS: Final = 32  # of a page: of a bulk of thousands of traces, some show what it waited for
W3C: Final = TraceContextTextMapPropagator()
FAULT: Final = 500  # HTTP's: from here on it is the server's
NOTHING: Final = nullcontext(INVALID_SPAN)

_tracer: Tracer | None = None
_ids: ContextVar[dict[str, str] | None] = ContextVar("ids", default=None)


def use(provider: trace.TracerProvider | None) -> None:
    """Send the spans of this process to a provider; None: make none."""
    global _tracer  # noqa: PLW0603 - one process has one place for its spans
    _tracer = None if provider is None else provider.get_tracer("gnomon")


def span(name: str, attributes: Attributes | None = None) -> AbstractContextManager[Span]:
    """Make a span around a block, inside the one at hand.

    Guarantee: an error is told by its code or its class alone, never by its message.
    """
    return NOTHING if _tracer is None else _span(_tracer, name, attributes=attributes)


def request(name: str, headers: Mapping[str, str]) -> AbstractContextManager[Span]:
    """Make the span of a request, inside the caller's trace where its W3C headers name one."""
    if _tracer is None:
        return NOTHING
    caller = W3C.extract(headers, Context())  # a context of its own: nothing of another request's
    return _span(_tracer, name, context=caller, kind=SpanKind.SERVER)


def answered(span: Span, method: str, route: str, status: int) -> None:
    """Describe a request's span, once its answer has begun."""
    if span.is_recording():
        span.update_name(f"{method} {route}")
        said: dict[str, AttributeValue] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
        }
        span.set_attributes(said | {f"gnomon.{name}": one for name, one in ids().items()})
        if status >= FAULT:
            span.set_status(StatusCode.ERROR)


def page(
    name: str, attributes: Attributes, traces: Iterable[str | None]
) -> AbstractContextManager[Span]:
    """Make the span of work that some events ask for, linked to up to LINKS of their traces."""
    if _tracer is None:
        return NOTHING
    named = dict.fromkeys(one for one in traces if one is not None)
    links = [Link(context) for one in list(named)[:LINKS] if (context := _context_of(one)).is_valid]
    return _span(_tracer, name, context=Context(), attributes=attributes, links=links)


@contextmanager
def _span(
    tracer: Tracer,
    name: str,
    *,
    context: Context | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes | None = None,
    links: list[Link] | None = None,
) -> Iterator[Span]:
    with tracer.start_as_current_span(
        name,
        context=context,
        kind=kind,
        attributes=attributes,
        links=links,
        record_exception=False,  # its message may quote a record
        set_status_on_exception=False,
    ) as made:
        try:
            yield made
        except Exception as exc:
            code = exc.code if isinstance(exc, GnomonError) else type(exc).__name__
            made.set_status(StatusCode.ERROR, code)
            raise


def _context_of(traceparent: str) -> trace.SpanContext:
    held = W3C.extract({"traceparent": traceparent}, Context())
    return trace.get_current_span(held).get_span_context()


def traceparent() -> str:
    """Return the span at hand as W3C writes it, for an event to keep; empty: none is recorded."""
    if _tracer is None:
        return ""
    context = trace.get_current_span().get_span_context()
    if not (context.is_valid and context.trace_flags.sampled):
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def begin(request_id: str) -> None:
    """Begin a request: until its context ends, log lines carry this id."""
    _ids.set({"request_id": request_id})


def note(name: str, value: str) -> None:
    """Add an id to what the log lines of the request at hand carry, if there is one."""
    if (held := _ids.get()) is not None:
        held[name] = value


def request_id() -> str | None:
    """Return the id of the request at hand."""
    return (_ids.get() or {}).get("request_id")


def ids() -> dict[str, str]:
    """Return what a log line says of the work at hand: the ids of request, search and trace."""
    found = dict(_ids.get() or {})
    if _tracer is None:
        return found
    context = trace.get_current_span().get_span_context()
    return {**found, "trace_id": f"{context.trace_id:032x}"} if context.is_valid else found


def carried(work: Callable[..., T]) -> Callable[..., T]:
    """Return `work`, to be done once and on any thread, as a part of what is at hand here."""
    return functools.partial(copy_context().run, work)
