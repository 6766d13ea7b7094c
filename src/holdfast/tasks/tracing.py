"""Traces by OpenTelemetry: a span where a job is added, one where it runs, joined by W3C `traceparent` in its headers.

    app = holdfast.App(url, middleware=[Tracing()])          # pip install 'holdfast[tracing]'

Spans go wherever the program's OpenTelemetry sends them; without one set up, all of this does nothing. The span of a
run is a child of the one that added it, also on another machine and on a later attempt, so a trace shows how long a
job waited: from the end of the one to the begin of the other. What a handler does is a child of its run.
"""
from __future__ import annotations

from contextvars import Token
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from holdfast.client.adding import AddOptions

from .middleware import Middleware
from .outcomes import Outcome
from .running import RunningJob


class Tracing(Middleware):
    """Put it first among the middleware, so that the others' work is inside its spans."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("holdfast")
        self._running: dict[str, tuple[Span, Token[Any]]] = {}

    def before_add(self, task: str, options: AddOptions) -> AddOptions:
        """The new job's headers say which span it comes from."""
        with self._tracer.start_as_current_span(f"add {task}", kind=SpanKind.PRODUCER, attributes=of("send", task)):
            headers = dict(options.get("headers") or {})
            propagate.inject(headers)
        return AddOptions(**{**options, "headers": headers}) if headers else options

    def before_run(self, job: RunningJob) -> None:
        name = job.task.name if job.task is not None else "job"
        span = self._tracer.start_span(
            f"run {name}", context=propagate.extract(job.headers), kind=SpanKind.CONSUMER,
            attributes={**of("process", name), "messaging.destination.name": job.queue, "messaging.message.id": job.id,
                        "holdfast.attempt": job.attempt},
        )
        self._running[job.id] = (span, context.attach(trace.set_span_in_context(span)))

    def after_run(self, job: RunningJob, outcome: Outcome) -> None:
        begun = self._running.pop(job.id, None)
        if begun is None:  # another's hook failed before ours
            return
        span, token = begun
        context.detach(token)
        span.set_attribute("holdfast.outcome", outcome.kind)
        if outcome.exception is not None:
            span.record_exception(outcome.exception)
        if outcome.error:
            span.set_status(Status(StatusCode.ERROR, outcome.error))
        span.end()


def of(operation: str, task: str) -> dict[str, str]:
    return {"messaging.system": "holdfast", "messaging.operation.type": operation, "holdfast.task": task}
