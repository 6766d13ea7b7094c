"""Every question a queue can ask, written once.

An `Ask` is a command that has not been sent: its words, how to read the answer, how long the node
may hold the answer back, and what to send if the answer comes when nobody is there to take it any
more. It does no I/O, so the sync and the async face, the embedded node and a connection all use the
same ones (see `queue`, which is only glue around this file).

Time: seconds as float in Python, whole milliseconds on the wire for timeouts. DELAY, RETRY and TTL are
whole seconds on the wire and are rounded up, so that 0.5 never becomes 0: RETRY 0 would turn "at least
once" into "at most once".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack

from . import values
from .errors import BadRequest, Error
from .resp import Arg, Argv, Reply
from .values import Delivery, JobView, Peeked, QueueStats

T = TypeVar("T")
Undo: TypeAlias = "Callable[[Reply], Argv | None]"

ADD_TIMEOUT_S: Final = 5.0
"""How long a producer waits for copies unless it says otherwise."""
TAKE_COUNT: Final = 100
"""Jobs per `take` unless the caller says otherwise: enough to share a round trip, few enough to lease."""


class AddOptions(TypedDict, total=False):
    """What a producer may say about a job; all optional.

    timeout    seconds to wait for the copies (5); None waits as long as it takes
    replicate  how many nodes must hold the job before the answer
    delay      seconds before it may be handed out
    retry      seconds after a hand-out without an answer until it is handed out again; 0: at most once
    ttl        seconds until it is dropped, done or not
    maxlen     refuse (`MaxLen`) if the queue already holds this many
    priority   0 to 9, 9 first
    is_async   answer before the copies are made
    """

    timeout: float | None
    replicate: int
    delay: float
    retry: float
    ttl: float
    maxlen: int
    priority: int
    is_async: bool


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """A command and all there is to know about its answer."""

    argv: Argv
    read: Callable[[Reply], T]
    patience: float | None = 0.0
    """Seconds the node may hold the answer back; 0: it answers at once; None: no limit."""
    undo: Undo | None = None
    """What to send if the caller has gone when the answer comes: a job nobody sees goes back."""

    def answer(self, reply: Reply) -> T:
        """The value, or the exception the node's error stands for."""
        if isinstance(reply, Error):
            raise reply
        return self.read(reply)


def add(queue: str, body: bytes | str, **options: Unpack[AddOptions]) -> Ask[str]:
    """ADDJOB → id."""
    timeout = options.get("timeout", ADD_TIMEOUT_S)
    argv: list[Arg] = ["ADDJOB", queue, body, _timeout(timeout), *_options(options)]
    return Ask(argv, values.text, patience=timeout)


def add_many(
    queue: str, bodies: Iterable[bytes | str], **options: Unpack[AddOptions]
) -> Ask[list[str]]:
    """ADDJOBS → ids in the same order. All or nothing."""
    timeout = options.get("timeout", ADD_TIMEOUT_S)
    many = list(bodies)
    argv: list[Arg] = ["ADDJOBS", queue, _timeout(timeout), len(many), *many, *_options(options)]
    return Ask(argv, values.texts, patience=timeout)


def take(queues: tuple[str, ...], count: int, timeout: float | None) -> Ask[list[Delivery]]:
    """GETJOB: up to `count` jobs that are there; if none is, wait `timeout` seconds for one."""
    if not queues:
        raise BadRequest("name at least one queue")
    argv: list[Arg] = ["GETJOB"]
    if timeout == 0:
        argv.append("NOHANG")
    elif timeout is not None:
        argv += ["TIMEOUT", _timeout(timeout)]
    if count != 1:
        argv += ["COUNT", count]
    argv += ["WITHCOUNTERS", "FROM", *queues]
    return Ask(argv, values.deliveries, patience=timeout, undo=give_back)


def give_back(reply: Reply) -> Argv | None:
    """Undo of GETJOB: the jobs in an answer that came too late return to their queue."""
    try:
        ids = [job.id for job in values.deliveries(reply)]
    except Error:
        return None  # An error reply: no job was handed out.
    return ["NACK", *ids] if ids else None


def done(ids: list[str]) -> Ask[int]:
    """ACKJOB → how many of them were still open here."""
    return Ask(["ACKJOB", *ids], values.whole)


def fail(ids: list[str]) -> Ask[int]:
    """NACK → how many of them are queued again."""
    return Ask(["NACK", *ids], values.whole)


def extend(job_id: str) -> Ask[float]:
    """WORKING → seconds until the job would be handed out again."""
    return Ask(["WORKING", job_id], lambda reply: float(values.whole(reply)))


def peek(queue: str, count: int) -> Ask[list[Peeked]]:
    """QPEEK: the next `count` jobs; negative: the newest ones."""
    return Ask(["QPEEK", queue, count], values.peeked)


def stats(queue: str) -> Ask[QueueStats | None]:
    """QSTAT, None for a queue this node does not know."""
    return Ask(["QSTAT", queue], values.queue_stats)


def length(queue: str) -> Ask[int]:
    """QLEN, jobs waiting on this node."""
    return Ask(["QLEN", queue], values.whole)


def show(job_id: str) -> Ask[JobView | None]:
    """SHOW, None for a job this node does not know."""
    return Ask(["SHOW", job_id], values.job_view)


def raw(words: Argv) -> Ask[Reply]:
    """Any command, any answer."""
    return Ask(words, lambda reply: reply)


def _options(options: AddOptions) -> list[Arg]:
    argv: list[Arg] = []
    if "replicate" in options:
        argv += ["REPLICATE", options["replicate"]]
    if "delay" in options:
        argv += ["DELAY", _seconds("delay", options["delay"])]
    if "retry" in options:
        argv += ["RETRY", _seconds("retry", options["retry"])]
    if "ttl" in options:
        argv += ["TTL", _seconds("ttl", options["ttl"])]
    if "maxlen" in options:
        argv += ["MAXLEN", options["maxlen"]]
    if "priority" in options:
        argv += ["PRIORITY", options["priority"]]
    if options.get("is_async"):
        argv.append("ASYNC")
    return argv


def _timeout(seconds: float | None) -> int:
    """Milliseconds for the wire. There 0 means for ever, so the shortest wait is 1."""
    if seconds is None:
        return 0
    if seconds < 0:
        raise BadRequest("timeout is negative")
    return max(1, _rounded_up("timeout", seconds * 1000))


def _seconds(name: str, seconds: float) -> int:
    return _rounded_up(name, seconds)


def _rounded_up(name: str, value: float) -> int:
    if not math.isfinite(value):
        raise BadRequest(f"{name} is not a number of seconds")
    return math.ceil(value)
