"""The order in which the jobs of a queue will go out, without taking any: what QPEEK shows.

First come those that are in the queue. Last come those that stand in line in a group: the first of each group, then the
second, and so on, as each waits for the end of another.
"""
from __future__ import annotations

from holdfast.core.groups import Group
from holdfast.core.job import ACTIVE, IN_LINE, Job
from holdfast.core.limits import COUNT_MAX
from holdfast.core.queue import Queue


def first(queue: Queue, count: int) -> list[Job]:
    """The next `count` jobs."""
    found = queue.oldest(count)
    return found + in_line(queue, count - len(found)) if queue.lined > 0 and len(found) < count else found


def last(queue: Queue, count: int) -> list[Job]:
    """The last `count` jobs, the one that goes out last before the others."""
    found = in_line(queue, COUNT_MAX) if queue.lined > 0 else []
    found.reverse()
    return (found + queue.latest(count - len(found)))[:count] if len(found) < count else found[:count]


def by_age(job: Job) -> tuple[int, int, int, int]:
    return (-int(job.priority), int(job.ctime), int(job.seq), int(job.rnd))


def in_line(queue: Queue, count: int) -> list[Job]:
    """Jobs that wait for others of their group; of very many groups some."""
    places: list[tuple[int, tuple[int, int, int, int], Job]] = []
    for group in queue.groups.values():
        places += standing(group, count)
        if len(places) > 4 * COUNT_MAX:
            break
    places.sort(key=lambda each: each[:2])
    return [place[2] for place in places[:count]]


def standing(group: Group, count: int) -> list[tuple[int, tuple[int, int, int, int], Job]]:
    found: list[tuple[int, tuple[int, int, int, int], Job]] = []
    for job in group.line:
        if len(found) >= count:
            break
        if job.flags & IN_LINE and job.state == ACTIVE:  # not one that still waits for its copies
            found.append((len(found), by_age(job), job))
    return found
