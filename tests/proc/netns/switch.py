"""The only wire between the namespaces: a switch in user space, with faults from one seed.

Each namespace has one TUN device; this program reads packets from all of them and writes each to the device
of its destination, or does to it what the rule of its path says. A path has a direction, so that a one-way
cut is one rule. All chances come from one seeded Random.

    python switch.py SEED ADDRESS=DESCRIPTOR ...

Orders are lines on its standard input, each a JSON list of [from, to, rule] that replaces all rules. Each is
answered by a line: what was done to how many packets so far, so that a fault can be shown to have bitten.
The program ends when its input does, so it never outlives the one who gives the orders.
"""
from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from heapq import heappop, heappush
from random import Random
from select import select
from typing import NamedTuple

PACKET_BYTES_MAX = 65_536
PACKETS_PER_TURN = 64
"""Read from one device before the others have their turn."""

LATE_MAX = 20_000
"""Packets that wait for their time; more are lost, as in any switch."""

Path = tuple[bytes, bytes]
"""From and to, four bytes each, as in the packet."""


class Rule(NamedTuple):
    """What is done to the packets of a path."""

    cut: bool = False
    flap_ms: int = 0  # cut in every other period of this length
    loss: float = 0.0  # the share of packets that are lost
    double: float = 0.0  # the share that comes twice
    delay_ms: int = 0
    jitter_ms: int = 0  # up to this much more
    shuffle: bool = False  # a packet with less jitter overtakes; otherwise the order stays

    def and_also(self, other: Rule) -> Rule:
        """Both at the same time."""
        return Rule(
            self.cut or other.cut, max(self.flap_ms, other.flap_ms), max(self.loss, other.loss),
            max(self.double, other.double), self.delay_ms + other.delay_ms, self.jitter_ms + other.jitter_ms,
            self.shuffle or other.shuffle,
        )


def packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))


class Switch:
    def __init__(self, seed: str, ports: dict[bytes, int]) -> None:
        self.dice = Random(f"{seed}/switch/0")
        self.ports = ports
        self.rules: dict[Path, Rule] = {}
        self.late: list[tuple[float, int, int, bytes]] = []  # a heap: when, in which order, where to, what
        self.pushed = 0
        self.last: dict[Path, float] = {}  # when the latest packet of a path is due
        self.counts: Counter[str] = Counter()

    def run(self, orders: int, answers: int) -> None:
        """Carry packets until there can be no more orders."""
        unread = b""
        sources = [orders, *self.ports.values()]
        while True:
            wait = max(0.0, self.late[0][0] - time.monotonic()) if self.late else None
            for source in select(sources, [], [], wait)[0]:
                if source != orders:
                    self.take(source)
                    continue
                more = os.read(orders, PACKET_BYTES_MAX)
                if not more:
                    return
                *lines, unread = (unread + more).split(b"\n")
                for line in lines:
                    self.obey(line)
                    os.write(answers, json.dumps(self.counts).encode() + b"\n")
            self.release()

    def obey(self, line: bytes) -> None:
        self.rules = {(packed(a), packed(b)): Rule(*rule) for a, b, rule in json.loads(line)}

    def take(self, source: int) -> None:
        """Read what one device has to send."""
        for _ in range(PACKETS_PER_TURN):
            try:
                packet = os.read(source, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            target = self.ports.get(packet[16:20])
            if packet[0] >> 4 == 4 and target is not None:  # IPv6 talks to itself here
                self.pass_on((packet[12:16], packet[16:20]), target, packet)

    def pass_on(self, path: Path, target: int, packet: bytes) -> None:
        rule = self.rules.get(path)
        if rule is None:
            self.send(target, packet)
            return
        now = time.monotonic()
        if rule.cut:
            self.counts["cut"] += 1
        elif rule.flap_ms and int(now * 1000) // rule.flap_ms % 2:
            self.counts["flapped"] += 1
        elif self.dice.random() < rule.loss:
            self.counts["lost"] += 1
        else:
            is_double = self.dice.random() < rule.double
            self.counts["doubled"] += is_double
            for _ in range(1 + is_double):
                self.send_later(path, rule, now, target, packet)

    def send_later(self, path: Path, rule: Rule, now: float, target: int, packet: bytes) -> None:
        if not rule.delay_ms and not rule.jitter_ms:
            self.send(target, packet)
            return
        due = now + (rule.delay_ms + self.dice.random() * rule.jitter_ms) / 1000
        last = self.last.get(path, 0.0)
        if due < last:
            self.counts["overtook"] += rule.shuffle
            due = due if rule.shuffle else last
        if len(self.late) >= LATE_MAX:
            self.counts["spilled"] += 1
            return
        self.last[path] = max(due, last)
        self.counts["delayed"] += 1
        self.pushed += 1
        heappush(self.late, (due, self.pushed, target, packet))

    def release(self) -> None:
        """Send what is due."""
        now = time.monotonic()
        while self.late and self.late[0][0] <= now:
            _, _, target, packet = heappop(self.late)
            self.send(target, packet)

    def send(self, target: int, packet: bytes) -> None:
        try:
            os.write(target, packet)
            self.counts["carried"] += 1
        except OSError:  # the device has no room
            self.counts["refused"] += 1


def main(seed: str, *ports: str) -> None:
    pairs = [port.split("=") for port in ports]
    Switch(seed, {packed(address): int(descriptor) for address, descriptor in pairs}).run(0, 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
