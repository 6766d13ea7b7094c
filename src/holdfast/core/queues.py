"""The queues a node knows: made when first named, forgotten when nobody has used them for a while."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import errors, federate, records, settings, waiting
from holdfast.core.errors import Refused
from holdfast.core.limits import (
    NEVER,
    QUEUE_BYTES,
    QUEUE_IDLE_MS,
    QUEUE_IDLE_MS_LEVEL1,
    QUEUE_IDLE_MS_LEVEL2,
    WAITING_PERCENT,
)
from holdfast.core.queue import PAUSE_OUT, Queue

if TYPE_CHECKING:
    from holdfast.core.node import Node

NO_NAME: Final = b"no queue"
"""The name of the queue that is none. `last_queue` is compared by `is`, and all empty names are one object."""


def queues_to_wait_on(node: Node, names: list[bytes]) -> list[Queue]:
    """Queues for a consumer, made if need be: all, or none if there is no memory.

    Consumers may wait at a full node, since they make room.
    """
    cost: i64 = 0
    for name in names:
        if name not in node.queues:
            cost += queue_cost(name)
    if cost > 0 and node.used + cost > node.full + node.full // 100 * WAITING_PERCENT:
        raise Refused(errors.OUT_OF_MEMORY)
    found: list[Queue] = []
    for name in names:
        queue = node.queues.get(name)
        found.append(make_queue(node, name) if queue is None else queue)
    return found


def make_queue(node: Node, name: bytes) -> Queue:
    cost = queue_cost(name)
    queue = Queue(name, node.now)
    queue.book = node.books.by_name.get(name)
    node.queues[name] = queue
    node.names.add(name)
    node.account(cost)
    node.alarms.set(queue, node.now + queue_idle(node))
    if node.registers.count > 0:
        settings.apply_to_queue(node, queue)
    return queue


def queue_idle(node: Node) -> i64:
    if node.level == 0:
        return QUEUE_IDLE_MS
    return QUEUE_IDLE_MS_LEVEL1 if node.level == 1 else QUEUE_IDLE_MS_LEVEL2


def look(node: Node, queue: Queue) -> None:
    """A queue's alarm: a pause may be over, or nobody uses it any more."""
    if queue.pause_until != 0 and queue.pause_until <= node.now:
        queue.pause_word = 0
        set_paused(node, queue, 0, 0)
        federate.give(node, queue)
    forget_if_idle(node, queue)
    if queue.pause_until != 0:
        node.alarms.at_latest(queue, queue.pause_until)


def forget_if_idle(node: Node, queue: Queue) -> None:
    until = queue.used + queue_idle(node)
    if until <= node.now and queue.is_unused():
        forget_queue(node, queue)
    else:
        node.alarms.set(queue, max(until, node.now + queue_idle(node) // 4))


def forget_queue(node: Node, queue: Queue) -> None:
    del node.queues[queue.name]
    node.names.remove(queue.name)
    queue.wake = NEVER
    if queue.rules is not None and queue.rules.throttle is not None:
        queue.rules.throttle.wake = NEVER
    if node.last_queue is queue:
        node.last_queue = Queue(NO_NAME, 0)
    node.account(-queue_cost(queue.name))


def set_paused(node: Node, queue: Queue, paused: i64, ms: i64) -> None:
    """For so many milliseconds, or, with 0, until somebody says otherwise."""
    was = queue.paused
    queue.paused = paused
    queue.pause_until = node.now + ms if ms > 0 else 0
    if ms > 0:
        node.alarms.at_latest(queue, queue.pause_until)
    records.queue(node, queue)
    if was & PAUSE_OUT and not paused & PAUSE_OUT:
        waiting.serve(node, queue)
        if queue.waiting and not node.broken("unpaused-untold"):
            federate.announce(node, queue)  # peers that lent us a job meanwhile had it back


def queue_or_none(node: Node, name: bytes) -> Queue | None:
    """The queue of that name, made if there is room for it."""
    try:
        return node.queue(name)
    except Refused:
        return None


def queue_cost(name: bytes) -> i64:
    """What a queue is accounted for: itself, and its name in three places."""
    return QUEUE_BYTES + 3 * len(name)
