"""Placement: how many copies a job gets that does not say, and which nodes they go to.

A job that does not say gets as many as can be had without waiting: up to three, at this node and at those that are
reachable and not slow (`Peer.is_slow`). A slow node gets its copy, too; the producer is not kept waiting for it. When
all others are slow, one of them is waited for as long as it is heard, since one copy is no safety.

Copies go to nodes in zones that have none, then to machines that have none, then to any. Nodes of one machine die
together, so their copies do not count for each other while other machines could hold one (`replicate.is_enough`).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import home, peers
from holdfast.core.job import SPECIAL, Job
from holdfast.core.limits import REPLICATE_DEFAULT_MAX
from holdfast.core.peers import ME, Peer

if TYPE_CHECKING:
    from holdfast.core.node import Node

COPIES_SAFE: Final = 2
"""So many are waited for, while another node is heard, of a job that does not say how many."""


def choose(node: Node, job: Job, count: i64, without: i64) -> list[Peer]:
    """Nodes for copies: reachable ones, the farthest from those that have one, by chance among equals."""
    if node.force_holders is not None:
        forced = [node.by_id[node_id] for node_id in node.force_holders if node_id in node.by_id]
        return [peer for peer in forced if peer.is_linked and not peer.bit & without][:count]
    left = [peer for peer in node.peers if not peer.bit & without and peer.is_reachable(node.now)]
    if len(left) <= count:
        return left
    if job.flags & SPECIAL and home.is_keyed(job):
        return home.candidates(node, job, left)[:count]
    quick = [peer for peer in left if not peer.is_slow()]
    if len(quick) >= count and not node.broken("slow-node-chosen"):
        left = quick
    holders = [peer for peer in node.peers if peer.bit & job.holders]
    hosts = {host_of(peer) for peer in holders}
    zones = {peer.facts.zone for peer in holders}
    chosen: list[Peer] = []
    while left and len(chosen) < count:
        pool = (
            [peer for peer in left if peer.facts.zone not in zones]
            or [peer for peer in left if host_of(peer) not in hosts]
            or left
        )
        peer = pool[node.random_below(len(pool))]
        left.remove(peer)
        chosen.append(peer)
        hosts.add(host_of(peer))
        zones.add(peer.facts.zone)
    return chosen


def host_of(peer: Peer) -> bytes:
    """A node that does not say on which machine it is, is on one of its own."""
    return peer.facts.host_id or peer.facts.node_id


def hosts_reachable(node: Node) -> i64:
    """Machines that could hold a copy, this one among them."""
    return hosts_of([peer for peer in node.peers if peer.index == ME or peer.is_reachable(node.now)])


def hosts_awake(node: Node) -> i64:
    """Machines that could hold one soon."""
    return hosts_of([peer for peer in node.peers if peer.index == ME or is_awake(node, peer)])


def hosts_of(nodes: list[Peer]) -> i64:
    return len({host_of(peer) for peer in nodes})


def is_awaited(node: Node, peer: Peer) -> bool:
    """Whether a copy there is worth waiting for."""
    if not peer.is_reachable(node.now):
        return False
    return peers.is_heard(node, peer) or node.broken("silent-node-awaited")


def copies_by_default(node: Node) -> i64:
    """Of a job that does not say how many. Nodes that share a port are one to their users: machines count there."""
    most: i64 = 1 + awake(node)
    if node.is_one_of_many:
        most = hosts_awake(node)
    if most == 1 and any([is_awaited(node, peer) for peer in node.peers]):
        most = COPIES_SAFE
    return min(REPLICATE_DEFAULT_MAX, most)


def is_awake(node: Node, peer: Peer) -> bool:
    """Whether it can be given a copy, and will say so soon."""
    return peer.is_reachable(node.now) and (not peer.is_slow() or node.broken("slow-node-counted"))


def awake(node: Node) -> i64:
    """Other nodes like that."""
    n: i64 = 0
    for peer in node.peers:
        if is_awake(node, peer):
            n += 1
    return n


def copies_in_the_end(node: Node) -> i64:
    """The same if all members were there: so many are made when those that are away have come back."""
    members = [peer for peer in node.peers if peer.is_member]
    able: i64 = hosts_of(members) if node.is_one_of_many else len(members)
    return min(REPLICATE_DEFAULT_MAX, able)


def regard_hosts(node: Node) -> None:
    """After a link or a member came or went: who is on which machine, and what follows for most jobs."""
    linked = [peer for peer in node.peers if peer.index == ME or peer.is_linked]
    hosts: i64 = len({host_of(peer) for peer in linked})
    node.shares_hosts = 1 < hosts < len(linked)
    node.is_alone = copies_in_the_end(node) == 1
    home.forget_orders(node)
