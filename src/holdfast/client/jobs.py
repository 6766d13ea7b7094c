"""A job in a worker's hands, and what leaving the `with` block means.

    with q.next("emails", timeout=5) as job:      async with await q.next("emails") as job:
        send(job.body)                                await send(job.body)

The block ends well: the job is done (ACKJOB). It ends with an exception: the job has failed (NACK) and the exception
goes on. It ends because we were stopped, by Ctrl-C or as a cancelled task: the job is given back without blame
(RELEASE). A job that was already settled inside the block, by `job.done()`, `job.fail()` or `job.release()`, is left
alone.

If the giving back fails as well (the connection broke), the exception the caller sees is still its own;
the other becomes a note on it. The job comes back by itself when its retry time is over.

A job knows the token of its hand-out and answers with it. When its lease was lost and somebody else has the job,
`LeaseLost` is raised instead of taking it away from them.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from .checks import Body
from .delivery import Delivery, Entry
from .errors import BadRequest, Error, LeaseLost
from .later import Later

if TYPE_CHECKING:
    import asyncio

    from .queue import AsyncQueue, Queue
else:
    asyncio = Later("asyncio")


class Settling:
    """While a job is said to be done or given back: it is settled, whatever comes of that. But not if what was said
    cannot be said, such as a result that is too long: then nothing was done."""

    __slots__ = ("job",)

    def __init__(self, job: Job | AsyncJob) -> None:
        self.job = job

    def __enter__(self) -> None:
        self.job.is_settled = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BadRequest) and not isinstance(error, LeaseLost):
            self.job.is_settled = False


class Job(Delivery):
    """A job that was handed out to us: do it, then say `done()` or `fail()`."""

    __slots__ = ("_source", "is_settled")

    def __init__(self, entry: Entry, source: Queue) -> None:
        self.entry = entry
        self.is_settled = False
        """Done or given back, through this object."""
        self._source = source

    def done(self, result: Body | None = None) -> bool:
        """It is done and must not come back. False: it was not open any more. `LeaseLost`: it is somebody else's."""
        with Settling(self):
            return self._source.done(self, result=result) == 1

    def fail(self, error: str = "", *, after: float | None = None, dead: bool = False) -> bool:
        """Give it back, to be handed out again. False: it can't be (done already, or at most once).

        after  seconds until it may be handed out again; without it the job's own backoff, or at once
        dead   no more attempts: it goes to the dead jobs
        """
        with Settling(self):
            return self._source.fail(self, error=error, after=after, dead=dead) == 1

    def release(self, *, after: float | None = None) -> bool:
        """Give it back without blame: it uses up no attempt."""
        with Settling(self):
            return self._source.release(self, after=after) == 1

    def extend(self, seconds: float | None = None) -> float:
        """Still working on it: the lease begins again. Returns its length in seconds."""
        return self._source.extend(self, seconds)

    def progress(self, fraction: float, text: str = "") -> bool:
        """Say how far it is. False: somebody wants it to stop."""
        return self._source.progress(self, fraction, text)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_settled:
            return
        if error is None:
            self.done()
            return
        try:
            if isinstance(error, Exception):
                self.fail(said(error))
            else:
                self.release()
        except Error as second:
            error.add_note(_note(self, second))


class AsyncJob(Delivery):
    """The same for asyncio."""

    __slots__ = ("_source", "is_settled")

    def __init__(self, entry: Entry, source: AsyncQueue) -> None:
        self.entry = entry
        self.is_settled = False
        self._source = source

    async def done(self, result: Body | None = None) -> bool:
        """See `Job.done`."""
        with Settling(self):
            return await self._source.done(self, result=result) == 1

    async def fail(self, error: str = "", *, after: float | None = None, dead: bool = False) -> bool:
        """See `Job.fail`."""
        with Settling(self):
            return await self._source.fail(self, error=error, after=after, dead=dead) == 1

    async def release(self, *, after: float | None = None) -> bool:
        """See `Job.release`."""
        with Settling(self):
            return await self._source.release(self, after=after) == 1

    async def extend(self, seconds: float | None = None) -> float:
        """See `Job.extend`."""
        return await self._source.extend(self, seconds)

    async def progress(self, fraction: float, text: str = "") -> bool:
        """See `Job.progress`."""
        return await self._source.progress(self, fraction, text)

    async def __aenter__(self) -> AsyncJob:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_settled:
            return
        # Shielded: a task that is cancelled while it answers for its job still answers.
        if error is None:
            await asyncio.shield(self.done())
            return
        back = self.fail(said(error)) if isinstance(error, Exception) else self.release()
        try:
            await asyncio.shield(back)
        except Error as second:
            error.add_note(_note(self, second))


ERROR_CHARS_MAX = 500
"""What a node is told of an exception: enough to find it, not a page of it."""


def said(error: BaseException) -> str:
    """An exception in a line, for the record of the job."""
    words = str(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return text.encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]


def _note(job: Delivery, second: Error) -> str:
    return f"Giving job {job.id} back failed too ({second}); it returns when its retry time is over."
