"""Batches at one node: bits, not counts; one job in the end."""
from __future__ import annotations

import random

import pytest

from holdfast.core.batches import WAS_DEAD, WAS_DONE, Batch
from holdfast.core.errors import NO_REPL
from holdfast.core.node import Node
from holdfast.core.step import Tick, step
from holdfast.testing.sim.cluster import Cluster

from .making import NODE_ID, Bench, Mesh


def add(bench: Bench, index: int, *options: str) -> bytes:
    reply = bench.do("ADDJOB", "q", f"b{index}", "0", "BATCH", "all", "INDEX", str(index), *options)
    assert reply is not None and reply.startswith(b"+"), reply
    return reply[1:-2]


def told(bench: Bench) -> dict[bytes, bytes]:
    words = (bench.do("BATCH", "GET", "all") or b"").split(b"\r\n")
    return {
        name: words[words.index(name) + (1 if words[words.index(name) + 1].startswith(b":") else 2)]
        for name in (b"state", b"ended", b"done", b"dead", b"expired", b"deleted")
    }


def later(bench: Bench, seconds: int) -> None:
    bench.now += seconds * 1000
    step(bench.node, bench.now, Tick())


def test_the_last_job_comes_when_all_are_done() -> None:
    bench = Bench()
    ids = [add(bench, i) for i in range(3)]
    final = bench.do("BATCH", "CLOSE", "all", "3", "THEN", "after", "sum up", "RETRY", "7")
    assert final is not None and final.startswith(b"+DI")
    for jid in ids[:2]:
        bench.do("ACKJOB", jid)
        assert bench.do("QLEN", "after") == b":0\r\n"
    bench.do("ACKJOB", ids[2])
    got = bench.do("GETJOB", "WITHMETA", "FROM", "after") or b""
    assert final[1:-2] in got and b"sum up" in got and b"batch-failed\r\n$1\r\n0\r\n" in got
    assert told(bench)[b"state"] == b"complete"


def test_an_ack_told_twice_counts_once() -> None:
    batch = Batch(b"b", 0)
    assert batch.note(0, WAS_DONE) and not batch.note(0, WAS_DONE)
    batch.count = 2
    assert not batch.is_full()
    batch.note(9, WAS_DONE)
    assert not batch.is_full(), "an index that there is none of does not stand for one that there is"
    batch.note(1, WAS_DEAD)
    assert batch.is_full() and batch.causes == {1: WAS_DEAD}


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 1000])
def test_full_is_every_bit(count: int) -> None:
    batch = Batch(b"b", 0)
    batch.count = count
    order = list(range(count))
    random.Random(count).shuffle(order)
    for index in order:
        assert not batch.is_full()
        batch.note(index, WAS_DONE)
    assert batch.is_full()


def test_every_end_counts_with_its_cause() -> None:
    bench = Bench()
    ids = [add(bench, i, "TTL", "2") if i == 3 else add(bench, i) for i in range(4)]
    bench.do("BATCH", "CLOSE", "all", "4", "THEN", "after", "x")
    bench.do("GETJOB", "COUNT", "2", "FROM", "q")
    bench.do("ACKJOB", ids[0])
    bench.do("NACK", ids[1], "DEAD")
    bench.do("DELJOB", ids[2])
    assert bench.do("QLEN", "after") == b":0\r\n"
    later(bench, 3)
    assert bench.do("QLEN", "after") == b":1\r\n"
    said = told(bench)
    assert [said[name] for name in (b"done", b"dead", b"expired", b"deleted")] == [b":1"] * 4


def test_a_last_job_that_its_queue_refuses_comes_when_there_is_room() -> None:
    """No other node beats time for it."""
    bench = Bench()
    bench.do("QUEUE", "SET", "after", "maxlen", "1")
    first = bench.do("ADDJOB", "after", "x", "0") or b""
    member = add(bench, 0)
    bench.do("BATCH", "CLOSE", "all", "1", "THEN", "after", "y")
    bench.do("ACKJOB", member)
    assert told(bench)[b"state"] == b"closed" and b"MAXLEN" in (bench.do("BATCH", "GET", "all") or b"")
    bench.do("ACKJOB", first[1:-2])
    later(bench, 1)
    assert told(bench)[b"state"] == b"complete" and b"MAXLEN" not in (bench.do("BATCH", "GET", "all") or b"")
    assert bench.do("QLEN", "after") == b":1\r\n"


def test_closing_again() -> None:
    bench = Bench()
    final = bench.do("BATCH", "CLOSE", "all", "2", "THEN", "after", "x")
    assert bench.do("BATCH", "CLOSE", "all", "2", "THEN", "after", "x") == final
    assert (bench.do("BATCH", "CLOSE", "all", "3") or b"").startswith(b"-ERR this batch was closed")


def test_a_batch_can_be_asked_about_from_its_first_job_on() -> None:
    bench = Bench()
    add(bench, 3)
    assert told(bench)[b"state"] == b"open" and told(bench)[b"ended"] == b":0"
    assert bench.do("BATCH", "LIST") == b"*1\r\n$3\r\nall\r\n"


def test_other_nodes_can_be_asked_about_it_too() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    sim.run_for(seconds=1)
    for number in range(6):
        name = f"b{number}"
        sim.do("A", "ADDJOB", "q", "x", "0", "BATCH", name, "INDEX", "0")
        sim.run_for(seconds=1)
        for node in "ABC":
            assert "open" in str(sim.do(node, "BATCH", "GET", name)), f"{name} is not known at {node}"


@pytest.mark.parametrize("keys", [(), ("GROUP", "g")])
def test_many_members_added_at_once_have_one_index_each(keys: tuple[str, ...]) -> None:
    bench = Bench()
    bench.do("ADDJOBS", "q", "0", "3", "a", "b", "c", "BATCH", "all", "INDEX", "5", *keys)
    assert sorted(job.more.index - 1 for job in bench.node.all_jobs() if job.more) == [5, 6, 7]
    assert (bench.do("ADDJOBS", "q", "0", "2", "a", "b", "BATCH", "all", "INDEX", "999999") or b"").startswith(b"-ERR")


def test_an_index_and_a_count_that_cannot_both_be_are_refused() -> None:
    bench = Bench()
    bench.do("ACKJOB", add(bench, 9))
    assert (bench.do("BATCH", "CLOSE", "all", "9") or b"").startswith(b"-ERR the job with INDEX 9 ")
    assert bench.do("BATCH", "CLOSE", "all", "10") == b"+OK\r\n"
    assert (bench.do("ADDJOB", "q", "b", "0", "BATCH", "all", "INDEX", "10") or b"").startswith(b"-ERR this batch was")
    assert (bench.do("ADDJOBS", "q", "0", "2", "b", "c", "BATCH", "all", "INDEX", "9") or b"").startswith(b"-ERR")
    add(bench, 8)


@pytest.mark.parametrize("index", [*range(20), 999_999])
def test_the_last_index(index: int) -> None:
    batch = Batch(b"b", 0)
    assert batch.last() == -1
    batch.note(index, WAS_DONE)
    batch.note(index // 2, WAS_DONE)
    assert batch.last() == index


@pytest.mark.parametrize("words", [
    ["CLOSE", "all"], ["CLOSE", "all", "1", "THEN", "q", "b", "UNIQUE", "k"],
    ["CLOSE", "all", "1", "THEN", "q", "b", "BATCH", "all", "INDEX", "0"],
    ["CLOSE", "all", "-1"], ["CLOSE", "all", "1000001"], ["CLOSE", "all", "2", "THEN", "q"],
    ["CLOSE", "all", "2", "THEN", "q", "b", "RETRY", "x"], ["GET"], ["OPEN", "all"], ["CLOSE", "", "1"],
    ["CLOSE", "x" * 2000, "1"], ["GET", "all", "more"],
])
def test_nonsense_is_refused(words: list[str]) -> None:
    bench = Bench()
    assert (bench.do("BATCH", *words) or b"").startswith(b"-ERR")
    assert not bench.node.batches.by_name


def test_a_batch_that_is_never_closed_is_given_up_with_a_word() -> None:
    bench = Bench()
    used = bench.node.used
    jid = add(bench, 0)
    bench.do("ACKJOB", jid)
    assert bench.do("BATCH", "LIST") == b"*1\r\n$3\r\nall\r\n"
    for _ in range(8):
        later(bench, 86_400)
    assert bench.do("BATCH", "LIST") == b"*0\r\n"
    assert any("never closed" in words for _, words in bench.node.notices)
    assert bench.node.used <= used + 4000


def test_a_batch_lives_through_a_restart() -> None:
    bench = Bench()
    bench.node.is_recording = True
    ids = [add(bench, i) for i in range(2)]
    final = bench.do("BATCH", "CLOSE", "all", "2", "THEN", "after", "x") or b""
    bench.do("ACKJOB", ids[0])
    again = Bench()
    again.now = bench.now + 1000
    again.node = Node(again.node.config, NODE_ID, random.Random(1).randbytes, again.now)
    again.node.set_time(again.now, again.now)
    again.node.load(bench.node.take_records())
    again.node.connect("10.0.0.1:1")
    again.do("ACKJOB", ids[1])
    assert final[1:-2] in (again.do("GETJOB", "FROM", "after") or b"")


def test_the_last_job_cannot_have_more_copies_than_there_are_members() -> None:
    """One that is away may be back by then; what nobody has ever met will not."""
    mesh = Mesh("b", "c")
    assert mesh.do("BATCH", "CLOSE", "b", "1", "THEN", "q", "x", "REPLICATE", "4") == b"-" + NO_REPL + b"\r\n"
    mesh.node.link_down(mesh.peers[0])
    said = mesh.do("BATCH", "CLOSE", "b", "1", "THEN", "q", "x", "REPLICATE", "3")
    assert said is None or not said.startswith(b"-")


def test_a_batch_is_complete_as_soon_as_its_last_job_can_be_had() -> None:
    """Whoever has got that job and asks, at any node, is not told that something is still missing."""
    for seed in range(4):
        sim = Cluster(nodes="ABC", seed=seed)
        job = sim.do("A", "ADDJOB", "q", "x", "1000", "BATCH", "all", "INDEX", "0", "RETRY", "60")["reply"]
        sim.do("B", "BATCH", "CLOSE", "all", "1", "THEN", "after", "sum up")
        sim.run_for(seconds=1)
        sim.do("C", "ACKJOB", job)
        assert sim.consume(at="B", queue="after")
        for name in "ABC":
            said = sim.do(name, "BATCH", "GET", "all")["reply"]
            assert said[said.index("state") + 1] == "complete", f"as {name} says"
