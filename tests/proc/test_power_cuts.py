"""Real nodes that lose their power: of each file what was synced is left, and perhaps some bytes more.

A library tells what was synced (failing_sync.c); the test kills the node and cuts its files.
"""
from __future__ import annotations

import signal
from pathlib import Path

import pytest
from harness import Node, until

from holdfast.journal.format import HEADER_BYTES


class Machine:
    """A folder and the power it hangs on."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder / "data"
        self.list = folder / "synced"
        self.environ = {"LD_PRELOAD": str(library), "SYNCED": str(self.list)}

    def start(self, *settings: str) -> Node:
        flags = [word for setting in settings for word in ("--set", setting)]
        return Node("--dir", str(self.folder), *flags, env=self.environ)

    def kill(self, node: Node) -> None:
        node.signal(signal.SIGKILL)
        node.wait()
        node.stop()

    def synced(self) -> dict[Path, int]:
        """The last size of each file that is safe."""
        lines = [line.split(" ", 1) for line in self.list.read_text().splitlines()]
        return {Path(path): int(size) for size, path in lines}

    def cut_power(self, node: Node, more: int = 0) -> int:
        """How many bytes were lost."""
        self.kill(node)
        safe = self.synced()
        lost = 0
        for path in (self.folder / "journal").glob("*.*"):
            size = path.stat().st_size
            left = min(size, safe.get(path, 0) + more)
            lost += size - left
            path.write_bytes(path.read_bytes()[:left])
        return lost


@pytest.mark.parametrize("more", [0, 3, 40])
@pytest.mark.parametrize("policy", ["everysec", "adds"])
def test_a_crash_a_restart_and_a_power_cut_lose_nothing_that_was_back(
    tmp_path: Path, failing_sync: Path, policy: str, more: int
) -> None:
    """Killed a moment after the answer, started, and after some work the power goes, in the middle of a batch. What the
    second start had found is there at the third, which needs nobody."""
    machine = Machine(tmp_path, failing_sync)
    node = machine.start(f"appendfsync={policy}")
    with node.client() as client:
        ids = [client.ask("ADDJOB", "q", f"job {number}", 0) for number in range(5)]
        assert client.ask("ACKJOB", ids[0]) == 1
    machine.kill(node)
    node = machine.start(f"appendfsync={policy}")
    with node.client() as client:
        assert client.ask("QLEN", "q") == 4
        assert client.ask("ACKJOB", ids[1]) == 1
        until(lambda: machine.synced().get(machine.folder / "journal" / "00000002.log", 0) > HEADER_BYTES)
        client.ask("PAUSE", "q", "in")
    machine.cut_power(node, more)
    with machine.start() as node, node.client() as client:
        found = client.ask("GETJOB", "NOHANG", "COUNT", 100, "FROM", "q") or []
        assert {each[1] for each in found} == set(ids[2:])


def test_a_power_cut_under_always_loses_no_answer_and_needs_nobody(tmp_path: Path, failing_sync: Path) -> None:
    machine = Machine(tmp_path, failing_sync)
    kept: list[bytes] = []
    for more in (0, 1, 19, 21, 50):
        node = machine.start("appendfsync=always")
        with node.client() as client:
            kept += [client.ask("ADDJOB", "q", "x", 0) for _ in range(3)]
        machine.cut_power(node, more)
    with machine.start() as node, node.client() as client:
        found = client.ask("GETJOB", "NOHANG", "COUNT", 100, "FROM", "q")
        assert [each[1] for each in found] == kept
