"""Talking over links: messages of a turn become frames.

A turn's messages to a peer are collected and leave as one frame (`flush`), so that fifty jobs added in one
turn travel together. Frames are numbered, and the receiver says up to which one it has done its part; only
frames that carry copies of jobs need to know soon (see GOTACK in acks.py), so an acknowledgement travels by
itself only after those; other frames are acknowledged by whatever is said next.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core.job import Job
from holdfast.core.limits import NEVER
from holdfast.core.peers import NODES_MAX, OLD_LIFE, UNEXPLAINED, Peer
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

CLOCKS_APART: Final = 10
"""In so many milliseconds the clocks of two nodes drift apart by one at most: no clock is that bad."""


def note_ack(peer: Peer, ack: i64) -> None:
    peer.acked = ack
    flying = peer.flying
    while flying and flying[0][0] <= ack:
        land(flying.popleft()[1])
    telling = peer.telling
    while telling and telling[0][0] <= ack:
        telling.popleft()
    taking = peer.taking
    while taking and taking[0][0] <= ack:
        peer.taken.pop(taking.popleft()[1], None)
    while peer.unheard and peer.unheard[0][0] <= ack:
        peer.unheard.pop(0)


def land(jobs: list[Job]) -> None:
    """These copies are no longer on their way, wherever they are."""
    for job in jobs:
        job.flying -= 1


def note_copy(node: Node, peer: Peer, job: Job) -> None:
    """A copy of the job goes out in the frame that is being made."""
    job.flying += 1
    peer.boarding.append(job)
    if len(peer.out) >= bus.FRAME_BYTES_FULL:
        make_frame(node, peer)


def is_copy_flying(peer: Peer, job: Job) -> bool:
    """Whether a copy is on its way to that peer."""
    return job.flying > 0 and (job in peer.boarding or any([job in jobs for _, jobs in peer.flying]))


def flush(node: Node) -> None:
    """The end of a turn: what was said to each peer becomes a frame."""
    for peer in node.peers:
        if peer.is_linked:
            make_frame(node, peer)


def make_frame(node: Node, peer: Peer) -> None:
    """What was said to a peer so far; also in the middle of a turn, when a frame has grown long enough."""
    size = len(peer.out)
    if size > 0 or peer.owes_ack:
        head = BytesWriter()
        if size > 0:
            peer.sent += 1
            if node.broken("resend-after-reconnect"):
                peer.unheard.append((peer.sent, peer.out.getvalue()))
            bus.write_i64(head, peer.sent)
            if peer.boarding:
                peer.flying.append((peer.sent, peer.boarding))
                peer.boarding = []
        else:
            bus.write_i64(head, 0)
        bus.write_i64(head, peer.received)
        bus.write_i64(head, node.now)
        peer.owes_ack = False
        if size > 0:
            head.write(peer.out.getvalue())
            peer.out.truncate(0)
        node.frames.append((peer, head.getvalue()))
        node.bus_bytes_out += size + bus.HEADER
        node.bus_frames_out += 1


def note_time(node: Node, peer: Peer, sent_at: i64) -> None:
    """A frame came that was made at that time of the sender's clock: how late is it, compared with others?

    By how much the two clocks differ nobody knows, but it is the same for all frames, or nearly so. So what one took
    longer than the fastest was time on the way, which passed for the jobs in it as well: else a job that is given from
    node to node would live longer by the time of all its flights.
    """
    took = node.now - sent_at
    if peer.fastest == NEVER:
        peer.fastest = took
        peer.fastest_at = node.now
    drift = (node.now - peer.fastest_at) // CLOCKS_APART
    peer.fastest = min(took, peer.fastest + drift)
    peer.fastest_at += drift * CLOCKS_APART
    peer.late = took - peer.fastest


def explain(node: Node, peer: Peer, mask: i64) -> None:
    """Say which nodes the bits of a mask stand for, where this peer has not been told in this epoch."""
    new = mask & ~peer.told
    if new == 0:
        return
    peer.told |= new
    for each in node.peers:
        if each.bit & new:
            peer.out.append(bus.NODE)
            bus.write_i8(peer.out, each.index)
            peer.out.write(each.node_id())
            bus.write_i64(peer.out, each.facts.incarnation)


def read_index(node: Node, peer: Peer, index: i64) -> i64:
    """One of a peer's nodes in our own numbering; less than 0 if it is a life of a node that is over."""
    if index > NODES_MAX or peer.table[index] == UNEXPLAINED:
        raise BadFrame("a node that was never explained")
    return peer.table[index]


def read_mask(node: Node, peer: Peer, reader: Reader) -> i64:
    """A peer's set of nodes in our own numbering, without lives of nodes that we know to be over."""
    theirs = reader.long()
    mask: i64 = 0
    index: i64 = 0
    while theirs != 0:
        if theirs & 1:
            if index > NODES_MAX or peer.table[index] == UNEXPLAINED:
                raise BadFrame("a set with a node that was never explained")
            if peer.table[index] != OLD_LIFE:
                mask |= node.peers[peer.table[index]].bit
        theirs = (theirs >> 1) & 0x7FFFFFFFFFFFFFFF
        index += 1
    return mask
