"""Jobs whose node is away: who of the holders counts them, how many there are, and who is away since when.

A copy leaves a job to the node that last said it has it queued or out. While that node cannot be heard the job is in
no queue, and no worker can get it: it waits for the node to come back, or for the time at which another holder sees to
it (requeue.py). That is a state like any other, with a number. Each job is counted once: by the first of the holders
that can be heard, in the job's own order of nodes. All holders that hear each other agree on who that is; where they do
not hear each other, or one of them has lost its copy, the number is an estimate.

The walk over all jobs (census.py) counts by the node that has a job, whether or not it can be heard: so when a link
ends, the number is there at once, and nobody looks at any job.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import gates, home
from holdfast.core.job import Job
from holdfast.core.peers import ME, MY_BIT, Peer, order_in
from holdfast.core.queue import Tally

if TYPE_CHECKING:
    from holdfast.core.node import Node


def is_first(node: Node, job: Job, without: i64) -> bool:
    """Whether this node comes before all other holders that it hears, those of a set aside."""
    others = job.holders & ~without & ~MY_BIT
    if others == 0 or node.broken("counted-by-all-holders"):
        return True
    orders = node.census.orders_of(node)
    mix = order_in(job)
    mine = orders[ME] ^ mix
    for peer in node.peers:
        if peer.bit & others and peer.is_linked and orders[peer.index] ^ mix < mine:
            return False
    return True


def is_left_to_us(node: Node, job: Job) -> bool:
    """Whether this node counts a job that it takes to be with one which cannot be heard. If it has a key the home
    does, which may have taken it over."""
    if gates.is_elsewhere(node, job):
        peer = node.peers[home.owner(node, home.slot_of_job(job))]
        if peer.is_linked and peer.bit & job.holders:
            return False
    elif home.is_keyed(job):
        return True
    return is_first(node, job, node.peers[job.responsible].bit)


def is_there(node: Node, job: Job) -> bool:
    """Whether the node that has the job is this one, or can be heard."""
    peer = node.peers[job.responsible]
    return peer.index == ME or peer.is_linked


def is_counted_here(node: Node, job: Job) -> bool:
    """Of those that hold a job the one that sees to it counts it; if that cannot be heard, the first in its order."""
    if is_there(node, job):
        return job.responsible == ME
    return is_left_to_us(node, job)


def is_dead_here(node: Node, job: Job) -> bool:
    """Of those that have a dead job, who counts it. Nobody sees to it, so it is the first of them; an at-most-once job
    is at one node only."""
    return job.retry == 0 or is_first(node, job, 0)


def waiting(node: Node, tally: Tally) -> int:
    """Jobs of a queue, of those that this node counts, whose node is away."""
    if node.broken("away-uncounted"):
        return 0
    return sum([count for index, count in tally.behind.items() if not node.peers[index].is_linked])


def by_peer(node: Node) -> dict[int, int]:
    """The same of all queues, by the index of the node that is away."""
    found: dict[int, int] = {}
    for queue in node.queues.values():
        for index, count in queue.last_tally(node.census.number).behind.items():
            if not node.peers[index].is_linked:
                found[index] = found.get(index, 0) + count
    return found


def away_ms(node: Node, peer: Peer) -> i64:
    """For how long there has been no link; after a start, since then."""
    return node.now - max(peer.away_since, node.start)


def fails_ms(node: Node, peer: Peer) -> i64:
    """Until a node that is away counts as failed, at the earliest; 0: it does, or is no member any more."""
    if peer.is_failed or not peer.is_member:
        return 0
    return max(1, peer.heard + node.node_timeout - node.now)


def words(node: Node, peer: Peer) -> bytes:
    """A node that is away, for people: which, since when, and what is next."""
    if not peer.is_member:
        what = b"forgotten"
    elif peer.is_failed:
        what = b"counts as failed"
    else:
        what = b"counts as failed in %d s if it stays so" % int((fails_ms(node, peer) + 999) // 1000)
    return b"node %b (away for %d s, %b)" % (peer.node_id()[:8], int(away_ms(node, peer) // 1000), what)
