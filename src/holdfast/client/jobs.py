"""A job in a worker's hands, and what leaving the `with` block means.

    with q.next("emails", timeout=5) as job:      async with await q.next("emails") as job:
        send(job.body)                                await send(job.body)

The block ends well: the job is done (ACKJOB). It ends with an exception, any exception, also Ctrl-C or a
cancelled task: the job is given back (NACK) and the exception goes on. A job that was already settled
inside the block, by `job.done()` or `job.fail()`, is left alone.

If the giving back fails as well (the connection broke), the exception the caller sees is still its own;
the other becomes a note on it. The job comes back by itself when its retry time is over.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from .errors import Error
from .values import Delivery

if TYPE_CHECKING:
    from .queue import AsyncQueue, Queue


class _Held:
    """What both faces of a job have in common: its data, and whether it was settled."""

    __slots__ = ("additional_deliveries", "body", "id", "is_settled", "nacks", "queue")

    def __init__(self, delivery: Delivery) -> None:
        self.id = delivery.id
        self.queue = delivery.queue
        self.body = delivery.body
        self.nacks = delivery.nacks
        self.additional_deliveries = delivery.additional_deliveries
        self.is_settled = False
        """Done or given back, through this object."""

    @property
    def text(self) -> str:
        """The body as text (UTF-8)."""
        return self.body.decode()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue!r}, {len(self.body)} bytes>"


class Job(_Held):
    """A job that was handed out to us: do it, then say `done()` or `fail()`."""

    __slots__ = ("_source",)

    def __init__(self, delivery: Delivery, source: Queue) -> None:
        super().__init__(delivery)
        self._source = source

    def done(self) -> bool:
        """It is done and must not come back. False: it was not open any more."""
        self.is_settled = True
        return self._source.done(self.id) == 1

    def fail(self) -> bool:
        """Give it back, to be handed out again. False: it can't be (done already, or at most once)."""
        self.is_settled = True
        return self._source.fail(self.id) == 1

    def extend(self) -> float:
        """Still working on it: start the retry time again. Returns its length in seconds."""
        return self._source.extend(self.id)

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
            self.fail()
        except Error as second:
            error.add_note(_note(self, second))


class AsyncJob(_Held):
    """The same for asyncio."""

    __slots__ = ("_source",)

    def __init__(self, delivery: Delivery, source: AsyncQueue) -> None:
        super().__init__(delivery)
        self._source = source

    async def done(self) -> bool:
        """See `Job.done`."""
        self.is_settled = True
        return await self._source.done(self.id) == 1

    async def fail(self) -> bool:
        """See `Job.fail`."""
        self.is_settled = True
        return await self._source.fail(self.id) == 1

    async def extend(self) -> float:
        """See `Job.extend`."""
        return await self._source.extend(self.id)

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
        try:
            await asyncio.shield(self.fail())
        except Error as second:
            error.add_note(_note(self, second))


def _note(job: _Held, second: Error) -> str:
    return f"Giving job {job.id} back failed too ({second}); it returns when its retry time is over."
