"""The turns in the life of a job that has keys, and who has a say in them.

Plain jobs never come here: they lack the flag SPECIAL, the one thing the life of a job (node.py) looks at. What a
feature has to say is in its own file; this one is the list of who is asked when.

    holds       about to be queued: whether something holds it back
    accepted    it has its copies: the promise is made
    handed_out  a consumer has it
    waits       it failed, and is to be queued again, but not yet
    died        it is dead: kept, and not queued again unless somebody says so (fate.py)
    ended       its life is over here: acknowledged, deleted, expired, aborted
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import groups, unique
from holdfast.core.job import Job

if TYPE_CHECKING:
    from holdfast.core.node import Node


def holds(node: Node, job: Job) -> bool:
    """Whether it must not be queued now; whoever holds it back queues it later."""
    more = job.more
    if more is None:
        return False
    return more.group != b"" and groups.holds(node, job)


def accepted(node: Node, job: Job) -> None:
    more = job.more
    if more is not None and more.unique:
        unique.accepted(node, job)


def handed_out(node: Node, job: Job) -> None:
    more = job.more
    if more is not None and more.unique:
        unique.started(node, job)


def waits(node: Node, job: Job) -> None:
    more = job.more
    if more is not None and more.group:
        groups.failed(node, job)


def died(node: Node, job: Job) -> None:
    """Nobody waits for a dead job, and its keys are free."""
    ended(node, job, -1)


def ended(node: Node, job: Job, why: i64) -> None:
    """`why` as in acks.py; -1 where nobody says."""
    more = job.more
    if more is None:
        return
    if more.group:
        groups.leave(node, job)
    if more.unique:
        unique.ended(node, job, why)
