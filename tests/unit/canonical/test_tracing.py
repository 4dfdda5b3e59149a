"""Spans: none until they are asked for, linked within bounds, and silent about what went wrong."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.trace import INVALID_SPAN

from canonical import tracing
from canonical.errors import EngineUnavailableError
from tests.support.tracing import recorded

SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_no_span_is_made_until_a_provider_is_named() -> None:
    with tracing.span("write") as one, tracing.page("page", {}, [SAMPLED]) as two:
        assert (one, two) == (INVALID_SPAN, INVALID_SPAN)
        assert tracing.traceparent() == ""


@pytest.mark.parametrize(
    ("error", "said"),
    [(EngineUnavailableError("quetzal"), "engine_unavailable"), (OSError("quetzal"), "OSError")],
)
def test_an_error_is_told_without_its_message(error: Exception, said: str) -> None:
    with recorded() as spans:
        with pytest.raises(type(error)), tracing.span("write"):
            raise error
        (one,) = spans.all()
    assert one.status.description == said
    assert "quetzal" not in one.to_json()


def test_a_page_is_linked_to_each_trace_once_and_to_some_dozens_at_the_most() -> None:
    many = [f"00-{n:032x}-{n:016x}-01" for n in range(1, 100)]
    with recorded() as spans:
        with tracing.page("few", {}, [SAMPLED, None, SAMPLED, "no trace"]):
            pass
        with tracing.page("many", {}, many):
            pass
        few, bounded = spans.all()
    assert [f"{link.context.trace_id:032x}" for link in few.links] == [SAMPLED[3:35]]
    assert len(bounded.links) == tracing.LINKS


def test_a_page_of_a_sampled_write_is_recorded_whatever_share_is_sampled() -> None:
    with recorded(share=0.0) as spans:
        for traces in ([SAMPLED], [], [SAMPLED[:-1] + "0"]):
            with tracing.page(str(len(spans.all())), {}, traces):
                pass
        assert [span.name for span in spans.all()] == ["0"]


def test_a_request_takes_nothing_over_from_another_one() -> None:
    """A pipelined request is read inside the one before it."""
    with recorded() as spans:
        with tracing.request("one", {"traceparent": SAMPLED}), tracing.request("two", {}):
            pass
        two, one = spans.all()
    assert one.parent is not None
    assert two.parent is None


def test_what_is_carried_to_a_thread_belongs_to_what_is_at_hand_here() -> None:
    with recorded(), ThreadPoolExecutor(1) as pool, tracing.span("request"):
        here = tracing.traceparent()
        assert pool.submit(tracing.carried(tracing.traceparent)).result() == here
        assert pool.submit(tracing.traceparent).result() == ""
