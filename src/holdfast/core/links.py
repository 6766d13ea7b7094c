"""Talking over links: messages of a turn become frames.

A turn's messages to a peer are collected and leave as one frame (`flush`), so that fifty jobs added in one
turn travel together. Frames are numbered, and the receiver says up to which one it has done its part; only
frames that carry copies of jobs need to know soon (see GOTACK in acks.py), so an acknowledgement travels by
itself only after those; other frames are acknowledged by whatever is said next.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core.job import Job
from holdfast.core.peers import NODES_MAX, OLD_LIFE, UNEXPLAINED, Peer
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


def note_ack(peer: Peer, ack: i64) -> None:
    peer.acked = ack
    flying = peer.flying
    while flying and flying[0][0] <= ack:
        flying.popleft()[1].flying -= 1
    telling = peer.telling
    while telling and telling[0][0] <= ack:
        telling.popleft()
    taking = peer.taking
    while taking and taking[0][0] <= ack:
        peer.taken.pop(taking.popleft()[1], None)
    while peer.unheard and peer.unheard[0][0] <= ack:
        peer.unheard.pop(0)


def note_copy(node: Node, peer: Peer, job: Job) -> None:
    """A copy of the job goes out in the frame that is being made."""
    job.flying += 1
    peer.flying.append((peer.sent + 1, job))
    if len(peer.out) >= bus.FRAME_BYTES_FULL:
        make_frame(node, peer)


def is_copy_flying(peer: Peer, job: Job) -> bool:
    """Whether a copy is on its way to that peer."""
    return job.flying > 0 and any([each is job for _, each in peer.flying])


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
        else:
            bus.write_i64(head, 0)
        bus.write_i64(head, peer.received)
        peer.owes_ack = False
        if size > 0:
            head.write(peer.out.getvalue())
            peer.out.truncate(0)
        node.frames.append((peer, head.getvalue()))
        node.bus_bytes_out += size + bus.HEADER
        node.bus_frames_out += 1


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
                mask |= 1 << i64(peer.table[index])
        theirs = (theirs >> 1) & 0x7FFFFFFFFFFFFFFF
        index += 1
    return mask
