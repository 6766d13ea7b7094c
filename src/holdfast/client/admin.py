"""Questions about queues, dead jobs, limits, schedules and workers, and the part of `Queue` that asks them.

The same split as for jobs: the functions at the top make an `Ask`, the two classes below it are glue, and `Queue`
and `AsyncQueue` inherit them. What these calls change is settings, not jobs, so they can all be sent again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TypeAlias, TypedDict, TypeVar, Unpack

from . import adding, checks, values
from . import figures as _figures
from . import members as _members
from .adding import AddOptions
from .asks import Ask
from .checks import Body
from .figures import Figures
from .members import Away, Member
from .resp import Arg, Reply
from .values import DeadJob, JobView, QueueStats, Schedule, WorkerView

T = TypeVar("T")
BROWSE_COUNT = 100
"""Jobs in a page of `browse`: with their bodies."""
Setting: TypeAlias = "str | int | float | bool"


class DeadFilter(TypedDict, total=False):
    """Which dead jobs: all that fit everything that is said. Patterns have `*` and `?`."""

    queue: str
    cause: str
    error: str
    older: float
    """Dead for at least so many seconds."""


def stats(queue: str) -> Ask[QueueStats | None]:
    """QSTAT, None for a queue this node does not know."""
    return Ask(["QSTAT", checks.name(queue)], values.queue_stats, again=True)


def figures(queue: str) -> Ask[Figures]:
    """CLUSTER QSTAT; `*` is every queue."""
    return Ask(["CLUSTER", "QSTAT", queue], _figures.read, again=True)


def nodes() -> Ask[list[Member]]:
    """CLUSTER NODES."""
    return Ask(["CLUSTER", "NODES"], _members.read, again=True)


def away() -> Ask[list[Away]]:
    """CLUSTER AWAY."""
    return Ask(["CLUSTER", "AWAY"], _members.read_away, again=True)


def length(queue: str) -> Ask[int]:
    """QLEN, jobs waiting on this node."""
    return Ask(["QLEN", checks.name(queue)], values.whole, again=True)


def queues(cursor: str) -> Ask[tuple[str, list[str]]]:
    """QSCAN: names of queues, page by page."""
    return Ask(["QSCAN", cursor, "COUNT", 1000], values.names_page, again=True)


def browse(cursor: str, queue: str, states: Sequence[str]) -> Ask[tuple[str, list[JobView]]]:
    """JSCAN: jobs as SHOW tells them, page by page."""
    argv: list[Arg] = ["JSCAN", cursor, "COUNT", BROWSE_COUNT]
    if queue:
        argv += ["QUEUE", checks.name(queue)]
    for state in states:
        argv += ["STATE", state]
    return Ask([*argv, "REPLY", "all"], values.jobs_page, again=True)


def settings(queue: str) -> Ask[dict[str, Reply]]:
    """QUEUE GET."""
    return Ask(["QUEUE", "GET", checks.name(queue)], values.fields, again=True)


def configure(queue: str, changes: Mapping[str, Setting]) -> Ask[None]:
    """QUEUE SET."""
    argv: list[Arg] = ["QUEUE", "SET", checks.name(queue)]
    for name, value in changes.items():
        argv += [name.replace("_", "-"), said(value)]
    return Ask(argv, ignore, again=True)


def said(value: Setting) -> str:
    """A setting as the node reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def pause(queue: str, how: str, seconds: float | None = None) -> Ask[str]:
    """PAUSE … BCAST, a word to all nodes → how it is paused now."""
    argv: list[Arg] = ["PAUSE", checks.name(queue), how, "BCAST"]
    if seconds is not None:
        argv += ["FOR", checks.rounded_up("seconds", seconds)]
    return Ask(argv, values.text, again=True)


def flush(queue: str) -> Ask[int]:
    """QFLUSH → how many jobs were dropped."""
    return Ask(["QFLUSH", checks.name(queue)], values.whole)


def delete(ids: Sequence[str]) -> Ask[int]:
    """DELJOB → how many were known."""
    return Ask(["DELJOB", *ids], values.whole, jobs=tuple(ids))


def move(job_id: str, queue: str) -> Ask[bool]:
    """MOVE."""
    return Ask(["MOVE", job_id, checks.name(queue)], lambda reply: values.whole(reply) == 1, jobs=(job_id,))


def prioritize(job_id: str, priority: int) -> Ask[bool]:
    """PRIORITY."""
    argv: list[Arg] = ["PRIORITY", job_id, checks.count("priority", priority)]
    return Ask(argv, lambda reply: values.whole(reply) == 1, again=True, jobs=(job_id,))


def run_now(job_id: str) -> Ask[bool]:
    """ENQUEUE."""
    return Ask(["ENQUEUE", job_id], lambda reply: values.whole(reply) == 1, jobs=(job_id,))


def _filters(wanted: DeadFilter) -> list[Arg]:
    checks.known("dead", wanted, DeadFilter.__annotations__)
    argv: list[Arg] = []
    if "queue" in wanted:
        argv += ["QUEUE", checks.name(wanted["queue"])]
    if "cause" in wanted:
        argv += ["CAUSE", checks.key("cause", wanted["cause"])]
    if "error" in wanted:
        argv += ["ERROR", checks.key("error", wanted["error"])]
    if "older" in wanted:
        argv += ["OLDER", checks.rounded_up("older", wanted["older"])]
    return argv


def dead(cursor: str, count: int, wanted: DeadFilter) -> Ask[tuple[str, list[DeadJob]]]:
    """DEAD LIST, a page."""
    argv: list[Arg] = ["DEAD", "LIST", *_filters(wanted), "COUNT", checks.count("count", count), "CURSOR", cursor]
    return Ask(argv, values.dead_page, again=True)


def dead_again(word: str, ids: Sequence[str], wanted: DeadFilter) -> Ask[int]:
    """DEAD RETRY or DELETE → how many."""
    return Ask(["DEAD", word, *(ids or _filters(wanted))], values.whole, jobs=tuple(ids))


def schedule(
    name: str, when: str, queue: str, body: Body, zone: str, missed: str, options: AddOptions
) -> Ask[None]:
    """CRON SET."""
    checks.known("schedule", options, adding.ADD_OPTIONS)
    argv: list[Arg] = ["CRON", "SET", name, when, checks.name(queue), checks.body_of(body)]
    if zone:
        argv += ["TZ", zone]
    if missed:
        argv += ["MISSED", missed]
    return Ask([*argv, *adding.words(options)], ignore, again=True)


def schedules() -> Ask[list[Schedule]]:
    """CRON LIST."""
    return Ask(["CRON", "LIST"], values.schedules, again=True)


def unschedule(name: str) -> Ask[bool]:
    """CRON DEL."""
    return Ask(["CRON", "DEL", name], lambda reply: reply not in (0, None), again=True)


def limit(domain: str, rate: str, burst: int | None, concurrency: int | None, adapt: bool | None) -> Ask[None]:
    """DOMAIN SET."""
    argv: list[Arg] = ["DOMAIN", "SET", checks.key("domain", domain), "RATE", rate]
    if burst is not None:
        argv += ["BURST", checks.count("burst", burst)]
    if concurrency is not None:
        argv += ["CONCURRENCY", checks.count("concurrency", concurrency)]
    if adapt is not None:
        argv += ["ADAPT", said(adapt)]
    return Ask(argv, ignore, again=True)


def unlimit(domain: str) -> Ask[None]:
    """DOMAIN DEL."""
    return Ask(["DOMAIN", "DEL", checks.key("domain", domain)], ignore, again=True)


def weigh(queue: str, tenant: str, weight: int) -> Ask[None]:
    """TENANT SET."""
    argv: list[Arg] = ["TENANT", "SET", checks.name(queue), checks.key("tenant", tenant)]
    return Ask([*argv, checks.count("weight", weight)], ignore, again=True)


def beat(name: str, seconds: float, facts: Mapping[str, str]) -> Ask[None]:
    """WORKER BEAT."""
    argv: list[Arg] = ["WORKER", "BEAT", name, checks.rounded_up("seconds", seconds)]
    for fact, text in facts.items():
        argv += [fact, text]
    return Ask(argv, ignore, again=True)


def workers() -> Ask[list[WorkerView]]:
    """WORKER LIST."""
    return Ask(["WORKER", "LIST"], values.workers, again=True)


def ignore(reply: Reply) -> None:
    """OK says nothing more."""


class Admin:
    """Everything about a queue that is not about handling its jobs."""

    def _ask(self, ask: Ask[T]) -> T:
        raise NotImplementedError

    def stats(self, queue: str) -> QueueStats | None:
        """Figures of a queue at this node, None if it has never heard of it."""
        return self._ask(stats(queue))

    def figures(self, queue: str = "*") -> Figures:
        """Figures of one queue, or of all, summed over the nodes that answer: `q.figures().queues`."""
        return self._ask(figures(queue))

    def nodes(self) -> list[Member]:
        """The members of the cluster, as the node that is asked sees them."""
        return self._ask(nodes())

    def away(self) -> list[Away]:
        """Nodes that are away: since when, what is next, and how many jobs wait for each."""
        return self._ask(away())

    def length(self, queue: str) -> int:
        """How many jobs wait in the queue at this node."""
        return self._ask(length(queue))

    def queues(self) -> list[str]:
        """The names of all queues this node knows."""
        found: list[str] = []
        cursor = "0"
        while True:
            cursor, page = self._ask(queues(cursor))
            found += page
            if cursor == "0":
                return found

    def browse(self, queue: str = "", *, states: Sequence[str] = ()) -> Iterator[JobView]:
        """All jobs this node knows, of a queue or of all, in some states (queued, active, delayed, leased, dead)."""
        cursor = "0"
        while True:
            cursor, page = self._ask(browse(cursor, queue, states))
            yield from page
            if cursor == "0":
                return

    def settings(self, queue: str) -> dict[str, Reply]:
        """What was set for a queue, by name."""
        return self._ask(settings(queue))

    def configure(self, queue: str, **changes: Setting) -> None:
        """Set something for a queue: `configure("mail", maxlen=1000, concurrency=5)`."""
        self._ask(configure(queue, changes))

    def pause(self, queue: str, how: str = "all", *, seconds: float | None = None) -> str:
        """Stop a queue, at all nodes: "in" takes no jobs, "out" gives none, "all" both. For some seconds, or until
        `resume`. A node that is away hears of it when it is back."""
        return self._ask(pause(queue, how, seconds))

    def resume(self, queue: str) -> str:
        """Let it go on, at all nodes, whoever paused it."""
        return self._ask(pause(queue, "none"))

    def flush(self, queue: str) -> int:
        """Drop all jobs of a queue. How many there were."""
        return self._ask(flush(queue))

    def dead(self, *, count: int = 1000, **wanted: Unpack[DeadFilter]) -> list[DeadJob]:
        """Jobs that nobody will try again, at most `count` of them."""
        found: list[DeadJob] = []
        cursor = "0"
        while len(found) < count:
            cursor, page = self._ask(dead(cursor, count - len(found), wanted))
            found += page
            if cursor == "0":
                break
        return found

    def retry_dead(self, *ids: str, **wanted: Unpack[DeadFilter]) -> int:
        """Queue dead jobs again: these, or those that fit. How many."""
        return self._ask(dead_again("RETRY", ids, wanted))

    def delete_dead(self, *ids: str, **wanted: Unpack[DeadFilter]) -> int:
        """Drop dead jobs: these, or those that fit. How many."""
        return self._ask(dead_again("DELETE", ids, wanted))

    def delete(self, *ids: str) -> int:
        """Drop jobs from this node, whatever their state. How many were known."""
        return self._ask(delete(ids)) if ids else 0

    def move(self, job_id: str, queue: str) -> bool:
        """Put a waiting job into another queue. False: it is not waiting."""
        return self._ask(move(job_id, queue))

    def prioritize(self, job_id: str, priority: int) -> bool:
        """Give a waiting job another priority. False: it is not waiting."""
        return self._ask(prioritize(job_id, priority))

    def run_now(self, job_id: str) -> bool:
        """A delayed job need not wait any longer. False: it does not."""
        return self._ask(run_now(job_id))

    def schedule(
        self, name: str, when: str, queue: str, body: Body, *, zone: str = "", missed: str = "",
        **options: Unpack[AddOptions],
    ) -> None:
        """Add a job whenever a cron expression says so. The same name again replaces it."""
        self._ask(schedule(name, when, queue, body, zone, missed, options))

    def schedules(self) -> list[Schedule]:
        """All schedules there are."""
        return self._ask(schedules())

    def unschedule(self, name: str) -> bool:
        """Forget a schedule. False: there was none."""
        return self._ask(unschedule(name))

    def limit(
        self, domain: str, rate: str, *, burst: int | None = None, concurrency: int | None = None,
        adapt: bool | None = None,
    ) -> None:
        """Bound the hand-outs of a domain, or of those a pattern fits: `limit("*.example.com", "10/s")`."""
        self._ask(limit(domain, rate, burst, concurrency, adapt))

    def unlimit(self, domain: str) -> None:
        """Forget a limit."""
        self._ask(unlimit(domain))

    def weigh(self, queue: str, tenant: str, weight: int) -> None:
        """How much of a queue's hand-outs a tenant gets, beside the others."""
        self._ask(weigh(queue, tenant, weight))

    def beat(self, worker: str, *, seconds: float, facts: Mapping[str, str]) -> None:
        """Say that a worker is alive, and for how long to believe it."""
        self._ask(beat(worker, seconds, facts))

    def workers(self) -> list[WorkerView]:
        """The workers that said so."""
        return self._ask(workers())


class AsyncAdmin:
    """The same, awaited."""

    async def _ask(self, ask: Ask[T]) -> T:
        raise NotImplementedError

    async def stats(self, queue: str) -> QueueStats | None:
        """See `Queue.stats`."""
        return await self._ask(stats(queue))

    async def figures(self, queue: str = "*") -> Figures:
        """See `Queue.figures`."""
        return await self._ask(figures(queue))

    async def nodes(self) -> list[Member]:
        """See `Queue.nodes`."""
        return await self._ask(nodes())

    async def away(self) -> list[Away]:
        """See `Queue.away`."""
        return await self._ask(away())

    async def length(self, queue: str) -> int:
        """See `Queue.length`."""
        return await self._ask(length(queue))

    async def queues(self) -> list[str]:
        """See `Queue.queues`."""
        found: list[str] = []
        cursor = "0"
        while True:
            cursor, page = await self._ask(queues(cursor))
            found += page
            if cursor == "0":
                return found

    async def browse(self, queue: str = "", *, states: Sequence[str] = ()) -> AsyncIterator[JobView]:
        """See `Queue.browse`."""
        cursor = "0"
        while True:
            cursor, page = await self._ask(browse(cursor, queue, states))
            for each in page:
                yield each
            if cursor == "0":
                return

    async def settings(self, queue: str) -> dict[str, Reply]:
        """See `Queue.settings`."""
        return await self._ask(settings(queue))

    async def configure(self, queue: str, **changes: Setting) -> None:
        """See `Queue.configure`."""
        await self._ask(configure(queue, changes))

    async def pause(self, queue: str, how: str = "all", *, seconds: float | None = None) -> str:
        """See `Queue.pause`."""
        return await self._ask(pause(queue, how, seconds))

    async def resume(self, queue: str) -> str:
        """See `Queue.resume`."""
        return await self._ask(pause(queue, "none"))

    async def flush(self, queue: str) -> int:
        """See `Queue.flush`."""
        return await self._ask(flush(queue))

    async def dead(self, *, count: int = 1000, **wanted: Unpack[DeadFilter]) -> list[DeadJob]:
        """See `Queue.dead`."""
        found: list[DeadJob] = []
        cursor = "0"
        while len(found) < count:
            cursor, page = await self._ask(dead(cursor, count - len(found), wanted))
            found += page
            if cursor == "0":
                break
        return found

    async def retry_dead(self, *ids: str, **wanted: Unpack[DeadFilter]) -> int:
        """See `Queue.retry_dead`."""
        return await self._ask(dead_again("RETRY", ids, wanted))

    async def delete_dead(self, *ids: str, **wanted: Unpack[DeadFilter]) -> int:
        """See `Queue.delete_dead`."""
        return await self._ask(dead_again("DELETE", ids, wanted))

    async def delete(self, *ids: str) -> int:
        """See `Queue.delete`."""
        return await self._ask(delete(ids)) if ids else 0

    async def move(self, job_id: str, queue: str) -> bool:
        """See `Queue.move`."""
        return await self._ask(move(job_id, queue))

    async def prioritize(self, job_id: str, priority: int) -> bool:
        """See `Queue.prioritize`."""
        return await self._ask(prioritize(job_id, priority))

    async def run_now(self, job_id: str) -> bool:
        """See `Queue.run_now`."""
        return await self._ask(run_now(job_id))

    async def schedule(
        self, name: str, when: str, queue: str, body: Body, *, zone: str = "", missed: str = "",
        **options: Unpack[AddOptions],
    ) -> None:
        """See `Queue.schedule`."""
        await self._ask(schedule(name, when, queue, body, zone, missed, options))

    async def schedules(self) -> list[Schedule]:
        """See `Queue.schedules`."""
        return await self._ask(schedules())

    async def unschedule(self, name: str) -> bool:
        """See `Queue.unschedule`."""
        return await self._ask(unschedule(name))

    async def limit(
        self, domain: str, rate: str, *, burst: int | None = None, concurrency: int | None = None,
        adapt: bool | None = None,
    ) -> None:
        """See `Queue.limit`."""
        await self._ask(limit(domain, rate, burst, concurrency, adapt))

    async def unlimit(self, domain: str) -> None:
        """See `Queue.unlimit`."""
        await self._ask(unlimit(domain))

    async def weigh(self, queue: str, tenant: str, weight: int) -> None:
        """See `Queue.weigh`."""
        await self._ask(weigh(queue, tenant, weight))

    async def beat(self, worker: str, *, seconds: float, facts: Mapping[str, str]) -> None:
        """See `Queue.beat`."""
        await self._ask(beat(worker, seconds, facts))

    async def workers(self) -> list[WorkerView]:
        """See `Queue.workers`."""
        return await self._ask(workers())
