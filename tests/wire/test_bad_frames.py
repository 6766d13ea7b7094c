"""A real node, and frames as a broken or hostile peer might send them: BAD_FRAMES of them, 5000 unless told.

The raw material is what two nodes really said to each other, and a good frame of every message there is; each is
spoiled in one of many ways. Whatever is sent, only that link may suffer: no fault in the machine, no harm to a
job that the frame did not name, nor to another peer.
"""
from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from typing import Any

import pytest
from test_frames import MIB, framed, is_closed
from twins import CLEAR, SOCKETS, native

from holdfast.core import fate, inquire
from holdfast.core.config import Config
from holdfast.core.direct import Direct
from holdfast.core.node import Node
from holdfast.core.peers import PeerFacts
from holdfast.core.talk import HANDLERS
from holdfast.shell import plain
from holdfast.wire import bus

BAD_FRAMES = int(os.environ.get("BAD_FRAMES", "5000"))
START_MS = 1_700_000_000_000
EXPLAINED = bus.HEADER + 2 * 50  # where the messages of a made frame begin, behind the header and two NODE messages


class Real:
    """A real node behind sockets, with peers made of socket pairs."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        self.node = Node(Config(), b"a" * 40, random.Random(seed).randbytes, START_MS)
        module = plain if kind == "plain" else native
        self.sockets: Any = module.Sockets(self.node, Direct(self.node).handlers(), START_MS)
        self.sockets.on_requests = self.carry_out

    def carry_out(self) -> None:
        for request in self.node.requests[:]:
            if request.kind == "drop-link":
                self.sockets.links.drop(request.peer, "the node has given it up")
        self.node.requests.clear()

    def link(self, node_id: bytes) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.sockets.adopt(ours, PeerFacts(node_id, START_MS, "127.0.0.1", 1, 2), CLEAR)
        return theirs

    def run(self, *words: bytes) -> bytes:
        session = self.node.connect("test")
        self.node.execute(session, list(words))
        self.sockets.sweep()
        return self.node.take_output()


def real_frames(kind: str) -> list[bytes]:
    """What nodes say to each other when jobs are added, moved, acked: the raw material of bad frames."""
    a, b = Real(kind, 5), Real(kind, 6)
    b.node = Node(Config(), b"b" * 40, random.Random(6).randbytes, START_MS)
    b.sockets = (plain if kind == "plain" else native).Sockets(b.node, {}, START_MS)
    b.sockets.on_requests = b.carry_out
    to_a, to_b = a.link(b"b" * 40), b.link(b"a" * 40)
    frames: list[bytes] = []
    for step in range(40):
        if step == 3:
            session = a.node.connect("producer")
            for i in range(5):
                a.node.execute(session, [b"ADDJOB", b"q%d" % (i % 2), b"body" * i, b"1000", b"REPLICATE", b"2"])
        if step == 8:
            for queue in (b"q0", b"q1", b"q0"):
                b.node.execute(b.node.connect("consumer"), [b"GETJOB", b"TIMEOUT", b"60000", b"FROM", queue])
        if step == 14:
            known = [a.node.id_text(job) for job in a.node.all_jobs()]
            for each in [*known, b"DI" + b"0" * 40 + b"05a1SQ"]:
                b.node.execute(b.node.connect("consumer"), [b"ACKJOB", each])
        if step == 20:
            a.node.execute(a.node.connect("admin"), [b"PAUSE", b"q0", b"in", b"bcast"])
        for sockets in (a.sockets, b.sockets):
            sockets.sweep()
            sockets.step()
        for source, target in ((to_a, to_b), (to_b, to_a)):
            with contextlib.suppress(BlockingIOError):
                data = source.recv(MIB)
                target.send(data)
                while data:
                    size = struct.unpack_from("<I", data)[0]
                    frames.append(data[4:4 + size])
                    data = data[4 + size:]
    for end in (to_a, to_b):
        end.close()
    a.sockets.shut()
    b.sockets.shut()
    return [frame for frame in frames if len(frame) > bus.HEADER]


def made_frames(job_id: bytes) -> list[bytes]:
    """Frames for every message there is, all of which would be good, about a job that exists and one that does not."""

    def name(text: bytes) -> bytes:
        return struct.pack("<I", len(text)) + text

    frames = []
    for jid in (job_id, b"DI" + b"0" * 7 + b"f" * 33 + b"05a1SQ"):
        mask = struct.pack("<q", 3)
        named = struct.pack("<IQ", int(jid[2:10], 16), int(jid[10:26], 16))
        life = struct.pack("<q", START_MS)
        texts = name(b"q") + name(b"body") + name(b"")
        copy = jid + struct.pack("<qqqIIIIHBB", 1, 99_000, 0, 0, 10, 0, 0, 3, 5, 0) + mask + texts
        group = b"\x05" + name(b"g")
        in_group = copy[:-4] + name(group)
        gossip = b"e" * 40 + name(b"10.0.0.1") + struct.pack("<HHB", 1, 2, 1)
        number = struct.pack("<q", 1)
        deed = b"\x00" + jid + name(b"aaaaaaaa.1.1") + struct.pack("<qqB", 0, 0, 2) + name(b"done")
        back = b"\x01" + jid + name(b"") + struct.pack("<qqB", 0, 0, 0) + name(b"no ink")
        texts = name(b"q") + name(b"*") + name(b"*")
        dead = b"\x01" + struct.pack("<I", 1) + jid + b"\x01" + texts + number + name(b"") + number
        questions = {
            inquire.FIGURES: b"*", inquire.LEASED: struct.pack("<I", 1) + deed, inquire.CANCELLED: jid,
            inquire.WORKERS: b"", inquire.EXPLAINED: jid, inquire.DEAD: dead,
            inquire.CHANGED: jid + b"\x05" + name(b"r"), inquire.FLUSHED: b"none", inquire.COUNTED: b"q",
            inquire.AWAY: b"",
            inquire.HANDED_BACK: struct.pack("<I", 1) + back, inquire.BUCKET: b"d",
        }
        messages = [
            (bus.PING, b"\x01" + life + b"\x98\x3a\x00\x00\x02" + gossip + gossip), (bus.FAIL, b"e" * 40),
            (bus.REPL, b"\x00" + copy), (bus.GOTJOB, jid + b"\x00"), (bus.REFUSED, jid), (bus.ENQUEUE, jid),
            (bus.HOLDERS, jid + b"\x00" + mask),
            (bus.WILLQUEUE, jid + mask + b"\x01" + bytes(8)),
            (bus.STATE, jid + b"\x01" + struct.pack("<q", 5000) + mask + bytes(8)),
            (bus.OUT, struct.pack("<I", 1) + named + struct.pack("<qI", 5000, 0)),
            (bus.WITHYOU, struct.pack("<I", 1) + named), (bus.NOTHERE, struct.pack("<I", 1) + named),
            (bus.QUEUED, jid + struct.pack("<II", 1, 2)), (bus.WORKING, jid + struct.pack("<q", 5000)),
            (bus.SETACK, jid + b"\x01\x00" + mask), (bus.GOTACK, jid + b"\x01" + mask),
            (bus.DELJOB, jid + b"\x01" + mask),
            (bus.NEED, name(b"q") + struct.pack("<I", 3)), (bus.YOURJOB, number + copy),
            (bus.TAKEN, number + jid), (bus.NOTTAKEN, number + jid), (bus.MOVED, number + jid),
            *[(bus.ASK, number + bytes([what]) + name(asked)) for what, asked in questions.items()],
            (bus.TELL, number + name(struct.pack("<I", 0))),
            *[
                (bus.FATE, jid + struct.pack("<BqIIB", kind, 5000, 1, 2, 5) + mask + name(b"q") + name(b""))
                for kind in range(fate.LIVES + 1)
            ],
            (bus.GOTFATE, jid + struct.pack("<BIq", 1, 1, 1) + mask),
            (bus.RESULT, jid + struct.pack("<q", 5000) + name(b"result")), (bus.WATCH, jid),
            (bus.ENDED, jid + b"\x01\x01" + name(b"result")),
            (bus.REGISTER, name(b"queue") + name(b"q") + name(b"maxlen") + b"\x01" + name(b"99") + life + b"e" * 40),
            (bus.DIGEST, life + b"\x01"),
            (bus.CRONRAN, name(b"entry") + number + life),
            *[(kind, b"\x00" + name(b"domain") + struct.pack("<I", 3)) for kind in (
                bus.WANT, bus.SPENT, bus.UNSPENT, bus.SLOW, bus.REFUND)],
            (bus.GRANT, b"\x00" + name(b"domain") + struct.pack("<II", 3, 1000)),
            (bus.LEVEL, b"\x00" + name(b"domain") + struct.pack("<I", 0) + number),
            (bus.QUOTA, b"\x00" + name(b"q") + number + number + number),
            (bus.LEVELS, b"\x00" + name(b"q") + number + number + b"\x01"), (bus.RECALL, b"\x00" + name(b"q")),
            (bus.SLOTS, struct.pack("<HHIB", 1, 7, 3, 0)), (bus.SLOTASK, number + struct.pack("<HHI", 1, 7, 3)),
            (bus.SLOTGAVE, number + struct.pack("<HH", 1, 7)), (bus.HANDOVER, struct.pack("<HHI", 1, 7, 3)),
            (bus.HOMED, b"\x00" + number + in_group), (bus.MERGED, jid + jid),
            (bus.KEYTAKEN, jid + struct.pack("<q", 5000) + name(name(b"q") + name(b"") + b"u")),
            (bus.ADD, number + b"\x00\x00" + struct.pack("<qqIIIqqqBB", 5, 900, 60, 5, 0, 1, 0, 0, 5, 0)
             + name(group) + name(b"q") + name(b"DIeeeeeeee") + struct.pack("<Iqq", 1, 77, 78) + name(b"body")),
            (bus.ADDED, number + name(b"+OK\r\n")), (bus.NOTHOME, number),
            (bus.RUN, number + struct.pack("<H", 2) + name(b"WORKING") + name(jid)),
            (bus.RAN, number + name(b":1\r\n")),
            (bus.BATCHBIT, jid + struct.pack("<IB", 3, 1) + name(b"batch")), (bus.BATCHGOT, jid),
            (bus.BATCHSTATE, name(
                name(b"batch") + struct.pack("<qBq", 4, 0, 0) + name(jid) + struct.pack("<H", 2) + name(b"q")
                + name(b"body") + name(b"\x05") + struct.pack("<IIB", 1, 0, 1)
            )),
            (bus.LEND, number + name(b"aaaaaaaa.1.1") + in_group), (bus.RETURNED, number),
            (bus.BORROWED, number + struct.pack("<q", 5000) + name(b"worker") + name(b"10.0.0.1:1")),
            (bus.SALVAGED, number + struct.pack("<H", 1) + jid), (bus.SEEN, bytes(8) + struct.pack("<H", 1) + jid),
        ]
        explained = bytes([bus.NODE, 0]) + b"e" * 40 + life + bytes([bus.NODE, 1]) + b"a" * 40 + life
        frames += [bytes(bus.HEADER) + explained + bytes([kind]) + body for kind, body in messages]
    return frames


@pytest.mark.parametrize("kind", SOCKETS)
def test_frames_that_are_not_spoiled_are_good(kind: str) -> None:
    """There is one for every message; and none of them ends its link, or spoiling it would prove nothing."""
    real = Real(kind)
    job_id = real.run(b"ADDJOB", b"kept", b"body", b"0", b"REPLICATE", b"1")[1:].strip()
    made = made_frames(job_id)
    assert {frame[EXPLAINED] for frame in made} == {*HANDLERS} - {bus.NODE}
    assert {frame[EXPLAINED + 9] for frame in made if frame[EXPLAINED] == bus.ASK} == {*inquire.KINDS}
    for frame in made:
        end = real.link(b"e" * 40)
        end.send(framed(struct.pack("<QQ", 1, 0) + frame[16:]))
        real.sockets.step()
        assert not is_closed(end), f"message {frame[EXPLAINED]} was not understood"
        end.close()
        real.sockets.step()
    real.sockets.shut()


def spoil(rng: random.Random, frame: bytes) -> bytes:
    """A frame as a broken, hostile or out-of-order peer might send it.

    The sequence is mostly made to fit, and the names of nodes at the beginning are mostly left alone, or nothing
    behind them would ever be looked at.
    """
    data = bytearray(frame)
    data[:16] = struct.pack("<QQ", 1, 0)
    low = bus.HEADER if rng.random() < 0.1 else min(len(data) - 1, EXPLAINED)
    way = rng.randrange(9)
    if way == 0:
        data[:16] = struct.pack("<QQ", rng.choice([0, 2, 1 << 63, (1 << 64) - 1]), rng.choice([0, 1, 1 << 63]))
    elif way == 1:
        del data[rng.randrange(low, len(data)):]
    elif way == 2:
        data += rng.randbytes(rng.randrange(1, 60))
    elif way in (3, 4):
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(low, len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    elif way == 5:
        at = rng.randrange(low, len(data) + 1)
        data[at:at] = rng.choice([b"\xff" * 8, b"\x00" * 4, rng.randbytes(4), struct.pack("<I", 1 << 31)])
    elif way == 6:
        at = rng.randrange(low, len(data))
        del data[at:at + rng.randrange(1, 20)]
    elif way == 7:
        data[low:] = bytes([rng.choice([*HANDLERS, *range(1, 60), 255])]) + rng.randbytes(rng.randrange(200))
    else:
        data[low:] = rng.randbytes(rng.randrange(100))
    return bytes(data)


@pytest.mark.parametrize("kind", SOCKETS)
def test_bad_frames_close_their_link_and_harm_nobody(kind: str) -> None:
    """BAD_FRAMES of them. A peer that says nothing wrong stays linked all the time, and a job stays what it was.

    In rounds with a new node for each, since a node that has been told of 62 others listens to no more."""
    rng = random.Random(kind)
    real_ones = real_frames(kind)
    refused = 0
    for first in range(0, BAD_FRAMES, 250):
        real = Real(kind)
        friend = real.link(b"f" * 40)
        add = [b"ADDJOB", b"kept", b"body", b"0", b"REPLICATE", b"1"]
        job_id, known = [real.run(*add)[1:].strip() for _ in range(2)]
        stock = real_ones + made_frames(known)
        for i in range(first, min(first + 250, BAD_FRAMES)):
            end = real.link(b"%040x" % (i % 20 + 1))
            with contextlib.suppress(OSError):
                end.send(framed(spoil(rng, rng.choice(stock))))
            real.sockets.step()
            refused += is_closed(end)
            end.close()
            assert real.node.faults == [], real.node.faults[0]
        for _ in range(3):
            real.sockets.sweep()
            real.sockets.step()
        assert real.sockets.figures()["bus_links"] == 1 and not is_closed(friend)
        assert job_id in real.run(b"SHOW", job_id) and b"body" in real.run(b"GETJOB", b"FROM", b"kept")
        assert real.node.faults == []
        real.sockets.shut()
    assert refused > BAD_FRAMES // 2
