"""What the jobs of each queue are doing, and how fast they come and go.

Nobody counts states as they change: that would cost every command. The walk that looks for jobs to heal (heal.py)
passes all jobs anyway, some each second, and counts on the way; what CLUSTER QSTAT shows is the last walk that came
to its end, a second old below twenty thousand jobs. Rates are taken once a second from the counters of a queue.

Nothing walks at a node that has never had a peer. There who asks for figures has it walk.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import absence, heal, rules, states, status
from holdfast.core.alarms import Chore
from holdfast.core.job import COUNTED, MOVING, QUEUED, WAIT_REPL, Job
from holdfast.core.limits import NEVER
from holdfast.core.peers import order_of
from holdfast.core.queue import Queue, Tally

if TYPE_CHECKING:
    from holdfast.core.node import Node

QUEUES_PER_SECOND: Final = 10_000
"""With more queues rates are taken more rarely, so that no turn takes long."""

LOOK_MS: Final = 1000

SOON_MS: Final = 500
"""What came in in less time than this says nothing about a second."""


class Census(Chore):
    """Which walk it is; and, at a node without peers, that one which was begun is brought to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.number: i64 = 0
        self.short_so_far: i64 = 0  # jobs of this walk with fewer living holders than wanted
        self.short: i64 = 0  # of the last whole walk
        self.walked: i64 = -NEVER
        self.began: i64 = 0  # this walk, and the last one that came to its end
        self.began_last: i64 = 0
        self.orders: list[int] = []

    def orders_of(self, node: Node) -> list[int]:
        """By the index of a peer, where it stands in an order of nodes."""
        if len(self.orders) != len(node.peers):
            self.orders = [order_of(peer.node_id()) for peer in node.peers]
        return self.orders

    def run(self, node: Node) -> None:
        if len(node.peers) > 1:
            return
        self.walked = node.now
        take_rates(node)
        heal.walk(node, False)
        if node.healing.origin != b"":
            node.alarms.set(self, node.now + LOOK_MS)


def note(node: Node, job: Job) -> None:
    """The walk has come to this job."""
    if job.flags & COUNTED and not rules.is_out(node, job):
        rules.let_go(node, job)  # another node sees to it, and nobody said so here
    queue = job.queue
    if queue.census != node.census.number:
        queue.counted = queue.last_tally(node.census.number)
        queue.counting = Tally()
        queue.census = node.census.number
    if job.state == QUEUED or job.state == WAIT_REPL:
        return  # a queue knows how many these are (queue.size, adding)
    counting = queue.counting
    word = status.of(node, job)
    if word == states.COPY or word == states.NODE_AWAY:
        index = int(job.responsible)
        if job.flags & MOVING or absence.is_left_to_us(node, job):
            counting.behind[index] = counting.behind.get(index, 0) + 1  # also of one that can be heard: it may go
    elif word != states.DEAD or absence.is_dead_here(node, job):
        counting.words[word] = counting.words.get(word, 0) + 1


def tally(node: Node, queue: Queue) -> Tally:
    """For whoever asks what the jobs of a queue are doing."""
    census = node.census
    if census.wake >= NEVER and node.now - census.walked >= LOOK_MS and not node.is_loading:
        census.run(node)
    return queue.last_tally(census.number)


def begin(node: Node) -> None:
    """A walk begins."""
    node.census.began = node.now
    node.census.orders = []  # this node may have another id by now


def age_ms(node: Node) -> i64:
    """How old the oldest of the counts may be."""
    return node.now - node.census.began_last


def turn(node: Node) -> None:
    """The walk has come to its end, and begins anew."""
    node.census.number += 1
    node.census.began_last = node.census.began
    node.census.short = node.census.short_so_far
    node.census.short_so_far = 0


def take_rates(node: Node) -> None:
    """Once a second."""
    every: i64 = 1 + len(node.queues) // QUEUES_PER_SECOND
    if node.now // 1000 % every != 0:
        return
    for queue in node.queues.values():
        passed = node.now - queue.seen_at
        if passed < SOON_MS:
            continue
        handed_out = queue.handed_out()
        queue.rate_in = (queue.added - queue.seen_in) * 1000 // passed
        queue.rate_out = (handed_out - queue.seen_out) * 1000 // passed
        queue.seen_in, queue.seen_out, queue.seen_at = queue.added, handed_out, node.now
