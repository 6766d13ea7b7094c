"""What CLUSTER QSTAT says of jobs that are not queued, and how fast queues are: two nodes in one simulation."""
from __future__ import annotations

from typing import Any

from holdfast.testing.sim.cluster import Cluster


def figures(sim: Cluster, at: str, queue: str) -> dict[str, int]:
    rows: Any = sim.do(at, "CLUSTER", "QSTAT", queue)["reply"]
    words = rows[0][0]
    return {words[i]: words[i + 1] for i in range(2, len(words), 2)}


def test_states_are_summed_over_all_nodes() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    for _ in range(3):
        sim.add_job(at="A", replicate=2, retry_s=60)
    sim.add_job(at="B", replicate=2, retry_s=60, delay_s=50)
    assert sim.consume(at="A")
    assert sim.consume(at="C")
    sim.run_for(seconds=3)
    found = figures(sim, "B", "q")
    assert (found["len"], found["out"], found["delayed"], found["moving"], found["ended"]) == (1, 2, 1, 0, 0)
    assert found["held"] >= 8


def test_rates_are_of_the_last_second() -> None:
    sim = Cluster(nodes="AB", seed=2)
    sim.run_for(seconds=2)
    for _ in range(40):
        sim.add_job(at="A", replicate=1, retry_s=60)
    seen = []
    for _ in range(30):
        sim.run_for(seconds=0.1)
        seen.append(figures(sim, "B", "q")["in-per-second"])
    assert 10 <= max(seen) <= 80
    assert seen[-1] == 0
