"""Clients that add, get and acknowledge until their node dies, and what they were told: it must hold ever after.

No job comes twice, at most once or not: a hand-out is written before it leaves, and leases last longer than any test.
"""
from __future__ import annotations

import os
import random
import threading

from harness import Client


class Memory:
    """What clients were told, over all lives of a node."""

    def __init__(self) -> None:
        self.added: set[bytes] = set()
        self.ending: set[bytes] = set()  # an ack was sent
        self.ended: set[bytes] = set()  # and answered
        self.once: set[bytes] = set()
        self.out: dict[bytes, int] = {}  # jobs by how often they came
        self.lock = threading.Lock()


def work(port: int, memory: Memory, seed: int, rewrites: float = 0.01) -> None:
    """Add, get and acknowledge until the connection breaks; of all commands so many ask for a rewrite."""
    dice = random.Random(seed)
    try:
        with Client(("127.0.0.1", port)) as client:
            while True:
                number = dice.random()
                if number < 0.5:
                    is_once = dice.random() < 0.3
                    body = os.urandom(dice.randrange(1, 300))
                    jid = client.ask("ADDJOB", "q", body, 0, "RETRY", 0 if is_once else 3600)
                    with memory.lock:
                        (memory.once if is_once else memory.added).add(jid)
                elif number < 1 - rewrites:
                    for _, jid, _ in client.ask("GETJOB", "NOHANG", "FROM", "q") or []:
                        with memory.lock:
                            memory.out[jid] = memory.out.get(jid, 0) + 1
                            memory.ending.add(jid)
                        if client.ask("ACKJOB", jid) == 1:
                            with memory.lock:
                                memory.ended.add(jid)
                else:
                    client.ask("BGREWRITEAOF")
    except (OSError, EOFError, TimeoutError):
        pass


def check(client: Client, memory: Memory) -> None:
    """After a start: all that was answered holds."""
    known: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, found = client.ask("JSCAN", cursor, "COUNT", 10_000)
        known.update(found)
        if cursor == b"0":
            break
    assert not (memory.added - memory.ending) - known, "an accepted job is gone"
    assert not memory.ended & known, "an acknowledged job is back"
    assert all(count == 1 for count in memory.out.values()), "a job that was out came again, to somebody else"
