"""A worker, or its node, is killed at each step of a job's life: it ends acknowledged or dead, its tries counted."""
from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Client, Node, until

WORKER = """
import socket, sys
port, step = int(sys.argv[1]), sys.argv[2]
link = socket.create_connection(("127.0.0.1", port))
link.sendall(b"GETJOB WITHMETA LEASEMS 700 FROM q\\r\\n")
data = b""
while b"DI" not in data or b"keys" not in data:
    data += link.recv(65536)
id = data[data.index(b"DI"):][:48]
token = data[data.index(b"token"):].split(b"\\r\\n")[2]
def here(at):
    print(at, flush=True)
    if at == step:
        sys.stdin.read()  # killed here, or told to go on
here("before")
here("during")
here("after")
link.sendall(b"ACKJOB %b TOKEN %b\\r\\n" % (id, token))
print("acked", link.recv(100), flush=True)
"""
STEPS = ["before", "during", "after"]


@contextlib.contextmanager
def worker(node: Node, step: str) -> Iterator[subprocess.Popen[str]]:
    """Stands still at a step; killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(node.port), step], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def reach(process: subprocess.Popen[str], step: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(step):
            return
    raise AssertionError(f"the worker never came to {step}")


def end_of(client: Client, jid: bytes) -> tuple[str, int]:
    """How it ended, and how many tries of it are known to have failed: work it off if need be."""
    failures = 0

    def look() -> tuple[str, int] | None:
        nonlocal failures
        listed = client.ask("DEAD", "LIST", "QUEUE", "q")[1]
        for row in listed:
            if row[0] == jid:
                return "dead", int(row[4])
        for job in client.ask("GETJOB", "NOHANG", "WITHMETA", "FROM", "q") or []:
            meta: dict[bytes, Any] = dict(zip(job[3::2], job[4::2]))
            failures = meta[b"attempt"] - 1
            assert client.ask("ACKJOB", job[1], "TOKEN", meta[b"token"]) == 1
            return "acked", failures
        return None

    return until(look, 20.0)


@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_at_a_step(step: str) -> None:
    """Its connection ends, its lease does, and somebody else does the work; the try that failed is counted."""
    with Node() as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "body", 0, "RETRY", 1, "ATTEMPTS", 5)
        with worker(node, step) as process:
            reach(process, step)
        assert end_of(client, jid) == ("acked", 1)


@pytest.mark.parametrize("step", STEPS)
def test_workers_killed_until_the_job_is_dead(step: str) -> None:
    with Node() as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "body", 0, "RETRY", 1, "ATTEMPTS", 3)
        for _ in range(3):
            with worker(node, step) as process:
                reach(process, step)
        assert until(lambda: next((row for row in client.ask("DEAD", "LIST")[1] if row[0] == jid), None), 20.0)[4] == 3
        assert client.ask("GETJOB", "NOHANG", "FROM", "q") is None


@pytest.mark.parametrize("step", STEPS)
def test_a_node_killed_at_a_step(step: str, tmp_path: Path) -> None:
    """What it had handed out it knows after its restart: the job comes back when the lease is over, and ends."""
    flags = ("--dir", str(tmp_path), "--set", "appendfsync=always")
    node = Node(*flags)
    try:
        with node.client() as client:
            jid = client.ask("ADDJOB", "q", "body", 0, "RETRY", 1, "ATTEMPTS", 5)
            with worker(node, step) as process:
                reach(process, step)
                node.signal(signal.SIGKILL)
                node.wait()
    finally:
        node.stop()
    with Node(*flags) as again, again.client() as client:
        assert end_of(client, jid) == ("acked", 1)
