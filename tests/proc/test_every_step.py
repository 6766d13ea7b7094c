"""A job is never lost to a kill, at whichever step of its life: it ends acknowledged or dead, and each attempt counts.

A life has these steps, one after the other; the node is killed (SIGKILL) after each of them, started again on the same
folder, and must know all that it had answered. Then the same with the worker: killed before, during and after
its work, it has used up one attempt, and no more.
"""
from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Client, Node, until


class Life:
    """One job with three attempts, and what must be true of it after the steps that were taken."""

    def __init__(self) -> None:
        self.id = b""
        self.token = b""  # of the lease that runs
        self.stale: list[bytes] = []
        self.failures = 0
        self.is_dead = False
        self.is_done = False

    # -- the steps -----------------------------------------------------------------------------------------

    def add(self, client: Client) -> None:
        self.id = client.ask("ADDJOB", "q", "body", 0, "RETRY", 1, "ATTEMPTS", 3)

    def take(self, client: Client) -> None:
        [[_, taken, _, _, token, *_]] = client.ask("GETJOB", "WITHMETA", "LEASEMS", 60_000, "FROM", "q")
        assert taken == self.id
        self.token = token

    def keep(self, client: Client) -> None:
        assert client.ask("KEEPALIVE", 60_000, self.id, self.token) == [b"ok"]

    def fail(self, client: Client) -> None:
        assert client.ask("NACK", self.id, "TOKEN", self.token, "ERROR", "it broke") == 1
        self.give_up_token()

    def run_out(self, client: Client) -> None:
        """Nothing is heard of the worker: its lease is let end at once."""
        assert client.ask("KEEPALIVE", 1, self.id, self.token) == [b"ok"]
        until(lambda: client.ask("QLEN", "q") == 1)
        self.give_up_token()

    def give_up_token(self) -> None:
        self.stale.append(self.token)
        self.token = b""
        self.failures += 1
        self.is_dead = self.failures == 3

    def send_back(self, client: Client) -> None:
        assert client.ask("DEAD", "RETRY", self.id) == 1
        self.failures = 0
        self.is_dead = False

    def finish(self, client: Client) -> None:
        assert client.ask("ACKJOB", self.id, "TOKEN", self.token, "RESULT", "fine") == 1
        self.stale.append(self.token)
        self.is_done = True

    # -- what must be true ---------------------------------------------------------------------------------

    def check(self, client: Client) -> None:
        [end] = client.ask("WAITJOB", self.id, "NOHANG")
        assert end[1] == (b"done" if self.is_done else b"dead" if self.is_dead else b"waiting")
        if self.is_done:
            assert end[2] == b"fine"
            return
        shown = client.ask("SHOW", self.id)
        told = dict(zip(shown[::2], shown[1::2], strict=True))
        assert told.get(b"failures", 0) == self.failures
        assert [row[0] for row in client.ask("DEAD", "LIST")[1]] == ([self.id] if self.is_dead else [])
        for token in self.stale:
            assert client.ask("KEEPALIVE", 1000, self.id, token) == [b"lost"]
        if self.token:
            assert client.ask("KEEPALIVE", 60_000, self.id, self.token) == [b"ok"]

    def end(self, client: Client) -> None:
        """Whatever is left of it can be done."""
        if self.is_dead:
            self.send_back(client)
        if not self.is_done:
            if not self.token:
                self.take(client)
            self.finish(client)
        self.check(client)


STEPS: list[Callable[[Life, Client], None]] = [
    Life.add, Life.take, Life.keep, Life.fail, Life.take, Life.run_out, Life.take, Life.fail, Life.send_back, Life.take,
    Life.finish,
]


@pytest.mark.parametrize("steps", range(1, len(STEPS) + 1))
def test_a_node_killed_after_a_step_knows_what_it_answered(tmp_path: Path, steps: int) -> None:
    life = Life()
    node = Node("--dir", str(tmp_path))
    try:
        with node.client() as client:
            for step in STEPS[:steps]:
                step(life, client)
            life.check(client)
        node.signal(signal.SIGKILL)
        node.wait()
    finally:
        node.stop()
    with Node("--dir", str(tmp_path)) as again, again.client() as client:
        life.check(client)
        life.end(client)


WORKER = """
import sys, time
import holdfast

q = holdfast.open(sys.argv[1])
job = q.next("q", timeout=30, lease=0.3)
stage = sys.argv[2]

def reached(name):
    if name == stage:
        print(name, flush=True)
        time.sleep(600)

reached("before")
for _ in range(3):
    q.keep([job], 0.3)
    reached("during")
reached("after")
job.done(result="fine")
reached("done")
"""


def killed_at(node: Node, stage: str) -> None:
    """A worker that takes a job, comes to that point, and is killed there."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, f"holdfast://127.0.0.1:{node.port}", stage], stdout=subprocess.PIPE,
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == stage.encode()
    finally:
        worker.kill()
        worker.wait()
        if worker.stdout is not None:
            worker.stdout.close()


def told(client: Client, jid: bytes) -> dict[bytes, Any]:
    shown = client.ask("SHOW", jid)
    return dict(zip(shown[::2], shown[1::2], strict=True))


@pytest.mark.parametrize("stage", ["before", "during", "after"])
def test_a_worker_that_is_killed_uses_up_one_attempt(stage: str) -> None:
    with Node() as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "body", 0, "ATTEMPTS", 2)
        killed_at(node, stage)
        until(lambda: client.ask("QLEN", "q") == 1)
        assert told(client, jid)[b"failures"] == 1
        killed_at(node, stage)
        until(lambda: told(client, jid)[b"state"] == b"dead")
        ways = [each[0] for each in told(client, jid)[b"tries"]]
        assert ways == [b"worker-gone", b"worker-gone"]
        [[_, _, cause, _, failures, _]] = client.ask("DEAD", "LIST")[1]
        assert (cause, failures) == (b"attempts", 2)


def test_a_worker_that_is_killed_after_its_ack_has_done_its_work() -> None:
    with Node() as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "body", 0, "ATTEMPTS", 2)
        killed_at(node, "done")
        assert client.ask("WAITJOB", jid) == [[jid, b"done", b"fine"]]
        assert client.ask("QLEN", "q") == 0
