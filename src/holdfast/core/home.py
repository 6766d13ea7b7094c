"""Homes: the one node that decides about a key.

That two jobs of a group are not out at once, or that a unique key is taken, somebody has to decide, and for each
key it must be one node. Keys fall into 1024 slots by their hash. Each slot has an order of members, the same
everywhere: machines by rendezvous hashing, of each machine first one node, so that the next home is on another
machine. A member that comes or goes changes the order of few slots.

Who is the home of a slot is not worked out from who is to be seen, since two nodes may see different things: it is
a row of a table that all nodes have, an owner and an epoch. A row with a higher epoch wins, and whoever hears of
one that takes a slot from it stops at once. How a slot changes hands is in takeover.py.

A job with a group is queued only at the home of its group; one with a unique key, at the home of the key. Any
other node that has a copy and thinks that its time has come passes it on to the home (`pass_on`).
"""
from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import delay, failure, federate, homecoming, links, placement, records, replicate, requeue, takeover
from holdfast.core.copies import write_copy
from holdfast.core.job import ACTIVE, BACKING_OFF, HANDED_OUT, IN_DOUBT, MOVING, QUEUED, SPECIAL, TOLD_UNTIL, Job
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.rows import BATCH, CRON, DOMAIN, FREE, GROUP, LEASED, NOBODY, PUSHED, QUOTA, SLOTS, UNIQUE

__all__ = ["BATCH", "CRON", "DOMAIN", "GROUP", "QUOTA", "UNIQUE", "of"]
from holdfast.wire import bus

if TYPE_CHECKING:
    from holdfast.core.node import Node

NO_HOME_MS: Final = 500
"""A copy whose time has come, and whose home cannot be reached, is looked at again after this."""


def of(node: Node, kind: bytes, queue: bytes, key: bytes) -> i64:
    """The index of the peer that decides about a key; ME if this node does, or is alone."""
    return owner(node, slot_of(kind, queue, key))


def owner(node: Node, slot: i64) -> i64:
    """Who is the home of a slot; whoever would be, where nobody was asked yet."""
    if is_alone(node):
        return ME
    found = node.homes.owners[slot]
    return first(node, slot) if found == NOBODY else found


def is_alone(node: Node) -> bool:
    """Whether there are no other members."""
    for peer in node.peers:
        if peer.is_member and peer.index != ME:
            return False
    return True


def is_open(node: Node, slot: i64) -> bool:
    """Whether this node decides about the slot, here and now."""
    if node.homes.opened[slot]:
        return True
    if is_alone(node):
        takeover.claim_all(node)
        return True
    return False


def slot_of(kind: bytes, queue: bytes, key: bytes) -> i64:
    """The same at every node, in every process."""
    return zlib.crc32(b"%b%d:%b%b" % (kind, len(queue), queue, key)) % SLOTS


def first(node: Node, slot: i64) -> i64:
    """The first member in the slot's order that can be reached."""
    for index in order(node, slot):
        if index == ME:
            if not node.is_leaving:
                return ME
        elif node.peers[index].is_reachable(node.now):
            return index
    return ME


def order(node: Node, slot: i64) -> list[int]:
    """Indexes of all members in the order in which they are asked to be the home of a slot."""
    homes = node.homes
    members: i64 = 0
    for peer in node.peers:
        if peer.is_member:
            members |= peer.bit
    if members != homes.members:
        forget_orders(node)
        homes.members = members
    found = homes.orders.get(int(slot))
    if found is None:
        found = rendezvous(node, slot)
        homes.orders[int(slot)] = found
    return found


def forget_orders(node: Node) -> None:
    """Members have come or gone, or say that they are on another machine."""
    node.homes.orders.clear()


def rendezvous(node: Node, slot: i64) -> list[int]:
    """Machines by their score, of each its best node; then the second nodes of all, and so on."""
    by_host: dict[bytes, list[Peer]] = {}
    for peer in node.peers:
        if peer.is_member:
            by_host.setdefault(placement.host_of(peer), []).append(peer)
    places: list[tuple[int, int, bytes, int]] = []
    for host, members in by_host.items():
        host_score = score(slot, host)
        ranked = sorted([(score(slot, peer.node_id()), peer.node_id(), int(peer.index)) for peer in members])
        for rank in range(len(ranked)):
            places.append((rank, host_score, ranked[rank][1], ranked[rank][2]))
    places.sort()
    return [place[3] for place in places]


def score(slot: i64, name: bytes) -> int:
    """A checksum of so few bytes is not even enough: its bits are stirred once more."""
    x = zlib.crc32(name, zlib.crc32(b"%d/" % slot))
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x ^ (x >> 16)


# -- jobs whose home is elsewhere -------------------------------------------------------------------------------


def is_keyed(job: Job) -> bool:
    """Whether it is queued at the home of its key, and only there."""
    if not job.flags & SPECIAL:
        return False
    more = job.more
    return more is not None and (more.group != b"" or more.unique != b"")


def slot_of_job(job: Job) -> i64:
    more = job.more
    assert more is not None
    if more.group:
        return slot_of(GROUP, job.queue.name, more.group)
    return slot_of(UNIQUE, job.queue.name, more.unique)


def is_home_of(node: Node, job: Job) -> bool:
    return node.homes.others == 0 or is_open(node, slot_of_job(job))


def pass_on(node: Node, job: Job, is_pushed: bool) -> None:
    """Its time has come, and this node is not its home: the home sees to it.

    `is_pushed`: somebody wants it queued now; otherwise it is our timer, and the home may know better.
    """
    index = owner(node, slot_of_job(job))
    peer = node.peers[index]
    if job.retry == 0 and job.flags & (HANDED_OUT | IN_DOUBT | MOVING):
        job.qtime = 0
        return
    job.flags &= ~HANDED_OUT  # if a consumer had it, its time is over
    if requeue.claims(node, job) and not node.broken("passed-on-uncounted"):
        failure.yielded(node, job)  # said before we ask: whoever queues it must know that it failed here
    if index == ME or not peer.is_linked:
        if index == ME:
            takeover.want(node, slot_of_job(job))
        if is_pushed and job.retry > 0:
            job.flags |= BACKING_OFF  # still so when its home can be heard
        node.wake_at(job, node.now + NO_HOME_MS + node.jitter())
        return
    if job.retry > 0 and not is_pushed and job.holders & peer.bit:
        requeue.write_willqueue(node, peer, job, 0)
        job.flags &= ~TOLD_UNTIL
        job.responsible = int(index)
        node.wake_at(job, node.now + i64(job.retry) * 1000 + node.jitter())
        return
    give(node, peer, job, is_pushed and not node.broken("push-not-told"))


def give(node: Node, peer: Peer, job: Job, is_pushed: bool) -> None:
    """The home gets the job, with what we know of where it is; ours is a copy from now on."""
    if job.state == QUEUED:
        job.queue.remove(job)
        job.state = ACTIVE
    if job.retry == 0:
        if not job.flags & (HANDED_OUT | IN_DOUBT | MOVING):
            federate.move(node, job, peer)
        return
    state = LEASED if requeue.is_leased(node, job) else PUSHED if is_pushed else FREE
    write_homed(node, peer, job, state)
    if state != LEASED:
        requeue.stop_asking(node, job)
        failure.yielded(node, job)
        job.flags &= ~TOLD_UNTIL
        job.responsible = int(peer.index)
        node.wake_at(job, node.now + i64(job.retry) * 1000 + node.jitter())


def write_homed(node: Node, peer: Peer, job: Job, state: i64) -> None:
    """A copy for the home, which is a holder before the frame leaves."""
    earlier = job.holders & ~MY_BIT & ~peer.bit
    if not job.holders & peer.bit:
        job.holders |= peer.bit
        records.holders(node, job)
        for each in node.peers:
            if each.bit & earlier and each.is_linked:
                replicate.write_holders(node, each, job)
    ms: i64 = max(0, job.qtime - node.now) if state == LEASED else homecoming.earliest(node, job) - node.now
    links.explain(node, peer, job.holders)
    peer.out.append(bus.HOMED)
    bus.write_i8(peer.out, state)
    bus.write_i64(peer.out, ms)
    write_copy(node, peer.out, job, job.holders, delay.left(node, job))
    links.note_copy(node, peer, job)


def defers(node: Node, job: Job) -> bool:
    """The timer of a job with keys has ended: whether it is not for this node, or not yet, to queue it."""
    if not is_home_of(node, job):
        pass_on(node, job, job.flags & BACKING_OFF != 0)
        return True
    return False


def candidates(node: Node, job: Job, left: list[Peer]) -> list[Peer]:
    """Nodes for copies of a job with keys, the next homes first: whoever takes over then has them already."""
    return [node.peers[index] for index in order(node, slot_of_job(job)) if node.peers[index] in left]
