"""The order in which the jobs of a queue will go out, without taking any: what QPEEK shows.

First come those that are in the queue, as `pop` would take them: by priority and age, and where there are tenants by
turns, which are played through on paper here, by the same virtual time as in rules.py. Jobs of a domain that has
nothing left for them come after all others of the queue, since nobody can say when their time is. Last come those that
stand in line in a group: the first of each group, then the second, and so on, as each waits for the end of another.
"""
from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core.groups import Group
from holdfast.core.job import ACTIVE, IN_LINE, Job
from holdfast.core.lane import Lane
from holdfast.core.limits import COUNT_MAX, NEVER
from holdfast.core.queue import Queue
from holdfast.core.ranks import NOWHERE
from holdfast.core.rules import STRIDE, Line, Rules, throttle_of
from holdfast.core.throttle import Throttle, now_ns

if TYPE_CHECKING:
    from holdfast.core.node import Node

AHEAD_MOST: Final = 10_000
"""So many turns are played through to tell the place of one job."""

FEW: Final = 16
"""Jobs of a line that are looked up at first; most lines are not asked for more."""


def first(node: Node, queue: Queue, count: int) -> list[Job]:
    """The next `count` jobs."""
    found = queue.oldest(count) if queue.rules is None else by_rules(node, queue.rules, count)
    return found + in_line(queue, count - len(found)) if queue.lined > 0 and len(found) < count else found


def last(node: Node, queue: Queue, count: int) -> list[Job]:
    """The last `count` jobs, the one that goes out last before the others.

    Of a queue with rules and more jobs than one command may list turns are not played through: of those it is the
    youngest of each tenant.
    """
    found = in_line(queue, COUNT_MAX) if queue.lined > 0 else []
    if queue.rules is not None and queue.size <= COUNT_MAX:
        found = by_rules(node, queue.rules, COUNT_MAX) + found
        found.reverse()
        return found[:count]
    found.reverse()
    return (found + queue.latest(count - len(found)))[:count] if len(found) < count else found[:count]


def ahead(node: Node, job: Job) -> i64:
    """How many jobs go out before one that is queued here. With tenants turns are played through, but not for ever:
    then it is more than AHEAD_MOST."""
    queue = job.queue
    if queue.rules is None or len(queue.rules.lines) == 1:
        return queue.ahead(job)
    before = by_rules(node, queue.rules, AHEAD_MOST + 1)
    return before.index(job) if job in before else AHEAD_MOST + 1


# -- tenants and domains ----------------------------------------------------------------------------------


def by_age(job: Job) -> tuple[int, int, int, int]:
    return (-int(job.priority), int(job.ctime), int(job.seq), int(job.rnd))


class Course:
    """What one tenant has, from the front."""

    def __init__(self, line: Line) -> None:
        self.line: Line = line
        self.jobs: list[Job] = []
        self.pos: i64 = 0
        self.looked: i64 = 0  # so far each of its lanes was looked at

    def next(self) -> Job | None:
        if self.pos >= len(self.jobs) and self.looked < self.line.size:
            self.looked = max(FEW, self.looked * 8)
            self.jobs = heads(self.line, int(self.looked))
        if self.pos >= len(self.jobs):
            return None
        self.pos += 1
        return self.jobs[self.pos - 1]


def heads(line: Line, count: int) -> list[Job]:
    """The first `count` jobs of a line, whatever their domains say, by priority and age."""
    found = of_lanes(line.lanes, count)
    if line.bins:
        for bin in line.bins.values():
            found += of_lanes(bin.lanes, count)
        found.sort(key=by_age)
        del found[count:]
    return found


def of_lanes(lanes: list[Lane], count: int) -> list[Job]:
    found: list[Job] = []
    for lane in lanes:
        lane.oldest(count - len(found), found)
        if len(found) >= count:
            break
    return found


def by_rules(node: Node, rules: Rules, count: int) -> list[Job]:
    """As `Rules.next` would take them, one after the other."""
    courses: dict[bytes, Course] = {}
    heap: list[tuple[int, int, bytes]] = []
    for line in rules.lines.values():
        if line.size > 0:
            courses[line.tenant] = Course(line)
            due: i64 = line.rank if line.place != NOWHERE else max(line.rank, rules.virtual)
            heappush(heap, (int(due), int(line.second), line.tenant))
    turned = int(rules.turned)
    found: list[Job] = []
    later: list[Job] = []  # their domains have nothing left for them
    left: dict[bytes, int] = {}
    while heap and len(found) < count:
        due_at, _, tenant = heappop(heap)
        course = courses[tenant]
        job = next_open(node, course, left, later)
        if job is None:
            continue
        found.append(job)
        turned += 1
        heappush(heap, (due_at + int(STRIDE // course.line.weight), turned, tenant))
    if len(found) < count:
        later.sort(key=by_age)
        found += later[:count - len(found)]
    return found


def next_open(node: Node, course: Course, left: dict[bytes, int], later: list[Job]) -> Job | None:
    """The next of a line whose domain has a token and a place for it, as far as this node knows."""
    while True:
        job = course.next()
        throttle = None if job is None else throttle_of(node, job)
        if job is None or throttle is None or not throttle.is_limited:
            return job
        if throttle.name not in left:
            left[throttle.name] = int(room(node, throttle))
        if left[throttle.name] > 0:
            left[throttle.name] -= 1
            return job
        later.append(job)


def room(node: Node, throttle: Throttle) -> i64:
    """How many of a domain may go out now. In a cluster another node may know that: then all, unless it is closed."""
    if throttle.is_shut():
        return 0
    if len(node.peers) > 1:
        return NEVER
    places: i64 = NEVER if throttle.most == 0 else max(0, throttle.most - throttle.out)
    return min(places, throttle.tokens(now_ns(node)))


# -- groups -----------------------------------------------------------------------------------------------


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
