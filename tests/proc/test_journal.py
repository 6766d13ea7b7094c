"""Real nodes with journals on a real disk: killed at random, restarted under load, with no room, in the way.

KILLS says how often the node is killed; `make show PART=journal` says 200.
"""
from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Client, ErrorReply, Node, until
from told import Memory, check, work

import holdfast

KILLS = int(os.environ.get("KILLS", "25"))


@contextlib.contextmanager
def doomed(*flags: str) -> Iterator[tuple[Node, Client]]:
    """A node that is killed at the end of the block, without a word."""
    node = Node(*flags)
    try:
        with node.client() as client:
            yield node, client
    finally:
        node.signal(signal.SIGKILL)
        node.wait()
        node.stop()


@pytest.mark.parametrize("policy", ["everysec", "always"])
def test_a_node_killed_at_random_keeps_every_word(tmp_path: Path, policy: str) -> None:
    """SIGKILL while clients add, get and acknowledge, segments rotate and the journal is rewritten; again and again
    with the same folder."""
    memory = Memory()
    dice = random.Random(1)
    for life in range(KILLS):
        node = Node(
            "--dir", str(tmp_path), "--set", f"appendfsync={policy}", "--set", "journal-segment-bytes=64kb",
            "--set", "auto-aof-rewrite-min-size=200kb",
        )
        with node.client() as client:
            check(client, memory)
        workers = [threading.Thread(target=work, args=(node.port, memory, 10 * life + n)) for n in range(3)]
        for worker in workers:
            worker.start()
        # The moment of the kill: any will do, after some work however slow the machine is.
        enough = len(memory.added) + dice.randrange(5, 50)
        until(lambda enough=enough: len(memory.added) >= enough)
        time.sleep(dice.uniform(0, 0.02))
        node.signal(signal.SIGKILL)
        node.wait()
        for worker in workers:
            worker.join(15)
        node.stop()
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        check(client, memory)
    assert len(memory.added) > 10 * KILLS and len(memory.ended) > 5 * KILLS and memory.out


def test_a_clean_restart_under_load_doubles_no_job_in_flight(tmp_path: Path) -> None:
    """Workers hold jobs while others add, get and acknowledge, and the node is stopped and started in the middle of
    it. Nobody gets a job that another one has, and none is lost."""
    got: dict[bytes, int] = {}  # by job, how often it was handed out
    added: list[bytes] = []
    memory = Memory()

    def work(port: int) -> None:
        with contextlib.suppress(OSError, EOFError), Client(("127.0.0.1", port)) as client:
            while True:
                jid = client.ask("ADDJOB", "q", "x", 0, "RETRY", 600)
                with memory.lock:
                    added.append(jid)
                for _, jid, _ in client.ask("GETJOB", "NOHANG", "COUNT", 2, "FROM", "q") or []:
                    with memory.lock:
                        got[jid] = got.get(jid, 0) + 1
                        is_held = len(got) % 3 == 0
                    if not is_held:
                        client.ask("ACKJOB", jid)

    for _ in range(3):
        with Node("--dir", str(tmp_path)) as node:
            workers = [threading.Thread(target=work, args=(node.port,)) for _ in range(4)]
            before = len(added)
            for worker in workers:
                worker.start()
            until(lambda before=before: len(added) > before + 300)
        for worker in workers:
            worker.join(15)
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        while found := client.ask("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "q"):
            for _, jid, _ in found:
                got[jid] = got.get(jid, 0) + 1
        assert not [jid for jid, count in got.items() if count > 1], "a job in flight was doubled"
        unseen = set(added) - set(got)  # handed out by a reply that the end of the node cut off: its lease runs
        assert len(unseen) <= 3 * 4 * 2
        assert all(client.ask("SHOW", jid) is not None for jid in unseen), "a job was lost"


def test_a_node_that_loads_says_so_with_a_percent(tmp_path: Path) -> None:
    with doomed("--dir", str(tmp_path)) as (node, client):
        for _ in range(30):
            client.ask("ADDJOBS", "q", 0, 10_000, *["x"] * 10_000)
    with Node("--dir", str(tmp_path), port=node.port, wait=False) as again:
        again.port = node.port
        replies = []

        def is_loaded() -> bool:
            try:
                with again.client() as client:
                    replies.append(client.ask("QLEN", "q"))
                    while isinstance(replies[-1], ErrorReply):
                        replies.append(client.ask("QLEN", "q"))
                    return True
            except ConnectionRefusedError:
                return False

        until(is_loaded)
        assert replies[-1] == 300_000
        refusals = {reply for reply in replies if isinstance(reply, ErrorReply)}
        assert len(refusals) > 3
        assert all(reply.startswith(b"LOADING the node is reading its journal, ") for reply in refusals)
        again.wait_until_ready()


def test_a_disk_without_room_refuses_and_recovers(tmp_path: Path) -> None:
    """No file may grow beyond where it is: what a full disk is to a node. Then there is room again."""
    with doomed("--dir", str(tmp_path)) as (node, client):
        kept = [client.ask("ADDJOB", "q", "before", 0)]
        size = (tmp_path / "journal" / "00000001.log").stat().st_size
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        answers = [client.ask("ADDJOB", "q", "no room", 0) for _ in range(3)]
        assert answers[-1].startswith(b"MISCONF the journal cannot be written (File too large)")
        kept += [answer for answer in answers if not isinstance(answer, ErrorReply)]
        assert node.info(client, "persistence")["aof_last_write_status"] == "err"
        assert client.ask("QLEN", "q") == len(kept)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        kept.append(until(lambda: answer if not isinstance(
            answer := client.ask("ADDJOB", "q", "after", 0), ErrorReply) else None))
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert {each[1] for each in client.ask("GETJOB", "COUNT", 100, "FROM", "q")} == set(kept)


def test_with_always_an_answer_that_cannot_be_kept_is_not_given(tmp_path: Path) -> None:
    flags = ("--dir", str(tmp_path), "--set", "appendfsync=always")
    with Node(*flags) as node, node.client() as client, node.client() as other:
        client.ask("ADDJOB", "q", "before", 0)
        size = (tmp_path / "journal" / "00000001.log").stat().st_size
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        with pytest.raises(EOFError):
            client.ask("ADDJOB", "q", "not answered", 0)
        assert other.ask("ADDJOB", "q", "refused", 0).startswith(b"MISCONF")
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: not isinstance(other.ask("ADDJOB", "q", "after", 0), ErrorReply))


@pytest.mark.parametrize("flags", [["--dir", "{dir}"], ["--dir", "{dir}", "--set", "appendfsync=always"]])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, flags: list[str]) -> None:
    """Something is in the way of the first segment."""
    (tmp_path / "journal" / "00000001.log").mkdir(parents=True)
    words = [word.format(dir=tmp_path) for word in flags]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "node", "--port", "0", *words], capture_output=True, text=True, timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "00000001.log" in done.stderr and "Traceback" not in done.stderr


def test_two_nodes_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with Node("--dir", str(tmp_path)):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "node", "--port", "0", "--dir", str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=False,
        )
        assert done.returncode == 1
        assert f"the folder {tmp_path} is used by another node" in done.stderr


def test_what_was_embedded_can_be_served(tmp_path: Path) -> None:
    """Promotion: a queue in a folder, then a node with that folder, then a queue again."""
    with holdfast.open(f"file:{tmp_path}") as q:
        job_id = q.add("emails", "hello")
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert client.ask("SHOW", str(job_id)) is not None
        client.ask("ADDJOB", "emails", "from afar", 0)
    with holdfast.open(f"file:{tmp_path}") as q:
        for text in ("hello", "from afar"):
            with q.next("emails", timeout=5) as job:
                assert job.text == text


def state(node: Node, client: Client) -> str:
    return node.info(client, "persistence")["aof_state"]


def test_the_journal_can_be_switched_off_and_on(tmp_path: Path) -> None:
    """What happened while it was off is in it again as soon as it is on."""
    with doomed("--dir", str(tmp_path)) as (node, client):
        first = client.ask("ADDJOB", "q", "first", 0)
        assert client.ask("CONFIG", "SET", "appendonly", "no") == b"OK"
        assert client.ask("ACKJOB", first) == 1
        second = client.ask("ADDJOB", "q", "second", 0)
        assert client.ask("CONFIG", "SET", "appendonly", "yes") == b"OK"
        third = client.ask("ADDJOB", "q", "third", 0)
        until(lambda: state(node, client) == "on")
        fourth = client.ask("ADDJOB", "q", "fourth", 0)
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert {each[1] for each in client.ask("GETJOB", "COUNT", 100, "FROM", "q")} == {second, third, fourth}


def full_node(tmp_path: Path, jobs: int) -> Node:
    """One with jobs and without a journal."""
    node = Node("--dir", str(tmp_path), "--set", "appendonly=no")
    with node.client() as client:
        for _ in range(jobs // 10_000):
            client.ask("ADDJOBS", "q", 0, 10_000, *["x" * 100] * 10_000)
    return node


def test_switching_the_journal_on_stops_nobody(tmp_path: Path) -> None:
    """A node with many jobs begins to keep them: others are answered all the time, and what they do is kept, too."""
    node = full_node(tmp_path, 50_000)
    with node.client() as client, node.another_client(most_s=0.5) as other:
        asked = other.count
        assert client.ask("CONFIG", "SET", "appendonly", "yes") == b"OK"
        meanwhile = 0
        while state(node, client) != "on":
            assert client.ask("ACKJOB", client.ask("GETJOB", "FROM", "q")[0][1]) == 1
            meanwhile += 1
        assert meanwhile > 10 and other.count > asked
    assert node.alarms() == []
    node.signal(signal.SIGKILL)
    node.wait()
    node.stop()
    with Node("--dir", str(tmp_path)) as again, again.client() as client:
        assert client.ask("QLEN", "q") == 50_000 - meanwhile


@pytest.mark.parametrize("how", ["killed", "stopped", "off again"])
def test_switching_the_journal_on_is_cut_short(tmp_path: Path, how: str) -> None:
    """Killed in the middle of it, the node comes back as one that had none. An orderly end waits for it."""
    node = full_node(tmp_path, 50_000)
    with node.client() as client:
        assert client.ask("CONFIG", "SET", "appendonly", "yes") == b"OK"
        assert state(node, client) == "beginning"
        if how == "off again":
            assert client.ask("CONFIG", "SET", "appendonly", "no") == b"OK"
            assert state(node, client) == "off" and client.ask("QLEN", "q") == 50_000
            assert not (tmp_path / "journal.new").exists()
    if how == "killed":
        node.signal(signal.SIGKILL)
        node.wait()
    node.stop()
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        assert client.ask("QLEN", "q") == (50_000 if how == "stopped" else 0)
        assert not (tmp_path / "journal.new").exists()
        assert client.ask("ADDJOB", "q", "after", 0).startswith(b"DI") and node.alarms() == []


def test_a_controlled_restart_without_a_journal(tmp_path: Path) -> None:
    """Disque's: aof-enqueue-jobs-once, CONFIG REWRITE, SHUTDOWN REWRITE-AOF. It works once."""
    flags = ("--dir", str(tmp_path), "--set", "appendonly=no")
    with Node(*flags) as node, node.client() as client:
        jid = client.ask("ADDJOB", "q", "kept", 0, "RETRY", 0)
        client.ask("CONFIG", "SET", "aof-enqueue-jobs-once", "yes")
        client.ask("CONFIG", "REWRITE")
        client.send("SHUTDOWN", "REWRITE-AOF")
        assert node.wait() == 0
    with Node(*flags) as node, node.client() as client:
        assert client.ask("GETJOB", "FROM", "q")[0][1] == jid
        assert client.ask("CONFIG", "GET", "aof-enqueue-jobs-once")[1] == b"no"
        assert node.info(client, "persistence")["aof_enabled"] == "0"
    with Node(*flags) as node, node.client() as client:
        assert client.ask("QLEN", "q") == 0


def test_a_rewrite_stops_nobody(tmp_path: Path) -> None:
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        for _ in range(20):
            client.ask("ADDJOBS", "q", 0, 10_000, *["x"] * 10_000)
        with node.another_client(most_s=0.5) as other:
            until(lambda: other.count)
            asked = other.count
            assert client.ask("BGREWRITEAOF") == b"Background append only file rewriting started"
            assert client.ask("BGREWRITEAOF").startswith(b"ERR Background append only file rewriting already")
            until(lambda: node.info(client, "persistence")["aof_rewrite_in_progress"] == "0")
            until(lambda: other.count > asked + 1)  # what was asked meanwhile has been answered, and its time noted
        assert node.info(client, "persistence")["aof_last_bgrewrite_status"] == "ok"
        assert node.alarms() == []


def test_a_queue_gets_its_own_journal_and_gives_it_back(tmp_path: Path) -> None:
    """While clients go on; killed on both sides of it."""
    def folders() -> int:
        return len(list((tmp_path / "queues").glob("*")))

    with doomed("--dir", str(tmp_path)) as (node, client):
        ids = [client.ask("ADDJOB", "mail", str(number), 0) for number in range(100)]
        other = client.ask("ADDJOB", "other", "x", 0)
        assert client.ask("QUEUE", "SET", "mail", "journal", "own", "fsync", "always") == b"OK"
        until(lambda: "has its own journal" in node.log())
        assert folders() == 1
        ids += [client.ask("ADDJOB", "mail", str(number), 0) for number in range(100, 200)]
        assert client.ask("ACKJOB", *ids[:50]) == 50
        assert client.ask("BGREWRITEAOF").startswith(b"Background")
        until(lambda: node.info(client, "persistence")["aof_rewrite_in_progress"] == "0")
    with doomed("--dir", str(tmp_path)) as (node, client):
        assert client.ask("QLEN", "mail") == 150 and client.ask("QLEN", "other") == 1
        assert client.ask("QUEUE", "SET", "mail", "journal", "shared") == b"OK"
        until(lambda: "in the journal of the node again" in node.log())
        assert folders() == 0
        assert client.ask("ACKJOB", *ids[50:60], other) == 11
    with Node("--dir", str(tmp_path)) as node, node.client() as client:
        found = client.ask("GETJOB", "COUNT", 1000, "FROM", "mail")
        assert [job[2] for job in found] == [b"%d" % number for number in range(60, 200)]
        assert client.ask("QLEN", "other") == 0
