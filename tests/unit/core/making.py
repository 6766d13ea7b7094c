"""Jobs and nodes for tests, with everything that does not matter filled in."""
from __future__ import annotations

import random

from holdfast.core import replicate
from holdfast.core.config import Config
from holdfast.core.job import Job, Origin
from holdfast.core.node import Node
from holdfast.core.peers import Peer, PeerFacts
from holdfast.core.queue import Queue
from holdfast.core.step import Connect, Do, Effects, Tick, step
from holdfast.wire import bus

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"
START_MS = 1_700_000_000_000
QUEUE = Queue(b"q", 0)
ORIGIN = Origin(b"DI01234567")


def make_job(seq: int, ctime: int = 0, rnd: int = 0, origin: Origin = ORIGIN) -> Job:
    return Job(seq, rnd, origin, QUEUE, b"", ctime, 0, 1)


class Bench:
    """A node, its sessions by number, and a clock that moves by hand."""

    def __init__(self, sessions: int = 2, **settings: str) -> None:
        config = Config()
        for name, value in settings.items():
            config.set(name.replace("_", "-"), value)
        self.node = Node(config, NODE_ID, random.Random(0).randbytes, START_MS)
        self.now = START_MS
        for _ in range(sessions):
            step(self.node, self.now, Connect("10.0.0.1:1"))

    def step(self, who: int, *words: bytes | str) -> Effects:
        argv = [word.encode() if isinstance(word, str) else word for word in words]
        return step(self.node, self.now, Do(who, argv))

    def do(self, *words: bytes | str) -> bytes | None:
        return self.step(1, *words).reply

    def wait(self, ms: int) -> None:
        """Time passes, and what is due is done."""
        until = self.now + ms
        while (wake := int(self.node.next_wake())) <= until:
            self.now = max(self.now, wake)
            step(self.node, self.now, Tick())
        self.now = until
        step(self.node, self.now, Tick())


class Mesh(Bench):
    """The node and peers it has links with, each written as machine or machine/zone; this node is on `a`."""

    def __init__(self, *places: str, zone: str = "", **settings: str) -> None:
        super().__init__(**settings)
        self.node.peers[0].facts = PeerFacts(NODE_ID, 1, "", 7711, 17711, b"a", zone.encode())
        self.peers: list[Peer] = []
        for number, place in enumerate(places):
            machine, _, peer_zone = place.partition("/")
            facts = PeerFacts(b"%040x" % (number + 1), 1, "10.0.0.2", 7711, 17711, machine.encode(), peer_zone.encode())
            peer = self.node.link_up(facts)
            assert peer is not None
            self.peers.append(peer)
        self.node.flush()
        self.node.frames.clear()

    def add(self, *options: str) -> Job:
        self.do("ADDJOB", "q", "body", "0", *options)
        return self.node.all_jobs()[-1]

    def asked(self, job: Job) -> list[int]:
        """Peers that were sent a copy, by their number in `places`."""
        return [number for number, peer in enumerate(self.peers) if peer.bit & job.holders]

    def confirm(self, job: Job, number: int) -> bool:
        """The peer says it has its copy; whether the job is accepted by that."""
        self.say(number, bytes([bus.GOTJOB]) + self.node.id_text(job) + bytes([replicate.version_of(job)]))
        return job.task is None

    def say(self, number: int, words: bytes) -> None:
        """A frame of that peer, which has had all of ours."""
        peer = self.peers[number]
        head = (peer.received + 1).to_bytes(8, "little") + peer.sent.to_bytes(8, "little") + bytes(8)
        assert self.node.frame(peer, head + words)

    def wait(self, ms: int) -> None:
        self.now += ms
        self.node.set_time(self.now, self.now)
        self.node.tick()
