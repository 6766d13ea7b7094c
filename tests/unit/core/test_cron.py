"""Cron in a cluster: each instant is one job, whoever makes it; what is missed is up to the entry."""
from __future__ import annotations

import re

from holdfast.core import cron
from holdfast.testing.history import OK
from holdfast.testing.sim.cluster import Cluster

from .making import Bench

ID = re.compile(rb"DI00000000[0-9a-f]{36}SQ")


def runs(sim: Cluster, name: str) -> int:
    node = sim.hosts[name].node
    return 0 if node is None else node.counters.get("cron-runs", 0)


def delivered(sim: Cluster) -> set[str]:
    """Ids of jobs that somebody got."""
    return {job["id"] for op in sim.history.ops if op.f == "get" and op.type == OK for job in op.value["jobs"]}


def entry(sim: Cluster, at: str, name: str = "e") -> cron.Entry:
    node = sim.hosts[at].node
    assert node is not None
    return node.cron[name.encode()]


def test_one_node_makes_the_jobs_and_all_know_how_far_it_is() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    sim.do("A", "CRON", "SET", "e", "*/10 * * * * *", "q", "body", "RETRY", "300")
    sim.run_for(seconds=65)
    made = [runs(sim, name) for name in "ABC"]
    assert sorted(made) in ([0, 0, 6], [0, 0, 7])
    assert len({int(entry(sim, name).ran) for name in "ABC"}) == 1
    sim.consume_everything()
    sim.run_for(seconds=5)
    assert len(delivered(sim)) == sum(runs(sim, name) for name in "ABC") >= sum(made)
    sim.check()


def test_two_owners_make_the_same_job() -> None:
    """C is cut off and owns the entry on its side: both sides run, and after the cut there is one job for each time."""
    sim = Cluster(nodes="ABC", seed=2)
    sim.do("A", "CRON", "SET", "e", "*/10 * * * * *", "q", "body", "RETRY", "2")
    sim.run_for(seconds=5)
    cut = sim.cut("C")
    sim.run_for(seconds=40)
    assert sum(runs(sim, name) > 0 for name in "ABC") >= 2
    sim.end_fault(cut)
    sim.do("A", "CRON", "DEL", "e")
    sim.run_for(seconds=10)
    sim.consume_everything()
    sim.run_for(seconds=30)
    assert 4 <= len(delivered(sim)) <= 6
    sim.settle()
    sim.check()


def test_the_next_node_goes_on_when_the_owner_dies() -> None:
    sim = Cluster(nodes="ABC", seed=3)
    sim.do("A", "CRON", "SET", "e", "*/10 * * * * *", "q", "body", "RETRY", "300")
    sim.run_for(seconds=25)
    owner = next(name for name in "ABC" if runs(sim, name))
    before = runs(sim, owner)
    sim.crash(owner, "kill")
    sim.run_for(seconds=60)
    others = [name for name in "ABC" if name != owner]
    assert before + sum(runs(sim, name) for name in others) >= 8  # those of a minute: none is missed
    assert all(entry(sim, name).next_ms() > sim.hosts[name].clock.wall(sim.now) for name in others)


def missed(policy: str) -> tuple[int, int]:
    """Jobs after an hour in which the node was down, and a minute more."""
    bench = Bench()
    bench.node.is_recording = True
    bench.do("CRON", "SET", "e", "*/10 * * * *", "q", "x", "MISSED", policy, "RETRY", "3000")
    bench.wait(30_000)
    kept = bench.node.take_records()
    again = Bench()
    again.now = bench.now + 3_630_000
    again.node.set_time(again.now, again.now)
    again.node.load(kept)
    again.wait(1_000)
    first = len(ID.findall(again.do("GETJOB", "NOHANG", "COUNT", "100", "FROM", "q") or b""))
    again.wait(600_000)
    return first, len(ID.findall(again.do("GETJOB", "NOHANG", "COUNT", "100", "FROM", "q") or b""))


def test_what_is_missed_is_left_out_or_made_up_for() -> None:
    assert missed("skip") == (0, 1)
    assert missed("one") == (1, 1)
    assert missed("all") == (6, 1)


def test_a_restart_does_not_run_again_what_has_run() -> None:
    bench = Bench()
    bench.node.is_recording = True
    bench.do("CRON", "SET", "e", "* * * * *", "q", "x", "MISSED", "all", "TTL", "30")
    bench.wait(65_000)
    ran = bench.node.cron[b"e"].ran
    kept = bench.node.take_records()
    again = Bench()
    again.now = bench.now + 10_000
    again.node.set_time(again.now, again.now)
    again.node.load(kept)
    assert again.node.cron[b"e"].ran == ran
    again.wait(5_000)
    assert again.node.counters.get("cron-runs", 0) == 0


def test_a_clock_that_is_set_back_does_not_run_anything_twice() -> None:
    bench = Bench()
    bench.do("CRON", "SET", "e", "* * * * *", "q", "x")
    bench.wait(100_000)
    made = bench.node.counters["cron-runs"]
    node = bench.node
    for second in range(60):  # the wall shows an earlier time, the other clock goes on
        node.set_time(bench.now + second * 1000, bench.now - 90_000 + second * 1000)
        node.tick()
    assert node.counters["cron-runs"] == made
