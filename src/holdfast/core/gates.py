"""The turns in the life of a job that has keys, and who has a say in them.

Plain jobs never come here: they lack the flag SPECIAL, the one thing the life of a job (node.py) looks at. What a
feature has to say is in its own file; this one is the list of who is asked when.

    defers      the time it waited for has come: whether it is not for us to see to it
    holds       about to be queued: whether something holds it back
    accepted    it has its copies: the promise is made
    handed_out  a consumer has it
    taken_out   somebody took it out of its queue, and nothing but somebody's word will put it back
    waits       it failed, and is to be queued again, but not yet
    died        it is dead: kept, and not queued again unless somebody says so (fate.py)
    leaves      its queue, for another
    ended       its life is over here: acknowledged, deleted, expired, aborted
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import acks, batches, groups, home, unique
from holdfast.core.job import ACTIVE, Job

if TYPE_CHECKING:
    from holdfast.core.node import Node


def holds(node: Node, job: Job) -> bool:
    """Whether it must not be queued now; whoever holds it back queues it later."""
    more = job.more
    if more is None or not (more.group or more.unique):
        return False
    if not home.is_home_of(node, job):
        job.state = ACTIVE
        job.qtime = 0
        home.pass_on(node, job, True)
        return True
    if more.unique and unique.merges(node, job):
        return True
    return more.group != b"" and groups.holds(node, job)


def defers(node: Node, job: Job) -> bool:
    """Its timer has ended: whether it is not for this node to queue it, or not its turn."""
    more = job.more
    if more is None or not (more.group or more.unique):
        return False
    if home.defers(node, job):
        return True
    if groups.is_held(job):
        job.qtime = 0
        return True
    return False


def is_elsewhere(node: Node, job: Job) -> bool:
    """Whether another node decides when it is queued."""
    return home.is_keyed(job) and not home.is_home_of(node, job)


def accepted(node: Node, job: Job) -> None:
    more = job.more
    if more is not None and more.unique:
        unique.accepted(node, job)


def handed_out(node: Node, job: Job) -> None:
    more = job.more
    if more is None:
        return
    if more.unique:
        unique.started(node, job)
    if more.group and job.retry == 0:
        groups.leave(node, job)  # at most once: nobody will ever say that its consumer is gone


def taken_out(node: Node, job: Job) -> None:
    more = job.more
    if more is not None and more.group and not node.broken("taken-out-keeps-turn"):
        groups.leave(node, job)  # if it is put back it goes before all that were accepted later


def waits(node: Node, job: Job) -> None:
    more = job.more
    if more is not None and more.group:
        groups.failed(node, job)


def died(node: Node, job: Job) -> None:
    """Nobody waits for a dead job, and its keys are free."""
    ended(node, job, -1)
    more = job.more
    if more is not None and more.batch:
        batches.died(node, job)


def leaves(node: Node, job: Job) -> None:
    """It goes to another queue: there it has other keys."""
    more = job.more
    if more is not None and more.group:
        groups.leave(node, job)
    if more is not None and more.unique:
        unique.ended(node, job, acks.FLUSHED)
        more.key = b""


def ended(node: Node, job: Job, why: i64) -> None:
    """`why` as in acks.py; -1 where nobody says."""
    more = job.more
    if more is None:
        return
    if more.group:
        groups.leave(node, job)
    if more.unique:
        unique.ended(node, job, why)
    if more.batch and why >= 0:
        batches.ended(node, job, why)
