"""Homes: the one node that decides about a key.

That two jobs of a group are not out at once, or that a unique key is taken, somebody has to decide, and for each
key it must be one node. Keys fall into 1024 slots by their hash. Each slot has an order of members, the same
everywhere: machines by rendezvous hashing, of each machine first one node, so that the next home is on another
machine. A member that comes or goes changes the order of few slots.
"""
from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import replicate
from holdfast.core.peers import ME, Peer

if TYPE_CHECKING:
    from holdfast.core.node import Node

SLOTS: Final = 1024
"""Enough that 62 nodes have about equal shares, few enough that a table of all of them is a few kilobytes."""

# What kind of thing a key names: the same word may be a group and a domain.
GROUP: Final = b"g"
UNIQUE: Final = b"u"
BATCH: Final = b"b"
DOMAIN: Final = b"d"
QUOTA: Final = b"q"
CRON: Final = b"c"


class Homes:
    """Who decides about which slot, as far as this node knows."""

    def __init__(self) -> None:
        self.orders: dict[int, list[int]] = {}  # by slot: indexes of peers; of the members below
        self.members: i64 = 0


def of(node: Node, kind: bytes, queue: bytes, key: bytes) -> i64:
    """The index of the peer that decides about a key; ME if this node does, or is alone."""
    if len(node.peers) == 1:
        return ME
    return first(node, slot_of(kind, queue, key))


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
            by_host.setdefault(replicate.host_of(peer), []).append(peer)
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
