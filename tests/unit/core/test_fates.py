"""Bounds of what is kept about jobs, and what a restart or a rewrite of the journal brings back of it."""
from __future__ import annotations

import random

import pytest

from holdfast.core.config import Config
from holdfast.core.job import DEAD, QUEUED, Job
from holdfast.core.limits import RESULT_BYTES, RESULTS_PERCENT, TRIES_KEPT, WAIT_IDS_MAX, WORKERS_MAX
from holdfast.core.node import Node
from holdfast.core.snapshot import Walk
from holdfast.core.step import Tick, step
from holdfast.testing.sim.cluster import Cluster

from .making import NODE_ID, Bench


def add(bench: Bench, *options: str) -> bytes:
    reply = bench.do("ADDJOB", "q", "body", "0", *options)
    assert reply is not None and reply.startswith(b"+DI")
    return reply[1:-2]


def fail_often(bench: Bench, jid: bytes, times: int) -> None:
    for number in range(times):
        bench.do("GETJOB", "FROM", "q")
        assert bench.do("NACK", jid, "ERROR", f"failure {number}") == b":1\r\n"


def reborn(bench: Bench, kept: list[bytes], passed_ms: int) -> Node:
    """The same node, started again later with those records."""
    node = Node(Config(), NODE_ID, random.Random(1).randbytes, bench.now + passed_ms)
    node.is_recording = True
    node.set_time(bench.now + passed_ms, bench.now + passed_ms)
    node.load(kept)
    return node


def found(node: Node, jid: bytes) -> Job:
    job = node.find(jid)
    assert job is not None
    return job


def test_the_latest_tries_are_kept_and_all_are_counted() -> None:
    bench = Bench()
    jid = add(bench)
    fail_often(bench, jid, TRIES_KEPT + 3)
    more = found(bench.node, jid).more
    assert more is not None
    assert [each.error for each in more.tries] == [b"failure %d" % n for n in range(3, TRIES_KEPT + 3)]
    assert more.failures == TRIES_KEPT + 3


@pytest.mark.parametrize(("options", "seconds"), [(("RETRYAFTERMS", "3000"), 3),
                                                  (("RETRYAFTERMS", "3000", "DELAY", "1"), 3),
                                                  (("RETRYAFTERMS", "3000", "DELAY", "5"), 5)])
def test_a_job_that_should_be_tried_later_is(options: tuple[str, ...], seconds: int) -> None:
    """Whatever becomes of its domain: it has none."""
    bench = Bench()
    jid = add(bench)
    bench.do("GETJOB", "FROM", "q")
    assert bench.do("NACK", jid, *options) == b":1\r\n"
    bench.now += seconds * 1000 - 1
    step(bench.node, bench.now, Tick())
    assert bench.do("QLEN", "q") == b":0\r\n"
    bench.now += 1
    step(bench.node, bench.now, Tick())
    assert bench.do("QLEN", "q") == b":1\r\n"


def test_every_node_says_why_a_job_is_not_moved() -> None:
    """Those with a copy, those without one, and the home of its key."""
    sim = Cluster(nodes="ABCD", seed=1)
    sim.run_for(seconds=1)
    keyed = sim.do("A", "ADDJOB", "q", "x", "0", "REPLICATE", "2", "UNIQUE", "k")["reply"]
    plain = sim.do("A", "ADDJOB", "q", "x", "0", "REPLICATE", "2")["reply"]
    sim.do("A", "QUEUE", "SET", "closed", "paused", "in")
    sim.run_for(seconds=1)
    for node in "ABCD":
        assert "stays in its queue" in str(sim.do(node, "MOVE", keyed, "other")), f"{node} does not say so"
        assert "PAUSED" in str(sim.do(node, "MOVE", plain, "closed")), f"{node} does not say so"


def test_results_take_their_share_of_memory_and_no_more() -> None:
    bench = Bench(maxmemory="4mb")
    size = 60_000
    ids = [add(bench) for _ in range(12)]
    for jid in ids:
        assert bench.do("ACKJOB", jid, "RESULT", b"x" * size) == b":1\r\n"
    most = 4 * 1024 * 1024 // 100 * RESULTS_PERCENT // (size + RESULT_BYTES)
    assert len(bench.node.results.kept) == most < len(ids)
    assert bench.node.counters["results-given-up"] == len(ids) - most
    assert list(bench.node.results.kept) == ids[-most:], "the oldest went first"


def test_a_shorter_time_for_results_holds_at_once() -> None:
    """Also for those that are kept: they must not stand before what is kept for less."""
    bench = Bench()
    ids = [add(bench), add(bench)]
    bench.do("ACKJOB", ids[0], "RESULT", "old")
    bench.do("CONFIG", "SET", "result-ttl", "2")
    bench.do("ACKJOB", ids[1], "RESULT", "new")
    assert b"old" in (bench.do("WAITJOB", ids[0], "NOHANG") or b"")
    bench.now += 2_000
    assert all(b"unknown" in (bench.do("WAITJOB", jid, "NOHANG") or b"") for jid in ids)
    step(bench.node, bench.now, Tick())
    assert not bench.node.results.kept


def test_no_more_jobs_are_waited_for_than_can_be() -> None:
    bench = Bench()
    jid = add(bench)
    reply = bench.do("WAITJOB", *[jid] * (WAIT_IDS_MAX + 1))
    assert reply == b"-ERR WAITJOB takes 1 to 10000 ids\r\n"


def test_workers_that_are_gone_make_room() -> None:
    bench = Bench(maxmemory="100mb")
    for number in range(WORKERS_MAX):
        assert bench.do("WORKER", "BEAT", f"w{number}", "10") == b"+OK\r\n"
    refused = bench.do("WORKER", "BEAT", "one more", "10")
    assert refused is not None and refused.startswith(b"-OOM ")
    bench.wait(10_000)
    assert bench.do("WORKER", "BEAT", "one more", "10") == b"+OK\r\n"
    assert list(bench.node.workers) == [b"one more"]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_restart_brings_back_leases_waits_deaths_and_results(is_rewritten: bool) -> None:
    bench = Bench()
    node = bench.node
    node.is_recording = True
    dead, waiting, leased, changed, done = (add(bench, "RETRY", "60") for _ in range(5))
    bench.do("CLIENT", "SETNAME", "w1")
    bench.do("GETJOB", "WITHMETA", "COUNT", "5", "FROM", "q")
    bench.do("NACK", dead, "ERROR", "bad", "DEAD")
    bench.do("NACK", waiting, "DELAY", "30")
    bench.do("CANCEL", leased)
    bench.do("RELEASE", changed)
    bench.do("PRIORITY", changed, "8")
    bench.do("MOVE", changed, "r")
    bench.do("ACKJOB", done, "RESULT", "fine")
    kept = node.take_records()
    if is_rewritten:
        walk = Walk(node)
        kept = []
        while not walk.is_done:
            kept += walk.take_records(10_000)

    again = reborn(bench, kept, 10_000)
    more = found(again, dead).more
    assert found(again, dead).state == DEAD and more is not None and more.cause == b"rejected"
    assert list(again.dead) == [found(again, dead)]
    assert found(again, waiting).qtime - again.now == 20_000
    lease = found(again, leased).lease
    assert lease is not None and (lease.start, lease.number, lease.worker) == (node.start, 3, b"w1")
    assert lease.is_cancelled and found(again, leased).qtime - again.now == 50_000
    moved = found(again, changed)
    assert (moved.queue.name, moved.priority, moved.lease) == (b"r", 8, None)
    assert again.results.kept[done].data == b"fine" and again.find(done) is None
    assert again.used > 0 and again.jobs == 4


def test_what_was_sent_back_from_the_dead_is_alive_after_a_restart() -> None:
    bench = Bench()
    bench.node.is_recording = True
    jid = add(bench, "TTL", "100", "ATTEMPTS", "1")
    fail_often(bench, jid, 1)
    assert bench.do("DEAD", "RETRY", jid) == b":1\r\n"
    again = reborn(bench, bench.node.take_records(), 1000)
    job = found(again, jid)
    assert job.state != DEAD and not again.dead and job.expire - again.now == 99_000
    assert job.more is not None and (job.more.round, job.more.failures) == (1, 0)


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("options", [(), ("GROUP", "g")])
def test_a_delay_that_enqueue_has_ended_is_over_after_a_restart(is_rewritten: bool, options: tuple[str, ...]) -> None:
    """Whether it was its turn in its group, or stood in line behind another."""
    bench = Bench()
    node = bench.node
    node.is_recording = True
    jids = [add(bench, "DELAY", "600", "RETRY", "60", *options) for _ in range(3)]
    assert bench.do("ENQUEUE", *jids[:2]) == b":2\r\n"
    kept = node.take_records()
    if is_rewritten:
        kept = Walk(node).take_records(1_000_000)

    again = reborn(bench, kept, 10_000)
    queue = again.queues[b"q"]
    assert queue.size + queue.lined == 2
    assert [queue.size, queue.lined] == ([1, 1] if options else [2, 0])
    assert found(again, jids[0]).state == QUEUED and found(again, jids[0]).deliveries == 0
    assert found(again, jids[2]).qtime - again.now == 590_000
