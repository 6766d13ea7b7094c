"""Where handlers run: `concurrency` places in the event loop, and as many threads for plain functions.

A place in the loop is one asyncio task that takes a job, runs its handler to the end, and takes the next; so a short
job costs no task of its own. To stop a handler its place is cancelled, and goes on with the next job.

A thread cannot be cancelled. To stop a handler there, an exception (`TimeLimit` or `Cancelled`) is put into its thread,
and rises at its next step in Python. Code that waits inside a C function notices when it comes back from there. If it
has not after GRACE_S, the job is given up: it fails, its slot stays lost until the function returns, and a worker
that has lost all slots is not healthy. A task with `runs_in="process"` has no such trouble (`children`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from holdfast.client.jobs import said
from holdfast.tasks.app import App
from holdfast.tasks.outcomes import Cancelled, Discard, Outcome, Retry, TimeLimit
from holdfast.tasks.running import RunningJob, run_async, run_sync

from .children import Child
from .hands import Hands

if TYPE_CHECKING:
    from .telling import Teller

BREATHE: Final = 50
"""Jobs that a place runs before it lets the loop look at other things, if none of them waited."""
GRACE_S: Final = 5.0

log = logging.getLogger("holdfast.worker")


def report(job: RunningJob, outcome: Outcome) -> None:
    """A run that did not end well, for those who read the log. What a handler said on purpose (`Retry`, `Discard`,
    `Snooze`), or was told to do, is a line; any other exception comes with where it was raised."""
    error = outcome.exception
    assert error is not None
    name = job.task.name if job.task is not None else "?"
    about = {"job": job.id, "task": name}
    if outcome.kind in ("released", "dropped"):
        log.info("job %s: %s is given back: %s", job.id, name, said(error), extra=about)
    else:
        is_meant = isinstance(error, Retry | Discard | TimeLimit)
        log.warning(
            "job %s: %s failed at attempt %d: %s", job.id, name, job.attempt, outcome.error,
            exc_info=None if is_meant else error, extra=about,
        )


class LoopSlots:
    """Places in the event loop."""

    def __init__(self, app: App, hands: Hands, teller: Teller) -> None:
        self._app = app
        self._hands = hands
        self._teller = teller
        self._loop = asyncio.get_running_loop()
        self._idle: list[asyncio.Future[None]] = []
        self._places = [self._loop.create_task(self._place()) for _ in range(hands.concurrency)]
        self.turned = time.monotonic()
        """When the loop last had time for us: one that is blocked has none."""

    def wake(self) -> None:
        """Jobs were put into the backlog. From any thread."""
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._rouse)

    def ping(self) -> None:
        """Ask the loop whether it still turns. From any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._turn)

    def interrupt(self, job: RunningJob) -> None:
        """Make the handler of a job stop. From any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel, job)

    async def close(self) -> None:
        """Stop all places; a handler that still runs is cancelled."""
        for place in self._places:
            place.cancel()
        await asyncio.gather(*self._places, return_exceptions=True)

    def _turn(self) -> None:
        self.turned = time.monotonic()

    def _rouse(self) -> None:
        self.turned = time.monotonic()
        for _ in range(min(len(self._idle), len(self._hands.backlog))):
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)

    def _cancel(self, job: RunningJob) -> None:
        if isinstance(job.slot, asyncio.Task) and not job.is_told:
            job.slot.cancel()

    async def _place(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        backlog, app, teller = self._hands.backlog, self._app, self._teller
        while True:
            for _ in range(BREATHE):
                try:
                    job = backlog.popleft()
                except IndexError:
                    break
                job.slot = me
                job.started = time.monotonic()
                try:
                    outcome = await run_async(app, job)
                except asyncio.CancelledError:  # Not the job was cancelled, but this place.
                    teller.tell(job, Outcome("released"))
                    raise
                job.slot = None
                if outcome.exception is not None:
                    report(job, outcome)
                teller.tell(job, outcome)
                if job.is_cancelled:
                    while me.uncancel():
                        pass
            if backlog:
                await asyncio.sleep(0)
            else:
                future = self._loop.create_future()
                self._idle.append(future)
                await future


class ThreadSlots:
    """Threads for plain functions."""

    def __init__(self, app: App, hands: Hands, teller: Teller) -> None:
        self._app = app
        self._hands = hands
        self._teller = teller
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._slots = [ThreadSlot(app, hands, teller, self._tokens) for _ in range(hands.concurrency)]
        for slot in self._slots:
            slot.start()

    def wake(self, count: int) -> None:
        """So many jobs were put into `for_threads`. From any thread."""
        for _ in range(min(count, len(self._slots) + 1)):
            self._tokens.put(True)

    def interrupt(self, job: RunningJob) -> None:
        """Make the handler of a job stop. From any thread."""
        if isinstance(job.slot, ThreadSlot):
            job.slot.interrupt(job, Cancelled)

    def tick(self) -> None:
        """Look after time limits."""
        now = time.monotonic()
        for slot in self._slots:
            slot.check(now)

    def lost(self) -> int:
        """Slots whose handler was told to stop and does not."""
        return sum(slot.is_lost for slot in self._slots)

    def close(self) -> None:
        """No more jobs. Threads that still run a handler are left alone: they are daemons."""
        for slot in self._slots:
            slot.is_stopped = True
        for _ in self._slots:
            self._tokens.put(False)
        for slot in self._slots:
            slot.end_child()


class ThreadSlot(threading.Thread):
    """One thread, and the child process it watches over if a task wants one."""

    def __init__(self, app: App, hands: Hands, teller: Teller, tokens: SimpleQueue[bool]) -> None:
        super().__init__(name="holdfast-slot", daemon=True)
        self.is_stopped = False
        self.is_lost = False
        self._app = app
        self._hands = hands
        self._teller = teller
        self._tokens = tokens
        self._lock = threading.Lock()
        self._job: RunningJob | None = None
        self._stopped_at = 0.0
        """When the handler was told to stop."""
        self._child: Child | None = None

    def run(self) -> None:
        line = self._hands.for_threads
        while not self.is_stopped:
            self._tokens.get()
            while not self.is_stopped:
                try:
                    job = line.popleft()
                except IndexError:
                    break
                try:
                    self._run(job)
                except (TimeLimit, Cancelled):  # Meant for the handler, which had just ended.
                    self._job = None

    def _run(self, job: RunningJob) -> None:
        job.started = time.monotonic()
        with self._lock:
            self._stopped_at = 0.0
            self._job = job
            job.slot = self
        try:
            is_apart = job.task is not None and job.task.runs_in_process
            outcome = run_sync(self._app, job, self._call_child if is_apart else None)
        finally:
            with self._lock:
                self._job = None
                job.slot = None
                self.is_lost = False
        if outcome.exception is not None:
            report(job, outcome)
        self._teller.tell(job, outcome)

    def _call_child(self, job: RunningJob) -> object:
        if self._child is None or not self._child.is_alive():
            self._child = Child()
        return self._child.run(job)

    def interrupt(self, job: RunningJob, kind: type[TimeLimit] | type[Cancelled]) -> None:
        """Put an exception into the thread, if it still runs this job."""
        with self._lock:
            if self._job is not job or self._stopped_at or self.ident is None:
                return
            self._stopped_at = time.monotonic()
            if job.task is not None and job.task.runs_in_process:
                if self._child is not None:
                    self._child.kill(kind)
                return
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(kind))

    def check(self, now: float) -> None:
        """Time limits: first the exception, then the end of our patience."""
        job = self._job
        if job is None or job.task is None:
            return
        limit = job.task.timeout
        if limit is not None and not self._stopped_at and now - job.started > limit:
            self.interrupt(job, TimeLimit)
        elif self._stopped_at and now - self._stopped_at > GRACE_S and not self.is_lost:
            self.is_lost = True
            about = {"job": job.id, "task": job.task.name}
            log.error("job %s does not stop: %s is stuck, and its thread with it", job.id, job.task.name, extra=about)
            error = f"TimeLimit: {job.task.name} did not stop when told to"
            self._teller.tell(job, Outcome("dropped") if job.is_lost else Outcome("failed", error=error))

    def end_child(self) -> None:
        """The worker ends."""
        if self._child is not None and self._job is None:
            self._child.close()
