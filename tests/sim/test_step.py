"""step() as a function: what it says of each event, and that the same events say the same again."""
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from holdfast.core.limits import NEVER
from holdfast.core.step import Connect, Do, Effects, Gone, Tick, step

from .rules import random_run
from .world import START_MS, new_node

SEEDS = range(1, 200, 20)
STEPS = 100


def test_what_each_event_says() -> None:
    node = new_node()
    assert step(node, START_MS, Connect("a")) == Effects(1, None, True, [], [], NEVER)
    assert step(node, START_MS, Connect("b")).session == 2
    waits = step(node, START_MS, Do(1, [b"GETJOB", b"TIMEOUT", b"500", b"FROM", b"q"]))
    assert (waits.reply, waits.was_run, waits.next_wake) == (None, True, START_MS + 500)
    assert not step(node, START_MS, Do(1, [b"PING"])).was_run
    assert step(node, START_MS + 499, Tick()).wakeups == []
    assert step(node, START_MS + 500, Tick()).wakeups == [(1, b"*-1\r\n")]
    assert step(node, START_MS + 500, Do(1, [b"PING"])).reply == b"+PONG\r\n"
    assert step(node, START_MS + 500, Do(1, [b"CLIENT", b"REPLY", b"OFF"])).reply == b""
    assert step(node, START_MS + 500, Do(2, [b"QUIT"])).requests == [("close", 2, b"")]
    assert step(node, START_MS + 500, Gone(2)).next_wake == START_MS + 300_000
    assert list(node.sessions) == [1]


def test_an_added_job_is_a_reply_and_a_wakeup() -> None:
    node = new_node()
    for name in "ab":
        step(node, START_MS, Connect(name))
    step(node, START_MS, Do(1, [b"GETJOB", b"FROM", b"q"]))
    effects = step(node, START_MS, Do(2, [b"ADDJOB", b"q", b"body", b"0"]))
    assert effects.reply is not None and len(effects.reply) == 51
    jid = effects.reply[1:-2]
    assert effects.wakeups == [(1, b"*1\r\n*3\r\n$1\r\nq\r\n$48\r\n%b\r\n$4\r\nbody\r\n" % jid)]


def run_again(seed: int) -> tuple[list[Effects], list[Effects]]:
    """A run as it was, partly through direct handlers, and its events once more, all through step()."""
    world = random_run(seed, STEPS)
    settings = world.node.config.text
    node = new_node(seed, settings("maxmemory"), settings("maxmemory-policy"))
    return world.effects, [step(node, now, event) for now, event in world.events]


def digest() -> str:
    total = hashlib.sha256()
    for seed in SEEDS:
        total.update(repr(run_again(seed)[1]).encode())
    return total.hexdigest()


def test_the_same_events_have_the_same_effects() -> None:
    for seed in SEEDS:
        before, after = run_again(seed)
        assert before == after


def test_no_order_comes_from_hashes() -> None:
    found = {digest()}
    for hash_seed in ("1", "2"):
        made = subprocess.run(
            [sys.executable, "-c", "from sim.test_step import digest; print(digest())"],
            cwd=Path(__file__).parent.parent, env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, timeout=120, check=True,
        )
        found.add(made.stdout.strip())
    assert len(found) == 1
