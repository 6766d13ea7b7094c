"""The thread that tells the node: acknowledgements, failures, leases, progress, and that the worker is alive.

User code runs elsewhere, in the loop and in threads, and cannot hold this one up. What it has to say lies in `_box`;
everything that has piled up leaves as one packet, and its answers come back as one. So a worker of short jobs
acknowledges hundreds of them in a round trip, and a worker of long ones acknowledges each at once.

Leases are extended when a third of their time has passed, all in one command per thousand. The node's answer says which
jobs are no longer ours (`lost`) and which somebody wants to stop (`cancelled`).

An acknowledgement whose fate is unknown is sent again until a node answers: with its token it does no harm twice. It is
given up when the worker ends, or when the lease is long over: then the job has come back to its queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.client import admin, asks, values
from holdfast.client.asks import Ask
from holdfast.client.delivery import ID, TOKEN
from holdfast.client.errors import BadRequest, Closed, Error, LeaseLost, Refused, Unknown
from holdfast.client.queue import Queue
from holdfast.client.resp import Argv, Reply
from holdfast.tasks.outcomes import Outcome
from holdfast.tasks.running import RunningJob

from .hands import Hands

BATCH: Final = 1000
"""Commands in one packet, and leases in one KEEPALIVE."""
TICK_S: Final = 0.1
BEAT_S: Final = 5.0
BEAT_TTL_S: Final = 15.0
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 1.0
GIVE_UP_LEASES: Final = 3
"""An outcome that could not be told for so many times the lease: the job is somebody else's long since."""

log = logging.getLogger("holdfast.worker")


class Teller(threading.Thread):
    """Runs until `stop`, and then until everything is told or time is up."""

    def __init__(
        self, queue: Queue, hands: Hands, lease_s: float, name: str, facts: Callable[[], Mapping[str, str]],
        on_stop: Callable[[RunningJob], None], on_tick: Callable[[], None],
    ) -> None:
        """
        on_stop  a running job was cancelled or lost: make its handler stop
        on_tick  called about ten times a second
        """
        super().__init__(name="holdfast-teller", daemon=True)
        self.heard = time.monotonic()
        """When a node last answered."""
        self._queue = queue
        self._hands = hands
        self._lease_s = lease_s
        self._worker = name
        self._facts = facts
        self._on_stop = on_stop
        self._on_tick = on_tick
        self._box: deque[tuple[RunningJob, Outcome, float]] = deque()
        self._reports: dict[str, RunningJob] = {}
        self._wake = threading.Event()
        self._is_asleep = False
        self._is_stopping = False
        self._end = 0.0
        self._kept = time.monotonic()
        self._beaten = 0.0
        self._pause = PAUSE_S
        self._can_beat = True

    def tell(self, job: RunningJob, outcome: Outcome) -> None:
        """A job has ended. From any thread; never waits."""
        if job.is_told:
            return
        job.is_told = True
        hands = self._hands
        if outcome.kind == "done":
            hands.done += 1
        elif outcome.kind in ("failed", "dead"):
            hands.failed += 1
        if outcome.kind == "dropped":
            hands.put_down(job)
            return
        self._box.append((job, outcome, time.monotonic()))
        if self._is_asleep:
            self._wake.set()

    def progress(self, job: RunningJob, fraction: float, text: str) -> None:
        """A job says how far it is; only the last word counts."""
        job.report = (fraction, text)
        self._reports[job.id] = job

    def stop(self, seconds: float) -> None:
        """Tell what there is to tell, and end."""
        self._end = time.monotonic() + seconds
        self._is_stopping = True
        self._wake.set()

    def run(self) -> None:
        while True:
            if not self._box:
                if self._is_stopping:
                    return
                self._sleep(TICK_S)
            try:
                self._once()
                self._pause = PAUSE_S
            except Closed:
                return
            except (Refused, Unknown) as error:
                log.warning("cannot tell the node: %s", error)
                self._sleep(self._pause)
                self._pause = min(PAUSE_S_MAX, self._pause * 2)
            except Exception:
                log.exception("a fault in the worker, please report it")
                self._sleep(PAUSE_S_MAX)
            if self._is_stopping and time.monotonic() > self._end:
                if self._box:
                    log.error("%d outcomes could not be told: those jobs will run again", len(self._box))
                return

    def _sleep(self, seconds: float) -> None:
        self._is_asleep = True
        if not self._box or seconds != TICK_S:
            self._wake.wait(seconds)
        self._is_asleep = False
        self._wake.clear()

    def _once(self) -> None:
        self._on_tick()
        self._hands.measure()
        now = time.monotonic()
        if now - self._kept >= self._lease_s / 3:
            self._keep()
            self._kept = now
        self._tell_outcomes()
        if self._reports:
            self._tell_progress()
        if self._can_beat and now - self._beaten >= BEAT_S:
            self._beaten = now
            self._beat()

    def _tell_outcomes(self) -> None:
        while self._box:
            batch = [self._box[i] for i in range(min(BATCH, len(self._box)))]
            commands: list[Argv] = []
            for job, outcome, _ in batch:
                commands.append(words(job, outcome))
                if outcome.kind == "failed":
                    commands.append(["SHOW", job.entry[ID]])  # what comes next: the node knows
            try:
                replies = iter(self._queue.channel.call_many(commands, batch[0][0].near))
            except (Refused, Unknown):
                self._drop_old()
                raise
            self.heard = time.monotonic()
            for job, outcome, ended in batch:
                reply = next(replies)
                view = next(replies) if outcome.kind == "failed" else None
                self._box.popleft()
                if isinstance(reply, BadRequest) and not isinstance(reply, LeaseLost) and outcome.kind == "done":
                    self._give_up(job, reply)
                    continue
                self._hands.put_down(job)
                if isinstance(reply, Error):
                    self._complain(job, outcome, reply)
                self._report(job, outcome, ended, reply, view)

    def _give_up(self, job: RunningJob, error: BadRequest) -> None:
        """The work is done, and the node does not take what came of it: it will not take it another time, either."""
        log.error("job %s is done, and the node does not take that: %s", job.id, error, extra={"job": job.id})
        self._box.append((job, Outcome("dead", error=f"its result was refused: {error.text}"), time.monotonic()))

    def _report(self, job: RunningJob, outcome: Outcome, ended: float, reply: Reply, view: Reply) -> None:
        """The one line of a job that has ended here, and its figures."""
        if not job.started:
            return  # it was given back before it began, or there was nothing to run
        kind = "lost" if isinstance(reply, LeaseLost) else outcome.kind
        task = job.task.name if job.task is not None else "?"
        took = ended - job.started
        self._hands.counts.note(task, job.queue, kind, took)
        if not log.isEnabledFor(logging.INFO):
            return
        coming = what_next(outcome, reply, view)
        about = {"job": job.id, "task": task, "queue": job.queue, "ms": round(took * 1000), "attempt": job.attempt,
                 "outcome": kind, "next": coming}
        log.info(
            "job %s: %s of %s: %s in %d ms, attempt %d%s", job.id, task, job.queue, kind, took * 1000, job.attempt,
            f", {coming}" if coming else "", extra=about,
        )

    def _drop_old(self) -> None:
        old = time.monotonic() - GIVE_UP_LEASES * self._lease_s
        while self._box and self._box[0][2] < old:
            job, outcome, _ = self._box.popleft()
            self._hands.put_down(job)
            log.error("job %s: that it is %s could not be told; it will run again", job.id, outcome.kind)

    def _complain(self, job: RunningJob, outcome: Outcome, error: Error) -> None:
        if isinstance(error, LeaseLost):
            self._hands.lost += 1
            log.warning("job %s was %s too late, it is somebody else's: %s", job.id, outcome.kind, error.text)
        else:
            log.error("job %s is %s, and the node says: %s", job.id, outcome.kind, error)

    def _keep(self) -> None:
        """Extend all leases we have, those of jobs that wait for a slot, too."""
        jobs = [job for job in list(self._hands.jobs) if not job.is_told and job.token]
        for start in range(0, len(jobs), BATCH):
            some = jobs[start : start + BATCH]
            ask = asks.keep(some, self._lease_s)
            kept = ask.answer(self._queue.channel.call(ask.argv, near=ask.near))
            self.heard = time.monotonic()
            for job, word in zip(some, kept, strict=True):
                if word in ("ok", "unknown") or job.is_told:
                    continue
                if word == "lost":
                    log.warning("the lease of job %s was lost", job.id)
                    self._hands.lost += 1
                    job.is_lost = True
                job.is_cancelled = True
                self._on_stop(job)

    def _tell_progress(self) -> None:
        jobs, self._reports = self._reports, {}
        commands: list[Ask[bool]] = []
        running: list[RunningJob] = []
        for job in jobs.values():
            if not job.is_told and job.report is not None:
                commands.append(asks.progress(job, *job.report))
                running.append(job)
        replies = self._queue.channel.call_many([ask.argv for ask in commands])
        for job, ask, reply in zip(running, commands, replies, strict=True):
            if not isinstance(reply, Error) and not ask.read(reply):
                job.is_cancelled = True
                self._on_stop(job)

    def _beat(self) -> None:
        ask = admin.beat(self._worker, BEAT_TTL_S, self._facts())
        try:
            ask.answer(self._queue.channel.call(ask.argv))
        except BadRequest as error:
            self._can_beat = False  # An older node: it does not know workers, and that is all it misses.
            log.warning("the node does not list workers: %s", error)


def what_next(outcome: Outcome, reply: Reply, view: Reply) -> str:
    """What becomes of a job that was told not to be done; empty if nothing does, or nobody knows."""
    if isinstance(reply, Error) or outcome.kind == "done":
        return ""
    if outcome.kind == "dead":
        return "dead: rejected"
    if outcome.kind == "released":
        return f"again in {outcome.after:g} s" if outcome.after else "again at once"
    if view is None or isinstance(view, Error):
        return ""  # it may have gone to another node by now, or this user may not look
    found = values.fields(view)
    if found.get("state") == b"dead":
        return f"dead: {values.text(found.get('cause', b''))}"
    ms = found.get("next-requeue-within")
    is_out = "token" in found or "leased" in found  # it went out again in the meantime
    if is_out or not isinstance(ms, int) or ms <= 0:
        return "again at once"
    return f"again in {ms / 1000:.{0 if ms >= 10_000 else 1}f} s"


def words(job: RunningJob, outcome: Outcome) -> Argv:
    """What to say about a job: exactly one command."""
    if outcome.kind == "done" and outcome.result is None:  # The usual end, thousands of times a second.
        return ["ACKJOB", job.entry[ID], "TOKEN", job.entry[TOKEN]]
    if outcome.kind == "done":
        return asks.done((job,), outcome.result).commands[0]
    if outcome.kind == "released":
        return asks.release((job,), outcome.after).commands[0]
    is_dead = outcome.kind == "dead"
    return asks.fail((job,), outcome.said(), outcome.after, is_dead, outcome.throttled).commands[0]
