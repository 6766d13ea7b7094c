"""Links as the sockets see them: frames in, frames out, and every way in which a link can end.

Each test runs with the compiled sockets and with their plain twin. The node is a stub that takes notes; the other
side of a link is one end of a socket pair. What a real node makes of bad frames is in test_bad_frames.py.
"""
from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from librt.strings import BytesWriter
from twins import CLEAR, SOCKETS, native

from holdfast.core.peers import PeerFacts
from holdfast.shell import plain
from holdfast.shell.bounds import LINK_CHUNK_BYTES, LINK_CHUNKS_PER_SEND, LINK_READ_BYTES
from holdfast.shell.seal import TAG_BYTES
from holdfast.wire import bus

NEVER = 1 << 62
MIB = 1024 * 1024
FULL_LENGTH = bus.FRAME_BYTES_MAX + TAG_BYTES


def framed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


class StubPeer:
    def __init__(self, facts: PeerFacts) -> None:
        self.facts = facts


class StubSession:
    def __init__(self, number: int) -> None:
        self.number = number
        self.is_trusted = True
        self.handle: object = None
        self.blocked = 0
        self.is_monitor = False
        self.connected = self.used = 0


class StubNode:
    """Notes the frames it gets. A frame is good unless it begins with `bad`; `boom` is a fault of our own.

    What is to be said goes to `to_say`, and flush makes frames of it, as the real one does. A client's BLOCK
    leaves its session blocked, MUCH is answered with more than any socket holds; a frame that begins with `wake`
    wakes all blocked sessions.
    """

    def __init__(self) -> None:
        self.out = BytesWriter()
        self.wakeups: list[tuple[StubSession, bytes]] = []
        self.requests: list[object] = []
        self.peers: list[StubPeer] = [StubPeer(PeerFacts(b"0" * 40, 1, "", 0, 0))]
        self.by_id: dict[bytes, StubPeer] = {}
        self.frames: list[tuple[StubPeer, bytes]] = []
        self.faults: list[str] = []
        self.sessions: list[StubSession] = []
        self.to_say: list[tuple[StubPeer, bytes]] = []
        self.heard: list[tuple[StubPeer, bytes]] = []
        self.events: list[str] = []
        self.is_shy = False
        self.farewell: StubPeer | None = None

    def connect(self, address: str) -> StubSession:
        self.sessions.append(StubSession(len(self.sessions)))
        return self.sessions[-1]

    def disconnect(self, session: StubSession) -> None:
        if self.farewell is not None:
            self.to_say.append((self.farewell, b"somebody has gone"))

    def execute(self, session: StubSession, argv: list[bytes]) -> bool:
        if session.blocked:
            return False
        if argv[0] == b"BLOCK":
            session.blocked = 1
        elif argv[0] == b"MUCH":
            self.out.write(bytes(8 * MIB))
        else:
            self.out.write(b"+" + argv[0] + b"\r\n")
        return True

    def link_up(self, facts: PeerFacts) -> StubPeer | None:
        self.events.append("up")
        if self.is_shy:
            return None
        peer = self.by_id.get(facts.node_id)
        if peer is None:
            peer = self.by_id[facts.node_id] = StubPeer(facts)
            self.peers.append(peer)
        return peer

    def link_down(self, peer: StubPeer) -> None:
        self.events.append("down")

    def frame(self, peer: StubPeer, data: bytes) -> bool:
        assert type(data) is bytes
        self.heard.append((peer, data))
        if data.startswith(b"wake"):
            for session in self.sessions:
                if session.blocked:
                    session.blocked = 0
                    self.wakeups.append((session, b"+woken\r\n"))
        if data.startswith(b"boom"):
            raise RuntimeError("our own mistake")
        return not data.startswith(b"bad")

    def flush(self) -> None:
        self.events.append("flush")
        self.frames += self.to_say
        self.to_say.clear()

    def took(self, usec: int) -> None: ...

    def take_output(self) -> bytes:
        data = self.out.getvalue()
        self.out.truncate(0)
        return data

    def set_time(self, now: int, wall: int) -> None: ...

    def tick(self) -> None: ...

    def next_wake(self) -> int:
        return NEVER


class Bench:
    def __init__(self, kind: str) -> None:
        self.node = StubNode()
        self.sockets: Any = (plain if kind == "plain" else native).Sockets(self.node, {}, 0)
        self.lost: list[tuple[StubPeer, str]] = []
        self.sockets.links.on_lost = lambda peer, why: self.lost.append((peer, why))
        self.sockets.on_requests = lambda: None
        self.ends: list[socket.socket] = []

    def link(self, node_id: bytes = b"1" * 40, buffer_bytes: int = 0) -> tuple[socket.socket, Any]:
        ours, theirs = socket.socketpair()
        if buffer_bytes:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        ours.setblocking(False)
        theirs.setblocking(False)
        self.ends.append(theirs)
        return theirs, self.sockets.adopt(ours, PeerFacts(node_id, 7, "h", 1, 2), CLEAR)

    def say(self, peer: Any, *frames: bytes) -> None:
        """The node says something in the next turn."""
        self.node.to_say += [(peer, frame) for frame in frames]
        self.turn()

    def turn(self) -> None:
        self.sockets.sweep()
        self.sockets.step()

    def send(self, end: socket.socket, data: bytes, piece: int = 1 << 30) -> None:
        """Send all of it, with turns in between as the buffers fill."""
        view = memoryview(data)
        while view:
            with contextlib.suppress(BlockingIOError):
                view = view[end.send(view[:piece]):]
            self.sockets.step()
        self.turn()

    def read(self, end: socket.socket, size: int) -> bytes:
        data = bytearray()
        idle = 0
        while len(data) < size and idle < 1000:
            try:
                more = end.recv(MIB)
                if not more:
                    break
                data += more
                idle = 0
            except BlockingIOError:
                idle += 1
            self.sockets.step()
        return bytes(data)

    def heard(self) -> list[bytes]:
        return [data for _, data in self.node.heard]

    def end(self) -> None:
        for end in self.ends:
            end.close()
        self.sockets.shut()


def is_closed(end: socket.socket) -> bool:
    """The node has closed its side."""
    try:
        while end.recv(MIB):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@pytest.fixture(params=SOCKETS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(request.param)
    yield made
    made.end()


# -- in ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_frames_arrive_whole_however_they_are_cut(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    lengths = [0, 1, 3, 4, 5, 100, 1000, LINK_READ_BYTES - 4, LINK_READ_BYTES - 3, LINK_READ_BYTES, 3 * LINK_READ_BYTES]
    frames = [rng.randbytes(rng.choice(lengths)) for _ in range(30)]
    frames = [b"" if frame[:3] == b"bad" else frame for frame in frames]
    end, _ = bench.link()
    bench.send(end, b"".join(map(framed, frames)), piece=rng.choice([1 << 30, LINK_READ_BYTES, 70_001, 4099]))
    assert bench.heard() == frames
    assert bench.sockets.figures()["bus_net_input_bytes"] == sum(4 + len(frame) for frame in frames)


def test_a_frame_byte_by_byte(bench: Bench) -> None:
    end, _ = bench.link()
    bench.send(end, framed(b"abc") + framed(b"") + framed(b"defg"), piece=1)
    assert bench.heard() == [b"abc", b"", b"defg"]


def test_the_longest_frame_is_read_without_copying_it_again_and_again(bench: Bench) -> None:
    """64 MiB in pieces of what a socket holds: some hundred reads. Copying all at each would take minutes."""
    end, _ = bench.link()
    frame = random.Random(1).randbytes(MIB) * (FULL_LENGTH // MIB)
    began = time.process_time()
    bench.send(end, framed(frame) + framed(b"next"))
    took = time.process_time() - began
    assert bench.heard() == [frame, b"next"]
    assert took < 3, f"{took:.1f} s"


def test_a_longer_one_ends_the_link_before_it_is_read(bench: Bench) -> None:
    end, peer = bench.link()
    bench.send(end, framed(b"good") + struct.pack("<I", FULL_LENGTH + 1) + bytes(1000))
    assert bench.heard() == [b"good"]
    assert is_closed(end) and bench.node.events[-1] != "up" and "down" in bench.node.events
    assert bench.lost == [(peer, "a frame longer than any")]
    assert bench.sockets.figures()["bus_links"] == 0


def test_a_frame_the_node_refuses_ends_the_link_and_nothing_behind_it_counts(bench: Bench) -> None:
    end, _ = bench.link()
    other_end, _ = bench.link(b"2" * 40)
    bench.send(end, framed(b"good") + framed(b"bad") + framed(b"more"))
    bench.send(other_end, framed(b"still here"))
    assert bench.heard() == [b"good", b"bad", b"still here"]
    assert is_closed(end) and not is_closed(other_end)
    assert [why for _, why in bench.lost] == ["a frame that is none"]


def test_a_fault_of_our_own_ends_that_link_only(bench: Bench) -> None:
    end, _ = bench.link()
    other_end, _ = bench.link(b"2" * 40)
    bench.send(end, framed(b"boom"))
    bench.send(other_end, framed(b"still here"))
    assert is_closed(end) and not is_closed(other_end)
    assert len(bench.node.faults) == 1 and "our own mistake" in bench.node.faults[0]


def test_what_was_sent_before_the_end_is_heard(bench: Bench) -> None:
    end, _ = bench.link()
    frames = [b"%d" % i * 1000 for i in range(300)]
    end.setblocking(True)
    sent = b"".join(map(framed, frames))[:150_000]
    end.send(sent)
    end.close()
    for _ in range(10):
        bench.turn()
    assert bench.heard() == frames[:len(bench.heard())] and len(bench.heard()) > 10
    assert [why for _, why in bench.lost] == ["the other side has closed it"]


# -- out ---------------------------------------------------------------------------------------------------


def test_all_frames_of_a_turn_leave_in_one_piece(bench: Bench) -> None:
    end, peer = bench.link()
    frames = [b"a", b"", b"b" * (LINK_CHUNK_BYTES - 1), b"c" * LINK_CHUNK_BYTES, b"d"]
    bench.say(peer, *frames)
    assert end.recv(MIB) == b"".join(map(framed, frames))


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_reader_gets_everything_in_order(bench: Bench, seed: int) -> None:
    """The system takes what it likes, in the middle of a length as in the middle of a frame."""
    rng = random.Random(seed)
    end, peer = bench.link(buffer_bytes=4096)
    frames = [rng.randbytes(rng.choice([0, 1, 10, 1000, 20_000, 300_000])) for _ in range(3 * LINK_CHUNKS_PER_SEND)]
    for i in range(0, len(frames), 8):
        bench.say(peer, *frames[i:i + 8])
    wanted = b"".join(map(framed, frames))
    assert bench.sockets.figures()["bus_biggest_send_buffer"] > len(wanted) // 2
    assert bench.read(end, len(wanted)) == wanted
    assert bench.sockets.figures()["bus_biggest_send_buffer"] == 0
    assert bench.sockets.figures()["bus_net_output_bytes"] == len(wanted)


def test_who_reads_too_slowly_loses_the_link_not_a_frame(bench: Bench) -> None:
    end, peer = bench.link()
    other_end, other = bench.link(b"2" * 40)
    bench.sockets.links.configure(10 * MIB)
    frame = bytes(MIB)
    count = 0
    while not bench.lost:
        bench.say(peer, frame)
        count += 1
        assert count < 30
        assert bench.sockets.figures()["bus_biggest_send_buffer"] <= 10 * MIB
    assert count > 10 and "cluster-send-buffer" in bench.lost[0][1]
    got = bench.read(end, count * (MIB + 4))
    assert got == (framed(frame) * count)[:len(got)]
    bench.say(peer, b"to nobody")
    bench.say(other, b"hello")
    assert other_end.recv(100) == framed(b"hello")


def test_a_reader_that_has_gone_ends_the_link(bench: Bench) -> None:
    end, peer = bench.link()
    end.close()
    bench.say(peer, b"anybody there?")
    bench.turn()
    assert len(bench.lost) == 1 and bench.node.events.count("down") == 1


# -- the turn ----------------------------------------------------------------------------------------------


def test_a_node_without_peers_is_not_asked_for_frames(bench: Bench) -> None:
    ours, theirs = socket.socketpair()
    bench.ends += [ours, theirs]
    for _ in range(10):
        bench.turn()
    assert bench.node.events == []


def test_frames_are_made_before_the_commit_and_leave_after_it(bench: Bench) -> None:
    end, peer = bench.link()

    def commit() -> bool:
        with pytest.raises(BlockingIOError):
            end.recv(1)
        bench.node.events.append("commit")
        return True

    bench.sockets.commit = commit
    bench.node.events.clear()
    bench.node.to_say.append((peer, b"word"))
    bench.sockets.sweep()
    assert bench.node.events == ["flush", "commit"]
    assert end.recv(100) == framed(b"word")


def test_what_could_not_be_committed_is_told_to_nobody(bench: Bench) -> None:
    """The journal could not be written: the client and the peer hear nothing, and learn from the end of the connection
    that nobody can tell what became of it."""
    end, peer = bench.link()
    listener = socket.create_server(("127.0.0.1", 0))
    bench.sockets.listen(listener)
    client = socket.create_connection(listener.getsockname())
    until(bench, lambda: bool(bench.node.sessions))
    bench.sockets.commit = lambda: False
    bench.node.to_say.append((peer, b"word"))
    client.sendall(b"HELLO\r\n")
    until(bench, lambda: "down" in bench.node.events)
    assert client.recv(100) == b"" and end.recv(100) == b""
    client.close()


def test_the_end_of_a_client_is_told_in_the_same_turn(bench: Bench) -> None:
    """The node has something to say about a client that is closed while replies are being sent: after its frames
    of the turn were made. It must not have to wait for the next turn, which may be long in coming."""
    end, peer = bench.link()
    bench.sockets.configure(100, 0, 0, 30_000, MIB, MIB, 1000, 0, 0)
    listener = socket.create_server(("127.0.0.1", 0))
    bench.sockets.listen(listener)
    client = socket.create_connection(listener.getsockname())
    until(bench, lambda: bool(bench.node.sessions))
    bench.node.farewell = peer
    client.sendall(b"MUCH\r\n")
    until(bench, lambda: readable(end))
    assert end.recv(100) == framed(b"somebody has gone")
    client.close()


def test_a_woken_session_gets_that_reply_before_the_next(bench: Bench) -> None:
    """The frame that wakes it and its next command arrive in one turn, in this order."""
    end, _ = bench.link()
    listener = socket.create_server(("127.0.0.1", 0))
    bench.sockets.listen(listener)
    client = socket.create_connection(listener.getsockname())
    client.settimeout(5)
    client.sendall(b"BLOCK\r\n")
    until(bench, lambda: any(session.blocked for session in bench.node.sessions))
    for _ in range(20):
        end.send(framed(b"wake"))
        client.sendall(b"PING\r\nBLOCK\r\n")
        bench.turn()
        bench.turn()
        assert client.recv(100) == b"+woken\r\n+PING\r\n"
    client.close()


# -- coming and going --------------------------------------------------------------------------------------


def test_a_second_connection_of_a_node_replaces_the_first(bench: Bench) -> None:
    end, peer = bench.link()
    bench.node.events.clear()
    bench.send(end, framed(b"half a frame")[:7])
    second, again = bench.link()
    assert again is peer
    assert [event for event in bench.node.events if event != "flush"] == ["down", "up"]
    assert is_closed(end)
    bench.send(second, framed(b"whole"))
    assert bench.heard() == [b"whole"]
    bench.say(peer, b"word")
    assert second.recv(100) == framed(b"word")


def test_a_node_that_is_not_wanted_is_closed(bench: Bench) -> None:
    bench.node.is_shy = True
    end, peer = bench.link()
    assert peer is None and is_closed(end)
    assert bench.sockets.figures()["bus_links"] == 0 and bench.lost == []


def test_dropping_a_link_happens_once(bench: Bench) -> None:
    end, peer = bench.link()
    bench.sockets.links.drop(peer, "enough")
    bench.sockets.links.drop(peer, "enough")
    assert is_closed(end) and bench.lost == [(peer, "enough")]
    assert bench.node.events.count("down") == 1


def test_links_are_not_clients(bench: Bench) -> None:
    """They count neither for maxclients nor for idle time, and no sweep closes them."""
    bench.sockets.configure(1, 0, 1, 1, MIB, MIB, 1, 1, 1)
    ends = [bench.link(b"%040d" % i)[0] for i in range(5)]
    bench.send(ends[0], framed(b"part")[:6])
    for _ in range(5):
        time.sleep(0.002)
        bench.turn()
    assert bench.sockets.figures()["bus_links"] == 5 and bench.lost == []


def readable(end: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        return len(end.recv(1, socket.MSG_PEEK)) > 0
    return False


def until(bench: Bench, is_so: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if is_so():
            return
        bench.sockets.step()
    pytest.fail("it never came about")
