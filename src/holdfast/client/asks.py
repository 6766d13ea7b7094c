"""Every question about jobs that a queue can ask, written once (those about everything else are in `admin`).

An `Ask` is a command that has not been sent: its words, how to read the answer, how long the node
may hold the answer back, and what to send if the answer comes when nobody is there to take it any
more. It does no I/O, so the sync and the async face, the embedded node and a connection all use the
same ones (see `queue`, which is only glue around this file).

Jobs that were handed out with a token are answered for with it (`Delivery`): a node that has given the job to
somebody else meanwhile says so (`LeaseLost`) instead of taking our word for theirs. A bare id is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, Unpack

from . import adding, checks, values
from .adding import ADD_TIMEOUT_S, AddOptions
from .checks import Body
from .delivery import ID, TOKEN, Delivery, Entry, entries
from .errors import BadRequest, Error, LeaseLost, Unknown
from .manners import only_looks
from .resp import Arg, Argv, Reply, to_bytes
from .values import Explanation, JobView, Peeked, Waited

T = TypeVar("T")
Undo: TypeAlias = "Callable[[Reply], Argv | None]"
Cancelled: TypeAlias = Literal["cancelled", "asked", "unknown"]
Kept: TypeAlias = Literal["ok", "cancelled", "lost", "unknown"]

PAIRS_MAX: Final = 10_000
"""Jobs and their tokens in one command: what a node takes (LEASES_AT_ONCE)."""
TAKE_COUNT: Final = 100
"""Jobs per `take` unless the caller says otherwise: enough to share a round trip, few enough to lease."""


Meant: TypeAlias = "Delivery | str"
"""A job that was handed out to us, or the id of one."""


def id_of(job: object) -> str:
    """The id of a job, however it is meant. For callers without a type checker, as `checks`."""
    if isinstance(job, str):
        return job
    found = getattr(job, "id", None)
    if isinstance(found, str):
        return found
    hint = "; pass several as done(*jobs)" if isinstance(job, list | tuple | set) else ""
    raise TypeError(f"a job or its id is wanted, not {checks.kind(job)}{hint}")


def held(job: Delivery) -> Delivery:
    """A job with its token."""
    given: object = job
    if isinstance(given, Delivery):
        return given
    raise TypeError(f"a job that was handed out is wanted, for its token, not {checks.kind(given)}")


@dataclass(slots=True)
class Ask(Generic[T]):
    """A command and all there is to know about its answer. Not frozen: that would cost a microsecond each."""

    argv: Argv
    read: Callable[[Reply], T]
    patience: float | None = 0.0
    """Seconds the node may hold the answer back; 0: it answers at once; None: no limit."""
    undo: Undo | None = None
    """What to send if the caller has gone when the answer comes: a job nobody sees goes back."""
    near: str = ""
    """Eight digits of the id of the node that knows best; any other will do."""
    again: bool = False
    """May be sent a second time when the answer to the first was lost."""
    jobs: tuple[str, ...] = ()
    """The jobs it is about, for the error that says we don't know what became of it."""

    def answer(self, reply: Reply) -> T:
        """The value, or the exception the node's error stands for."""
        if isinstance(reply, Error):
            if isinstance(reply, Unknown):
                reply.jobs = self.jobs
            raise reply
        return self.read(reply)


def add(queue: str, body: Body, **options: Unpack[AddOptions]) -> Ask[str]:
    """ADDJOB → id."""
    options = adding.settled("add", options)
    timeout = options.get("timeout", ADD_TIMEOUT_S)
    argv: list[Arg] = ["ADDJOB", checks.name(queue), checks.body_of(body), checks.timeout_ms(timeout)]
    if not options:
        return Ask(argv, values.text, timeout)
    argv += adding.words(options)
    read = values.counted_id if options.get("say_copies") else values.text
    return Ask(argv, read, timeout, again=bool(options.get("idempotent")))


def add_many(
    queue: str, bodies: Iterable[Body], **options: Unpack[AddOptions]
) -> Ask[list[str]]:
    """ADDJOBS → ids in the same order. All or nothing."""
    options = adding.settled("add_many", options)
    timeout = options.get("timeout", ADD_TIMEOUT_S)
    many = [checks.body_of(body) for body in checks.many(bodies)]
    argv: list[Arg] = [
        "ADDJOBS", checks.name(queue), checks.timeout_ms(timeout), len(many), *many, *adding.words(options)
    ]
    return Ask(argv, values.counted_ids if options.get("say_copies") else values.ids, timeout)


def take(
    queues: tuple[str, ...], count: int, timeout: float | None, lease: float | None = None, is_fenced: bool = True
) -> Ask[list[Entry]]:
    """GETJOB: up to `count` jobs that are there; if none is, wait `timeout` seconds for one."""
    if not queues:
        raise BadRequest("name at least one queue")
    argv: list[Arg] = ["GETJOB"]
    if timeout == 0:
        argv.append("NOHANG")
    elif timeout is not None:
        argv += ["TIMEOUT", checks.timeout_ms(timeout)]
    if count != 1:
        argv += ["COUNT", checks.count("count", count)]
    if lease is not None:
        argv += ["LEASEMS", checks.rounded_up("lease", lease, 1000)]
    if is_fenced:
        argv += ["WITHCOUNTERS", "WITHMETA"]
    argv += ["FROM", *map(checks.name, queues)]
    return Ask(argv, entries, timeout, give_back)


def give_back(reply: Reply) -> Argv | None:
    """Undo of GETJOB: the jobs in an answer that came too late return to their queue."""
    try:
        ids = [entry[ID] for entry in entries(reply)]
    except Error:
        return None  # An error reply: no job was handed out.
    return ["RELEASE", *ids] if ids else None


class Settling(NamedTuple):
    """Commands that answer for jobs: one for all that need no words of their own, one for each of the others."""

    commands: list[Argv]
    jobs: Sequence[Meant]

    @property
    def near(self) -> str:
        first = self.jobs[0]
        return first.near if isinstance(first, Delivery) else ""

    def ids(self) -> tuple[str, ...]:
        return tuple(map(id_of, self.jobs))

    def count(self, replies: Sequence[Reply]) -> int:
        """How many jobs were settled. Among several, one whose lease was lost is not ours to settle: not counted."""
        count = 0
        for reply in replies:
            if type(reply) is list:  # of a command about many, a reply for each
                count += self.count(reply)
            elif isinstance(reply, Error):
                if len(self.jobs) == 1 or not isinstance(reply, LeaseLost):
                    raise reply
            else:
                count += values.whole(reply)
        return count


def done(jobs: Sequence[Meant], result: Body | None = None) -> Settling:
    """ACKJOB, or ACKJOBS for many with their tokens → how many of them were still open."""
    if result is None:
        return _settle("ACKJOB", jobs, []) if len(jobs) == 1 else _done_all(jobs)
    if len(jobs) != 1:
        raise BadRequest("a result is one job's: done(job, result=…)")
    return _settle("ACKJOB", jobs, ["RESULT", checks.body_of(result, "the result of a job")])


def fail(
    jobs: Sequence[Meant], error: str = "", after: float | None = None, is_dead: bool = False, throttled: bool = False
) -> Settling:
    """NACK → how many of them are queued again, or wait to be."""
    words: list[Arg] = []
    if throttled:
        words += ["RETRYAFTERMS", checks.rounded_up("after", after or 0.0, 1000)]
    elif after is not None:
        words += ["DELAY", checks.rounded_up("after", after)]
    if error:
        words += ["ERROR", checks.key("error", error)]
    if is_dead:
        words.append("DEAD")
    return _settle("NACK", jobs, words)


def release(jobs: Sequence[Meant], after: float | None = None) -> Settling:
    """RELEASE → how many of them are queued again. Uses up no attempt."""
    return _settle("RELEASE", jobs, [] if after is None else ["DELAY", checks.rounded_up("after", after)])


def _done_all(jobs: Sequence[Meant]) -> Settling:
    plain: list[Meant] = []
    pairs: list[Arg] = []
    for job in jobs:
        if isinstance(job, Delivery) and len(job.entry) > TOKEN and job.entry[TOKEN]:
            pairs.append(job.entry[ID])
            pairs.append(job.entry[TOKEN])
        else:
            plain.append(job)
    commands = _settle("ACKJOB", plain, []).commands
    for start in range(0, len(pairs), 2 * PAIRS_MAX):
        commands.append(["ACKJOBS", *pairs[start : start + 2 * PAIRS_MAX]])
    return Settling(commands, jobs)


def _settle(command: str, jobs: Sequence[Meant], words: list[Arg]) -> Settling:
    commands: list[Argv] = []
    plain: list[Arg] = [command]
    for job in jobs:
        token: Arg = b""
        job_id: Arg
        if isinstance(job, Delivery):
            entry = job.entry
            job_id = entry[ID]
            if len(entry) > TOKEN:
                token = entry[TOKEN]
        else:
            job_id = id_of(job)
        if token:
            commands.append([command, job_id, "TOKEN", token, *words])
        elif words:
            commands.append([command, job_id, *words])
        else:
            plain.append(job_id)
    if len(plain) > 1:
        commands.append(plain)
    return Settling(commands, jobs)


def extend(job_id: str, seconds: float | None = None) -> Ask[float]:
    """WORKING → seconds until the job would be handed out again."""
    if seconds is not None:
        raise BadRequest("how long is said by the holder of a job, and it has a token: take the job first")
    return Ask(["WORKING", job_id], lambda reply: float(values.whole(reply)), again=True, jobs=(job_id,))


def keep(jobs: Sequence[Delivery], seconds: float) -> Ask[list[Kept]]:
    """KEEPALIVE → for each job: ok, cancelled, lost, or unknown: the node that gave it cannot be asked now."""
    argv: list[Arg] = ["KEEPALIVE", checks.rounded_up("seconds", seconds, 1000)]
    for job in jobs:
        argv += (job.entry[ID], job.token)
    return Ask(argv, _kept, near=jobs[0].near, again=True, jobs=tuple(job.id for job in jobs))


def _kept(reply: Reply) -> list[Kept]:
    known: dict[bytes, Kept] = {b"ok": "ok", b"cancelled": "cancelled", b"lost": "lost"}
    return [known.get(values.data(each), "unknown") for each in values.items(reply)]


def progress(job: Delivery, fraction: float, text: str = "") -> Ask[bool]:
    """PROGRESS → False: somebody wants the job to stop."""
    return Ask(
        ["PROGRESS", job.id, job.token, f"{fraction:.4g}", checks.key("text", text)],
        lambda reply: values.data(reply) != b"cancelled", near=job.near, jobs=(job.id,),
    )


def cancel(job_id: str) -> Ask[Cancelled]:
    """CANCEL → what could be done."""
    known: dict[bytes, Cancelled] = {b"cancelled": "cancelled", b"asked": "asked"}
    return Ask(
        ["CANCEL", job_id], lambda reply: known.get(values.data(reply), "unknown"), again=True, jobs=(job_id,)
    )


def wait(ids: Sequence[str], timeout: float | None, is_any: bool) -> Ask[list[Waited]]:
    """WAITJOB → what became of each."""
    how: list[Arg] = ["NOHANG"] if timeout == 0 else ["TIMEOUT", checks.timeout_ms(timeout)]
    argv: list[Arg] = ["WAITJOB", *ids, *how, "ANY" if is_any else "ALL"]
    return Ask(argv, values.waited, timeout, again=True, jobs=tuple(ids))


def peek(queue: str, count: int) -> Ask[list[Peeked]]:
    """QPEEK: the next `count` jobs; negative: the newest ones."""
    return Ask(["QPEEK", checks.name(queue), checks.count("count", count)], values.peeked, again=True)


def show(job_id: str) -> Ask[JobView | None]:
    """SHOW, None for a job this node does not know."""
    return Ask(["SHOW", job_id], values.job_view, again=True)


def explain(job_id: str) -> Ask[Explanation | None]:
    """EXPLAIN, None for a job nobody knows."""
    return Ask(["EXPLAIN", job_id], values.explanation, again=True)


def raw(words: Argv) -> Ask[Reply]:
    """Any command, any answer. Its name is sent as bytes: a pool shares connections only for commands it knows."""
    if not words:
        raise BadRequest("a command has at least one word")
    command, *rest = map(checks.word, words)
    argv = [to_bytes(command), *rest]
    return Ask(argv, lambda reply: reply, again=only_looks(argv))
