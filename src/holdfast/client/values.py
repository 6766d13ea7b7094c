"""What the commands answer, as typed values, and the readers that make them from raw replies.

A reply that does not have the shape its command promises raises `BadReply`: an answer we can't read
is an answer we don't have. Fields a newer node adds are passed over, so that an older client lives on.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import BadReply, Error
from .resp import Reply, to_text


@dataclass(frozen=True, slots=True)
class Delivery:
    """One hand-out of one job, as data."""

    id: str
    queue: str
    body: bytes
    nacks: int = 0
    """How often a worker gave the job back."""
    additional_deliveries: int = 0
    """How often it was handed out again because nobody answered for it."""


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
    """wait-repl, active, queued or acked."""
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


def whole(reply: Reply) -> int:
    """The reply is an integer."""
    if isinstance(reply, int):
        return reply
    raise _unexpected("an integer", reply)


def data(reply: Reply) -> bytes:
    """The reply is a string."""
    if isinstance(reply, bytes):
        return reply
    raise _unexpected("a string", reply)


def text(reply: Reply) -> str:
    """The reply is a string that is a name, an id or a word."""
    return to_text(data(reply))


def items(reply: Reply) -> list[Reply]:
    """The reply is an array."""
    if isinstance(reply, list):
        return reply
    raise _unexpected("an array", reply)


def texts(reply: Reply) -> list[str]:
    """The reply is an array of names or ids."""
    return [text(item) for item in items(reply)]


def fields(reply: Reply) -> dict[str, Reply]:
    """The reply is a list of name, value, name, value … or, in RESP3, a map."""
    if isinstance(reply, dict):
        return {text(name): value for name, value in reply.items()}
    flat = items(reply)
    if len(flat) % 2:
        raise _unexpected("names and values", reply)
    return {text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def deliveries(reply: Reply) -> list[Delivery]:
    """What GETJOB … WITHCOUNTERS answers; null is no job."""
    if reply is None:
        return []
    return [_delivery(items(entry)) for entry in items(reply)]


def _delivery(entry: list[Reply]) -> Delivery:
    if len(entry) < 3:
        raise _unexpected("queue, id, body", entry)
    counters = fields(entry[3:])
    return Delivery(
        id=text(entry[1]),
        queue=text(entry[0]),
        body=data(entry[2]),
        nacks=whole(counters.get("nacks", 0)),
        additional_deliveries=whole(counters.get("additional-deliveries", 0)),
    )


def peeked(reply: Reply) -> list[Peeked]:
    """What QPEEK answers."""
    return [
        Peeked(id=job.id, queue=job.queue, body=job.body)
        for job in (_delivery(items(entry)) for entry in items(reply))
    ]


def queue_stats(reply: Reply) -> QueueStats | None:
    """What QSTAT answers; null is no such queue."""
    if reply is None:
        return None
    field = fields(reply)
    return QueueStats(
        name=text(field.get("name")),
        length=whole(field.get("len")),
        age=whole(field.get("age")),
        idle=whole(field.get("idle")),
        blocked=whole(field.get("blocked")),
        import_from=tuple(texts(field.get("import-from", []))),
        import_rate=whole(field.get("import-rate", 0)),
        jobs_in=whole(field.get("jobs-in")),
        jobs_out=whole(field.get("jobs-out")),
        pause=text(field.get("pause")),
    )


def job_view(reply: Reply) -> JobView | None:
    """What SHOW answers; null is no such job."""
    if reply is None:
        return None
    field = fields(reply)
    queue, requeue, awake, body = (
        field.get(name) for name in ("queue", "next-requeue-within", "next-awake-within", "body")
    )
    return JobView(
        id=text(field.get("id")),
        queue=None if queue is None else text(queue),
        state=text(field.get("state")),
        replicate=whole(field.get("repl")),
        ttl=whole(field.get("ttl")),
        ctime=whole(field.get("ctime")),
        delay=whole(field.get("delay")),
        retry=whole(field.get("retry")),
        nacks=whole(field.get("nacks")),
        additional_deliveries=whole(field.get("additional-deliveries")),
        nodes_delivered=tuple(texts(field.get("nodes-delivered", []))),
        nodes_confirmed=tuple(texts(field.get("nodes-confirmed", []))),
        next_requeue_ms=None if requeue is None else whole(requeue),
        next_awake_ms=None if awake is None else whole(awake),
        body=None if body is None else data(body),
    )


def _unexpected(wanted: str, reply: Reply) -> Error:
    shown = repr(reply)
    return BadReply(f"expected {wanted}, got {shown if len(shown) < 80 else shown[:77] + '...'}")
