"""What nodes say of a queue adds up to its jobs, whoever is away. The sums are taken by the watcher (checkers/sums.py):
a scenario makes the jobs, and waits."""
from __future__ import annotations

from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.scenario import New, catches

TAKEN_UP_S = 10
"""By then jobs of a node that is gone are queued elsewhere."""
QUIET_S = 8
"""In which nothing happens to any job: the watcher looks, and finds that it may judge."""


def settle(sim: Cluster) -> None:
    before = sim.counters["sums"]
    sim.run_for(seconds=TAKEN_UP_S + QUIET_S)
    assert sim.counters["sums"] > before, "no sum was taken"
    wrong = [op.value["text"] for op in sim.history.ops if op.f == "seen" and op.value["what"] == "miscounted"]
    assert not wrong, wrong[0]


def jobs_in_every_state(sim: Cluster) -> None:
    """At each node some that wait, one that is delayed, one with a worker, one that failed and waits, one that is dead;
    none of their times ends soon."""
    for at in "ABC":
        for _ in range(4):
            sim.add_job(at=at, replicate=3, retry_s=600, ttl_s=6_000)
        sim.add_job(at=at, replicate=3, retry_s=600, ttl_s=6_000, delay_s=500)
        sim.consume(at=at)
        failed = sim.add_job(at=at, replicate=3, retry_s=600, ttl_s=6_000, attempts=9, backoff_s=500, queue="q2")
        assert sim.consume(at=at, queue="q2") == failed
        sim.nack(failed, at=at)
        dead = sim.add_job(at=at, replicate=3, retry_s=600, ttl_s=6_000, attempts=1, queue="q2")
        assert sim.consume(at=at, queue="q2") == dead
        sim.nack(dead, at=at)


@catches("counted-by-all-holders", "away-uncounted")
def figures_add_up_while_a_node_is_away(new: New) -> None:
    """And before, and when it is back. Each job is counted once: what C has by one of those that have a copy."""
    sim = new(nodes="ABC", seed=730)
    jobs_in_every_state(sim)
    settle(sim)
    sim.crash("C")
    settle(sim)
    sim.restart("C")
    settle(sim)
    sim.crash("ABC")
    sim.restart("ABC")
    settle(sim)


@catches("counted-by-all-holders", "away-uncounted")
def figures_add_up_while_two_of_five_are_away(new: New) -> None:
    """Jobs have three copies: of some two holders are away, and the third says so. What workers of the two
    have is left to them for as long as that was told."""
    sim = new(nodes="ABCDE", seed=731)
    for at in "ABCDE" * 4:
        sim.add_job(at=at, replicate=3, retry_s=600, ttl_s=6_000)
        sim.consume(at=at)
    settle(sim)
    sim.crash("DE")
    settle(sim)


@catches()
def a_dead_job_that_was_copied_while_a_holder_was_away_is_counted_once(new: New) -> None:
    """C heals the jobs of A, and A knows nothing of B when it is back: of the two that it knows it may be the first."""
    sim = new(nodes="ABC", seed=732, settings=(("heal-after-ms", "3000"),))
    for _ in range(8):
        job = sim.add_job(at="A", replicate=2, holders="AC", retry_s=600, ttl_s=6_000, attempts=1)
        assert sim.consume(at="A") == job
        sim.nack(job, at="A")
    cut = sim.cut("A")
    sim.run_for(seconds=15)
    sim.end_fault(cut)
    settle(sim)
