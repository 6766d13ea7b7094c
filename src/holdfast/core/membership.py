"""Who belongs to the cluster, and who can be heard.

Nodes meet by a link (CLUSTER MEET, `--join`, or because a peer's gossip names somebody we don't know). Every
second a node tells each peer that it is there, and a few things about others. A peer not heard for
node-timeout is suspect; when a majority suspects it, it has failed, and everybody is told. Both only steer
where copies go and what HELLO says: nothing is ever lost or duplicated because of them, and the first frame
from a failed node makes it whole again.

An incarnation is one life of a node's data. A known node that comes back under another incarnation has lost
its copies and acks: it is taken out of every holder set, and healing brings back what is missing.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import federate, records, requeue
from holdfast.core.effects import DIAL, DROP_LINK, Request
from holdfast.core.peers import ME, NODES_MAX, Peer, PeerFacts
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

BEAT_MS: Final = 1000
DIAL_WAIT_MS: Final = 500
DIAL_WAIT_MS_MAX: Final = 5000
FORGET_MS: Final = 60_000
"""A forgotten node is not met again by gossip for a minute: long enough that all can be told to forget it."""

LEAVING_MS: Final = 180_000
"""How long a peer's word that it is leaving counts without being repeated."""

GOSSIP_ENTRIES: Final = 3

STRANGERS_MAX: Final = 20
"""Nodes known by name only. They take up bits for good, so a peer that talks nonsense must not fill them all."""

FLAG_LEAVING: Final = 1
GOSSIP_SUSPECT: Final = 1


def meet(node: Node, facts: PeerFacts) -> Peer | None:
    """The peer that a link leads to, known or new; None if it is to stay a stranger."""
    if facts.node_id == node.node_id:
        return None
    peer = node.by_id.get(facts.node_id)
    if peer is None:
        peer = node.add_peer(facts)
        if peer is None:
            return None
    if node.now < peer.forgotten_until:
        return None
    if peer.facts.incarnation not in (0, facts.incarnation) and not node.broken("incarnation-ignored"):
        lost_everything(node, peer)
    is_known = peer.is_member and is_same(peer.facts, facts)
    peer.facts = facts
    peer.is_member = True
    if not is_known:
        changed(node, peer)
    return peer


def is_same(a: PeerFacts, b: PeerFacts) -> bool:
    return (
        a.incarnation == b.incarnation and a.host == b.host and a.port == b.port and a.bus_port == b.bus_port
        and a.host_id == b.host_id
    )


def changed(node: Node, peer: Peer) -> None:
    """Something about a member that must be known after a restart."""
    node.is_membership_changed = True
    if node.is_recording:
        records.member(node, peer)
        node.must_sync = True  # a node that forgets its cluster keeps acks for nobody


def lost_everything(node: Node, peer: Peer) -> None:
    """It is the same node by name and has none of what it had."""
    node.count("new-incarnation")
    for job in node.all_jobs():
        if job.holders & peer.bit:
            job.holders &= ~peer.bit
            records.holders(node, job)
    for job in list(peer.moves.values()):
        federate.in_doubt(node, job)
    peer.moves.clear()


def link_up(node: Node, peer: Peer) -> None:
    peer.heard = node.now
    peer.is_suspect = False
    peer.is_failed = False
    peer.reports.clear()
    peer.dial_wait = 0
    if node.beat.wake > node.now + BEAT_MS:
        node.alarms.set(node.beat, node.now + BEAT_MS)
    write_ping(node, peer)


def heard(node: Node, peer: Peer) -> None:
    peer.heard = node.now
    if peer.is_suspect or peer.is_failed:
        peer.is_suspect = peer.is_failed = False
        peer.reports.clear()


def beat(node: Node) -> None:
    """Once a second: tell the others we are here, and see who can't be heard."""
    slept = node.now - node.last_beat > node.node_timeout // 2 + BEAT_MS
    if slept and node.last_beat > 0:
        node.woke_up()
    node.last_beat = node.now
    node.alarms.set(node.beat, node.now + BEAT_MS)
    for peer in node.peers:
        if peer.index == ME or not peer.is_member:
            continue
        if not peer.is_linked:
            dial(node, peer)
        elif node.now - peer.heard > node.node_timeout:
            node.requests.append(Request(DROP_LINK, None, b"", peer))
        else:
            write_ping(node, peer)
        if not peer.is_suspect and node.now - peer.heard > node.node_timeout:
            peer.is_suspect = True
            requeue.lost_sight(node, peer)
        if peer.is_suspect:
            judge(node, peer)


def dial(node: Node, peer: Peer) -> None:
    """Ask the shell for a link. The node with the smaller id calls; the other only if it must wait long."""
    wait: i64 = DIAL_WAIT_MS if node.node_id < peer.node_id() else DIAL_WAIT_MS_MAX
    if node.now < peer.dial_at:
        return
    peer.dial_wait = min(DIAL_WAIT_MS_MAX, max(wait, 2 * peer.dial_wait))
    peer.dial_at = node.now + peer.dial_wait
    node.requests.append(Request(DIAL, None, address(peer.facts)))


def address(facts: PeerFacts) -> bytes:
    return f"{facts.host}:{facts.bus_port}".encode()


def judge(node: Node, peer: Peer) -> None:
    """A majority of the members that do not hear a node makes it failed."""
    if peer.is_failed:
        return
    for index in list(peer.reports):
        if peer.reports[index] < node.now:
            del peer.reports[index]
    size = sum([1 for each in node.peers if each.is_member])
    if 1 + len(peer.reports) >= size // 2 + 1:
        peer.is_failed = True
        node.count("failed")
        for each in node.peers:
            if each.is_linked:
                each.out.append(bus.FAIL)
                each.out.write(peer.node_id())


def write_ping(node: Node, peer: Peer) -> None:
    others = [each for each in node.peers if each.is_member and each.index != ME and each is not peer]
    chosen: list[Peer] = [each for each in others if each.is_suspect]
    most = max(GOSSIP_ENTRIES, len(others) // 10)
    while others and len(chosen) < most:
        each = others.pop(node.random_below(len(others)))
        if each not in chosen:
            chosen.append(each)
    chosen = chosen[:255]
    out = peer.out
    out.append(bus.PING)
    bus.write_i8(out, FLAG_LEAVING if node.is_leaving else 0)
    bus.write_i8(out, len(chosen))
    for each in chosen:
        out.write(each.node_id())
        bus.write_name(out, each.facts.host.encode())
        bus.write_u16(out, each.facts.port)
        bus.write_u16(out, each.facts.bus_port)
        bus.write_i8(out, GOSSIP_SUSPECT if each.is_suspect else 0)


def on_ping(node: Node, peer: Peer, reader: Reader) -> None:
    flags = reader.u8()
    peer.leaving_until = node.now + LEAVING_MS if flags & FLAG_LEAVING else 0
    for _ in range(reader.u8()):
        node_id = reader.node_id()
        host = reader.name()
        port = reader.u16()
        bus_port = reader.u16()
        is_suspect = reader.u8() & GOSSIP_SUSPECT
        on_gossip(node, peer, PeerFacts(node_id, 0, host.decode("ascii", "replace"), port, bus_port), is_suspect != 0)


def on_gossip(node: Node, teller: Peer, facts: PeerFacts, is_suspect: bool) -> None:
    if facts.node_id == node.node_id:
        return
    known = node.by_id.get(facts.node_id)
    if known is None or (not known.is_member and node.now >= known.forgotten_until):
        if known is None:
            known = node.add_peer(facts)
        if known is not None and not known.is_linked:
            known.facts.host, known.facts.bus_port = facts.host, facts.bus_port
            dial(node, known)
        return
    if is_suspect:
        known.reports[int(teller.index)] = node.now + 2 * node.node_timeout
        if known.is_suspect:
            judge(node, known)
    else:
        known.reports.pop(int(teller.index), None)


def on_node(node: Node, peer: Peer, reader: Reader) -> None:
    """The peer explains one of its bits."""
    index = reader.u8()
    node_id = reader.node_id()
    if index > NODES_MAX:
        raise BadFrame("a node with an index beyond the last")
    known = node.by_id.get(node_id)
    if known is None:
        # Somebody we have never met, and perhaps never will: remember it, so that sets stay whole.
        if sum([1 for each in node.peers if not each.is_member]) > STRANGERS_MAX:
            raise BadFrame("too many nodes that nobody has met")
        known = node.add_peer(PeerFacts(node_id, 0, "", 0, 0))
        if known is None:
            raise BadFrame("more nodes than there are bits")
    peer.table[index] = int(known.index)


def on_fail(node: Node, peer: Peer, reader: Reader) -> None:
    failed = node.by_id.get(reader.node_id())
    if failed is not None and failed.index != ME and node.now - failed.heard > BEAT_MS * 2:
        if not failed.is_suspect:
            requeue.lost_sight(node, failed)
        failed.is_suspect = failed.is_failed = True


def forget(node: Node, peer: Peer) -> None:
    """CLUSTER FORGET: it is no longer counted, nor given copies. Which acks it missed is not forgotten."""
    peer.is_member = False
    peer.forgotten_until = node.now + FORGET_MS
    changed(node, peer)
    if peer.is_linked:
        node.requests.append(Request(DROP_LINK, None, b"", peer))
