"""What stands still although it should not, and since when: looked at once a second, for the figures of a node.

    unserved    a queue has jobs, and consumers wait for them, here or at a peer that said so
    slots       keys of which no node decides, as this one sees it: their home is away, or is not open yet
    cron        schedules among them: nobody makes their jobs
    keyed       adds and commands that wait for a home

Each is 0 in calm times. A look is a few instructions per queue and per slot, and changes nothing.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import home
from holdfast.core.peers import ME
from holdfast.core.queue import PAUSE_OUT, Queue
from holdfast.core.rows import CRON, NOBODY, SLOTS

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Standstill:
    def __init__(self) -> None:
        self.unserved: dict[Queue, int] = {}  # since when
        self.slots: dict[int, int] = {}  # since when nobody decides about them

    def unserved_ms(self, node: Node) -> i64:
        return longest(node, list(self.unserved.values()))

    def slots_ms(self, node: Node) -> i64:
        return longest(node, list(self.slots.values()))

    def cron(self, node: Node) -> list[int]:
        """Since when each schedule has no owner, of those that have none."""
        if not self.slots:
            return []
        slots = [int(home.slot_of(CRON, b"", name)) for name in node.cron]
        return [self.slots[slot] for slot in slots if slot in self.slots]


def longest(node: Node, since: list[int]) -> i64:
    return node.now - min(since) if since else 0


def beat(node: Node) -> None:
    stands = node.standstill
    now = int(node.now)
    unserved: dict[Queue, int] = {}
    for queue in node.queues.values():
        if queue.size > 0 and (queue.waiting or queue.interest) and queue.rules is None and is_open(node, queue):
            unserved[queue] = stands.unserved.get(queue, now)
    stands.unserved = unserved
    slots: dict[int, int] = {}
    for slot in range(SLOTS):
        if node.homes.epochs[slot] > 0 and not is_decided(node, slot):
            slots[slot] = stands.slots.get(slot, now)
    stands.slots = slots


def is_open(node: Node, queue: Queue) -> bool:
    return queue.paused & PAUSE_OUT == 0 and not node.is_leaving


def is_decided(node: Node, slot: i64) -> bool:
    """Whether somebody decides about the keys of a slot that was ever used, as far as this node can see."""
    owner = node.homes.owners[slot]
    if owner == ME:
        return node.homes.opened[slot]
    return owner != NOBODY and node.peers[owner].is_linked


def keyed_ms(node: Node) -> i64:
    """How long the longest add waits that a client of this node sent, or another node, and that a home is to decide."""
    return longest(node, [int(add.asked) for add in node.forwards.adds.values()])
