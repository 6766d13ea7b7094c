"""Somebody between two nodes flips bits of a link, cuts, leaves out, repeats, reorders: nothing of it is heard.

Two nodes' sockets, compiled or plain, each with one end of a connection; the test carries the bytes between them. The
nodes are stubs: one says frames, the other notes what it heard. With a real handshake and real nodes:
tests/proc/test_man_in_the_middle.py.
"""
from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_frames import StubNode, StubPeer
from twins import SOCKETS, native

from holdfast.core.peers import PeerFacts
from holdfast.shell import plain, seal
from holdfast.shell.bounds import LINK_READ_BYTES
from holdfast.shell.seal import FORGED, TAG_BYTES

KEYS = bytes(range(32)), bytes(range(32, 64))
FRAMES = [b"the %d. frame" % i + bytes(i * 40) for i in range(8)]


class End:
    """A node's sockets with one link; the other end of that is in our hands."""

    def __init__(self, kind: str, seals: seal.Seals) -> None:
        self.node = StubNode()
        self.sockets: Any = (plain if kind == "plain" else native).Sockets(self.node, {}, 0)
        self.sockets.on_requests = lambda: None
        self.lost: list[str] = []
        self.sockets.links.on_lost = lambda peer, why: self.lost.append(why)
        ours, self.wire = socket.socketpair()
        for sock in (ours, self.wire):
            sock.setblocking(False)
        self.peer: StubPeer = self.sockets.adopt(ours, PeerFacts(b"1" * 40, 7, "h", 1, 2), seals)

    def say(self, *frames: bytes) -> list[bytes]:
        """As they are on the wire, one by one."""
        self.node.to_say += [(self.peer, frame) for frame in frames]
        self.sockets.sweep()
        self.sockets.step()
        data = b""
        with contextlib.suppress(BlockingIOError):
            while more := self.wire.recv(1 << 20):
                data += more
                self.sockets.step()
        pieces = []
        while data:
            end = 4 + struct.unpack_from("<I", data)[0]
            pieces.append(data[:end])
            data = data[end:]
        return pieces

    def hear(self, *pieces: bytes) -> list[bytes]:
        for piece in pieces:
            view = memoryview(piece)
            while view and not self.lost:
                with contextlib.suppress(BlockingIOError):
                    view = view[self.wire.send(view):]
                self.sockets.step()
            if self.lost:
                break
        return [data for _, data in self.node.heard]

    def end(self) -> None:
        self.wire.close()
        self.sockets.shut()


@pytest.fixture(params=[(a, b) for a in SOCKETS for b in SOCKETS], ids=lambda kinds: "-".join(kinds))
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[End, End]]:
    a = End(request.param[0], seal.seals(KEYS[0], KEYS[1]))
    b = End(request.param[1], seal.seals(KEYS[1], KEYS[0]))
    yield a, b
    a.end()
    b.end()


def test_what_is_said_is_heard_and_cannot_be_read_on_the_way(ends: tuple[End, End]) -> None:
    a, b = ends
    frames = [*FRAMES, b"", bytes(3 * LINK_READ_BYTES), b"the last"]
    pieces = a.say(*frames)
    assert b.hear(*pieces) == frames and not b.lost
    assert [len(piece) for piece in pieces] == [4 + len(frame) + TAG_BYTES for frame in frames]
    assert b"frame" not in b"".join(pieces) and len(set(pieces)) == len(pieces)
    assert a.hear(*b.say(b"and back")) == [b"and back"]
    assert a.sockets.links.figures()["bus_frames_refused"] == b.sockets.links.figures()["bus_frames_refused"] == 0


def flipped(pieces: list[bytes], at: int) -> list[bytes]:
    piece = bytearray(pieces[at])
    piece[random.Random(len(piece)).randrange(4, len(piece))] ^= 1
    return [*pieces[:at], bytes(piece), *pieces[at + 1:]]


def shorter(pieces: list[bytes], at: int) -> list[bytes]:
    body = pieces[at][4:-1]
    return [*pieces[:at], struct.pack("<I", len(body)) + body, *pieces[at + 1:]]


TAMPERED: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a bit is flipped": lambda pieces: flipped(pieces, 3),
    "the last byte is gone": lambda pieces: shorter(pieces, 3),
    "one is left out": lambda pieces: [*pieces[:3], *pieces[4:]],
    "one comes twice": lambda pieces: [*pieces[:3], *pieces[2:]],
    "two are exchanged": lambda pieces: [*pieces[:3], pieces[4], pieces[3], *pieces[5:]],
    "an early one comes again": lambda pieces: [*pieces[:3], pieces[0], *pieces[3:]],
    "two are one": lambda pieces: [*pieces[:3], struct.pack("<I", len(pieces[3]) * 2 - 8) + pieces[3][4:] * 2],
    "one is put in": lambda pieces: [*pieces[:3], struct.pack("<I", 40) + bytes(40), *pieces[3:]],
    "one without a seal is put in": lambda pieces: [*pieces[:3], struct.pack("<I", 3) + b"bad", *pieces[3:]],
    "an empty one is put in": lambda pieces: [*pieces[:3], bytes(4), *pieces[3:]],
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_link_ends_at_the_frame_that_was_touched(ends: tuple[End, End], what: str) -> None:
    a, b = ends
    assert b.hear(*TAMPERED[what](a.say(*FRAMES))) == FRAMES[:3]
    assert b.lost == [FORGED] and "down" in b.node.events
    assert b.sockets.links.figures()["bus_frames_refused"] == 1


def test_what_a_node_said_is_not_heard_by_itself(ends: tuple[End, End]) -> None:
    a, _ = ends
    assert a.hear(*a.say(b"a word")) == [] and a.lost == [FORGED]


def test_a_long_frame_is_looked_at_as_a_whole(ends: tuple[End, End]) -> None:
    a, b = ends
    (piece,) = a.say(bytes(2 * LINK_READ_BYTES))
    assert b.hear(piece[:-1] + bytes([piece[-1] ^ 1])) == [] and b.lost == [FORGED]


def test_frames_of_another_link_do_not_open(ends: tuple[End, End]) -> None:
    a, b = ends
    other = End("plain", seal.seals(bytes(32), KEYS[1]))
    assert b.hear(*other.say(b"a word")) == [] and b.lost == [FORGED]
    other.end()
    assert not a.lost
