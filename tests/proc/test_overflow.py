"""A real node with ten times as many bytes queued as it may use of memory.

    OVERFLOW_MB=10240 pytest -s tests/proc/test_overflow.py      the long form: ten gigabytes on one
"""
from __future__ import annotations

import os
import re
import signal
import time
from itertools import count
from pathlib import Path

from harness import Client, ErrorReply, Node, until

BODIES_MB = int(os.environ.get("OVERFLOW_MB", "1024"))
MEMORY_MB = BODIES_MB // 10
SIZES = (64, 500, 1000, 3000, 10_000)
AT_ONCE = 200


def body(number: int) -> bytes:
    return b"%09d" % number + b"." * (SIZES[number % len(SIZES)] - 9)


def highest_rss_mb(node: Node) -> int:
    """Of the whole life of the process."""
    status = Path(f"/proc/{node.pid}/status").read_text("ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) >> 10


class Line:
    """Numbered bodies go in at one end, and must come out at the other in this order."""

    def __init__(self) -> None:
        self.added = 0
        self.taken = 0

    def add(self, client: Client) -> None:
        ids = client.ask("ADDJOBS", "q", 0, AT_ONCE, *[body(self.added + i) for i in range(AT_ONCE)])
        assert not isinstance(ids, ErrorReply), ids
        self.added += AT_ONCE

    def take(self, client: Client) -> None:
        jobs = client.ask("GETJOB", "NOHANG", "COUNT", AT_ONCE, "FROM", "q")
        for i, (_, _, found) in enumerate(jobs):
            assert found == body(self.taken + i), f"job {self.taken + i} came out as {found[:20]!r}"
        assert client.ask("ACKJOB", *[job[1] for job in jobs]) == len(jobs)
        self.taken += len(jobs)


def test_ten_times_the_memory_is_queued(tmp_path: Path) -> None:
    """Adding and getting go on, also during a rewrite; order is kept; a crash in between loses nothing."""
    flags = ("--dir", str(tmp_path), "--set", f"maxmemory={MEMORY_MB}mb")
    goal = (BODIES_MB << 20) // (sum(SIZES) // len(SIZES)) // AT_ONCE * AT_ONCE
    line = Line()
    node = Node(*flags)
    with node.client() as client:
        began = time.monotonic()
        for turn in count():
            line.add(client)
            if turn % 10 == 0:
                line.take(client)
            if line.added - line.taken >= goal:
                break
        print(f"\n{line.added} jobs added, {line.taken} taken, {time.monotonic() - began:.1f} s")
        assert client.ask("QLEN", "q") == line.added - line.taken
        until(lambda: node.info(client, "persistence")["aof_rewrite_in_progress"] == "0", 600)
        assert client.ask("BGREWRITEAOF") == b"Background append only file rewriting started"
        while node.info(client, "persistence")["aof_rewrite_in_progress"] == "1":
            line.add(client)
            line.take(client)
        facts = node.info(client, "all")
        print({name: value for name, value in facts.items() if name.startswith(("overflow", "used_memory", "step_"))})
        assert facts["aof_last_bgrewrite_status"] == "ok" and facts["overflow_reads_failed"] == "0"
        assert int(facts["used_memory"]) < 0.65 * (MEMORY_MB << 20)
        highest = highest_rss_mb(node)
        print(f"highest rss {highest} MB of {MEMORY_MB}")
        assert highest < 1.5 * MEMORY_MB
    node.signal(signal.SIGKILL)
    node.wait()
    node.stop()
    began = time.monotonic()
    with Node(*flags, wait=False) as node:
        until(lambda: "ready on" in node.log(), 600)
        node.wait_until_ready()
        drain(node, line, time.monotonic() - began)


def drain(node: Node, line: Line, load_s: float) -> None:
    with node.client() as client:
        print(f"loaded after {load_s:.1f} s, highest rss {highest_rss_mb(node)} MB")
        assert client.ask("QLEN", "q") == line.added - line.taken
        began = time.monotonic()
        while line.taken < line.added:
            line.take(client)
        print(f"drained in {time.monotonic() - began:.1f} s, highest rss {highest_rss_mb(node)} MB")
        assert highest_rss_mb(node) < 1.5 * MEMORY_MB
        facts = node.info(client, "all")
        assert facts["overflow_jobs"] == "0" and facts["overflow_needed_bytes"] == "0"
