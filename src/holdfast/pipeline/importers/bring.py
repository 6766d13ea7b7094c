"""What was found elsewhere is added here, once, and only then taken out there, if that was asked for.

Each job is added under the unique key `<system>:<its id there>`, remembered for a week after it is done: an import that
was interrupted is simply started again. Jobs that a worker of the other system is running are left to it unless asked
for, and so are the dead, which go to a queue of their own.
"""
from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.resp import Arg
from holdfast.pipeline.nodes import Nodes
from holdfast.pipeline.sinks.adder import Adder

from .found import DEAD, RUNNING, Found, Schedule, Unreadable

if TYPE_CHECKING:
    from redis import Redis

WINDOW: Final = 500
KEY_S: Final = 7 * 86_400
TIMEOUT_S: Final = 10.0
SHOWN: Final = 5
HEADER_BYTES: Final = 1000
"""Of a header that comes from elsewhere: enough to recognise a job by."""


@dataclass
class Wanted:
    """How to bring jobs over."""

    dry: bool = False
    remove: bool = False
    dead_queue: str = ""
    """Where dead jobs go; they stay where they are without it."""
    running: bool = False
    """Whether jobs that somebody is running come, too: they may then run twice."""
    prefix: str = ""
    """Goes before the names of queues."""
    options: tuple[Arg, ...] = ()
    """More words of ADDJOB, for all."""


@dataclass
class Brought:
    """What an import did, or would do."""

    added: Counter[str] = field(default_factory=Counter)
    """By state there."""
    queues: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    """By the name of the task that they call, where the other system has such."""
    there: int = 0
    """What an earlier import had brought."""
    left: Counter[str] = field(default_factory=Counter)
    schedules: list[str] = field(default_factory=list)
    """What makes jobs again and again there, and does not come over."""
    removed: int = 0
    unreadable: int = 0
    examples: list[str] = field(default_factory=list)


def bring(
    found: Iterable[Found | Schedule | Unreadable], nodes: Nodes | None, wanted: Wanted, source: Redis | None = None,
    tell: Callable[[Brought], None] = lambda brought: None,
) -> Brought:
    """Add what was found, window by window."""
    brought = Brought()
    adder = None
    if not wanted.dry and nodes is not None:
        nodes.members()  # a cluster that is not there is told before anything is read
        adder = Adder(nodes, TIMEOUT_S, has_keys=True)
    for window in windows(chosen(found, wanted, brought)):
        was_there = [False] * len(window)
        if adder is not None:
            was_there = adder.add([words(job, wanted) for job in window])
        brought.there += sum(was_there)
        for job in (job for job, is_old in zip(window, was_there, strict=True) if not is_old):
            brought.added[job.state] += 1
            brought.queues[queue_of(job, wanted)] += 1
            if "task" in job.headers:
                brought.tasks[job.headers["task"]] += 1
        if wanted.remove and adder is not None and source is not None:
            brought.removed += take_out(source, window)
        tell(brought)
    return brought


def chosen(found: Iterable[Found | Schedule | Unreadable], wanted: Wanted, brought: Brought) -> Iterator[Found]:
    for each in found:
        if isinstance(each, Unreadable):
            brought.unreadable += 1
            if len(brought.examples) < SHOWN:
                brought.examples.append(str(each))
        elif isinstance(each, Schedule):
            brought.schedules.append(str(each))
        elif (each.state == RUNNING and not wanted.running) or (each.state == DEAD and not wanted.dead_queue):
            brought.left[each.state] += 1
        else:
            yield each


def windows(jobs: Iterator[Found]) -> Iterator[list[Found]]:
    while window := list(islice(jobs, WINDOW)):
        yield window


def queue_of(job: Found, wanted: Wanted) -> str:
    return wanted.dead_queue if job.state == DEAD else f"{wanted.prefix}{job.queue}"


def words(job: Found, wanted: Wanted) -> list[Arg]:
    """The ADDJOB of a job from elsewhere."""
    headers = {"imported-from": job.system, "imported-id": job.id, "queue": job.queue, **job.headers}
    if job.attempts:
        headers["attempts-before"] = str(job.attempts)
    if job.error:
        headers["error"] = job.error
    flat: list[Arg] = [text for pair in headers.items() for text in (pair[0], cut(pair[1]))]
    key = f"{job.system}:{job.id}"
    made: list[Arg] = ["ADDJOB", queue_of(job, wanted), job.body, int(TIMEOUT_S * 1000), "UNIQUE", key, "WINDOW", KEY_S,
                       "SAYDUP", "HEADERS", len(headers), *flat]
    if job.at > time.time():
        made += ["AT", math.ceil(job.at)]
    if job.priority is not None:
        made += ["PRIORITY", job.priority]
    return made + list(wanted.options)


def cut(words: str) -> bytes:
    return words.encode("utf-8", "surrogateescape")[:HEADER_BYTES]


def take_out(source: Redis, window: list[Found]) -> int:
    """Remove exactly these entries; how many were still there."""
    pipe: Any = source.pipeline(transaction=False)
    counted: list[bool] = []
    for job in window:
        if job.place is None:
            continue
        key, raw = job.place
        kind = source.type(key)
        if kind == b"list":
            pipe.lrem(key, 1, raw)
        elif kind == b"zset":
            pipe.zrem(key, raw)
        elif kind == b"hash":
            pipe.hdel(key, raw)
        else:
            continue
        counted.append(True)
        if job.also:
            pipe.delete(*job.also)
            counted.append(False)
    return sum(int(count) for count, is_one in zip(pipe.execute(), counted, strict=True) if is_one)
