"""How a run may end, other than by returning or by failing.

    raise Retry(after=30)         it did not work, try again in 30 s; uses up an attempt
    raise Discard("no such user") it never will: no more attempts, it goes to the dead jobs
    raise Snooze(60)              not yet: come back in a minute; uses up no attempt

Any other exception is a failure: the job is tried again after its backoff, until its attempts are used up. Two come
from outside, and a handler may catch them to tidy up: `TimeLimit` and `Cancelled`. They are no `Exception`, so that
`except Exception` in a handler does not swallow them.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.client.errors import Error
from holdfast.client.jobs import said

TRACE_CHARS_MAX: Final = 4000
"""Of a traceback, what is told to the node: its end, where the exception was raised. It keeps four kilobytes."""


class Retry(Exception):
    """Try again after so many seconds. `throttled`: whoever it is for has enough, its domain slows down."""

    def __init__(self, reason: str = "", *, after: float | None = None, throttled: bool = False) -> None:
        super().__init__(reason or "try again")
        self.after = after
        self.throttled = throttled


class Discard(Exception):
    """It will never work."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "discarded")


class BadResult(Discard):
    """The task has done its work, and what it returned cannot be kept as a result. To run it again would not help."""


class Snooze(Exception):
    """Not yet."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not for {seconds:g} s")
        self.seconds = seconds


class TimeLimit(BaseException):
    """The task has run for longer than it may."""


class Cancelled(BaseException):
    """Somebody cancelled the job, or its lease was lost to another worker."""


class TaskFailed(Error):
    """The job that was waited for is dead, expired or deleted."""

    code = "FAILED"


Kind: TypeAlias = Literal["done", "failed", "dead", "released", "dropped"]


@dataclass(slots=True)
class Outcome:
    """What to tell the node."""

    kind: Kind
    """`dropped`: nothing, the job is somebody else's."""
    result: bytes | None = None
    error: str = ""
    after: float | None = None
    throttled: bool = False
    exception: BaseException | None = None

    def said(self) -> str:
        """What the node keeps of a failure: the error in a line and, where it is a fault and nothing that was said on
        purpose, the end of the traceback."""
        error = self.exception
        if error is None or isinstance(error, Retry | Discard | TimeLimit):
            return self.error
        lines = "".join(traceback.format_exception(error)).rstrip()
        return f"{self.error}\n{lines[-TRACE_CHARS_MAX:]}"


def of_exception(error: BaseException) -> Outcome:
    """What an exception in a handler means for its job."""
    if isinstance(error, Retry):
        return Outcome("failed", error=said(error), after=error.after, throttled=error.throttled, exception=error)
    if isinstance(error, Discard):
        return Outcome("dead", error=said(error), exception=error)
    if isinstance(error, Snooze):
        return Outcome("released", after=error.seconds, exception=error)
    if isinstance(error, Cancelled):
        return Outcome("released", exception=error)  # A job that was called off ends when it comes back.
    if isinstance(error, Exception | TimeLimit):
        return Outcome("failed", error=said(error), exception=error)
    return Outcome("released", exception=error)  # Ctrl-C, SystemExit: it is us who are stopped.
