"""Which of the words in states.py says what a job is doing, as far as this node knows."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core import absence, delay, groups, requeue, states
from holdfast.core.job import ACTIVE, ASKING, BACKING_OFF, HANDED_OUT, IN_DOUBT, MOVING, Job
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node

OF_STATES: Final = [
    states.ACCEPTING, states.PUT_OFF, states.QUEUED, states.ENDED, states.ENDED, states.DEAD, states.QUEUED,
]
"""By Disque's state (job.STATE_NAMES); of an active job there is more to say."""


def of(node: Node, job: Job) -> bytes:
    if job.state != ACTIVE:
        return OF_STATES[int(job.state)]
    if job.flags & IN_DOUBT:
        return states.IN_DOUBT
    if groups.is_held(job):
        return states.IN_LINE
    if job.flags & MOVING:
        return states.MOVING if absence.is_there(node, job) else states.NODE_AWAY
    if job.responsible != ME:
        return states.NODE_AWAY if absence.is_counted_here(node, job) else states.COPY
    if is_out(node, job):
        return states.LEASED
    if delay.is_on(node, job):
        return states.DELAYED
    if job.flags & BACKING_OFF:
        return states.RETRYING
    return states.ASKING if job.flags & ASKING else states.PUT_OFF


def is_out(node: Node, job: Job) -> bool:
    """Whether a worker has it, which this node gave it to."""
    is_with_worker = job.flags & HANDED_OUT != 0 and job.flags & (BACKING_OFF | ASKING) == 0
    return is_with_worker and (job.retry == 0 or requeue.is_leased(node, job))
