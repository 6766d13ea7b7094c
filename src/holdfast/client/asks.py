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

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack

from . import values
from .errors import BadRequest, Error
from .resp import Arg, Argv, Reply, to_text
from .values import Delivery, JobView, Peeked, QueueStats

T = TypeVar("T")
Undo: TypeAlias = "Callable[[Reply], Argv | None]"
Body: TypeAlias = "bytes | bytearray | memoryview | str"
"""What a job carries: bytes of any kind, or text, which is sent as UTF-8."""

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


ADD_OPTIONS: Final = frozenset(AddOptions.__annotations__)


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


def add(queue: str, body: Body, **options: Unpack[AddOptions]) -> Ask[str]:
    """ADDJOB → id."""
    _known("add", options)
    timeout = options.get("timeout", ADD_TIMEOUT_S)
    argv: list[Arg] = ["ADDJOB", name(queue), _body(body), _timeout(timeout), *_options(options)]
    return Ask(argv, values.text, patience=timeout)


def add_many(
    queue: str, bodies: Iterable[Body], **options: Unpack[AddOptions]
) -> Ask[list[str]]:
    """ADDJOBS → ids in the same order. All or nothing."""
    _known("add_many", options)
    timeout = options.get("timeout", ADD_TIMEOUT_S)
    many = [_body(body) for body in _many(bodies)]
    argv: list[Arg] = ["ADDJOBS", name(queue), _timeout(timeout), len(many), *many, *_options(options)]
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
        argv += ["COUNT", _count("count", count)]
    argv += ["WITHCOUNTERS", "FROM", *map(name, queues)]
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
    return Ask(["QPEEK", name(queue), _count("count", count)], values.peeked)


def stats(queue: str) -> Ask[QueueStats | None]:
    """QSTAT, None for a queue this node does not know."""
    return Ask(["QSTAT", name(queue)], values.queue_stats)


def length(queue: str) -> Ask[int]:
    """QLEN, jobs waiting on this node."""
    return Ask(["QLEN", name(queue)], values.whole)


def show(job_id: str) -> Ask[JobView | None]:
    """SHOW, None for a job this node does not know."""
    return Ask(["SHOW", job_id], values.job_view)


def raw(words: Argv) -> Ask[Reply]:
    """Any command, any answer."""
    if not words:
        raise BadRequest("a command has at least one word")
    return Ask([_word(each) for each in words], lambda reply: reply)


# -- what callers hand in -----------------------------------------------------------------------------------
#
# Not every caller has a type checker. What would be sent as something else than it is (a list as its repr,
# an option nobody reads) is a TypeError that says what to write instead.


def name(queue: str) -> str:
    """The name of a queue."""
    given: object = queue
    if isinstance(given, str):
        return given
    if isinstance(given, bytes):
        return to_text(given)
    hint = "; name several one after the other: next('a', 'b')" if isinstance(given, list | tuple | set) else ""
    raise TypeError(f"the name of a queue is a str, not {_kind(given)}{hint}")


def _body(body: Body) -> bytes | str:
    if isinstance(body, bytes | str):
        return body
    try:
        return memoryview(body).tobytes()
    except TypeError:
        pass
    raise TypeError(f"the body of a job is bytes or str, not {_kind(body)}; pass for example json.dumps(…)")


def _many(bodies: Iterable[Body]) -> Iterable[Body]:
    given: object = bodies
    if isinstance(given, bytes | bytearray | memoryview | str | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"add_many takes a list of bodies, not {_kind(given)}; for one job use add()")
    return bodies


def _word(word: Arg) -> Arg:
    given: object = word
    if isinstance(given, bytes | str) or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a word of a command is bytes, str or int, not {_kind(given)}")


def _known(method: str, options: AddOptions) -> None:
    if options.keys() <= ADD_OPTIONS:
        return
    wrong = next(each for each in options if each not in ADD_OPTIONS)
    close = difflib.get_close_matches(wrong, ADD_OPTIONS, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(ADD_OPTIONS))}"
    raise TypeError(f"{method}() has no option {wrong!r}; {hint}")


def _count(what: str, value: int) -> int:
    given: object = value
    if not isinstance(given, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{what} is a whole number, not {_kind(given)}")


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _options(options: AddOptions) -> list[Arg]:
    argv: list[Arg] = []
    if "replicate" in options:
        argv += ["REPLICATE", _count("replicate", options["replicate"])]
    if "delay" in options:
        argv += ["DELAY", _rounded_up("delay", options["delay"])]
    if "retry" in options:
        argv += ["RETRY", _rounded_up("retry", options["retry"])]
    if "ttl" in options:
        argv += ["TTL", _rounded_up("ttl", options["ttl"])]
    if "maxlen" in options:
        argv += ["MAXLEN", _count("maxlen", options["maxlen"])]
    if "priority" in options:
        argv += ["PRIORITY", _count("priority", options["priority"])]
    if options.get("is_async"):
        argv.append("ASYNC")
    return argv


def _timeout(seconds: float | None) -> int:
    """Milliseconds for the wire. There 0 means for ever, so the shortest wait is 1."""
    if seconds is None:
        return 0
    milliseconds = _rounded_up("timeout", seconds, 1000)
    if milliseconds < 0:
        raise BadRequest("timeout is negative")
    return max(1, milliseconds)


def _rounded_up(what: str, value: float, times: int = 1) -> int:
    given: object = value
    try:
        is_number = not isinstance(given, bool) and math.isfinite(value)
    except TypeError:
        is_number = None
    if is_number is None or isinstance(given, bool):
        raise TypeError(f"{what} is a number of seconds, not {_kind(given)}")
    if not is_number:
        raise BadRequest(f"{what} is not a number of seconds")
    return math.ceil(value * times)
