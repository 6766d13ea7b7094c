"""The numbers that a journal gives to nodes, against those they have now (peers.py).

A member has its number at once. One that was forgotten, or only heard of, gets one when a record names it: those that
no set, move or slot of the journal speaks of any more are let go, or their numbers would run out in the end.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import membership
from holdfast.core.ids import NODE_ID_LENGTH
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME, NODES_MAX, Peer, PeerFacts, bit_of
from holdfast.core.records import BANNED, FORGOTTEN, HEARD_OF, MEMBER
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Numbers:
    def __init__(self, node: Node) -> None:
        self.node: Node = node
        self.ours: list[int] = []
        self.named: dict[int, tuple[PeerFacts, int]] = {}  # by their number: who has none of ours yet
        self.begin()

    def begin(self) -> None:
        """What follows was perhaps written in another numbering."""
        self.ours = [ME, *[-1] * (NODES_MAX + 1)]
        self.named = {}

    def learn(self, reader: Reader) -> None:
        """The record of a node."""
        index = int(reader.u8())
        node_id = reader.text(NODE_ID_LENGTH)
        incarnation = int(reader.long())
        standing = int(reader.u8())
        facts = PeerFacts(
            node_id, incarnation, reader.name().decode("ascii", "replace"), int(reader.u16()), int(reader.u16()),
            reader.name(),
        )
        self.named[index] = (facts, standing)
        self.ours[index] = -1
        if standing in (MEMBER, BANNED) or node_id in self.node.by_id:
            self.of(index)

    def of(self, index: i64) -> int:
        """Our number of that node; -1 if it has none."""
        at = int(index)
        if self.ours[at] < 0 and at in self.named:
            facts, standing = self.named.pop(at)
            peer = self.node.by_id.get(facts.node_id) or self.node.add_peer(facts)
            if peer is not None:
                self.remember(peer, facts, standing)
                self.ours[at] = int(peer.index)
        return self.ours[at]

    def remember(self, peer: Peer, facts: PeerFacts, standing: int) -> None:
        membership.begin_life(self.node, peer, facts.incarnation)
        peer.facts = facts
        peer.is_member = standing == MEMBER
        peer.forgotten_until = NEVER if standing == BANNED else self.node.now if standing == FORGOTTEN else 0
        peer.has_missed = standing not in (MEMBER, HEARD_OF)

    def peer(self, index: i64) -> Peer:
        return self.node.peers[max(0, self.of(index))]

    def mask(self, theirs: i64) -> i64:
        mask: i64 = 0
        for index in range(NODES_MAX + 1):
            if theirs & bit_of(index) and self.of(index) >= 0:
                mask |= self.node.peers[self.ours[index]].bit
        return mask
