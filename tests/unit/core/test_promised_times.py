"""The figures of what is promised a time: each is counted where it happens, and what stands still is seen."""
from __future__ import annotations

from typing import Any

from tests.unit.core.making import Bench

from holdfast.core import home, standstill
from holdfast.core.times import Times
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.keys import key_at, unique_at


def promised(sim: Cluster, at: str) -> Any:
    node: Any = sim.hosts[at].node
    return node.promised


def count(times: Times) -> int:
    return sum(int(each) for each in times.counts)


def stands(sim: Cluster, at: str) -> Any:
    node: Any = sim.hosts[at].node
    return node.standstill


def test_adds_are_timed_apart_by_whether_their_copies_were_asked_for() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    sim.add_job(at="A", replicate=3, retry_s=60)
    for _ in range(2):
        sim.add_job(at="A", replicate=0, retry_s=60)
    found = promised(sim, "A")
    assert (count(found.adds_asked), count(found.adds_default)) == (1, 2)
    assert 0 < found.adds_default.sum < 100


def test_a_job_that_goes_to_a_worker_elsewhere_is_timed_until_it_is_there() -> None:
    sim = Cluster(nodes="AB", seed=1)
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    job = sim.add_job(at="A", replicate=2, retry_s=60)
    sim.run_for(seconds=1)
    assert got == [job]
    assert count(promised(sim, "A").moves) == 1
    assert 0 < promised(sim, "A").moves.sum < 100
    assert count(promised(sim, "B").moves) == 0


def test_jobs_of_a_node_that_failed_are_timed_until_they_are_queued() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    for _ in range(6):
        sim.add_job(at="C", replicate=3, retry_s=5)
    sim.crash("C")
    sim.run_for(seconds=12)
    rescues = [promised(sim, at).rescues for at in "AB"]
    assert sum(count(each) for each in rescues) == 6
    assert all(each.sum < 6_000 * max(1, count(each)) for each in rescues)


def test_a_link_that_comes_back_was_down_for_a_time() -> None:
    sim = Cluster(nodes="AB", seed=1)
    assert count(promised(sim, "A").links) == 0
    sim.crash("B")
    sim.run_for(seconds=4)
    sim.restart("B")
    sim.run_for(seconds=4)
    found = promised(sim, "A").links
    assert count(found) == 1 and 4_000 <= found.sum < 8_000


def test_an_add_with_a_key_is_timed_where_another_node_decides() -> None:
    sim = Cluster(nodes="AB", seed=1)
    sim.run_for(seconds=5)
    sim.add_keyed(at="B", unique=unique_at(sim, "A"), retry_s=60)
    assert count(promised(sim, "B").keyed) == 1 and promised(sim, "B").keyed.sum < 100
    assert count(promised(sim, "A").keyed) == 0


def test_a_schedule_is_timed_from_its_instant_to_its_job() -> None:
    sim = Cluster(nodes="AB", seed=1)
    sim.do("A", "CRON", "SET", "e", "*/5 * * * * *", "q", "body", "RETRY", "60")
    sim.run_for(seconds=20)
    found = [promised(sim, at).cron for at in "AB"]
    assert sum(count(each) for each in found) >= 3
    assert sum(each.sum for each in found) < 1_000 * sum(count(each) for each in found)


def test_keys_and_schedules_without_a_home_are_seen_until_they_have_one() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    entry = key_at(sim, home.CRON, "CA", b"")
    sim.do("A", "CRON", "SET", entry, "*/5 * * * * *", "q", "body", "RETRY", "60")
    sim.run_for(seconds=8)
    assert not stands(sim, "B").slots
    sim.crash("C")
    sim.cut("A")  # B alone is too few to take the keys of C over at once
    sim.run_for(seconds=1.5)
    node: Any = sim.hosts["B"].node
    assert 100 < len(stands(sim, "B").slots) < 800
    assert len(stands(sim, "B").cron(node)) == 1
    assert 300 < stands(sim, "B").slots_ms(node) < 1_600
    sim.run_for(seconds=15)
    assert [len(stands(sim, at).slots) for at in "AB"] == [0, 0]
    assert stands(sim, "B").slots_ms(node) == 0 and stands(sim, "B").cron(node) == []


def test_jobs_and_workers_that_do_not_meet_are_seen() -> None:
    bench = Bench()
    bench.do("ADDJOB", "q", "x", "0")
    queue = bench.node.queues[b"q"]
    standstill.beat(bench.node)
    assert bench.node.standstill.unserved_ms(bench.node) == 0
    queue.interest[1] = 1  # nothing that a node does leads to that
    standstill.beat(bench.node)
    bench.wait(3_000)
    standstill.beat(bench.node)
    assert bench.node.standstill.unserved_ms(bench.node) == 3_000
    bench.do("PAUSE", "q", "out")
    standstill.beat(bench.node)
    assert bench.node.standstill.unserved_ms(bench.node) == 0
