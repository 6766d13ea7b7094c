"""Throttles after a restart: how full their buckets are, and which jobs that pass them are out.

The journal has each hand-out with its time, and a snapshot has the buckets that were not full.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import domains, records, rules
from holdfast.core.job import COUNTED, SPECIAL, Job
from holdfast.core.throttle import NS, Throttle, now_ns
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


def went_out(node: Node, job: Job, ms: i64) -> None:
    """The journal says that a job was handed out so many milliseconds ago: its tokens were taken then."""
    for throttle in rules.throttles(node, job):
        throttle.take(now_ns(node) - ms * NS)


def load_throttle(node: Node, reader: Reader, ms: i64) -> None:
    is_of_queue = reader.u8() == 1
    name = reader.name()
    left = reader.long()
    throttle: Throttle | None = None
    if is_of_queue:
        queue = node.queues.get(name)
        throttle = None if queue is None or queue.rules is None else queue.rules.throttle
    else:
        throttle = domains.find(node, name)
    if throttle is not None:
        throttle.full_at = now_ns(node) + left - ms * NS  # whatever hand-outs were told before it


def write_throttles(node: Node) -> None:
    """Buckets that are not full, for a snapshot."""
    for throttle in rules.all_throttles(node):
        if throttle.interval != 0 and throttle.full_at > now_ns(node):
            records.throttle(node, throttle)


def count_all(node: Node) -> None:
    """Everything is read: jobs that were out are so again."""
    for job in node.all_jobs():
        rules_are = job.queue.rules is not None
        if (rules_are or job.flags & SPECIAL) and not job.flags & COUNTED and rules.is_out(node, job):
            more = job.more
            if more is not None and more.domain:
                rules.rules_of(node, job.queue)
            for throttle in rules.throttles(node, job):
                throttle.out += 1
                job.flags |= COUNTED
        elif job.flags & COUNTED and not rules.is_out(node, job):
            rules.let_go(node, job)
