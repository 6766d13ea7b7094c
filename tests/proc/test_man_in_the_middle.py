"""Somebody between two real nodes carries their bytes, knows no secret, and changes what it likes.

The proxy lets the handshake pass and knows where it ends; from there on it sees frames by their lengths. What it does
to one of them ends the link, is counted and logged; then the nodes meet again, and every job is as it was added.
"""
from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from test_bus import Client, Nodes, Process, meet, nodes, secret_file, until

from holdfast.shell import handshake
from holdfast.shell.handshake import ANSWER, HEAD, VERDICT
from holdfast.shell.seal import FORGED

__all__ = ["nodes", "secret_file"]

Tamper = Callable[[list[bytes]], list[bytes]]
SPOILT = 5
"""Which frame, counted from the first after `begin`."""


class Proxy:
    """Carries connections to the bus of a node. `tamper` gets the frames of one direction, a few at a time."""

    def __init__(self, bus_port: int) -> None:
        self.target = bus_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.tamper: Tamper | None = None
        self.seen = b""
        self.frames = 0
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.target))
                self.sockets += [near, far]
                hellos: dict[bool, bytes] = {}
                both_said = threading.Condition()
                for said_by_dialer, source, sink in ((True, near, far), (False, far, near)):
                    threading.Thread(
                        target=self.carry, args=(source, sink, said_by_dialer, hellos, both_said), daemon=True
                    ).start()

    def carry(
        self, source: socket.socket, sink: socket.socket, is_dialer: bool, hellos: dict[bool, bytes],
        both_said: threading.Condition,
    ) -> None:
        try:
            head = read(source, HEAD.size)
            hello = head + read(source, HEAD.unpack(head)[2])
            sink.sendall(hello)
            with both_said:
                hellos[is_dialer] = handshake.read_hello(hello[HEAD.size:]).node_id
                both_said.notify_all()
            sink.sendall(read(source, ANSWER.size))
            with both_said:
                both_said.wait_for(lambda: len(hellos) == 2)
            if hellos[is_dialer] < hellos[not is_dialer]:
                sink.sendall(read(source, VERDICT.size))
            self.carry_frames(source, sink)
        except (OSError, EOFError):
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def carry_frames(self, source: socket.socket, sink: socket.socket) -> None:
        held: list[bytes] = []
        while True:
            size = read(source, 4)
            held.append(size + read(source, struct.unpack("<I", size)[0]))
            self.seen += held[-1]
            if self.tamper is not None and len(held) < SPOILT:
                continue  # a few are needed for some tricks
            if self.tamper is not None:
                tamper, self.tamper = self.tamper, None
                held = tamper(held)
            sink.sendall(b"".join(held))
            self.frames += len(held)
            held = []

    def close(self) -> None:
        self.listener.close()
        for each in self.sockets:
            each.close()


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


Between = Callable[[Process], Proxy]


@pytest.fixture
def between() -> Iterator[Between]:
    made: list[Proxy] = []

    def make(node: Process) -> Proxy:
        made.append(Proxy(node.bus_port))
        return made[-1]

    yield make
    for each in made:
        each.close()


def refused(node: Process) -> int:
    found = re.search(r"bus_frames_refused:(\d+)", node.ask("INFO", "stats").decode())
    assert found is not None
    return int(found[1])


def test_a_body_cannot_be_read_or_changed_on_its_way(nodes: Nodes, secret_file: str, between: Between) -> None:
    a = nodes("--cluster-secret-file", secret_file)
    proxy = between(a)
    b = nodes("--cluster-secret-file", secret_file, "--join", f"127.0.0.1:{a.port}@{proxy.port}")
    meet(a, b)
    until(lambda: proxy.frames > 0)
    body = b"transfer amount=10 EUR" * 100
    job = b.ask("ADDJOB", "pay", body, 5000, "REPLICATE", 2)
    assert job.startswith(b"DI")
    assert a.ask("GETJOB", "TIMEOUT", 5000, "FROM", "pay") == [[b"pay", job, body]]
    assert len(proxy.seen) > len(body), "the job did not go through the proxy"
    assert b"amount" not in proxy.seen and job not in proxy.seen and b"pay" not in proxy.seen
    assert refused(a) == refused(b) == 0


def flip(frames: list[bytes]) -> list[bytes]:
    spoilt = bytearray(frames[2])
    spoilt[len(spoilt) // 2] ^= 0x10
    return [*frames[:2], bytes(spoilt), *frames[3:]]


def cut_short(frames: list[bytes]) -> list[bytes]:
    body = frames[2][4:-1]
    return [*frames[:2], struct.pack("<I", len(body)) + body, *frames[3:]]


TRICKS: dict[str, Tamper] = {
    "flip": flip,
    "cut short": cut_short,
    "leave out": lambda frames: [*frames[:2], *frames[3:]],
    "repeat": lambda frames: [*frames[:3], frames[2], *frames[3:]],
    "reorder": lambda frames: [frames[0], frames[2], frames[1], *frames[3:]],
    "put in": lambda frames: [*frames[:2], struct.pack("<I", 24) + bytes(24), *frames[2:]],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_frame_that_was_touched_ends_the_link_and_no_job_is_harmed(
    nodes: Nodes, secret_file: str, between: Between, trick: str
) -> None:
    a = nodes("--cluster-secret-file", secret_file)
    proxy = between(a)
    b = nodes("--cluster-secret-file", secret_file, "--join", f"127.0.0.1:{a.port}@{proxy.port}")
    meet(a, b)
    until(lambda: proxy.frames > 0)
    proxy.tamper = TRICKS[trick]
    jobs = {}
    with Client(b.port) as client:
        for i in range(40):
            body = b"amount=%d" % i
            jobs[client.ask("ADDJOB", "pay", body, 5000, "REPLICATE", 2, "ASYNC")] = body
            if refused(a) + refused(b):
                break
    until(lambda: refused(a) + refused(b))
    assert refused(a) + refused(b) == 1
    assert sum(each.log().count(f"link lost: {FORGED}") for each in (a, b)) == 1
    meet(a, b)
    for each in (a, b):
        assert each.is_unharmed(), each.log()
    got = {}
    with Client(a.port) as client:
        while len(got) < len(jobs):
            for _, job, body in client.ask("GETJOB", "TIMEOUT", 10000, "COUNT", 100, "FROM", "pay"):
                got[job] = body
    assert got == jobs


def test_every_trick_changes_something() -> None:
    frames = [struct.pack("<I", 8) + bytes([i]) * 8 for i in range(SPOILT)]
    for name, trick in TRICKS.items():
        assert b"".join(trick(list(frames))) != b"".join(frames), name
