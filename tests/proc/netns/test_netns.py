"""A minute of the run that `make netns MINUTES=10` does, and the switch on its own."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_harness import until

from netns.lab import environment, why_not
from netns.switch import Rule, Switch, packed

ROOT = Path(__file__).resolve().parents[3]
MINUTES = 1
SECONDS_MAX = 420
"""Twice as long for faults that need it, a minute to drain, and a busy machine."""


def test_a_minute_of_faults_on_a_real_network_breaks_no_promise() -> None:
    if reason := why_not():
        pytest.skip(f"network namespaces: {reason}")
    words = [sys.executable, "-m", "netns", "--minutes", str(MINUTES)]
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=SECONDS_MAX)
    print(done.stdout)
    assert done.returncode == 0, done.stderr


class Bench:
    """A switch between two ends that are pipes: what is sent at one can be read at the other."""

    A, B = "10.77.0.1", "10.77.0.2"

    def __init__(self, rule: Rule) -> None:
        self.out, target = os.pipe()
        os.set_blocking(self.out, False)
        self.target = target
        self.switch = Switch("7", {packed(self.B): target})
        self.path = (packed(self.A), packed(self.B))
        self.switch.rules[self.path] = rule

    def send(self, count: int) -> list[int]:
        """Packets numbered from 0; the numbers as they come out, when all that will come has."""
        for number in range(count):
            packet = b"\x45".ljust(12, b"\0") + self.path[0] + self.path[1] + bytes([number])
            self.switch.pass_on(self.path, self.target, packet)

        def is_idle() -> bool:
            self.switch.release()
            return not self.switch.late

        until(is_idle)
        try:
            data = os.read(self.out, 65_536)
        except BlockingIOError:
            data = b""
        return list(data[20::21])


@pytest.mark.parametrize(
    "rule, effect, come_of_100",
    [
        (Rule(), "carried", range(100, 101)),
        (Rule(cut=True), "cut", range(1)),
        (Rule(loss=0.3), "lost", range(50, 90)),
        (Rule(double=0.3), "doubled", range(110, 150)),
        (Rule(delay_ms=5, jitter_ms=20), "delayed", range(100, 101)),
        (Rule(jitter_ms=20, shuffle=True), "overtook", range(100, 101)),
    ],
)
def test_the_switch_does_to_packets_what_the_rule_says(rule: Rule, effect: str, come_of_100: range) -> None:
    bench = Bench(rule)
    numbers = bench.send(100)
    assert len(numbers) in come_of_100
    assert bench.switch.counts[effect] > 0
    assert (numbers == sorted(numbers)) is not rule.shuffle


def test_a_flapping_path_is_cut_and_open_in_turn() -> None:
    bench = Bench(Rule(flap_ms=3))

    def both_seen() -> bool:
        bench.send(1)
        return bool(bench.switch.counts["flapped"] and bench.switch.counts["carried"])

    until(both_seen)


def test_the_same_seed_loses_the_same_packets() -> None:
    one, two = (Bench(Rule(loss=0.5)).send(100) for _ in range(2))
    assert one == two
