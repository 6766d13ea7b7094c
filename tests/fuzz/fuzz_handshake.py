"""A mutational fuzzer of the handshake between nodes: bytes in, a real end of the bus behind them.

    python -m tests.fuzz.fuzz_handshake --seconds 60 --seed 7

Each input is a conversation by somebody who knows the secret, with bytes changed, put in, left out, cut off, in any of
its words, or with words of an earlier conversation. Some change nothing: these must become links, so that the fuzzer is
known to reach the end. After each:

    whoever changed something has no link, and nobody else has lost one
    no handshake is left over, nothing was logged as a fault, the log has none of the bytes
    an honest node can still come in (every so often: it costs a connection)
"""
from __future__ import annotations

import argparse
import asyncio
import logging
import random
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from holdfast.core.peers import PeerFacts
from holdfast.shell import handshake
from holdfast.shell.bus import Bus
from holdfast.shell.credentials import Credentials
from holdfast.shell.handshake import ANSWER, DIALER, HEAD, LISTENER, SECRET, Hello, Unwelcome

KEY = bytes(range(32))
NODE, CALLER = b"9" * 40, b"1" * 40
VERDICT_WORD = 2
HONEST_EVERY = 20
UNCHANGED = 0.1
"""How many inputs are left as they are."""
PATIENCE_S = 10.0


class Wrong(AssertionError):
    """What the fuzzer is looking for."""


def ignore(address: bytes) -> None:
    """Nobody here is dialed."""


class FewWords(logging.Handler):
    """Keeps what the log was told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.faults = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.faults += record.levelno >= logging.ERROR


class Peer:
    def __init__(self, facts: PeerFacts) -> None:
        self.facts = facts


@dataclass
class Run:
    inputs: int = 0
    linked: int = 0


class World:
    """One end of the bus that is dialed, and what it took for links."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        me = Hello(NODE, 7, 1, 1, self.port)
        self.bus = Bus(me, Credentials(SECRET, (KEY,)), self.adopt, self.drop, ignore, ignore)  # type: ignore[arg-type]
        self.links: dict[bytes, socket.socket] = {}
        self.old = b""  # words of an earlier conversation
        self.log = FewWords()

    def adopt(self, sock: socket.socket, facts: PeerFacts, seals: object) -> Any:
        self.links[facts.node_id] = sock
        return Peer(facts)

    def drop(self, peer: Any, why: str) -> None:
        self.links.pop(peer.facts.node_id).close()
        self.bus.lost(peer, why)

    def spoil(self, words: bytes) -> bytes:
        data = bytearray(words)
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            at = self.rng.randrange(len(data) + 1)
            way = self.rng.randrange(6)
            if way == 0 and at < len(data):
                data[at] ^= 1 << self.rng.randrange(8)
            elif way == 1:
                data[at:at] = self.rng.randbytes(self.rng.randrange(1, 9))
            elif way == 2:
                del data[at:at + self.rng.randrange(1, 9)]
            elif way == 3:
                del data[at:]
            elif way == 4 and self.old:
                start = self.rng.randrange(len(self.old))
                data[at:at + 32] = self.old[start:start + 32]
            elif way == 5 and at < len(data):
                data[at:at + 2] = self.rng.choice([b"\0\0", b"\xff\xff", b"\0\x80", b"\xff\x7f"])
        return bytes(data)

    async def call(self, spoilt_word: int) -> bool:
        """A whole conversation; the word with that number is spoilt. Whether anything was changed."""
        loop = asyncio.get_running_loop()
        is_changed = False
        sent = b""
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", self.port))

            async def say(number: int, words: bytes) -> None:
                nonlocal is_changed, sent
                said = self.spoil(words) if number == spoilt_word else words
                # What comes behind a whole verdict is a frame: the seals' business.
                is_changed = is_changed or (not said.startswith(words) if number == VERDICT_WORD else said != words)
                sent += words
                await loop.sock_sendall(sock, said)
                if said != words and len(said) < len(words):
                    sock.shutdown(socket.SHUT_WR)  # it would wait for the rest

            async def hear(count: int) -> bytes:
                data = b""
                while len(data) < count:
                    more = await loop.sock_recv(sock, count - len(data))
                    if not more:
                        raise EOFError
                    data += more
                return data

            try:
                hello = Hello(CALLER, 1, self.rng.randrange(1 << 60), 1, 1).anew()
                mine = hello.pack()
                await say(0, mine)
                head = await hear(HEAD.size)
                theirs = head + await hear(HEAD.unpack(head)[2])
                share = handshake.read_hello(theirs[HEAD.size:]).share
                agreements = handshake.agree([KEY], hello, share, mine, theirs)
                said = handshake.answer(agreements, DIALER, 0)
                await say(1, said)
                given = await hear(ANSWER.size)
                agreed = handshake.check_answer(agreements, LISTENER, given)[1].after(said, given)
                await say(2, handshake.verdict(agreed, 1 + len(self.old)))
            except (EOFError, OSError, Unwelcome):
                if not is_changed:
                    raise Wrong("an honest caller was turned away") from None
            self.old = sent[-200:]
            if not is_changed:
                await self.until(lambda: CALLER in self.links, "an honest caller got no link")
        return is_changed

    async def until(self, is_so: Any, words: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > end:
                raise Wrong(words)
            await asyncio.sleep(0)

    async def step(self, run: Run) -> None:
        before = len(self.log.lines)
        spoilt_word = -1 if self.rng.random() < UNCHANGED or run.inputs % HONEST_EVERY == 0 else self.rng.randrange(3)
        is_changed = await self.call(spoilt_word)
        await self.until(lambda: not self.bus.handshakes, "a handshake is left over")
        run.inputs += 1
        if is_changed and self.links:
            raise Wrong("who changed something has a link")
        for node_id in list(self.links):
            run.linked += 1
            mark = self.bus.links[node_id]
            self.drop(mark.peer, "the end of an input")
        if self.bus.links:
            raise Wrong("a link is left over")
        if self.log.faults:
            raise Wrong(f"a fault: {self.log.lines[before:]}")
        if any(not line.isprintable() for line in self.log.lines[before:]):
            raise Wrong("bytes of a stranger in the log")


async def fuzz(seconds: float, seed: int, most: int = 1 << 60) -> Run:
    run, world = Run(), World(seed)
    log = logging.getLogger("holdfast")
    log.addHandler(world.log)
    try:
        world.bus.listen(world.listener)
        end = time.monotonic() + seconds
        while time.monotonic() < end and run.inputs < most:
            await world.step(run)
    finally:
        log.removeHandler(world.log)
        await world.bus.close()
    return run


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_handshake", description="Bad handshakes.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    run = asyncio.run(fuzz(given.seconds, seed))
    print(f"{run.inputs} handshakes, {run.linked} of them honest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
