"""A worker, from its start to its end.

Stopping (SIGTERM, SIGINT) is a promise in three steps. First no more jobs are fetched, and those that were not begun
are given back at once: others can run them. Then what runs may finish, until the deadline. What still runs then is
given back, too (RELEASE, which uses up no attempt), and the worker ends. A second signal skips the waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import doors
from holdfast.client.delivery import Entry
from holdfast.client.errors import BadRequest, Error
from holdfast.client.queue import Queue
from holdfast.tasks.app import App
from holdfast.tasks.outcomes import Outcome
from holdfast.tasks.running import RunningJob, prepare

from .fetching import WAIT_S, Fetcher
from .figures import Figures, exposition
from .hands import Hands
from .health import HealthFile, HealthPort
from .names import strange
from .slots import LoopSlots, ThreadSlots
from .telling import Teller

MIN_LEASE_S: Final = 0.3
"""A third of it passes before it is extended, and the teller looks ten times a second."""
ANSWER_S: Final = 10.0
"""A node that is silent for so long is given up on. Less than the usual half minute: leases run meanwhile."""
SILENT_S: Final = 30.0
"""A worker that has not heard from a node for so long does not consume."""
BLOCKED_S: Final = 30.0
"""An event loop that has not turned for so long is blocked by a handler."""
SWITCH_S: Final = 0.001
"""How long a thread may run before another gets its turn. Acks should not wait 5 ms for a handler that computes."""

log = logging.getLogger("holdfast.worker")


@dataclass(slots=True)
class WorkerOptions:
    """How a worker works."""

    queues: tuple[str, ...] = ()
    """Else all queues the app's tasks name."""
    concurrency: int = 10
    """Async handlers at a time, and as many plain ones in threads."""
    lease_s: float = 30.0
    """How soon a job of a worker that died comes back. Leases of live ones are extended."""
    shutdown_s: float = 25.0
    """How long jobs may finish after SIGTERM. Kubernetes kills after 30."""
    name: str = ""
    health_port: int = 0
    health_host: str = "127.0.0.1"
    health_file: str = ""


class Worker:
    """Runs the tasks of an app. `run()` in the main thread of a process, or `await main()` in a loop of yours."""

    def __init__(self, app: App, options: WorkerOptions | None = None, *, queue: Queue | None = None) -> None:
        self.app = app
        self.options = options or WorkerOptions()
        self.names = self.options.queues or tuple(app.queues)
        if not self.names:
            raise BadRequest("there is nothing to do: the app has no task, and no queue was named")
        if self.options.concurrency < 1:
            raise BadRequest("a worker runs at least one job at a time")
        if not MIN_LEASE_S <= self.options.lease_s < math.inf:
            raise BadRequest(f"a lease is at least {MIN_LEASE_S:g} s long: it is extended while the job runs")
        if not 0 <= self.options.shutdown_s < math.inf:
            raise BadRequest("the seconds that jobs may finish in are 0 or more")
        self.name = self.options.name or f"{socket.gethostname()}:{os.getpid()}"
        self.hands = Hands(self.options.concurrency)
        self.started = time.time()
        self._own_queue = queue
        self._loop_slots: LoopSlots | None = None
        self._thread_slots: ThreadSlots | None = None
        self._fetcher: Fetcher | None = None
        self._teller: Teller | None = None
        self._file: HealthFile | None = None
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurry = False

    def run(self) -> None:
        """Work until a signal says stop."""
        sys.setswitchinterval(SWITCH_S)
        try:
            import uvloop  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            factory = asyncio.new_event_loop
        else:
            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self.main(with_signals=True))

    def stop(self) -> None:
        """Finish what runs, and end. Said again: don't wait for what runs. From any thread, and from signals."""
        self._hurry = self._stop is not None and self._stop.is_set()
        if self._stop is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    async def main(self, with_signals: bool = False) -> None:
        """The worker's life."""
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if with_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self.stop)
        queue: Queue | None = None
        health: HealthPort | None = None
        try:
            if self.options.health_port:  # Before any job is fetched: a worker that cannot have it does not start.
                health = HealthPort(
                    self.options.health_host, self.options.health_port, self.fault, lambda: exposition(self.figures())
                )
            if self.options.health_file:
                self._file = HealthFile(Path(self.options.health_file), self.fault, self.figures)
            queue = self._own_queue
            if queue is None:
                queue = await asyncio.to_thread(self._open)
            unknown = await asyncio.to_thread(strange, queue, self.options.queues, self.app.queues)
            self._start(queue)
            log.info("worker %s: ready, %s", self.name, ", ".join(self.names))
            for words in unknown:
                log.warning("%s", words)
            await self._stop.wait()
            await self._wind_down()
        finally:
            if health is not None:
                health.close()
            if self._file is not None:
                self._file.close()
            if self._own_queue is None and queue is not None:
                await asyncio.to_thread(queue.close)

    def _open(self) -> Queue:
        """The queue of the url; a worker that starts before its cluster waits for it."""
        if self.app.url.partition(":")[0] in ("memory", "file"):
            self._own_queue = self.app.queue
            return self._own_queue
        pause = 0.1
        while True:
            try:
                return doors.open(self.app.url, answer_timeout=ANSWER_S, name=self.name)
            except BadRequest:
                raise
            except Error as error:
                log.warning("no node yet: %s", error)
                if self._stop is not None and self._stop.is_set():
                    raise
                time.sleep(pause)
                pause = min(5.0, pause * 2)

    def _start(self, queue: Queue) -> None:
        self.app.schedule_all()
        for each in self.app.middleware:
            each.on_worker_start(self)
        lease_s = self.options.lease_s
        teller = Teller(queue, self.hands, lease_s, self.name, self.facts, self._interrupt, self._tick)
        self._teller = teller
        self._loop_slots = LoopSlots(self.app, self.hands, teller)
        if any(not task.is_async for task in self.app.tasks.values()):
            self._thread_slots = ThreadSlots(self.app, self.hands, teller)
        self._fetcher = Fetcher(queue, self.names, self.hands, lease_s, self._take_in)
        teller.start()
        self._fetcher.start()

    def _take_in(self, entries: list[Entry]) -> None:
        """Jobs came; in the fetcher's thread. Each goes to where its handler runs."""
        teller, hands = self._teller, self.hands
        assert teller is not None
        now = time.monotonic()
        for_loop = for_threads = 0
        for entry in entries:
            job = RunningJob(entry, teller, now)
            hands.jobs.add(job)
            outcome = prepare(self.app, job)
            if outcome is not None:
                log.error("job %s: %s", job.id, outcome.error, extra={"job": job.id})
                teller.tell(job, outcome)
            elif job.task is not None and job.task.is_async:
                hands.backlog.append(job)
                for_loop += 1
            else:
                hands.for_threads.append(job)
                for_threads += 1
        if for_loop and self._loop_slots is not None:
            self._loop_slots.wake()
        if for_threads and self._thread_slots is not None:
            self._thread_slots.wake(for_threads)

    def _interrupt(self, job: RunningJob) -> None:
        """A job was cancelled or lost; in the teller's thread."""
        if job.slot is None:
            if job.started == 0.0:  # It waits for a slot, and need not any more.
                with contextlib.suppress(ValueError):
                    self.hands.backlog.remove(job)
                with contextlib.suppress(ValueError):
                    self.hands.for_threads.remove(job)
                assert self._teller is not None
                self._teller.tell(job, Outcome("dropped" if job.is_lost else "released"))
            return
        if job.task is not None and job.task.is_async and self._loop_slots is not None:
            self._loop_slots.interrupt(job)
        elif self._thread_slots is not None:
            self._thread_slots.interrupt(job)

    def _tick(self) -> None:
        """About ten times a second, in the teller's thread."""
        now = time.monotonic()
        if self._thread_slots is not None:
            self._thread_slots.tick()
        if self._loop_slots is not None and now - self._loop_slots.turned > 1.0:
            self._loop_slots.ping()
        if self._teller is not None:
            for job in self.hands.stale():
                self.hands.released += 1
                self._teller.tell(job, Outcome("released"))
        if self._file is not None:
            self._file.tick(now)

    async def _wind_down(self) -> None:
        fetcher, teller, hands = self._fetcher, self._teller, self.hands
        assert fetcher is not None and teller is not None and self._loop_slots is not None
        log.info("worker %s: stopping, %d jobs in hand", self.name, len(hands.jobs))
        end = time.monotonic() + self.options.shutdown_s
        fetcher.stop()
        waiting = hands.all_waiting()
        # Before anything is given back: a GETJOB of ours that still waits at the node would get it again.
        await asyncio.to_thread(fetcher.join, WAIT_S + ANSWER_S)
        for job in [*waiting, *hands.all_waiting()]:
            teller.tell(job, Outcome("released"))
        while hands.jobs and time.monotonic() < end and not self._hurry:
            await asyncio.sleep(0.02)
        for job in list(hands.jobs):
            if not job.is_told:
                log.warning("job %s is still running: it is given back", job.id, extra={"job": job.id})
                hands.released += 1
                teller.tell(job, Outcome("released"))
        if self._thread_slots is not None:
            self._thread_slots.close()
        await self._loop_slots.close()
        teller.stop(5.0)
        await asyncio.to_thread(teller.join, 10.0)
        for each in reversed(self.app.middleware):
            each.on_worker_stop(self)
        log.info("worker %s: stopped, %d done, %d failed", self.name, hands.done, hands.failed)

    def facts(self) -> Mapping[str, str]:
        """What the worker says about itself."""
        hands = self.hands
        return {
            "host": socket.gethostname(),
            "pid": str(os.getpid()),
            "queues": ",".join(self.names),
            "concurrency": str(hands.concurrency),
            "running": str(sum(job.started > 0 for job in list(hands.jobs))),
            "in-hand": str(len(hands.jobs)),
            "done": str(hands.done),
            "failed": str(hands.failed),
            "lost": str(hands.lost),
            "started": str(int(self.started)),
        }

    def figures(self) -> Figures:
        """What it has done so far, per task."""
        hands = self.hands
        now = {
            "running": sum(job.started > 0 for job in list(hands.jobs)), "in_hand": len(hands.jobs),
            "concurrency": hands.concurrency, "processes": 1,
        }
        return hands.counts.figures(now)

    def fault(self) -> str:
        """Why this worker is not healthy; empty if it is."""
        now = time.monotonic()
        fetcher, teller = self._fetcher, self._teller
        if fetcher is None or teller is None:
            return "it has not started yet"
        if not fetcher.is_alive() or not teller.is_alive():
            return "" if self._stop is not None and self._stop.is_set() else "one of its threads has ended"
        if now - fetcher.heard > SILENT_S:
            return f"no node has answered for {now - fetcher.heard:.0f} s: {fetcher.fault}"
        if self._loop_slots is not None and now - self._loop_slots.turned > BLOCKED_S:
            return f"its event loop has been blocked for {now - self._loop_slots.turned:.0f} s"
        if self._thread_slots is not None and self._thread_slots.lost() == self.hands.concurrency:
            return "all its threads are stuck in handlers that do not stop"
        return ""
