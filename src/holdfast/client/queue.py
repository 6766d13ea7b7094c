"""The queue you hold: one interface over anything that executes commands.

    q = holdfast.open("memory:")
    q.add("emails", "hello", retry=30)
    with q.next("emails", timeout=5) as job:      # done when the block ends well,
        print(job.body)                           # given back when it raises

`Queue` blocks and may be shared by threads; `AsyncQueue` is its twin for asyncio. Both are glue: what a
method sends and how the answer reads is in `asks`, and how it gets to a node and back is the business of
a *channel*, the one-method port below. A channel may be a node in this process (`holdfast.embedded`) or
connections to one far away (`pool`).

Waiting for a job has three forms, so that no caller has to test for a value it did not expect:

    next(…, timeout=5)      a job, or `Empty` is raised after 5 s; without timeout it waits for ever
    try_next(…)             a job or None; does not wait unless told to
    take(…, count=50)       a list of 0 to 50 jobs; does not wait unless told to
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import Protocol, TypeVar, Unpack

from . import asks
from .asks import AddOptions, Ask, Body, Undo
from .errors import Empty
from .jobs import AsyncJob, Job
from .resp import Arg, Argv, Reply
from .values import JobView, Peeked, QueueStats

T = TypeVar("T")


class Channel(Protocol):
    """Something that executes commands. May be used by several threads at once."""

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None) -> Reply:
        """Run one command. Error replies are returned, not raised; what happens to the call itself is raised.

        patience  seconds the node may hold the answer back (0: none, None: no limit)
        undo      makes the command that takes the answer back, for an answer whose caller has gone
        """
        ...

    def close(self) -> None:
        """Let go of everything. Calls that wait are woken with `Closed`."""
        ...


class AsyncChannel(Protocol):
    """The same, awaited. A cancelled `call` leaves nothing behind."""

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None
    ) -> Reply: ...

    async def close(self) -> None: ...


class Queue:
    """Jobs in, jobs out. Safe to share between threads."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def add(self, queue: str, body: Body, **options: Unpack[AddOptions]) -> str:
        """Add a job and return its id. Options: see `AddOptions`."""
        return self._ask(asks.add(queue, body, **options))

    def add_many(self, queue: str, bodies: Iterable[Body], **options: Unpack[AddOptions]) -> list[str]:
        """Add many jobs in one call, all or none of them. Returns their ids in order."""
        ask = asks.add_many(queue, bodies, **options)
        return self._ask(ask) if ask.argv[3] else []

    def next(self, *queues: str, timeout: float | None = None) -> Job:
        """The next job of the first queue that has one; waits for it. `Empty` after `timeout` seconds."""
        job = self.try_next(*queues, timeout=timeout)
        if job is None:
            raise nothing(queues, timeout)
        return job

    def try_next(self, *queues: str, timeout: float | None = 0.0) -> Job | None:
        """A job if there is one within `timeout` seconds (0: only if it is there now), else None."""
        jobs = self.take(*queues, count=1, timeout=timeout)
        return jobs[0] if jobs else None

    def take(
        self, *queues: str, count: int = asks.TAKE_COUNT, timeout: float | None = 0.0
    ) -> list[Job]:
        """Up to `count` jobs that are there now. If none is, wait `timeout` seconds for the first."""
        return [Job(each, self) for each in self._ask(asks.take(queues, count, timeout))]

    def jobs(self, *queues: str, timeout: float | None = None) -> Iterator[Job]:
        """One job after the other: `for job in q.jobs("emails"): with job: …`.

        Ends when none came for `timeout` seconds; without timeout it never ends.
        """
        while True:
            job = self.try_next(*queues, timeout=timeout)
            if job is not None:
                yield job
            elif timeout is not None:
                return

    def done(self, *jobs: Job | str) -> int:
        """These jobs are done. Returns how many of them were still open at this node."""
        return self._ask(asks.done(ids(jobs))) if jobs else 0

    def fail(self, *jobs: Job | str) -> int:
        """Give these jobs back. Returns how many of them are queued again."""
        return self._ask(asks.fail(ids(jobs))) if jobs else 0

    def extend(self, job: Job | str) -> float:
        """Start the job's retry time again; returns its length in seconds. `NoJob`, `TooLate`."""
        return self._ask(asks.extend(*ids((job,))))

    def peek(self, queue: str, count: int = 10) -> list[Peeked]:
        """Look at the next jobs without taking them; a negative count looks from the newest end."""
        return self._ask(asks.peek(queue, count))

    def stats(self, queue: str) -> QueueStats | None:
        """Figures of a queue at this node, None if it has never heard of it."""
        return self._ask(asks.stats(queue))

    def length(self, queue: str) -> int:
        """How many jobs wait in the queue at this node."""
        return self._ask(asks.length(queue))

    def show(self, job: Job | str) -> JobView | None:
        """Everything this node knows about a job, None if it knows nothing."""
        return self._ask(asks.show(*ids((job,))))

    def call(self, *words: Arg) -> Reply:
        """Any command, in its own words; the raw answer. For what has no method here.

        Over connections, commands that would change the connection itself (MONITOR, CLIENT REPLY, …) are
        refused with `BadRequest`: it is shared with other calls.
        """
        return self._ask(asks.raw(words))

    def close(self) -> None:
        """Let go. Calls that are waiting raise `Closed`, and so do later ones."""
        self._channel.close()

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
        return ask.answer(self._channel.call(ask.argv, ask.patience, ask.undo))


class AsyncQueue:
    """`Queue` for asyncio: the same methods, awaited. For the tasks of one loop."""

    def __init__(self, channel: AsyncChannel) -> None:
        self._channel = channel

    async def add(self, queue: str, body: Body, **options: Unpack[AddOptions]) -> str:
        """See `Queue.add`."""
        return await self._ask(asks.add(queue, body, **options))

    async def add_many(
        self, queue: str, bodies: Iterable[Body], **options: Unpack[AddOptions]
    ) -> list[str]:
        """See `Queue.add_many`."""
        ask = asks.add_many(queue, bodies, **options)
        return await self._ask(ask) if ask.argv[3] else []

    async def next(self, *queues: str, timeout: float | None = None) -> AsyncJob:
        """See `Queue.next`. A task that is cancelled while it waits takes no job with it."""
        job = await self.try_next(*queues, timeout=timeout)
        if job is None:
            raise nothing(queues, timeout)
        return job

    async def try_next(self, *queues: str, timeout: float | None = 0.0) -> AsyncJob | None:
        """See `Queue.try_next`."""
        jobs = await self.take(*queues, count=1, timeout=timeout)
        return jobs[0] if jobs else None

    async def take(
        self, *queues: str, count: int = asks.TAKE_COUNT, timeout: float | None = 0.0
    ) -> list[AsyncJob]:
        """See `Queue.take`."""
        return [AsyncJob(each, self) for each in await self._ask(asks.take(queues, count, timeout))]

    async def jobs(self, *queues: str, timeout: float | None = None) -> AsyncIterator[AsyncJob]:
        """See `Queue.jobs`."""
        while True:
            job = await self.try_next(*queues, timeout=timeout)
            if job is not None:
                yield job
            elif timeout is not None:
                return

    async def done(self, *jobs: AsyncJob | str) -> int:
        """See `Queue.done`."""
        return await self._ask(asks.done(ids(jobs))) if jobs else 0

    async def fail(self, *jobs: AsyncJob | str) -> int:
        """See `Queue.fail`."""
        return await self._ask(asks.fail(ids(jobs))) if jobs else 0

    async def extend(self, job: AsyncJob | str) -> float:
        """See `Queue.extend`."""
        return await self._ask(asks.extend(*ids((job,))))

    async def peek(self, queue: str, count: int = 10) -> list[Peeked]:
        """See `Queue.peek`."""
        return await self._ask(asks.peek(queue, count))

    async def stats(self, queue: str) -> QueueStats | None:
        """See `Queue.stats`."""
        return await self._ask(asks.stats(queue))

    async def length(self, queue: str) -> int:
        """See `Queue.length`."""
        return await self._ask(asks.length(queue))

    async def show(self, job: AsyncJob | str) -> JobView | None:
        """See `Queue.show`."""
        return await self._ask(asks.show(*ids((job,))))

    async def call(self, *words: Arg) -> Reply:
        """See `Queue.call`."""
        return await self._ask(asks.raw(words))

    async def close(self) -> None:
        """See `Queue.close`."""
        await self._channel.close()

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
        return ask.answer(await self._channel.call(ask.argv, ask.patience, ask.undo))


def ids(jobs: Iterable[Job | AsyncJob | str]) -> list[str]:
    """Job objects and bare ids, mixed as the caller likes."""
    return [_id(job) for job in jobs]


def _id(job: object) -> str:
    found = job if isinstance(job, str) else getattr(job, "id", None)
    if isinstance(found, str):
        return found
    hint = "; pass several as done(*jobs)" if isinstance(job, list | tuple | set) else ""
    raise TypeError(f"a job or its id is wanted, not {'None' if job is None else type(job).__name__}{hint}")


def nothing(queues: tuple[str, ...], timeout: float | None) -> Empty:
    """The exception for a wait that brought no job."""
    waited = "when the node stopped waiting" if timeout is None else f"within {timeout:g} s"
    return Empty(f"no job in {', '.join(map(asks.name, queues))} {waited}")
