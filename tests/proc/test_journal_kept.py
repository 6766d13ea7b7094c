"""A real node that keeps what rewrites of its journal have replaced: it can be looked at meanwhile, and is bounded."""
from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from harness import Client, Node, until

KEEP_BYTES = 200_000


def rewrite(node: Node, client: Client) -> None:
    until(lambda: client.ask("BGREWRITEAOF").startswith(b"Background"))  # not while the node does one by itself
    until(lambda: node.info(client, "persistence")["aof_rewrite_in_progress"] == "0")


def kept(node: Node, client: Client) -> int:
    return int(node.info(client, "persistence")["aof_kept_bytes"])


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "journal" / "old").glob("*"))


def test_a_node_keeps_what_its_rewrites_replace(tmp_path: Path) -> None:
    """A job that has ended is found in the old files while the node runs, and after it was killed; there never are more
    than was said, and when nothing is to be kept any more, nothing is."""
    flags = ("--dir", str(tmp_path), "--set", f"journal-keep-bytes={KEEP_BYTES}")
    old = tmp_path / "journal" / "old"

    def dumped() -> str:
        done = subprocess.run([sys.executable, "-m", "holdfast", "journal", "dump", str(old)], capture_output=True,
                              text=True, timeout=60, check=True)
        return done.stdout

    node = Node(*flags)
    try:
        with node.client() as client:
            jid = client.ask("ADDJOB", "q", "done and gone", 0)
            assert client.ask("ACKJOB", jid) == 1
            rewrite(node, client)
            assert kept(node, client) == on_disk(tmp_path) > 0
            assert f"ADD {jid.decode()} queue=q" in dumped()
        node.signal(signal.SIGKILL)
        node.wait()
    finally:
        node.stop()
    with Node(*flags) as node, node.client() as client:
        assert kept(node, client) == on_disk(tmp_path) > 0
        assert jid.decode() in dumped()
        for _ in range(5):
            client.ask("ADDJOBS", "q", 0, 600, *["x" * 100] * 600)
            rewrite(node, client)
            assert kept(node, client) == on_disk(tmp_path) <= KEEP_BYTES
        assert on_disk(tmp_path) > 0 and jid.decode() not in dumped(), "the oldest have gone"
        assert client.ask("CONFIG", "SET", "journal-keep-bytes", 0) == b"OK"
        assert kept(node, client) == on_disk(tmp_path) == 0
        assert client.ask("QLEN", "q") == 3000
        assert node.alarms() == []
