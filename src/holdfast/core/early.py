"""A start with more jobs than memory holds: what is to be queued in the end is queued early, so that it can overflow.

Loading knows where a job stands only when everything is read: a later record may say that it is out, or gone. So jobs
are queued when all is read (recover.py), and only queued jobs leave memory whole (overflow.py). Where memory does not
last so long those that would be queued by what is known so far are, and taken out again if there is more to be read
of them (`Loading.take_out`).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core import doubt
from holdfast.core.job import ACTIVE, AWAY, HANDED_OUT, QUEUED_BEFORE, Job
from holdfast.core.peers import ME, MY_BIT

if TYPE_CHECKING:
    from holdfast.core.recover import Loading

EARLY: Final = QUEUED_BEFORE | HANDED_OUT | AWAY
"""Flags with which a job may be queued before everything is read."""


def make_room(loading: Loading) -> None:
    """Between two batches of records."""
    node = loading.node
    if not node.overflow.is_due():
        return
    if loading.requeues and not doubt.is_possible(node):
        for job in loading.fresh:
            if is_early(job):
                job.flags |= QUEUED_BEFORE
                job.queue.push(job)
    loading.fresh = []
    while node.overflow.is_due() and node.overflow.step():
        pass


def is_early(job: Job) -> bool:
    return (
        job.state == ACTIVE and job.responsible == ME and job.holders == MY_BIT and not job.flags & ~EARLY
        and job.qtime == 0 and job.retry > 0
    )
