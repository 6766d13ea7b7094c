"""A job's spans are one trace: where it was added, each of its runs, and what its handler did."""
from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast.tasks.tracing import Tracing
from holdfast.testing.kit import Kit

SPANS = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def provider() -> None:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(made)


@pytest.fixture
def app() -> holdfast.App:
    SPANS.clear()
    return holdfast.App("memory:", middleware=[Tracing()])


def test_a_run_is_a_child_of_the_add_and_the_parent_of_what_it_does(app: holdfast.App) -> None:
    @app.task(queue="mail")
    def send(to: str) -> int:
        with trace.get_tracer("shop").start_as_current_span("smtp"):
            return len(to)

    with Kit(app) as kit:
        with trace.get_tracer("shop").start_as_current_span("request"):
            send.add("ada")
        kit.drain()
    spans = {span.name: span for span in SPANS.get_finished_spans()}
    request, add, run, smtp = (spans[name] for name in ("request", f"add {send.name}", f"run {send.name}", "smtp"))
    assert add.parent is not None and add.parent.span_id == request.context.span_id
    assert run.parent is not None and run.parent.span_id == add.context.span_id
    assert smtp.parent is not None and smtp.parent.span_id == run.context.span_id
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert run.attributes is not None and run.attributes["messaging.destination.name"] == "mail"


def test_a_failed_run_and_the_next_are_in_the_same_trace(app: holdfast.App) -> None:
    @app.task(queue="mail", retries=1, backoff=(1, 1))
    async def shaky(number: int) -> None:
        if holdfast.current_job().attempt == 1:
            raise ValueError("not yet")

    with Kit(app) as kit:
        shaky.add(1)
        kit.drain()
        kit.clock.advance(5)
        kit.drain()
    runs = [span for span in SPANS.get_finished_spans() if span.name.startswith("run ")]
    assert [span.status.status_code.name for span in runs] == ["ERROR", "UNSET"]
    assert [span.attributes["holdfast.attempt"] for span in runs if span.attributes] == [1, 2]
    assert len({span.context.trace_id for span in runs}) == 1
    assert runs[0].events[0].name == "exception"
