"""What the commands answer, as typed values, and the readers that make them from raw replies.

A reply that does not have the shape its command promises raises `BadReply`: an answer we can't read
is an answer we don't have. Fields a newer node adds are passed over, so that an older client lives on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from .errors import BadReply, Error
from .resp import Reply, to_text

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


Ending: TypeAlias = Literal["done", "dead", "expired", "deleted", "waiting", "unknown"]
"""How a job that was waited for stands; `waiting` and `unknown` are no ending."""


@dataclass(frozen=True, slots=True)
class Peeked:
    """A job seen in its queue, not taken."""

    id: str
    queue: str
    body: bytes


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue as its node sees it (QSTAT). Times are seconds."""

    name: str
    length: int
    age: int
    idle: int
    blocked: int
    """Consumers waiting for a job of this queue."""
    import_from: tuple[str, ...]
    import_rate: int
    jobs_in: int
    jobs_out: int
    pause: str
    """none, in, out or all."""


@dataclass(frozen=True, slots=True)
class JobView:
    """Everything a node knows about a job (SHOW). Times are seconds unless the name says otherwise."""

    id: str
    queue: str | None
    state: str
    """Disque's word: wait-repl, active, queued, acked or dead."""
    replicate: int
    ttl: int
    """Seconds left."""
    ctime: int
    """When it was added: nanoseconds since 1970, made unique."""
    delay: int
    retry: int
    nacks: int
    additional_deliveries: int
    nodes_delivered: tuple[str, ...]
    nodes_confirmed: tuple[str, ...]
    next_requeue_ms: int | None
    next_awake_ms: int | None
    body: bytes | None
    status: str = ""
    """What it is doing, in one word of docs/reference/job-states.md."""
    more: Mapping[str, Reply] = field(default_factory=dict)
    """What else the node says, in its own words: keys, attempts, the holder of the lease …"""


@dataclass(frozen=True, slots=True)
class Waited:
    """What became of a job (WAITJOB)."""

    id: str
    state: Ending
    result: bytes | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "unknown")


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a job from running (EXPLAIN)."""

    code: str
    words: str
    ms_until: int | None
    """When that will be over, if anybody can tell."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is (EXPLAIN)."""

    id: str
    state: str
    summary: str
    reasons: tuple[Reason, ...]
    history: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A job that nobody will try again unless told to (DEAD LIST)."""

    id: str
    queue: str
    cause: str
    died_ms: int
    """Unix milliseconds."""
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """Jobs that are added at certain times (CRON LIST)."""

    name: str
    when: str
    zone: str
    missed: str
    queue: str
    body: bytes
    next_s: int | None
    """When the next one comes: unix seconds."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as it introduced itself (WORKER LIST)."""

    name: str
    facts: Mapping[str, str] = field(default_factory=dict)


def whole(reply: Reply) -> int:
    """The reply is an integer."""
    if isinstance(reply, int):
        return reply
    raise unexpected("an integer", reply)


def data(reply: Reply) -> bytes:
    """The reply is a string."""
    if isinstance(reply, bytes):
        return reply
    raise unexpected("a string", reply)


def text(reply: Reply) -> str:
    """The reply is a string that is a name, an id or a word."""
    return to_text(data(reply))


class AddedId(str):
    """The id of a job that was added with `say_copies`: it knows how many nodes held the job when that was answered."""

    __slots__ = ("copies",)
    copies: int
    """0: no job was added, since the unique key was taken."""


def counted_id(reply: Reply) -> AddedId:
    """The reply to ADDJOB with SAYCOPIES: the id and the number of copies."""
    found = items(reply)
    if len(found) != 2:
        raise unexpected("an id and a number of copies", reply)
    return with_copies(text(found[0]), whole(found[1]))


def counted_ids(reply: Reply) -> list[str]:
    """The reply to ADDJOBS with SAYCOPIES: ids, and how many copies each has at least."""
    found = items(reply)
    if len(found) != 2:
        raise unexpected("ids and a number of copies", reply)
    copies = whole(found[1])
    return [with_copies(each, copies) for each in ids(found[0])]


def with_copies(job_id: str, copies: int) -> AddedId:
    made = AddedId(job_id)
    made.copies = copies
    return made


def items(reply: Reply) -> list[Reply]:
    """The reply is an array."""
    if isinstance(reply, list):
        return reply
    raise unexpected("an array", reply)


def texts(reply: Reply) -> list[str]:
    """The reply is an array of names or ids."""
    return [text(item) for item in items(reply)]


def ids(reply: Reply) -> list[str]:
    """The reply is an array of ids, which are ASCII. No call for each: a bulk add has thousands."""
    found: list[Any] = items(reply)
    try:
        return [each.decode() for each in found]
    except (AttributeError, UnicodeDecodeError):
        raise unexpected("ids", reply) from None


def fields(reply: Reply) -> dict[str, Reply]:
    """The reply is a list of name, value, name, value … or, in RESP3, a map."""
    if isinstance(reply, dict):
        return {text(name): value for name, value in reply.items()}
    flat = items(reply)
    if len(flat) % 2:
        raise unexpected("names and values", reply)
    return {text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def strings(reply: Reply) -> dict[str, str]:
    """The reply is names and values, all of them text."""
    return {name: text(value) for name, value in fields(reply).items()}


def peeked(reply: Reply) -> list[Peeked]:
    """What QPEEK answers."""
    found = []
    for entry in map(items, items(reply)):
        if len(entry) < 3:
            raise unexpected("queue, id, body", entry)
        found.append(Peeked(id=text(entry[1]), queue=text(entry[0]), body=data(entry[2])))
    return found


def queue_stats(reply: Reply) -> QueueStats | None:
    """What QSTAT answers; null is no such queue."""
    if reply is None:
        return None
    found = fields(reply)
    return QueueStats(
        name=text(found.get("name")),
        length=whole(found.get("len")),
        age=whole(found.get("age")),
        idle=whole(found.get("idle")),
        blocked=whole(found.get("blocked")),
        import_from=tuple(texts(found.get("import-from", []))),
        import_rate=whole(found.get("import-rate", 0)),
        jobs_in=whole(found.get("jobs-in")),
        jobs_out=whole(found.get("jobs-out")),
        pause=text(found.get("pause")),
    )


SHOWN: Final = frozenset((
    "id", "queue", "state", "repl", "ttl", "ctime", "delay", "retry", "nacks", "additional-deliveries",
    "nodes-delivered", "nodes-confirmed", "next-requeue-within", "next-awake-within", "body", "status",
))


def job_view(reply: Reply) -> JobView | None:
    """What SHOW answers; null is no such job."""
    if reply is None:
        return None
    found = fields(reply)
    queue, requeue, awake, body = (
        found.get(name) for name in ("queue", "next-requeue-within", "next-awake-within", "body")
    )
    return JobView(
        id=text(found.get("id")),
        queue=None if queue is None else text(queue),
        state=text(found.get("state")),
        replicate=whole(found.get("repl")),
        ttl=whole(found.get("ttl")),
        ctime=whole(found.get("ctime")),
        delay=whole(found.get("delay")),
        retry=whole(found.get("retry")),
        nacks=whole(found.get("nacks")),
        additional_deliveries=whole(found.get("additional-deliveries")),
        nodes_delivered=tuple(texts(found.get("nodes-delivered", []))),
        nodes_confirmed=tuple(texts(found.get("nodes-confirmed", []))),
        next_requeue_ms=None if requeue is None else whole(requeue),
        next_awake_ms=None if awake is None else whole(awake),
        body=None if body is None else data(body),
        status=text(found.get("status", found.get("state"))),  # an older node has no status
        more={name: value for name, value in found.items() if name not in SHOWN},
    )


def unexpected(wanted: str, reply: Reply) -> Error:
    shown = repr(reply)
    return BadReply(f"expected {wanted}, got {shown if len(shown) < 80 else shown[:77] + '...'}")


def waited(reply: Reply) -> list[Waited]:
    """What WAITJOB answers."""
    found: list[Waited] = []
    for each in items(reply):
        entry = items(each)
        if len(entry) < 3:
            raise unexpected("id, state, result", entry)
        state = text(entry[1])
        if state not in ("done", "dead", "expired", "deleted", "waiting"):
            state = "unknown"
        result = None if entry[2] is None else data(entry[2])
        found.append(Waited(text(entry[0]), state, result))  # type: ignore[arg-type]  # checked above
    return found


def explanation(reply: Reply) -> Explanation | None:
    """What EXPLAIN answers; null is no such job."""
    if reply is None:
        return None
    entry = items(reply)
    if len(entry) < 5:
        raise unexpected("id, state, summary, reasons, history", entry)
    reasons = [items(each) for each in items(entry[3])]
    return Explanation(
        id=text(entry[0]),
        state=text(entry[1]),
        summary=text(entry[2]),
        reasons=tuple(
            Reason(text(each[0]), text(each[1]), None if each[2] is None else whole(each[2])) for each in reasons
        ),
        history=tuple(texts(entry[4])),
    )


def dead_page(reply: Reply) -> tuple[str, list[DeadJob]]:
    """What DEAD LIST answers: where to go on, and jobs."""
    page = items(reply)
    if len(page) != 2:
        raise unexpected("cursor, jobs", page)
    jobs = [items(each) for each in items(page[1])]
    return text(page[0]), [
        DeadJob(text(each[0]), text(each[1]), text(each[2]), whole(each[3]), whole(each[4]), text(each[5]))
        for each in jobs
    ]


def workers(reply: Reply) -> list[WorkerView]:
    """What WORKER LIST answers."""
    return [WorkerView(text(each[0]), strings(each[1:])) for each in map(items, items(reply)) if each]


def schedules(reply: Reply) -> list[Schedule]:
    """What CRON LIST answers."""
    found: list[Schedule] = []
    for each in map(fields, items(reply)):
        coming = each.get("next")
        found.append(Schedule(
            name=text(each.get("name")),
            when=text(each.get("schedule")),
            zone=text(each.get("tz")),
            missed=text(each.get("missed")),
            queue=text(each.get("queue")),
            body=data(each.get("body")),
            next_s=None if coming is None else whole(coming),
        ))
    return found


def names_page(reply: Reply) -> tuple[str, list[str]]:
    """What the scans answer: where to go on, and names."""
    page = items(reply)
    if len(page) != 2:
        raise unexpected("cursor, names", page)
    return text(page[0]), texts(page[1])


def jobs_page(reply: Reply) -> tuple[str, list[JobView]]:
    """What JSCAN … REPLY all answers: where to go on, and jobs."""
    page = items(reply)
    if len(page) != 2:
        raise unexpected("cursor, jobs", page)
    return text(page[0]), [view for each in items(page[1]) if (view := job_view(each)) is not None]
