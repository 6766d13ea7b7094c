"""The queue you hold: one interface over anything that executes commands.

    q = holdfast.open("memory:")
    q.add("emails", "hello", retry=30)
    with q.next("emails", timeout=5) as job:      # done when the block ends well,
        print(job.body)                           # given back when it raises

`Queue` blocks and may be shared by threads; `AsyncQueue` is its twin for asyncio. Both are glue: what a
method sends and how the answer reads is in `asks` and `admin`, and how it gets to a node and back is the business of
a *channel*, the small port below. A channel may be a node in this process (`holdfast.embedded`) or
connections to one far away (`pool`). A new door is a new channel, and nothing else.

Waiting for a job has three forms, so that no caller has to test for a value it did not expect:

    next(…, timeout=5)      a job, or `Empty` is raised after 5 s; without timeout it waits for ever
    try_next(…)             a job or None; does not wait unless told to
    take(…, count=50)       a list of 0 to 50 jobs; does not wait unless told to

An outcome that nobody knows is raised as `Unknown`, with the jobs it is about. Only calls that may be repeated
without harm (questions, keepalives, idempotent adds) are repeated first, once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, TypeVar, Unpack

from . import asks, checks
from .adding import AddOptions
from .admin import Admin, AsyncAdmin
from .asks import Ask, Cancelled, Kept, Settling, Undo, held, id_of
from .checks import Body
from .delivery import Delivery
from .errors import Empty, LeaseLost, Unknown
from .jobs import AsyncJob, Job
from .resp import Arg, Argv, Reply
from .values import Explanation, JobView, Peeked, Waited

T = TypeVar("T")


class Channel(Protocol):
    """Something that executes commands. May be used by several threads at once."""

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        """Run one command. Error replies are returned, not raised; what happens to the call itself is raised.

        patience  seconds the node may hold the answer back (0: none, None: no limit)
        undo      makes the command that takes the answer back, for an answer whose caller has gone
        near      eight digits of the id of the node that knows best; any other will do
        """
        ...

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        """Run many commands that don't wait, in order and in as few round trips as there can be."""
        ...

    def twin(self) -> AsyncChannel:
        """The same for asyncio: to the same node."""
        ...

    def close(self) -> None:
        """Let go of everything. Calls that wait are woken with `Closed`."""
        ...


class AsyncChannel(Protocol):
    """The same, awaited. A cancelled `call` leaves nothing behind."""

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply: ...

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]: ...

    async def close(self) -> None: ...


class Queue(Admin):
    """Jobs in, jobs out. Safe to share between threads."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def add(self, queue: str, body: Body, **options: Unpack[AddOptions]) -> str:
        """Add a job and return its id. Options: see `AddOptions`."""
        return self._ask(asks.add(queue, body, **options))

    def add_many(self, queue: str, bodies: Iterable[Body], **options: Unpack[AddOptions]) -> list[str]:
        """Add many jobs in one call, all or none of them. Returns their ids in order."""
        ask = asks.add_many(queue, bodies, **options)
        return self._ask(ask) if ask.argv[3] else []

    def next(self, *queues: str, timeout: float | None = None, lease: float | None = None) -> Job:
        """The next job of the first queue that has one; waits for it. `Empty` after `timeout` seconds."""
        job = self.try_next(*queues, timeout=timeout, lease=lease)
        if job is None:
            raise nothing(queues, timeout)
        return job

    def try_next(self, *queues: str, timeout: float | None = 0.0, lease: float | None = None) -> Job | None:
        """A job if there is one within `timeout` seconds (0: only if it is there now), else None."""
        jobs = self.take(*queues, count=1, timeout=timeout, lease=lease)
        return jobs[0] if jobs else None

    def take(
        self, *queues: str, count: int = asks.TAKE_COUNT, timeout: float | None = 0.0, lease: float | None = None,
        fenced: bool = True,
    ) -> list[Job]:
        """Up to `count` jobs that are there now. If none is, wait `timeout` seconds for the first.

        lease   seconds we have each of them; without it the retry time their producer gave them
        fenced  with tokens: see `jobs`. Without them everything is a little faster
        """
        return [Job(each, self) for each in self._ask(asks.take(queues, count, timeout, lease, fenced))]

    def jobs(self, *queues: str, timeout: float | None = None, lease: float | None = None) -> Iterator[Job]:
        """One job after the other: `for job in q.jobs("emails"): with job: …`.

        Ends when none came for `timeout` seconds; without timeout it never ends.
        """
        while True:
            job = self.try_next(*queues, timeout=timeout, lease=lease)
            if job is not None:
                yield job
            elif timeout is not None:
                return

    def done(self, *jobs: Job | str, result: Body | None = None) -> int:
        """These jobs are done. Returns how many of them were still open.

        For one job, `LeaseLost` is raised when it is somebody else's by now; among several it is not counted.
        """
        return self._settle(asks.done(jobs, result)) if jobs else 0

    def fail(
        self, *jobs: Job | str, error: str = "", after: float | None = None, dead: bool = False,
        throttled: bool = False,
    ) -> int:
        """Give these jobs back. Returns how many of them are queued again, or will be.

        error      why, for the record of the job
        after      seconds until it may be handed out again; without it the job's own backoff, or at once
        dead       no more attempts: it goes to the dead jobs
        throttled  whoever the job is for has enough: its whole domain slows down for `after` seconds
        """
        return self._settle(asks.fail(jobs, error, after, dead, throttled)) if jobs else 0

    def release(self, *jobs: Job | str, after: float | None = None) -> int:
        """Give these jobs back without blame: it uses up no attempt. Returns how many are queued again."""
        return self._settle(asks.release(jobs, after)) if jobs else 0

    def extend(self, job: Job | str, seconds: float | None = None) -> float:
        """The lease begins again; returns its length in seconds. `NoJob`, `TooLate`, `LeaseLost`.

        Without `seconds` it is the job's retry time, and half of the job's life is the limit. With `seconds`
        it has no limit but the job's life, and only the holder of the job may ask.
        """
        if seconds is None or not isinstance(job, Delivery) or not job.token:
            return self._ask(asks.extend(id_of(job), seconds))
        return kept(job, self._ask(asks.keep([job], seconds)), seconds)

    def keep(self, jobs: Sequence[Job], seconds: float) -> list[Kept]:
        """Extend many leases in one call. For each: "ok", "cancelled" (please stop), "lost" or "unknown"."""
        return self._ask(asks.keep([held(job) for job in jobs], seconds)) if jobs else []

    def progress(self, job: Job, fraction: float, text: str = "") -> bool:
        """Say how far a job is. False: somebody wants it to stop."""
        return self._ask(asks.progress(held(job), fraction, text))

    def cancel(self, job: Job | str) -> Cancelled:
        """Don't do this job. "cancelled": it waited; "asked": its worker will be told; "unknown": it is not there."""
        return self._ask(asks.cancel(id_of(job)))

    def wait(
        self, *jobs: Job | str, timeout: float | None = None, any: bool = False
    ) -> list[Waited]:
        """Wait until these jobs (or one of them, with `any`) have ended, and say what became of each."""
        return self._ask(asks.wait([id_of(each) for each in jobs], timeout, any)) if jobs else []

    def peek(self, queue: str, count: int = 10) -> list[Peeked]:
        """Look at the next jobs without taking them; a negative count looks from the newest end."""
        return self._ask(asks.peek(queue, count))

    def show(self, job: Job | str) -> JobView | None:
        """Everything this node knows about a job, None if it knows nothing."""
        return self._ask(asks.show(id_of(job)))

    def explain(self, job: Job | str) -> Explanation | None:
        """Why a job is not running, or why it ran twice; None if nobody knows it."""
        return self._ask(asks.explain(id_of(job)))

    def call(self, *words: Arg) -> Reply:
        """Any command, in its own words; the raw answer. For what has no method here.

        Over connections, commands that would change the connection itself (MONITOR, CLIENT REPLY, …) are
        refused with `BadRequest`: it is shared with other calls.
        """
        return self._ask(asks.raw(words))

    def aio(self) -> AsyncQueue:
        """The same queue for asyncio: the same embedded node, or connections of its own to the same nodes."""
        return AsyncQueue(self.channel.twin())

    def close(self) -> None:
        """Let go. Calls that are waiting raise `Closed`, and so do later ones."""
        self.channel.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, ask: Ask[T]) -> T:
        try:
            return ask.answer(self.channel.call(ask.argv, ask.patience, ask.undo, ask.near))
        except Unknown as error:
            error.jobs = ask.jobs
            if not ask.again:
                raise
        return ask.answer(self.channel.call(ask.argv, ask.patience, ask.undo, ask.near))

    def _settle(self, settling: Settling) -> int:
        try:
            if len(settling.commands) == 1:
                return settling.count([self.channel.call(settling.commands[0], near=settling.near)])
            return settling.count(self.channel.call_many(settling.commands, settling.near))
        except Unknown as error:
            error.jobs = settling.ids()
            raise


class AsyncQueue(AsyncAdmin):
    """`Queue` for asyncio: the same methods, awaited. For the tasks of one loop."""

    def __init__(self, channel: AsyncChannel) -> None:
        self.channel = channel

    async def add(self, queue: str, body: Body, **options: Unpack[AddOptions]) -> str:
        """See `Queue.add`."""
        return await self._ask(asks.add(queue, body, **options))

    async def add_many(
        self, queue: str, bodies: Iterable[Body], **options: Unpack[AddOptions]
    ) -> list[str]:
        """See `Queue.add_many`."""
        ask = asks.add_many(queue, bodies, **options)
        return await self._ask(ask) if ask.argv[3] else []

    async def next(self, *queues: str, timeout: float | None = None, lease: float | None = None) -> AsyncJob:
        """See `Queue.next`. A task that is cancelled while it waits takes no job with it."""
        job = await self.try_next(*queues, timeout=timeout, lease=lease)
        if job is None:
            raise nothing(queues, timeout)
        return job

    async def try_next(
        self, *queues: str, timeout: float | None = 0.0, lease: float | None = None
    ) -> AsyncJob | None:
        """See `Queue.try_next`."""
        jobs = await self.take(*queues, count=1, timeout=timeout, lease=lease)
        return jobs[0] if jobs else None

    async def take(
        self, *queues: str, count: int = asks.TAKE_COUNT, timeout: float | None = 0.0, lease: float | None = None,
        fenced: bool = True,
    ) -> list[AsyncJob]:
        """See `Queue.take`."""
        found = await self._ask(asks.take(queues, count, timeout, lease, fenced))
        return [AsyncJob(each, self) for each in found]

    async def jobs(
        self, *queues: str, timeout: float | None = None, lease: float | None = None
    ) -> AsyncIterator[AsyncJob]:
        """See `Queue.jobs`."""
        while True:
            job = await self.try_next(*queues, timeout=timeout, lease=lease)
            if job is not None:
                yield job
            elif timeout is not None:
                return

    async def done(self, *jobs: AsyncJob | str, result: Body | None = None) -> int:
        """See `Queue.done`."""
        return await self._settle(asks.done(jobs, result)) if jobs else 0

    async def fail(
        self, *jobs: AsyncJob | str, error: str = "", after: float | None = None, dead: bool = False,
        throttled: bool = False,
    ) -> int:
        """See `Queue.fail`."""
        return await self._settle(asks.fail(jobs, error, after, dead, throttled)) if jobs else 0

    async def release(self, *jobs: AsyncJob | str, after: float | None = None) -> int:
        """See `Queue.release`."""
        return await self._settle(asks.release(jobs, after)) if jobs else 0

    async def extend(self, job: AsyncJob | str, seconds: float | None = None) -> float:
        """See `Queue.extend`."""
        if seconds is None or not isinstance(job, Delivery) or not job.token:
            return await self._ask(asks.extend(id_of(job), seconds))
        return kept(job, await self._ask(asks.keep([job], seconds)), seconds)

    async def keep(self, jobs: Sequence[AsyncJob], seconds: float) -> list[Kept]:
        """See `Queue.keep`."""
        return await self._ask(asks.keep([held(job) for job in jobs], seconds)) if jobs else []

    async def progress(self, job: AsyncJob, fraction: float, text: str = "") -> bool:
        """See `Queue.progress`."""
        return await self._ask(asks.progress(held(job), fraction, text))

    async def cancel(self, job: AsyncJob | str) -> Cancelled:
        """See `Queue.cancel`."""
        return await self._ask(asks.cancel(id_of(job)))

    async def wait(
        self, *jobs: AsyncJob | str, timeout: float | None = None, any: bool = False
    ) -> list[Waited]:
        """See `Queue.wait`."""
        return await self._ask(asks.wait([id_of(each) for each in jobs], timeout, any)) if jobs else []

    async def peek(self, queue: str, count: int = 10) -> list[Peeked]:
        """See `Queue.peek`."""
        return await self._ask(asks.peek(queue, count))

    async def show(self, job: AsyncJob | str) -> JobView | None:
        """See `Queue.show`."""
        return await self._ask(asks.show(id_of(job)))

    async def explain(self, job: AsyncJob | str) -> Explanation | None:
        """See `Queue.explain`."""
        return await self._ask(asks.explain(id_of(job)))

    async def call(self, *words: Arg) -> Reply:
        """See `Queue.call`."""
        return await self._ask(asks.raw(words))

    async def close(self) -> None:
        """See `Queue.close`."""
        await self.channel.close()

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _ask(self, ask: Ask[T]) -> T:
        try:
            return ask.answer(await self.channel.call(ask.argv, ask.patience, ask.undo, ask.near))
        except Unknown as error:
            error.jobs = ask.jobs
            if not ask.again:
                raise
        return ask.answer(await self.channel.call(ask.argv, ask.patience, ask.undo, ask.near))

    async def _settle(self, settling: Settling) -> int:
        try:
            if len(settling.commands) == 1:
                return settling.count([await self.channel.call(settling.commands[0], near=settling.near)])
            return settling.count(await self.channel.call_many(settling.commands, settling.near))
        except Unknown as error:
            error.jobs = settling.ids()
            raise


def kept(job: Delivery, words: list[Kept], seconds: float) -> float:
    """The length of a lease that was extended, or what became of it."""
    if words[0] == "lost":
        raise LeaseLost(f"job {job.id} is no longer ours: its lease ended, or it did")
    return seconds


def nothing(queues: tuple[str, ...], timeout: float | None) -> Empty:
    """The exception for a wait that brought no job."""
    waited = "when the node stopped waiting" if timeout is None else f"within {timeout:g} s"
    return Empty(f"no job in {', '.join(map(checks.name, queues))} {waited}")
