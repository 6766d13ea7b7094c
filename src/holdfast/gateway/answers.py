"""What /v1 answers, as objects with types: what the description and docs/reference/http-api.md are made from.

The same thing has the same name in every answer, and a number is a number. Names are those of the Python interface.
"""
from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from holdfast.client import figures, members, values
from holdfast.client.members import Member
from holdfast.client.resp import to_bytes
from holdfast.core import states
from holdfast.core.limits import PRIORITY_DEFAULT
from holdfast.ended import Event, task_of
from holdfast.gateway.models import Body, Model, body_fields, named, plain

Scalar = int | float | str | None
Paused = Literal["none", "in", "out", "all"]
Unix = Annotated[int, Field(description="unix seconds")]
UnixMs = Annotated[int, Field(description="unix milliseconds")]


# -- jobs ------------------------------------------------------------------------------------------------------


class Try(Model):
    """One hand-out that did not end with an acknowledgement."""

    how: Annotated[str, Field(description="how it ended")]
    token: str
    worker: str
    began: UnixMs
    ended: UnixMs
    error: str


class Job(Body):
    """A job as one node knows it. What it does not have is null."""

    id: str
    queue: str | None
    status: Annotated[str, Field(description="what it is doing: " + ", ".join(map(bytes.decode, states.ABOUT)))]
    state: Annotated[str, Field(description="Disque's word for it: wait-repl, active, queued, acked or dead")]
    replicate: Annotated[int, Field(description="copies asked for")]
    ttl: Annotated[int, Field(description="seconds until it expires")]
    ctime: Annotated[int, Field(description="when it was added, unix nanoseconds, made unique")]
    delay: Annotated[int, Field(description="seconds")]
    retry: Annotated[int, Field(description="seconds a worker has; 0: at most once")]
    nacks: Annotated[int, Field(description="times workers gave it back")]
    additional_deliveries: Annotated[int, Field(description="times it was queued again for other reasons")]
    nodes_delivered: Annotated[list[str], Field(description="nodes that may have a copy")]
    nodes_confirmed: list[str]
    next_requeue_ms: Annotated[int | None, Field(description="milliseconds until it is queued, if it is not")]
    next_awake_ms: Annotated[int | None, Field(description="milliseconds until its node looks at it again")]
    priority: int = PRIORITY_DEFAULT
    unique: str | None = None
    until: str | None = None
    group: str | None = None
    onfail: str | None = None
    domain: str | None = None
    tenant: str | None = None
    batch: str | None = None
    index: Annotated[int | None, Field(description="its number in the batch")] = None
    parent: str | None = None
    headers: dict[str, str] | None = None
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff_most_ms: int | None = None
    failures: int = 0
    round: Annotated[int, Field(description="times it was sent back from the dead")] = 0
    onexpire: Annotated[str | None, Field(description="what becomes of it when its time is over: dead or drop")] = None
    cause: Annotated[str | None, Field(description="what it died of")] = None
    died: UnixMs | None = None
    tries: list[Try]
    trace: Annotated[str | None, Field(description="the traceback of its last failure")] = None
    token: Annotated[str | None, Field(description="of its lease")] = None
    worker: str | None = None
    address: Annotated[str | None, Field(description="of the worker")] = None
    waits_for: Annotated[str | None, Field(description="the node that has it, where that is away")] = None
    away_ms: Annotated[int | None, Field(description="milliseconds since there is no link with that node")] = None
    leased_ms: Annotated[int | None, Field(description="milliseconds the worker has had it")] = None
    progress: Annotated[float | None, Field(description="0 to 1, as the worker says")] = None
    progress_text: str | None = None
    cancelled: Annotated[bool, Field(description="its worker is asked to stop")] = False


SHAPED = ("headers", "tries", "progress", "cancelled")
"""Of what a node says more, what is not simply a number or a text."""


def job(view: values.JobView) -> Job:
    more = {name.replace("-", "_"): value for name, value in view.more.items()}
    known = {name: plain(value) for name, value in more.items() if name in Job.model_fields and name not in SHAPED}
    names = [name for name in view.__dataclass_fields__ if name not in ("body", "more")]
    own: dict[str, Any] = {name: plain(getattr(view, name)) for name in names}
    headers, tries, progress = more.get("headers"), more.get("tries"), more.get("progress")
    return Job(
        **{**own, **known, **body_fields(view.body)},
        headers=None if headers is None else named(headers),
        tries=[a_try(each) for each in tries] if isinstance(tries, list) else [],
        progress=float(plain(progress)) if progress is not None else None, cancelled=bool(more.get("cancelled")),
    )


def a_try(reply: Any) -> Try:
    how, token, worker, began, ended, error = map(plain, reply[:6])
    return Try(how=how, token=token, worker=worker, began=began, ended=ended, error=error)


class JobPage(Model):
    cursor: Annotated[str, Field(description="of the next question; 0 is the end")]
    jobs: list[Job]


class Reason(Model):
    code: str
    words: str
    ms_until: Annotated[int | None, Field(description="milliseconds until it ends by itself")]


class Explanation(Model):
    """Why a job does not run now, and how its hand-outs ended."""

    id: str
    status: Annotated[str, Field(description="as in a job; or unknown, where nobody who can be asked knows it")]
    summary: str
    reasons: list[Reason]
    history: list[str]


class Waited(Model):
    id: str
    state: Annotated[values.Ending, Field(description="waiting and unknown are no ending")]
    result: Annotated[str | None, Field(description="where it is text")]
    result64: Annotated[str | None, Field(description="where it is not: base64")]


class WaitedMany(Model):
    jobs: list[Waited]


def waited(each: values.Waited) -> Waited:
    result = body_fields(each.result)
    return Waited(id=each.id, state=each.state, result=result["body"], result64=result["body64"])


class Lease(Model):
    seconds: float


class GoOn(Model):
    go_on: Annotated[bool, Field(description="false: please stop, the job was cancelled")]


class Cancelled(Model):
    outcome: Annotated[str, Field(description="what was done: cancelled, or asked of its worker, or unknown")]


class Kept(Model):
    outcomes: Annotated[list[str], Field(description="for each job: ok, cancelled or lost")]


class Changed(Model):
    """What was asked for, and whether it was done; the job must wait for that."""

    priority: bool | None = None
    queue: bool | None = None
    run_now: bool | None = None


class Peeked(Body):
    id: str


class PeekedMany(Model):
    jobs: list[Peeked]


class DeadJob(Model):
    id: str
    queue: str
    cause: str
    died_ms: UnixMs
    attempts: int
    error: str


class DeadJobs(Model):
    jobs: list[DeadJob]


# -- queues ----------------------------------------------------------------------------------------------------

_Numbers: Any = create_model("_Numbers", __base__=Model, **{  # type: ignore[call-overload]
    each.name: (int, Field(description=each.about)) for each in figures.FIGURES
})


class QueueFigures(_Numbers):  # type: ignore[misc]
    """Figures of a queue, summed over the nodes that answered."""

    name: str
    name_hex: Annotated[str | None, Field(description="the bytes of a name that is no text")] = None
    paused: Annotated[Paused, Field(description="at one node at least; in: for producers, out: for workers")]


def queue_figures(row: figures.QueueFigures) -> QueueFigures:
    name = to_bytes(row.name)
    shown = plain(name)
    return QueueFigures(**{**row.row(), "name": shown}, name_hex=None if shown.encode() == name else name.hex())


class Queues(Model):
    queues: list[QueueFigures]
    silent: Annotated[list[str], Field(description="ids of nodes that did not answer, and are not in the sums")]


class QueueSettings(Model):
    settings: dict[str, Scalar]


class Queue(QueueSettings):
    queue: str
    figures: Annotated[QueueFigures | None, Field(description="null: no node has such a queue")]


class PauseState(Model):
    paused: Paused


class Totals(Model):
    """Of the queue of the simple door."""

    queueSize: Annotated[int, Field(description="jobs that wait")]
    leased: int
    delayed: int
    maxSize: Annotated[int, Field(description="0: no bound")]
    added: int
    taken: int


class Schedule(Body):
    name: str
    schedule: str
    zone: str
    missed: str
    queue: str
    next: Annotated[int | None, Field(description="when it comes next, unix seconds")]


class Schedules(Model):
    schedules: list[Schedule]


def schedule(each: values.Schedule) -> Schedule:
    return Schedule(name=plain(each.name), schedule=each.when, zone=each.zone, missed=each.missed,
                    queue=plain(each.queue), next=each.next_s, **body_fields(each.body))


class Domain(Model):
    name: str
    set_by: Annotated[str, Field(description="the name or pattern its limit is set for")]
    rate: str
    burst: int
    concurrency: Annotated[int, Field(description="0: no bound")]
    adapt: bool
    share: Annotated[int | None, Field(description="of its rate, in thousandths, as the node sees it")]
    waiting: Annotated[int, Field(description="its jobs that wait at the node that was asked")]
    out: Annotated[int, Field(description="and those that workers have from it")]
    next_in: Annotated[int | None, Field(description="milliseconds until the next may go out")]


class Domains(Model):
    cursor: Annotated[str, Field(description="of the next question; 0 is the end")]
    domains: list[Domain]


def domain(reply: Any) -> Domain:
    found = {name.replace("-", "_"): value for name, value in named(reply).items()}
    found["adapt"] = found.get("adapt") == "yes"
    return Domain(**{name: value for name, value in found.items() if name in Domain.model_fields})


# -- workers and nodes -----------------------------------------------------------------------------------------


class Worker(Model):
    """What a worker says of itself. Ours say all of this; others what they like."""

    name: str
    node: Annotated[str, Field(description="id of the node it said so to")]
    address: str
    since_ms: Annotated[int, Field(description="milliseconds since the first word of it")]
    heard_ms: Annotated[int, Field(description="milliseconds since the last")]
    host: str | None = None
    pid: int | None = None
    queues: Annotated[list[str], Field(description="queues it takes jobs of")]
    concurrency: Annotated[int | None, Field(description="jobs at a time")] = None
    running: int | None = None
    in_hand: int | None = None
    done: int | None = None
    failed: int | None = None
    lost: int | None = None
    started: Unix | None = None
    more: Annotated[dict[str, int | float | str], Field(description="whatever else it says")]


class Workers(Model):
    workers: list[Worker]


COUNTS = ("pid", "concurrency", "running", "in_hand", "done", "failed", "lost", "started", "since_ms", "heard_ms")


def worker(each: values.WorkerView) -> Worker:
    said = {name.replace("-", "_"): number_of(plain(value)) for name, value in each.facts.items()}
    ours = {name: value for name, value in said.items() if name in Worker.model_fields and fits(name, value)}
    queues = [name for name in str(said.get("queues", "")).split(",") if name]
    more = {name: value for name, value in said.items() if name not in ours and name != "queues"}
    return Worker(**{**ours, "name": plain(each.name), "queues": queues, "more": more})


def fits(name: str, value: int | float | str) -> bool:
    """Whether a fact is what ours of that name are: others may say what they like."""
    return name not in ("name", "queues", "more") and isinstance(value, int if name in COUNTS else str)


def number_of(text: str) -> int | float | str:
    """Facts are text, and most of them count something."""
    for kind in (int, float):
        try:
            found = kind(text)
        except ValueError:
            continue
        if str(found) == text:
            return found
    return text


class Node(Model):
    id: str
    host: Annotated[str, Field(description="empty: the node was never told how it is called from outside")]
    port: int
    state: Annotated[str, Field(description="up, down, leaving, or meeting where nobody has answered yet")]
    flags: list[str]
    is_linked: bool


class Away(Model):
    """A node that others do not hear."""

    id: str
    host: str
    port: int
    away_s: Annotated[float, Field(description="seconds since there is no link with it, at the longest")]
    fails_in_s: Annotated[float, Field(description="seconds until it counts as failed, at the earliest; 0: it does")]
    jobs: Annotated[int, Field(description="jobs that wait for it, over the nodes that answered")]
    next: Annotated[str, Field(description="what becomes of them, in words")]


def away_node(each: members.Away) -> Away:
    return Away(id=each.id, host=each.host, port=each.port, away_s=each.away_s, fails_in_s=each.fails_in_s,
                jobs=each.jobs, next=each.next)


class Cluster(Model):
    """The nodes as the one that was asked sees them, and what it says of the cluster."""

    nodes: list[Node]
    away: Annotated[list[Away], Field(description="nodes that others do not hear, and the jobs that wait for them")]
    facts: dict[str, Scalar]


def cluster(known: list[Member], gone: list[members.Away], info: str) -> Cluster:
    nodes = [Node(id=each.id, host=each.host, port=each.port, state=each.state, is_linked=each.is_linked,
                  flags=[flag for flag in each.flags.split(",") if flag != "noflags"]) for each in known]
    lines = [line.partition(":") for line in info.splitlines() if ":" in line]
    away = [away_node(each) for each in gone]
    return Cluster(nodes=nodes, away=away, facts={name: number_of(value) for name, _, value in lines})


class Record(Model):
    """One thing that happened to a job; docs/reference/history.md says what each column is."""

    node: str
    segment: int
    position: int
    time: datetime.datetime
    event: str
    job: str | None
    queue: str | None
    attempt: int
    worker: str | None
    error: str | None
    cause: str | None
    tenant: str | None
    domain: str | None
    group: str | None
    parent: str | None
    peer: str | None
    body_bytes: int | None
    lease_ms: int | None
    delay_ms: int | None
    count: int | None
    copy_: Annotated[bool, Field(alias="copy")]
    retry_s: int | None
    ttl_s: int | None
    replicate: int | None
    priority: int | None
    attempts: int | None
    unique: str | None
    batch: str | None
    batch_index: int | None
    headers: dict[str, str] | None


class History(Model):
    cursor: Annotated[str, Field(description="where to go on")]
    records: list[Record]


def record(row: dict[str, Any]) -> Record:
    headers = row.get("headers")
    return Record(**{**plain(row), "headers": None if headers is None else dict(plain(headers))})


Row = list[float | None]


class Past(Model):
    """Figures of the past by columns, a value for each time. Null: nobody looked at that time."""

    queue: Annotated[str, Field(description="or * for all that the caller may see")]
    step: Literal["second", "minute"]
    time: Annotated[list[int], Field(description="unix seconds at which each row begins")]
    added: Annotated[Row, Field(description="per second, as the next five")]
    taken: Row
    done: Row
    failed: Row
    died: Row
    expired: Row
    queued: Annotated[Row, Field(description="the most at any moment of the row, as the next two")]
    leased: Row
    delayed: Row
    longest_wait: Annotated[Row, Field(description="seconds")]
    since: Annotated[dict[str, Unix], Field(description="from when on each node is in the rows, by id: a node that is "
                                                        "started again begins anew")]
    silent: Annotated[list[str], Field(description="ids of nodes whose share is missing")]
    is_cut: Annotated[bool, Field(description="the caller may see more queues than were added up")]


class CurrentProblem(Model):
    """One thing that is wrong now."""

    kind: Annotated[str, Field(description="a word for programs: node-away, queue-paused, nobody-works, …")]
    level: Annotated[Literal["bad", "remark"], Field(description="bad: somebody should do something now")]
    what: str
    cause: str
    do: Annotated[str, Field(description="what helps")]
    command: Annotated[str, Field(description="what to type, where one command helps")]
    queue: str | None
    node: str | None
    since: Unix | None


class CurrentProblems(Model):
    problems: list[CurrentProblem]


class Ended(Body):
    """A job that is over, as the history of a node tells of its end."""

    id: str
    queue: Annotated[str | None, Field(description="null: the node that was told of the end did not know the job")]
    how: Annotated[str, Field(description="done, dead, expired, deleted, cancelled or evicted")]
    ended: UnixMs
    node: str
    attempt: Annotated[int, Field(description="which hand-out it was, from 1; 0: there was none")]
    worker: str | None
    error: str | None
    cause: str | None
    task: Annotated[str | None, Field(description="the task that it called, where the history has its body")]
    body_bytes: Annotated[int, Field(description="of the whole body; `body` is its beginning, as far as "
                                                 "history-body-bytes allows")]


class EndedPage(Model):
    jobs: list[Ended]
    cursor: Annotated[str, Field(description="where to look on; empty: everything was looked at")]
    until: Annotated[int, Field(description="unix milliseconds: so far back it was looked at")]
    looked_at: Annotated[int, Field(description="records of history")]
    silent: Annotated[list[str], Field(description="nodes that keep no history, or did not answer: eight digits")]
    has_bodies: bool


class LifeEvent(Model):
    """One thing that happened to a job."""

    event: Annotated[str, Field(description="docs/reference/history.md has the list")]
    time: UnixMs
    node: str
    queue: str | None
    attempt: int
    worker: str | None
    error: str | None
    cause: str | None


class Life(Model):
    events: Annotated[list[LifeEvent], Field(description="the oldest first")]
    cursor: Annotated[str, Field(description="where to look on for what came before; empty: that is all")]
    silent: list[str]


def ended(each: Event) -> Ended:
    words = {name: plain(value) for name, value in each.texts.items()}
    return Ended(
        id=each.job, queue=None if each.queue is None else plain(to_bytes(each.queue)), how=each.how, ended=each.at_ms,
        node=each.node, attempt=each.attempt, worker=words.get("worker"), error=words.get("error"),
        cause=words.get("cause"), task=plain(task_of(each.body)) or None, body_bytes=each.body_bytes,
        **body_fields(each.body or b""),
    )


def life_event(each: Event) -> LifeEvent:
    words = {name: plain(value) for name, value in each.texts.items()}
    return LifeEvent(
        event=each.event, time=each.at_ms, node=each.node, attempt=each.attempt, worker=words.get("worker"),
        queue=None if each.queue is None else plain(to_bytes(each.queue)), error=words.get("error"),
        cause=words.get("cause"))
