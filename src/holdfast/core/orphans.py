"""Jobs whose node is gone: what waited there is queued elsewhere, and what a consumer has stays its own.

Each copy has somebody responsible for it (requeue.py). Whether that node is gone is decided in one place
(membership.is_gone). When it is, and has been for GRACE_MS, all copies that were with it are looked at, some at a time:

* one that is known to be out, or to wait for a time of its own, waits for that time (TOLD_UNTIL, delay.py);
* any other waited in a queue, as far as anybody can know, or had been given to a consumer in the last moment
  (whereabouts.TELL_MS): its holders ask each other, and the first in the order of the job queues it.

A node that comes back with nothing of what it had is gone, too, as far as its jobs are concerned. It can be heard, and
nobody would count a job that waits for its time. So the first holder becomes responsible for that at once (adopt), and
asks the others when the time has come, as one that has not had it itself.

A node that is silent and not known to be gone may have handed out anything since it was last heard. Then a job waits
for one more retry time.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import absence, delay, home, membership, peers, requeue
from holdfast.core.job import ACTIVE, ASKING, TOLD_UNTIL, TWIN, Job
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.walks import COST, TURN_MS, Walk

if TYPE_CHECKING:
    from holdfast.core.node import Node

GRACE_MS: Final = 2000
"""A process that is started anew at once comes back to its jobs: they are left to it so long. A rolling restart moves
no job then."""


class Orphans(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.gone: i64 = 0  # peers that were gone at the last look
        self.lives: dict[int, int] = {}  # by index of a peer: which life of it was seen last
        self.reborn: i64 = 0  # peers that came back with nothing, and whose jobs are being looked at

    def look(self, node: Node, job: Job) -> None:
        if job.state != ACTIVE or job.responsible == ME or job.retry == 0 or job.flags & ASKING:
            return
        peer = node.peers[job.responsible]
        if peer.bit & self.mask and take_up(node, peer, job):
            self.left -= COST


def take_up(node: Node, peer: Peer, job: Job) -> bool:
    """A peer cannot be heard, or is gone: see to a job that was with it, as soon as that may be. False: it has time."""
    if node.reach.orphans.reborn & peer.bit:
        adopt(node, job)
    if job.flags & TOLD_UNTIL:
        return False
    is_lost = node.reach.orphans.reborn & peer.bit != 0 or membership.is_gone(node, peer)
    if is_lost and not node.broken("gone-node-keeps-jobs"):
        return requeue.soon(node, job)
    latest = max(peer.heard + i64(job.retry) * 1000, node.now + delay.left(node, job)) + node.jitter()
    if job.qtime <= latest:
        return False
    job.asks = 0
    node.wake_at(job, latest)
    return True


def adopt(node: Node, job: Job) -> None:
    """The node that this job was with has nothing: while the job waits for its time, it is with the first holder."""
    is_waiting = delay.left(node, job) > 0 or (job.flags & TOLD_UNTIL != 0 and job.qtime > node.now)
    if is_waiting and not home.is_keyed(job) and requeue.rank(node, job) == 0 and not node.broken("nobody-adopts"):
        job.responsible = ME
        job.flags |= TWIN  # another may have it meanwhile: they are asked before it is queued


def beat(node: Node) -> None:
    """Who is gone since the last look, or came back with nothing?"""
    orphans = node.reach.orphans
    for peer in node.peers:
        if peer.index == ME:
            continue
        is_gone = membership.is_gone(node, peer)
        life = orphans.lives.get(int(peer.index), 0)
        if is_gone and not orphans.gone & peer.bit:
            orphans.gone |= peer.bit
            orphans.want(node, peer.bit, node.now + GRACE_MS)
        elif not is_gone:
            orphans.gone &= ~peer.bit
        if life != peer.facts.incarnation:
            orphans.lives[int(peer.index)] = peer.facts.incarnation
            if life != 0:
                orphans.reborn |= peer.bit
                orphans.want(node, peer.bit, node.now + TURN_MS)
    orphans.reborn &= orphans.mask | orphans.pending


def taken_up_in(node: Node, peer: Peer, job: Job) -> i64:
    """How long a job that is with a node that is away still waits for it: for the time that was told, or until the node
    counts as failed."""
    told: i64 = max(0, job.qtime - node.now)
    return told if job.flags & TOLD_UNTIL else min(told, absence.fails_ms(node, peer) + GRACE_MS)


def is_missed(node: Node, peer: Peer) -> bool:
    """Whether a node is gone as far as anybody can tell who is linked with us, and those are most. A node that was
    just started need not find that out by itself."""
    if membership.is_gone(node, peer):
        return True
    if peer.is_linked or not membership.sees_majority(node):
        return False
    return all([int(each.index) in peer.reports for each in node.peers if each.is_linked])


def is_alone_with(node: Node, job: Job) -> bool:
    """Whether we have come back with the job, others held it, and none of them could be asked yet. Those that are gone
    in the eyes of most nodes, which we hear, are not waited for."""
    if node.now >= node.reach.alone_until or job.holders == MY_BIT or job.holders & peers.linked(node):
        return False
    return not membership.sees_majority(node) or node.broken("dead-holders-awaited") or not all([
        is_missed(node, peer) for peer in node.peers if peer.bit & job.holders & ~MY_BIT
    ])


def silent_until(node: Node, job: Job, retry_ms: i64) -> i64:
    """Until when a lease may run of which we cannot hear; 0 if we would. Of a node that is gone we know what it had out
    (whereabouts.py)."""
    peer = node.peers[job.responsible]
    if peer.index == ME or peer.is_linked:
        return 0
    told: i64 = job.qtime - requeue.SLACK_MS if job.flags & TOLD_UNTIL else 0  # the slack is for messages on their way
    if membership.is_gone(node, peer) and not node.broken("gone-node-keeps-jobs"):
        return told
    return max(told, peer.heard + retry_ms)
