"""A queue gets its own journal and gives it back, again and again, on a real disk, and each time the node is killed.

MOVES_S says for how long; a crash at every single step is simulated in tests/unit/journal/test_own.py.
"""
from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from harness import Node, until
from told import Memory, check, work

MOVES_S = float(os.environ.get("MOVES_S", "12"))
MOVES_MIN = 4
DONE = {"own": "has its own journal", "shared": "in the journal of the node again"}
MOMENT_S = 0.01
"""Some of the slices of a move, of which there are about a hundred."""
REWRITES = 0.0005
"""One or two in a life of the node: a rewrite puts a move off until it is over, so more would leave nothing to kill."""
MOVE_S = 3.0
"""More than a move takes. Where the one before was killed too late, there is none to wait for."""
BEGIN_S = 1.6
"""It begins with the next tick, if there is anything to move."""


def shared_bytes(folder: Path) -> int:
    found = 0
    for path in (folder / "journal").glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # a rewrite has just replaced it
            found += path.stat().st_size
    return found


def wait_for_move(folder: Path, way: str, before: tuple[set[str], int]) -> bool:
    """Until a folder has been made, or more than a slice has come back; False: it seems that nothing is to be moved."""
    folders, size = before
    end = time.monotonic() + BEGIN_S
    while time.monotonic() < end:
        if way == "own" and {path.name for path in (folder / "queues").glob("*")} - folders:
            return True
        if way == "shared" and shared_bytes(folder) > size + 100_000:
            return True
        time.sleep(0.001)
    return False


def one_life(folder: Path, node: Node, memory: Memory, dice: random.Random, rounds: int) -> str:
    """The queue is to have the other journal, clients go on meanwhile, and the node is killed; how far it had come."""
    way = ("own", "own", "shared", "shared")[rounds % 4]
    is_cut_short = rounds % 2 == 0  # and the next life goes on with it, by itself
    with node.client() as client:
        check(client, memory)
        before = {path.name for path in (folder / "queues").glob("*")}, shared_bytes(folder)
        assert client.ask("QUEUE", "SET", "q", "journal", way, "fsync", "always") == b"OK"
    seeds = (10 * rounds, 10 * rounds + 1)
    workers = [threading.Thread(target=work, args=(node.port, memory, seed, REWRITES), daemon=True) for seed in seeds]
    for worker in workers:
        worker.start()
    is_begun = wait_for_move(folder, way, before)
    end = time.monotonic() + MOVE_S
    while not is_cut_short and DONE[way] not in node.log() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(dice.uniform(0, MOMENT_S))  # the moment of the kill: any will do
    node.signal(signal.SIGKILL)
    node.wait()
    for worker in workers:
        worker.join(15)
    return f"{way} {'not begun' if not is_begun else 'done' if DONE[way] in node.log() else 'cut short'}"


def test_a_node_killed_while_a_queue_changes_its_journal_keeps_every_word(tmp_path: Path) -> None:
    """The queue has so many jobs that a move takes dozens of slices, others add, get and acknowledge meanwhile, and now
    and then the journal is rewritten, which puts the move off."""
    flags = ("--dir", str(tmp_path), "--set", "journal-segment-bytes=256kb", "--set", "auto-aof-rewrite-min-size=8mb")
    memory = Memory()
    dice = random.Random(4)
    with Node(*flags) as node, node.client() as client:
        for _ in range(8):  # these lie there all the time, and are moved each time
            found = client.ask("ADDJOBS", "q", 0, 250, *["x" * 3000] * 250, "DELAY", 3600)
            memory.added.update(found)
    assert len(memory.added) == 2000
    ended: Counter[str] = Counter()
    began = time.monotonic()
    rounds = 0
    while rounds < MOVES_MIN or time.monotonic() < began + MOVES_S:
        node = Node(*flags)
        try:
            ended[one_life(tmp_path, node, memory, dice, rounds)] += 1
        finally:
            node.stop()
        rounds += 1
    with Node(*flags) as node, node.client() as client:
        check(client, memory)
        for way in ("own", "shared"):
            assert client.ask("QUEUE", "SET", "q", "journal", way) == b"OK"
            until(lambda way=way: len(list((tmp_path / "queues").glob("*"))) == (way == "own"))
            check(client, memory)
    print(f"{rounds} kills: {dict(ended)}; {len(memory.added)} jobs kept, {len(memory.ended)} acknowledged")
    assert ended["own cut short"] and ended["shared cut short"], "no kill came in the middle of a move"
    assert memory.once and memory.ended
