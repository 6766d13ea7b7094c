"""A start with more jobs than memory holds: what is to be queued in the end is queued early, so that it can overflow.

Loading knows where a job stands only when everything is read: a later record may say that it is out, or gone. So jobs
are queued when all is read (recover.py), and only queued jobs leave memory whole (overflow.py). Where memory does not
last so long those that would be queued by what is known so far are, and taken out again if there is more to be read
of them (`take_out`).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import doubt
from holdfast.core.job import ACTIVE, AWAY, GONE, HANDED_OUT, QUEUED, QUEUED_BEFORE, Job, Origin, Run
from holdfast.core.peers import ME, MY_BIT
from holdfast.core.queue import Queue

if TYPE_CHECKING:
    from holdfast.core.node import Node
    from holdfast.core.recover import Loading

EARLY: Final = QUEUED_BEFORE | HANDED_OUT | AWAY
"""Flags with which a job may be queued before everything is read."""

FRESH_MORE: Final = 100_000
"""Of the jobs read lately so many may have ended again before they are let go of."""


def keep(loading: Loading, job: Job) -> None:
    """A job was read."""
    node = loading.node
    node.keep(job)
    if loading.overflows:
        loading.fresh.append(job)
        if len(loading.fresh) > 2 * node.jobs + FRESH_MORE:
            loading.fresh = [each for each in loading.fresh if each.state != GONE]


def make_room(loading: Loading) -> None:
    """Between two batches of records."""
    node = loading.node
    if not node.overflow.is_due():
        return
    if loading.requeues and not doubt.is_possible(node):
        grown: dict[Queue, None] = {}
        for job in loading.fresh:
            if is_early(job):
                job.flags |= QUEUED_BEFORE
                job.queue.push(job)
                grown[job.queue] = None
        # Else a search that has come to bodies would find those of each new page, and leave all jobs in memory.
        node.overflow.fold_first(list(grown))
    loading.fresh = []
    while node.overflow.is_due() and node.overflow.step():
        pass


def is_early(job: Job) -> bool:
    return (
        job.state == ACTIVE and job.responsible == ME and job.holders == MY_BIT and not job.flags & ~EARLY
        and job.qtime == 0 and job.retry > 0
    )


def take_out(node: Node, origin: Origin, seq: i64, job: Job) -> Job:
    """There is more to be read of a job that was queued: not queued it is, then, and in memory."""
    if isinstance(job, Run):
        job = node.overflow.find(job, origin, seq)
    if job.state == QUEUED:
        job.queue.remove(job)
        job.queue.jobs_in -= 1
        job.state = ACTIVE
    return job
