"""A run: from the body of a job to an outcome. Used by the worker, its child processes and the testing kit.

A `RunningJob` is a job while somebody has it. The handler finds its own by `current_job()`: how often it was tried,
its headers, `progress()`, and whether somebody wants it to stop. What it says goes to a `Teller`, which passes it on
to the node when it likes; so nothing here waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.client.delivery import Delivery, Entry
from holdfast.client.errors import BadRequest

from . import bodies
from .outcomes import BadResult, Cancelled, Outcome, TimeLimit, of_exception

if TYPE_CHECKING:
    from .app import App
    from .task import AnyTask

UNKNOWN_AFTER_S = 30.0
"""A task this app does not know may be known to a newer worker: it is tried again a little later."""


class Teller(Protocol):
    """Whoever passes on what a running job says."""

    def progress(self, job: RunningJob, fraction: float, text: str) -> None: ...


class RunningJob(Delivery):
    """A job while we have it."""

    __slots__ = (
        "args", "fetched", "is_cancelled", "is_lost", "is_told", "kwargs", "report", "slot", "started",
        "task", "teller",
    )

    def __init__(self, entry: Entry, teller: Teller | None, fetched: float = 0.0) -> None:
        self.entry = entry
        self.teller = teller
        self.task: AnyTask | None = None
        self.args: tuple[Any, ...] | list[Any] = ()
        self.kwargs: dict[str, Any] = {}
        self.fetched = fetched
        self.started = 0.0
        """When its handler began; 0: not yet."""
        self.is_cancelled = False
        """Somebody wants it to stop."""
        self.is_lost = False
        """It is somebody else's by now."""
        self.is_told = False
        """Its outcome is known; whatever comes later comes too late."""
        self.slot: object | None = None
        self.report: tuple[float, str] | None = None
        """What it said about its progress and the node has not heard yet."""

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far it is, from 0 to 1. Raises `Cancelled` if somebody wants it to stop."""
        if self.is_cancelled or self.is_lost:
            raise Cancelled
        if self.teller is not None:
            self.teller.progress(self, fraction, text)

    def __repr__(self) -> str:
        return f"<RunningJob {self.id} of {self.queue!r}, attempt {self.attempt}>"


_current: ContextVar[RunningJob] = ContextVar("holdfast_job")


def current_job() -> RunningJob:
    """The job whose handler is running here. `BadRequest` outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise BadRequest("no job is running here: current_job() is for the handlers of tasks") from None


def prepare(app: App, job: RunningJob) -> Outcome | None:
    """Find the task and its arguments. An outcome: there is nothing to run."""
    raw = app.raw_tasks.get(job.queue)
    if raw is not None:
        job.task = raw
        job.args = (job.body,)
        return None
    try:
        envelope = bodies.read(job.body)
    except bodies.NoTask as error:
        return Outcome("dead", error=str(error), exception=error)
    task = app.tasks.get(envelope.task)
    if task is None:
        missing = BadRequest(f"this worker knows no task {envelope.task!r}", "NOTASK")
        return Outcome("failed", error=str(missing), after=UNKNOWN_AFTER_S, exception=missing)
    job.task = task
    job.args = envelope.args
    job.kwargs = envelope.kwargs
    return None


def run_sync(app: App, job: RunningJob, call: Callable[[RunningJob], Any] | None = None) -> Outcome:
    """Run a plain function. `call` runs it elsewhere (in a child process)."""
    task = job.task
    assert task is not None
    here = _current.set(job)
    try:
        if app.middleware:
            for each in app.middleware:
                each.before_run(job)
        value = task.function(*job.args, **job.kwargs) if call is None else call(job)
        if asyncio.iscoroutine(value):
            raise TypeError(f"{task.name} returned a coroutine: declare it with async def")
        outcome = Outcome("done", result_of(app, task, value))
    except BaseException as error:
        outcome = of_exception(error)
    finally:
        _current.reset(here)
    return after(app, job, outcome)


async def run_async(app: App, job: RunningJob) -> Outcome:
    """Run an async function in this task. Cancelling it is how it is stopped: see `Slot` in the worker."""
    task = job.task
    assert task is not None
    here = _current.set(job)
    try:
        if app.middleware:
            for each in app.middleware:
                each.before_run(job)
        if task.timeout is None:
            value = await task.function(*job.args, **job.kwargs)
        else:
            value = await _within(task.timeout, task.function(*job.args, **job.kwargs))
        outcome = Outcome("done", result_of(app, task, value))
    except asyncio.CancelledError:
        if not (job.is_cancelled or job.is_lost):
            raise
        outcome = of_exception(Cancelled())
    except BaseException as error:
        outcome = of_exception(error)
    finally:
        _current.reset(here)
    return after(app, job, outcome)


def result_of(app: App, task: AnyTask, value: Any) -> bytes | None:
    """What is kept for those who wait; None: nothing. `BadResult`: it cannot be, and it would be no other if the task
    ran once more."""
    if value is None:
        return b"" if task.keeps_none else None
    try:
        result = bodies.write_value(app.codec, value)
    except TypeError as error:
        raise BadResult(f"{task.name}: {error}") from None
    if len(result) > bodies.RESULT_BYTES_MAX:
        raise BadResult(
            f"what {task.name} returned has {len(result)} bytes, and a result has {bodies.RESULT_BYTES_MAX} at most: "
            "keep it elsewhere, and return where it is"
        )
    return result


async def _within(seconds: float, work: Any) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise TimeLimit(f"it ran for longer than {seconds:g} s") from None
        raise


def after(app: App, job: RunningJob, outcome: Outcome) -> Outcome:
    """The last hooks. One that raises turns a success into a failure, and never the other way round."""
    if job.is_lost:
        outcome.kind = "dropped"
    if app.middleware:
        for each in reversed(app.middleware):
            try:
                each.after_run(job, outcome)
            except Exception as error:
                if outcome.kind == "done":
                    outcome = of_exception(error)
    return outcome
