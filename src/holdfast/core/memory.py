"""What the node may use of memory, and what it does when that runs short.

`used` is an account, not a measurement: each job, queue and session has its price (limits.py). Above 75 % of
maxmemory copies are kept elsewhere, above 95 % what is safe is forgotten, at 100 % ADDJOB is refused.
"""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import acks, history, queues
from holdfast.core.job import GONE
from holdfast.core.limits import (
    BODY_BYTES_EXTRA,
    EVICT_PER_COMMAND,
    JOB_BYTES,
    MEMORY_LEVEL1_PERCENT,
    MEMORY_LEVEL2_PERCENT,
    NEVER,
    QUEUES_HURRIED,
)

if TYPE_CHECKING:
    from holdfast.core.node import Node


def relevel(node: Node) -> None:
    """`used` left the range for which the level was worked out."""
    level1 = node.full // 100 * MEMORY_LEVEL1_PERCENT
    level2 = node.full // 100 * MEMORY_LEVEL2_PERCENT
    was = node.level
    if node.used >= level2:
        node.level, node.level_from, node.level_until = 2, level2, NEVER
    elif node.used >= level1:
        node.level, node.level_from, node.level_until = 1, level1, level2
    else:
        node.level, node.level_from, node.level_until = 0, 0, level1
    node.settle()
    if node.level > was:
        hurry_queues(node)


def hurry_queues(node: Node) -> None:
    """Memory is short: unused queues are forgotten sooner."""
    until = node.now + queues.queue_idle(node)
    for queue in list(node.queues.values())[:QUEUES_HURRIED]:
        node.alarms.at_latest(queue, until)


def evict(node: Node, cost: i64) -> None:
    """Make room for `cost` bytes below 95 %: forget at-most-once jobs that were handed out, oldest first.

    Nobody will get them again. Then acks that a holder who is away has not heard of: it may deliver such a
    job once more when it is back, which is counted. Bounded per command; the next one goes on.
    """
    if node.config.text("maxmemory-policy") != "acks":
        return
    goal = node.full // 100 * MEMORY_LEVEL2_PERCENT
    for _ in range(EVICT_PER_COMMAND):
        if not node.spent or node.used + cost < goal:
            break
        job = node.spent[0]
        if job.state != GONE:
            history.evicted(node, job)
            node.forget(job)  # which may sweep it out
        if node.spent and node.spent[0] is job:
            node.spent.popleft()
            node.spent_gone -= 1
    for _ in range(EVICT_PER_COMMAND):
        if not node.endings or node.used + cost < goal:
            break
        node.count("acks-evicted")
        acks.forget(node, next(iter(node.endings)))


def sweep_spent(node: Node) -> None:
    """Let go of evictable jobs that have ended otherwise."""
    node.spent = deque([job for job in node.spent if job.state != GONE])
    node.spent_gone = 0


def is_full_for(node: Node, body_bytes: i64) -> bool:
    return node.refusal != b"" or node.used + JOB_BYTES + BODY_BYTES_EXTRA + body_bytes > node.full
