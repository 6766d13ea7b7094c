"""Groups: jobs of one queue that are handed out one at a time, in the order in which they were accepted.

Only one job of a group is in its queue's lane or with a consumer: the one whose turn it is. The others stand in
line outside of the lane, so a queue with a million jobs in a hundred thousand groups has a hundred thousand jobs in
its lane, and GETJOB looks at none that it cannot hand out. When the one whose turn it is ends, the next is queued.

The order is a number given by the home of the group (home.py) when it takes a job in, not the time at which the
job was made: clocks of two producers' nodes differ. A job that still waits for its copies has its place in line
already, and nobody overtakes it before its fate is known. A delayed job gets its place when its delay is over: it
then goes before all that were accepted later and have not had their turn.

An at-most-once job (RETRY 0) has had its turn when it is handed out, since nobody says when its consumer is gone. Any
other job that fails keeps its turn, also while it waits for its next attempt; with ONFAIL skip the next in line goes
before it.
"""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from holdfast.core import requeue
from holdfast.core.job import ACKED, ACTIVE, BACKING_OFF, GONE, HANDED_OUT, IN_LINE, QUEUED, Job
from holdfast.core.limits import GROUP_BYTES, LINE_BYTES
from holdfast.core.peers import ME, MY_BIT

if TYPE_CHECKING:
    from holdfast.core.node import Node
    from holdfast.core.queue import Queue


NO_LINE: Final[deque[Job]] = deque()
"""Of a group with one job, as most are; never added to."""


@mypyc_attr(acyclic=True)
class Group:
    def __init__(self, name: bytes) -> None:
        self.name: bytes = name
        self.turn: Job | None = None  # whose turn it is: queued, with a consumer, or about to be
        self.line: deque[Job] = NO_LINE  # the others in order, some perhaps ended meanwhile
        self.ended: i64 = 0  # of these, so many have


class Turns:
    """The jobs whose turn has come and that are not queued yet (begin_turn)."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.are_beginning: bool = False  # the loop of begin_turn runs, and takes whatever is added


def order_of(job: Job) -> i64:
    more = job.more
    assert more is not None
    return more.order


def next_order(node: Node) -> i64:
    """A place behind all that this node has ever seen, whoever gave theirs."""
    order: i64 = max(node.last_order + 1, node.now * 1000)
    node.last_order = order
    return order


def learn_order(node: Node, order: i64) -> None:
    if order > node.last_order:
        node.last_order = order


def group_of(job: Job) -> Group | None:
    more = job.more
    assert more is not None
    return job.queue.groups.get(more.group)


def find_or_make(node: Node, job: Job) -> Group:
    more = job.more
    assert more is not None
    found = job.queue.groups.get(more.group)
    if found is None:
        found = Group(more.group)
        job.queue.groups[more.group] = found
        node.account(GROUP_BYTES + len(more.group))
    else:
        more.group = found.name  # one object for all
    return found


def join(node: Node, job: Job) -> None:
    """Get in line, at the place that the job's order says."""
    if job.flags & IN_LINE:
        return
    job.flags |= IN_LINE
    group = find_or_make(node, job)
    turn = group.turn
    if turn is None:
        group.turn = job
        return
    if turn.state == QUEUED and (order_of(job) < order_of(turn) or is_out(node, job)):
        # It is not out yet, and this one should be before it.
        turn.queue.remove(turn)
        turn.state = ACTIVE
        turn.qtime = 0
        group.turn = job
        job = turn
    stand(node, group, job)
    job.queue.lined += 1


def is_out(node: Node, job: Job) -> bool:
    """Whether a consumer is working on it, here or at a node that says so."""
    if job.state != ACTIVE or job.qtime <= node.now:
        return False
    return job.flags & HANDED_OUT != 0 if job.responsible == ME else node.peers[job.responsible].is_linked


def stand(node: Node, group: Group, job: Job) -> None:
    """Into the line; nearly always at its end."""
    if group.line is NO_LINE:
        group.line = deque()
        node.account(LINE_BYTES)
    line = group.line
    later: list[Job] = []
    order = order_of(job)
    while line and order_of(line[-1]) > order:
        later.append(line.pop())
    line.append(job)
    while later:
        line.append(later.pop())


def holds(node: Node, job: Job) -> bool:
    """A job of a group is about to be queued: whether it has to wait for its turn."""
    join(node, job)
    group = group_of(job)
    assert group is not None
    if group.turn is job:
        return job.flags & HANDED_OUT != 0 and steps_aside(node, group, job)
    job.state = ACTIVE
    job.qtime = 0
    return True


def steps_aside(node: Node, group: Group, job: Job) -> bool:
    """It was out and did not end: whether the next one goes before it."""
    more = job.more
    assert more is not None
    if not more.skips and not node.broken("group-released-on-nack"):
        return False
    follower = next_in_line(group, job.queue)
    if follower is None:
        return False
    job.flags &= ~HANDED_OUT & ~IN_LINE  # it has to fail again before it steps aside again
    job.state = ACTIVE
    job.qtime = 0
    group.turn = follower
    join(node, job)
    begin_turn(node, follower)
    return True


def failed(node: Node, job: Job) -> None:
    """It will be tried again later. With ONFAIL skip the others need not wait for that."""
    more = job.more
    if more is not None and more.group and more.skips:
        leave(node, job)


def leave(node: Node, job: Job) -> None:
    """It has ended, or is no longer of this group: if it was its turn, the next one's comes."""
    if not job.flags & IN_LINE:
        return
    job.flags &= ~IN_LINE
    group = group_of(job)
    if group is None:
        return
    queue = job.queue
    if group.turn is not job:
        queue.lined -= 1
        group.ended += 1
        if group.ended > 8 + len(group.line) // 2:
            group.line = deque([each for each in group.line if each.flags & IN_LINE])
            group.ended = 0
        return
    follower = next_in_line(group, queue)
    group.turn = follower
    if follower is not None:
        begin_turn(node, follower)
    else:
        drop(node, queue, group)


def drop(node: Node, queue: Queue, group: Group) -> None:
    """It has no jobs here any more."""
    del queue.groups[group.name]
    node.account(-(GROUP_BYTES + len(group.name) + (0 if group.line is NO_LINE else LINE_BYTES)))


def next_in_line(group: Group, queue: Queue) -> Job | None:
    """Take the first in line that has not ended."""
    while group.line:
        job = group.line.popleft()
        if job.flags & IN_LINE and job.state != GONE and job.state != ACKED:
            queue.lined -= 1
            return job
        group.ended -= 1
    return None


def begin_turn(node: Node, job: Job) -> None:
    """The job's turn has come.

    A job that begins its turn may end it at once: an at-most-once job does when a waiting consumer gets it, and so does
    one that expired. That begins the next turn, and so on along the whole line. A loop works them off in order, so a
    line of any length needs a stack of one turn.
    """
    turns = node.turns
    turns.jobs.append(job)
    if turns.are_beginning:
        return
    turns.are_beginning = True
    try:
        while turns.jobs:
            queue_for_turn(node, turns.jobs.popleft())
    finally:
        turns.are_beginning = False


def queue_for_turn(node: Node, job: Job) -> None:
    """Queue the job whose turn it is. One that still waits for its copies is queued when it has them."""
    if job.state != ACTIVE or job.qtime != 0:
        return
    if job.holders != MY_BIT and requeue.may_be_elsewhere(node, job):
        requeue.due(node, job)
    else:
        job.flags &= ~BACKING_OFF
        node.enqueue(job)


def is_held(job: Job) -> bool:
    """Whether it stands in line behind another."""
    if not job.flags & IN_LINE:
        return False
    group = group_of(job)
    return group is not None and group.turn is not job


def is_in_line(job: Job) -> bool:
    """The same of one that is accepted: it is queued but for that."""
    return job.state == ACTIVE and is_held(job)


def state_of(job: Job) -> int:
    """The state that clients are told: who stands in line is queued, as QLEN counts it, though not in the lane."""
    return QUEUED if is_in_line(job) else int(job.state)


def ahead(job: Job) -> i64:
    """How many jobs of its group come before it; of one that is not in line yet, if its time came now."""
    group = group_of(job)
    turn = None if group is None else group.turn
    if group is None or turn is None or turn is job:
        return 0
    if job.flags & IN_LINE:
        count: i64 = 1
        for each in group.line:
            if each is job:
                break
            if each.flags & IN_LINE:
                count += 1
        return count
    order = order_of(job)
    count = 0 if turn.state == QUEUED and order < order_of(turn) else 1  # as `join` has it
    for each in group.line:
        if each.flags & IN_LINE and order_of(each) < order:
            count += 1
    return count


def rejoin(node: Node, jobs: list[Job]) -> None:
    """After a restart or a change of home: get in line again, those that are out before all others."""
    jobs.sort(key=lambda each: order_of(each))
    for job in jobs:
        learn_order(node, order_of(job))
        if is_out(node, job):
            join(node, job)
    for job in jobs:
        join(node, job)
