"""Tests of your tasks, without a server, without workers, without waiting.

    def test_a_customer_is_greeted(holdfast_kit):
        kit = holdfast_kit(app)                      # app now has a queue in memory, and a clock that stands
        sign_up("ada")
        kit.assert_added(greet, args=["ada"])
        kit.drain()                                  # runs what is due, here and now
        assert mails == ["ada"]

Two modes. *Manual* (the usual one): jobs stay in the queue until `drain()`. *Inline* (`with kit.inline():`): `add` runs
the task at once and raises what it raises, for tests that don't care about the queue.

The clock stands until you move it: `kit.clock.advance(60)`. Delays, retries, leases, rates, schedules and time to live
follow it, so a retry after an hour is tested in a millisecond. The node is the real one, so what is refused, counted or
dead here is so in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from holdfast.client.adding import AddOptions
from holdfast.client.asks import take
from holdfast.client.errors import Error, LeaseLost
from holdfast.client.queue import Channel, Queue
from holdfast.client.values import JobView, data
from holdfast.embedded import Local, SyncLoopback
from holdfast.tasks import bodies
from holdfast.tasks.app import App
from holdfast.tasks.outcomes import Outcome
from holdfast.tasks.running import RunningJob, prepare, run_async, run_sync
from holdfast.tasks.task import AnyTask
from holdfast.testing.chaos import Chaos, Killed
from holdfast.worker.telling import words

START_MS: Final = 1_800_000_000_000
LEASE_S: Final = 30.0
JOBS_MAX: Final = 10_000
"""Jobs in one `drain`. A task that adds itself again would else go on for ever."""
ROUNDS_MAX: Final = 1000
"""How often `settle` moves the clock without a job that ends, before it says that there is no end to it."""
HELD_MAX: Final = 100
"""Queued jobs that `settle` asks what holds them back, when nothing can be run."""


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._local: Local | None = None
        self._coming: Callable[[], float | None] = lambda: None

    def __call__(self) -> int:
        return self.now_ms

    def attach(self, local: Local, coming: Callable[[], float | None]) -> None:
        """`coming` says when a schedule adds its next job, in unix seconds: a clock that jumped over that would have
        missed it, as a cluster that was down."""
        self._local = local
        self._coming = coming

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self.now_ms / 1000

    def advance(self, seconds: float) -> None:
        """Let so much time pass. What becomes due in it happens, each schedule at each of its times."""
        until = self.now_ms + max(0, round(seconds * 1000))
        while (coming := self._coming()) is not None and self.now_ms < coming * 1000 <= until:
            self._move(round(coming * 1000))
        self._move(until)

    def _move(self, now_ms: int) -> None:
        self.now_ms = now_ms
        if self._local is not None:
            self._local.nudge()


@dataclass(frozen=True, slots=True)
class Ran:
    """What `drain` did with one job."""

    id: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    kind: str
    """done, failed, dead, released; under chaos also killed, lost or untold."""
    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A job that waits."""

    id: str
    queue: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    view: JobView

    @property
    def delay(self) -> float:
        """Seconds until it may run."""
        return 0.0 if self.view.state == "queued" else (self.view.next_requeue_ms or 0) / 1000


class Kit:
    """An app on a queue in memory, until `close`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.clock = Clock()
        self.chaos: Chaos | None = None
        # Chance is the same each time, too: ids, and the jitter of retries.
        self._local = Local(None, self.clock, wall_ms=self.clock, random_bytes=random.Random(START_MS).randbytes)
        self._loopback = SyncLoopback(self._local)
        self.queue = Queue(self._loopback)
        self.clock.attach(self._local, self._coming)
        app.bind(self.queue)

    def close(self) -> None:
        """Give the app its own url back."""
        self.app.bind(None)
        self.app.inline = None
        self.queue.close()

    def __enter__(self) -> Kit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what was added ---------------------------------------------------------------------------------------

    def pending(self, task: AnyTask | None = None) -> list[Pending]:
        """Jobs that wait, for now or for later; of one task, or of all."""
        found = [self._read(view) for view in self.queue.browse(states=("queued", "active"))]
        return [each for each in found if task is None or each.task == task.name]

    def assert_added(
        self, task: AnyTask, *, args: Sequence[Any] | None = None, kwargs: dict[str, Any] | None = None,
        queue: str | None = None, delay: float | None = None, count: int | None = None,
    ) -> list[Pending]:
        """A job of this task waits, with these arguments. `kwargs` need not be all; `delay` may be a second off."""
        waiting = self.pending(task)
        fit = [
            each for each in waiting
            if (args is None or each.args == list(args))
            and (kwargs is None or kwargs.items() <= each.kwargs.items())
            and (queue is None or each.queue == queue)
            and (delay is None or abs(each.delay - delay) <= 1)
        ]
        if not fit if count is None else len(fit) != count:
            seen = "\n".join(
                f"  {each.task}{tuple(each.args)} {each.kwargs or ''} in {each.queue}, in {each.delay:g} s"
                for each in waiting
            )
            number = "a job" if count is None else f"{count} jobs"
            raise AssertionError(
                f"expected {number} of {task.name} with args={args} kwargs={kwargs} queue={queue} delay={delay}, "
                f"found {len(fit)}. Of this task there are\n{seen or '  none'}"
            )
        return fit

    def assert_not_added(self, task: AnyTask) -> None:
        """No job of this task waits."""
        waiting = self.pending(task)
        assert not waiting, f"{len(waiting)} jobs of {task.name} were added: {waiting[0].args} {waiting[0].kwargs}"

    def _read(self, view: JobView) -> Pending:
        queue, body = view.queue or "", view.body or b""
        raw = self.app.raw_tasks.get(queue)
        try:
            call = bodies.Envelope(raw.name, [body]) if raw is not None else bodies.read(body)
        except bodies.NoTask:
            call = bodies.Envelope("", [body])
        return Pending(view.id, queue, call.task, call.args, call.kwargs, view)

    # -- running ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def inline(self) -> Iterator[None]:
        """While the block runs, `add` runs the task at once, and raises what it raises."""
        self.app.inline = self._run_inline
        try:
            yield
        finally:
            self.app.inline = None

    def drain(self, *queues: str, count: int = JOBS_MAX) -> list[Ran]:
        """Run all jobs that are due, also those that are added meanwhile, one after the other, in this thread."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise AssertionError("inside an event loop use `await kit.adrain()`")
        ran: list[Ran] = []
        while len(ran) < count and (job := self._next(queues)) is not None:
            ran.append(self._settle(job, self._run(job)))
        return ran

    async def adrain(self, *queues: str, count: int = JOBS_MAX) -> list[Ran]:
        """The same inside an event loop: async handlers run in it."""
        ran: list[Ran] = []
        while len(ran) < count and (job := self._next(queues)) is not None:
            ran.append(self._settle(job, await self._arun(job)))
        return ran

    def settle(self, *queues: str) -> list[Ran]:
        """Drain, and move the clock to whatever comes next (a retry, a delay, a lease, the next token of a rate), until
        nothing is left. Jobs of schedules are not waited for: they have no end."""
        ran = self.drain(*queues)
        idle = 0
        while waiting := [each for each in self.pending() if not queues or each.queue in queues]:
            self.clock.advance(self._until_next(waiting) + 0.001)
            new = self.drain(*queues)
            ran += new
            idle = 0 if any(each.kind in ("done", "dead") for each in new) else idle + 1
            if idle > ROUNDS_MAX or len(ran) > JOBS_MAX:
                raise AssertionError(f"there is no end to it: {len(ran)} runs, and {len(waiting)} jobs still wait")
        return ran

    def _until_next(self, waiting: list[Pending]) -> float:
        """Seconds until one of them may run. A job that is queued and was not run is held back: by a rate, which says
        until when, or by something that does not end by itself."""
        found = [each.delay for each in waiting if each.delay > 0]
        held = [each for each in waiting if each.delay == 0][:HELD_MAX]
        said = [why for each in held if (why := self.queue.explain(each.id)) is not None]
        for why in said:
            times = [reason.ms_until for reason in why.reasons]
            found += [max(0.001, ms / 1000) for ms in times if ms is not None]
        if not found:
            words = said[0].summary if said else "nobody knows why"
            raise AssertionError(f"{len(waiting)} jobs wait, and no time will change that: {waiting[0].id}: {words}")
        return min(found)

    def _coming(self) -> float | None:
        """When the next job of a schedule is added."""
        return min((each.next_s for each in self.queue.schedules() if each.next_s is not None), default=None)

    def _next(self, queues: tuple[str, ...]) -> RunningJob | None:
        names = queues or tuple(dict.fromkeys([*self.app.queues, *self.queue.queues()]))
        if not names:
            return None
        ask = take(names, 1, 0, LEASE_S)
        found = ask.answer(self._loopback.call(ask.argv))
        return RunningJob(found[0], self) if found else None

    def progress(self, job: RunningJob, fraction: float, text: str) -> None:
        """A handler says how far it is."""
        self.queue.call("PROGRESS", job.id, job.token, f"{fraction:.3f}", text)

    def _run(self, job: RunningJob) -> Outcome:
        outcome = prepare(self.app, job)
        if outcome is not None or (outcome := self._struck(job)) is not None:
            return outcome
        return run_here(self.app, job)

    async def _arun(self, job: RunningJob) -> Outcome:
        outcome = prepare(self.app, job)
        if outcome is not None or (outcome := self._struck(job)) is not None:
            return outcome
        if job.task is not None and job.task.is_async:
            return await run_async(self.app, job)
        return run_sync(self.app, job)

    def _struck(self, job: RunningJob) -> Outcome | None:
        """Does chaos end the worker before the handler runs?"""
        if self.chaos is not None and self.chaos.kills_before(job):
            return Outcome("dropped", exception=Killed("the worker died before it ran the handler"))
        return None

    def _settle(self, job: RunningJob, outcome: Outcome) -> Ran:
        if outcome.kind == "dropped":
            return self._ran(job, outcome, "killed")
        if self.chaos is not None:
            self.chaos.meddle(job, self.clock, LEASE_S)
            if self.chaos.kills_after(job):
                return self._ran(job, outcome, "killed")
            if self.chaos.drops_ack(job):
                return self._ran(job, outcome, "untold")
        try:
            reply = self._loopback.call(words(job, outcome))
            if isinstance(reply, Error):
                raise reply
        except LeaseLost:
            return self._ran(job, outcome, "lost")
        return self._ran(job, outcome, outcome.kind)

    def _ran(self, job: RunningJob, outcome: Outcome, kind: str) -> Ran:
        name = job.task.name if job.task is not None else ""
        value = bodies.read_value(outcome.result)
        return Ran(job.id, name, list(job.args), job.kwargs, kind, value, outcome.exception)

    def _run_inline(
        self, task: AnyTask, args: tuple[Any, ...], kwargs: dict[str, Any], options: AddOptions
    ) -> str:
        job_id = self.queue.add(task.queue, task.body_for(args, kwargs), **options)
        ask = take((task.queue,), 1, 0, LEASE_S)
        while found := ask.answer(self._loopback.call(ask.argv)):
            job = RunningJob(found[0], self)
            outcome = prepare(self.app, job) or run_here(self.app, job)
            self._settle(job, outcome)
            if outcome.exception is not None:
                raise outcome.exception
        return job_id

    # -- chaos ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def under(self, chaos: Chaos) -> Iterator[Chaos]:
        """While the block runs, things go wrong: see `holdfast.testing.chaos`."""
        inner: Channel = self._loopback
        self.chaos = chaos
        self.app.bind(Queue(chaos.around(inner)))
        try:
            yield chaos
        except Exception as error:
            error.add_note(f"chaos: {chaos.recipe()}\n" + "\n".join(chaos.story))
            raise
        finally:
            self.chaos = None
            self.app.bind(self.queue)


def run_here(app: App, job: RunningJob) -> Outcome:
    """Run a handler here, whatever its kind; in a thread of its own if a loop is running already."""
    if job.task is None or not job.task.is_async:
        return run_sync(app, job)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run_async(app, job))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(run_async(app, job))).result()


def result_of(app: App, added_id: str) -> Any:
    """What a job left behind for those who wait."""
    reply = app.queue.wait(added_id, timeout=0.001)[0]
    if reply.state != "done":
        raise Error(f"job {added_id} is {reply.state}")
    return bodies.read_value(None if reply.result is None else data(reply.result))
