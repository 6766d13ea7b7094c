"""Jobs and nodes for tests, with everything that does not matter filled in."""
from __future__ import annotations

import random

from holdfast.core.config import Config
from holdfast.core.job import Job, Origin
from holdfast.core.node import Node
from holdfast.core.queue import Queue
from holdfast.core.step import Connect, Do, Effects, Tick, step

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
