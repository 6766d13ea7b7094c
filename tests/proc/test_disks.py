"""Real file systems that fail a node: one that is full, one that is read-only, one that cannot sync.

The first two are mounts of their own, in a namespace that a process of ours holds open: nodes are started in it, and
the test sees it through that process. The third is the C library's `fsync`, replaced (failing_sync.c). What a node may
not do by its permissions is in test_folders.py.
"""
from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Client, ErrorReply, Node, until

HERE = Path(__file__).resolve().parent
DISK_KB = 4096
BALLAST_KB = 1024


class SmallDisk:
    """A file system of four megabytes at `path`, for those who are started with `prefix`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        me = [] if os.getuid() == 0 else ["--map-root-user"]
        self.holder = subprocess.Popen(
            ["unshare", "--mount", *me, "sh", "-c",
             f"mount -t tmpfs -o size={DISK_KB}k none {path} && echo mounted && exec sleep infinity"],
            stdout=subprocess.PIPE, text=True,
        )
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == "mounted\n", "no file system can be mounted here"
        into_user = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        self.prefix = ["nsenter", "--target", str(self.holder.pid), "--mount", *into_user, "--wdns=/"]
        self.ballast = Path(f"/proc/{self.holder.pid}/root{path}/ballast")

    def run(self, *words: str) -> None:
        subprocess.run([*self.prefix, *words], check=True)

    def node(self, *flags: str) -> Node:
        return Node("--dir", str(self.path / "data"), *flags, prefix=self.prefix)

    def put_ballast(self) -> None:
        self.ballast.write_bytes(bytes(BALLAST_KB << 10))

    def end(self) -> None:
        self.holder.terminate()
        self.holder.wait()
        assert self.holder.stdout is not None
        self.holder.stdout.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    found = SmallDisk(tmp_path)
    yield found
    found.end()


def kill(node: Node) -> None:
    node.signal(signal.SIGKILL)
    node.wait()
    node.stop()


def fill(client: Client, kept: list[bytes]) -> bytes:
    """Add until the node refuses; what it says. What it did not refuse is in `kept`."""
    def is_refused() -> bytes | None:
        answer = client.ask("ADDJOB", "q", os.urandom(20_000), 0)
        if isinstance(answer, ErrorReply):
            return answer
        kept.append(answer)
        return None

    return until(is_refused)


def queued(client: Client) -> set[bytes]:
    return {each[1] for each in client.ask("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "q") or []}


@pytest.mark.parametrize("policy", ["everysec", "adds"])
def test_a_full_disk_refuses_and_recovers_when_there_is_room(disk: SmallDisk, policy: str) -> None:
    """Until then jobs can be looked at. With `adds` the one that found the disk full gets no answer at all."""
    kept: list[bytes] = []
    disk.put_ballast()
    node = disk.node("--set", f"appendfsync={policy}")
    with node.client() as client, node.client() as other:
        try:
            refusal = fill(client, kept)
        except EOFError:
            assert policy == "adds", "an answer was held back though nobody had to wait for the disk"
            refusal = fill(other, [])
        assert refusal.startswith(b"MISCONF the journal cannot be written (No space left on device)")
        assert other.ask("QLEN", "q") >= len(kept)
        assert other.ask("GETJOB", "FROM", "q").startswith(b"MISCONF"), "a hand-out would be forgotten"
        assert other.ask("BGREWRITEAOF") and node.info(other, "persistence")["aof_last_write_status"] == "err"
        disk.ballast.unlink()
        kept.append(until(lambda: answer if not isinstance(
            answer := other.ask("ADDJOB", "q", "after", 0), ErrorReply) else None))
        assert node.info(other, "persistence")["aof_last_write_status"] == "ok"
    kill(node)
    with disk.node() as node, node.client() as client:
        assert len(kept) > 50 and set(kept) <= queued(client), "an answered job is gone"


def test_a_node_does_not_start_on_a_full_disk_and_loses_nothing_by_trying(disk: SmallDisk) -> None:
    with disk.node() as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "kept", 0)
    disk.run("sh", "-c", f"cat /dev/zero > {disk.path}/ballast 2>/dev/null; true")
    with pytest.raises(AssertionError, match="did not start") as failed:
        disk.node()
    assert "No space left on device" in str(failed.value) and str(disk.path) in str(failed.value)
    assert "Traceback" not in str(failed.value)
    disk.ballast.unlink()
    with disk.node() as node, node.client() as client:
        assert queued(client) == {jid}


def test_a_node_does_not_start_on_a_read_only_disk_and_says_so(disk: SmallDisk) -> None:
    with disk.node() as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "kept", 0)
    disk.run("mount", "-o", "remount,ro", str(disk.path))
    with pytest.raises(AssertionError, match="did not start") as failed:
        disk.node()
    assert "Read-only file system" in str(failed.value) and str(disk.path) in str(failed.value)
    assert "Traceback" not in str(failed.value)
    disk.run("mount", "-o", "remount,rw", str(disk.path))
    with disk.node() as node, node.client() as client:
        assert queued(client) == {jid}


def test_a_journal_cannot_be_switched_on_without_room(disk: SmallDisk) -> None:
    """The node goes on without one, as it was, and says why."""
    disk.put_ballast()
    with disk.node("--set", "appendonly=no") as node, node.client() as client:
        for _ in range(40):
            client.ask("ADDJOBS", "q", 0, 10, *[os.urandom(10_000)] * 10)
        assert client.ask("CONFIG", "SET", "appendonly", "yes") == b"OK"
        until(lambda: "the journal stays off: No space left on device" in node.log())
        assert client.ask("CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]
        assert client.ask("ADDJOB", "q", "after", 0).startswith(b"DI") and client.ask("QLEN", "q") == 401
        assert client.ask("QFLUSH", "q") == 401
        assert client.ask("CONFIG", "SET", "appendonly", "yes") == b"OK"
        until(lambda: node.info(client, "persistence")["aof_state"] == "on")


@pytest.mark.parametrize("policy", ["everysec", "always"])
def test_a_failed_sync_refuses_until_a_restart_and_is_never_tried_again(
    tmp_path: Path, failing_sync: Path, policy: str
) -> None:
    """What the disk has then nobody knows: what was answered before is there, the rest may be."""
    switch = tmp_path / "fails"
    environ = {"LD_PRELOAD": str(failing_sync), "FAILING_SYNC": str(switch)}
    flags = ("--dir", str(tmp_path / "data"), "--set", f"appendfsync={policy}")
    node = Node(*flags, env=environ)
    with node.client() as client, node.client() as other:
        kept = [client.ask("ADDJOB", "q", "before", 0)]
        switch.touch()
        answer = b""
        try:
            answer = client.ask("ADDJOB", "q", "meanwhile", 0)
        except EOFError:
            assert policy == "always"
        assert answer == b"" or policy == "everysec", "an answer left without its sync"
        refusal = until(lambda: found if isinstance(
            found := other.ask("ADDJOB", "q", "x", 0, "RETRY", 1), ErrorReply) else None)
        assert refusal.startswith(b"MISCONF the disk failed") and b"Input/output error" in refusal
        asked = switch.stat().st_size
        assert asked == 1
        switch.unlink()
        assert other.ask("ADDJOB", "q", "refused", 0).startswith(b"MISCONF the disk failed"), "it is not forgiven"
        assert other.ask("QLEN", "q") >= 1, "reading goes on"
        assert "The node must be started again" in node.log()
    node.stop()
    with Node(*flags) as node, node.client() as client:
        assert set(kept) <= queued(client)
        assert client.ask("ADDJOB", "q", "again", 0).startswith(b"DI")
