"""Jobs whose time is over before they were done: they are dropped, or go to the dead letters (ONEXPIRE dead).

A job that is dropped is forgotten by each of its holders when its clock says so, and nobody has to agree. One that
goes to the dead letters cannot end like that: a holder that hears no others does not know whether the job was
acknowledged meanwhile, and if it forgets the job it may be the only one that had it. So its end is decided like its
return to the queue. The node that has it queued, or in line, lets it die; a node that had it out does so when the
lease ends; any other holder asks first, as it does before it queues a job (requeue.py), and it dies there only where
nobody has a word against it. Then its death is told like any other (fate.py).

Until that is decided the job stays, and is not handed out: its time is over. An ending of such a job is kept for as
long as a dead copy could be (acks.mark), so that a holder that was away is told that it was done.

An at-most-once job that was handed out has been worked on, and is dropped.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import (
    acks,
    batches,
    errors,
    failure,
    fate,
    groups,
    history,
    records,
    replicate,
    requeue,
    results,
)
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    ASKING,
    GONE,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED,
    SPECIAL,
    WAIT_REPL,
    WATCHED,
    Job,
)
from holdfast.core.more import TO_DEAD
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node

LOOK_MS: Final = 1000
"""A job whose time is over and of which nothing is decided yet is looked at again after this."""

DECIDER_MS: Final = 5000
"""So long the other holders leave it to the node that sees to the job, which lets it die at once: they need not ask."""


def expire(node: Node, job: Job) -> bool:
    """The life of a job is over. False: it is still to be seen to, as it goes to the dead letters."""
    if outlives(node, job):
        return False
    node.expired += 1
    job.queue.expired += 1 if job.responsible == ME and job.state != ACKED else 0
    if job.flags & WATCHED and job.state != ACKED:
        results.tell_end(node, job, results.EXPIRED)
    if isinstance(job.task, replicate.Adding) and job.state == WAIT_REPL:
        replicate.abort(node, job, errors.NO_REPL_REMOVED)
        if job.state == GONE:
            return True
    history.expired(node, job)
    if job.flags & SPECIAL and job.state != ACKED and batches.must_tell(node, job, acks.EXPIRED):
        acks.end(node, job, acks.EXPIRED)
        return True
    node.endings.pop(job, None)
    records.gone(node, job)
    node.forget(job)
    return True


def stays(job: Job) -> bool:
    """Whether it is to be found among the dead letters, rather than nowhere, when its time is over."""
    more = job.more
    if more is not None and more.onexpire != 0:
        return more.onexpire == TO_DEAD
    return job.queue.keeps_expired


def is_over(node: Node, job: Job) -> bool:
    """Whether it is to die now, where a holder is about to queue it."""
    return job.expire <= node.now and stays(job)


def outlives(node: Node, job: Job) -> bool:
    """Its time is over. False: it can be forgotten; otherwise it has died, or it will when that is decided."""
    if (job.state != ACTIVE and job.state != QUEUED) or not stays(job) or node.broken("expired-vanishes"):
        return False
    if job.retry == 0 and job.flags & HANDED_OUT and not job.flags & IN_DOUBT:
        return False
    is_queued = job.state == QUEUED or groups.is_in_line(job) or node.broken("expired-decided-alone")
    if is_queued or job.flags & IN_DOUBT:
        fate.die(node, job, failure.EXPIRED, failure.retention_ms(node, job.queue))
    elif job.qtime == 0 or job.qtime > node.now:
        decide(node, job)
    return True


def decide(node: Node, job: Job) -> None:
    """It is not queued here. Make it due, unless somebody has it or another node is to decide."""
    if job.flags & (MOVING | ASKING) or requeue.is_leased(node, job):
        return
    if job.responsible != ME:
        is_said = job.qtime > node.now and node.peers[job.responsible].is_linked  # for how long that node has it
        if is_said or node.now < job.expire + DECIDER_MS:
            return
    node.wake_at(job, node.now)


def dead_ms(node: Node, job: Job) -> i64:
    """How much longer than its life a copy of it can be somewhere: as a dead one."""
    return failure.retention_ms(node, job.queue) if stays(job) and not node.broken("expired-ending-forgotten") else 0
