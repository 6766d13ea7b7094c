"""The delay of a job: how long after its making it is queued for the first time, unless ENQUEUE ends it sooner.

A delay that has run out says so by itself. That it was ended sooner is known by what became of the job: it was queued,
or stands in line in its group. Copies and the journal say it, too, else the delay would begin again with another home
or a restart.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core.job import IN_LINE, QUEUED_BEFORE, Job

if TYPE_CHECKING:
    from holdfast.core.node import Node


def end(job: Job) -> i64:
    """When it runs out."""
    return job.ctime // 1_000_000 + i64(job.delay) * 1000


def is_on(node: Node, job: Job) -> bool:
    return job.delay > 0 and not job.flags & (QUEUED_BEFORE | IN_LINE) and end(job) > node.now


def left(node: Node, job: Job) -> i64:
    return end(job) - node.now if is_on(node, job) else 0
