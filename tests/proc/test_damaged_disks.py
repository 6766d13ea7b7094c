"""Real clusters in which a disk has changed what it was given: one bit, a sector, a header. Nobody is needed.

A node that is alone stops, with words that name the next command.
"""
from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_harness import Cluster, Member, until
from harness import ErrorReply, Node

SETTINGS = {
    "cluster-node-timeout": "2000", "appendfsync": "everysec", "heal-after-ms": "2000", "maxmemory": "1gb",
    "journal-segment-bytes": "64kb",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, 3, SETTINGS)
    yield found
    found.stop()


def journal(node: Member) -> Path:
    return node.folder / "data" / "journal"


def facts(node: Member) -> dict[str, str]:
    text = node.ask("INFO", "persistence").decode()
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


def spoil(path: Path, begin: int, size: int) -> None:
    data = bytearray(path.read_bytes())
    data[begin:begin + size] = bytes(each ^ 0xa5 for each in data[begin:begin + size])
    path.write_bytes(data)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def wait_until_sure(node: Member) -> None:
    until(lambda: facts(node)["aof_jobs_doubtful"] == "0")


def drain(cluster: Cluster, queue: str, wanted: set[bytes]) -> dict[bytes, int]:
    """Take and acknowledge what comes at any node until all that is wanted has come, and then nothing more; how often
    each came."""
    got: dict[bytes, int] = {}

    def take() -> bool:
        for node in cluster:
            for _, jid, _ in node.ask("GETJOB", "TIMEOUT", 300, "COUNT", 500, "FROM", queue) or []:
                got[jid] = got.get(jid, 0) + 1
                assert node.ask("ACKJOB", jid) in (0, 1)
        return wanted <= set(got)

    until(take, 60)
    size = 0
    while size != len(got):
        size = len(got)
        take()
    return got


def restart_damaged(node: Member, how: str) -> None:
    """It was killed; its disk changes something; it starts again by itself."""
    files = sorted(journal(node).glob("*.log"))
    if how == "a bit of each file":
        for path in files:
            flip(path, path.stat().st_size // 2)
    elif how == "a sector":
        spoil(files[0], 4096, 512)
    elif how == "the headers":
        for path in files:
            path.write_bytes(bytes(64) + path.read_bytes()[64:])
    else:
        files[0].unlink()
    node.start()


@pytest.mark.parametrize("how", ["a bit of each file", "a sector", "the headers", "a file"])
def test_damage_at_one_of_three_nodes_loses_nothing_and_needs_nobody(cluster: Cluster, how: str) -> None:
    """Some jobs are acknowledged elsewhere before the disk changes, and some while its node is down."""
    jobs = [node.add("q", "x" * 200, "RETRY", 5) for _ in range(100) for node in cluster]
    early, late, left = set(jobs[:60]), set(jobs[60:120]), set(jobs[120:])
    for job in early:
        assert cluster[1].ask("ACKJOB", job) == 1
    until(lambda: cluster[0].known_jobs() == len(late | left))
    victim = cluster[0]
    victim.kill()
    for job in late:
        assert cluster[1].ask("ACKJOB", job) == 1
    restart_damaged(victim, how)
    wait_until_sure(victim)
    assert int(facts(victim)["aof_damages_found"]) > 0
    assert re.search("ERROR .*the journal is damaged: .*journal/0", victim.log())
    until(lambda: facts(victim)["aof_damaged_files"] == "0")
    assert facts(victim)["aof_set_aside_files"] == str(len(list(journal(victim).glob("*.damaged"))))
    got = drain(cluster, "q", left)
    assert not set(got) & (early | late), f"{len(set(got) & (early | late))} acknowledged jobs came back"
    assert "CRITICAL" not in victim.log() and "Traceback" not in victim.log()
    victim.kill()
    victim.start()
    assert "the journal is damaged" not in victim.log(), "and again at the next start"


def test_an_at_most_once_job_that_cannot_be_accounted_for_is_dead_in_doubt(cluster: Cluster) -> None:
    victim = cluster[0]
    out = victim.add("once", "out", "RETRY", 0)
    assert victim.get("once") == out
    for _ in range(40):
        victim.add("q", "x" * 200)
    victim.kill()
    path = sorted(journal(victim).glob("*.log"))[0]
    data = path.read_bytes()
    at = data.index(b"out") + 10
    spoil(path, at, 40)
    victim.start()
    wait_until_sure(victim)
    assert victim.has_none("once"), "handed out twice"
    [row] = victim.ask("DEAD", "LIST")[1]
    assert row[0] == out and b"in doubt" in row


def test_a_failed_sync_makes_a_node_give_up_its_place(cluster: Cluster, failing_sync: Path) -> None:
    """The others see that, and hand out what it had; it says what to do."""
    victim, other = cluster[0], cluster[1]
    switch = cluster.folder / "fails"
    victim.stop()
    victim.environ = {"LD_PRELOAD": str(failing_sync), "FAILING_SYNC": str(switch)}
    victim.start()
    until(cluster.is_whole)
    job = victim.add("q", "x", "RETRY", 2)
    switch.touch()
    until(lambda: isinstance(victim.ask("ADDJOB", "q", "y", 0, "REPLICATE", 1, "RETRY", 1), ErrorReply))
    until(lambda: "fail" in other.flags()[victim.id] or "disconnected" in other.flags()[victim.id])
    assert other.get("q") == job
    assert other.ask("ACKJOB", job) == 1
    assert re.search("CRITICAL .*has left its cluster: its disk has failed.*start the node with the same folder",
                     victim.log())
    assert victim.ask("ADDJOB", "q", "z", 0).startswith(b"MISCONF the disk failed")
    assert victim.ask("INFO", "persistence")
    switch.unlink()
    victim.kill()
    victim.environ = {}
    victim.start()
    until(cluster.is_whole)
    assert victim.add("q", "again")


def test_a_file_that_changes_while_the_node_runs_is_found_and_written_anew(cluster: Cluster) -> None:
    """A bit of a closed segment, which no start has to read: the scrub finds it; doctor and the metrics say so."""
    victim = cluster[0]
    assert victim.ask("CONFIG", "SET", "journal-scrub-bytes", "16mb") == b"OK"
    jobs = {victim.add("q", "x" * 1000, "RETRY", 5) for _ in range(150)}
    path = journal(victim) / "00000001.log"
    until(lambda: (journal(victim) / "00000002.log").exists())
    until(lambda: int(facts(victim)["aof_scrubbed_files"]) > 0)
    spoil(path, 20_000, 3)
    until(lambda: facts(victim)["aof_damages_found"] == "1" and facts(victim)["aof_damaged_files"] == "0")
    assert "00000001.log: bytes " in victim.log() and "is set aside as 00000001.log.damaged" in victim.log()
    doctor = subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", "--json", "--connect", f"holdfast://127.0.0.1:{victim.port}"],
        capture_output=True, text=True, check=False, timeout=60,
    )
    assert "1 damaged file of the journal is set aside" in doctor.stdout, doctor.stdout
    victim.kill()
    victim.start()
    assert "the journal is damaged" not in victim.log()
    assert set(drain(cluster, "q", jobs)) == jobs


def test_a_node_that_is_alone_stops_and_says_what_to_do(tmp_path: Path) -> None:
    """4d, 4e: even if the only header is gone `repair` has something to go by, and ends with what comes next."""
    node = Node("--dir", str(tmp_path), "--set", "appendfsync=always")
    with node.client() as client:
        jobs = {client.ask("ADDJOB", "q", f"job {number}", 0) for number in range(10)}
    node.signal(signal.SIGKILL)
    node.wait()
    node.stop()
    path = tmp_path / "journal" / "00000001.log"
    path.write_bytes(bytes(64) + path.read_bytes()[64:])

    def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=False, timeout=60)

    stopped = holdfast("node", "--port", "0", "--dir", str(tmp_path))
    assert stopped.returncode == 1 and "Traceback" not in stopped.stderr
    assert f"`holdfast journal repair {tmp_path / 'journal'}`" in stopped.stderr
    assert holdfast("journal", "check", str(tmp_path)).returncode == 1
    mended = holdfast("journal", "repair", str(tmp_path))
    assert mended.returncode == 0, mended.stderr
    assert "Next:\n1. Start the node" in mended.stdout and "holdfast dead list --cause 'in doubt'" in mended.stdout
    assert holdfast("journal", "check", str(tmp_path)).returncode == 0
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert {each[1] for each in client.ask("GETJOB", "COUNT", 100, "FROM", "q")} == jobs
