"""Stages: what a pipeline writes is published once per batch, however often the batch is written."""
from __future__ import annotations

from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.scenario import New, catches


def put(sim: Cluster, at: str, stage: str, *bodies: str) -> int:
    said = sim.do(at, "STAGE", "ADD", stage, "q", str(len(bodies)), *bodies, "RETRY", "300", "REPLICATE", "2")
    return int(said.get("count", -9))


def publish(sim: Cluster, at: str, batch: int, *stages: str, run: str = "r") -> int:
    """How many were published, -1 if it was before, -9 if it was refused."""
    return int(sim.do(at, "STAGE", "PUBLISH", "s", run, str(batch), *stages).get("count", -9))


def queued(sim: Cluster, at: str = "ABC") -> int:
    return sum(int(sim.do(name, "QLEN", "q")["count"]) for name in at)


@catches("stage-published-twice")
def a_batch_that_is_written_again_is_published_once(new: New) -> None:
    """The driver dies after it has published and before its log says so, and writes the batch again."""
    sim = new(nodes="ABC", seed=310)
    assert put(sim, "A", "t1", "a", "b") == 2 and put(sim, "A", "t2", "c") == 1
    assert put(sim, "A", "failed", "x") == 1
    assert publish(sim, "A", 0, "t1", "t2") == 3
    assert put(sim, "A", "t3", "a", "b", "c") == 3
    assert publish(sim, "A", 0, "t3") == -1
    sim.run_for(seconds=3)
    assert queued(sim) == 3, "once, and what nobody named is not there"
    assert int(sim.do("A", "STAGE", "FILLED", "s")["count"]) == 0


@catches("stage-published-twice")
def what_was_published_is_known_when_its_node_is_lost(new: New) -> None:
    """The node where it was published is gone for good: the next one has heard of it, and of the jobs it has copies."""
    sim = new(nodes="ABC", seed=311)
    put(sim, "A", "t1", "a", "b")
    assert publish(sim, "A", 4, "t1") == 2
    sim.run_for(seconds=3)
    sim.crash("A", "wipe")
    sim.run_for(seconds=5)
    put(sim, "B", "t2", "a", "b")
    assert publish(sim, "B", 4, "t2") == -1, "published before"
    put(sim, "B", "t3", "c")
    assert publish(sim, "B", 5, "t3") == 1


@catches("stage-published-twice")
def what_was_published_is_known_after_a_restart(new: New) -> None:
    """In the turn in which the jobs are there the note is, too."""
    sim = new(nodes="A", seed=312)
    said = sim.do("A", "STAGE", "ADD", "t1", "q", "2", "a", "b", "RETRY", "300")
    assert said["count"] == 2 and publish(sim, "A", 4, "t1") == 2
    sim.crash("A")
    sim.run_for(seconds=2)
    sim.restart("A")
    sim.run_for(seconds=5)
    assert queued(sim, "A") == 2
    sim.do("A", "STAGE", "ADD", "t2", "q", "2", "a", "b", "RETRY", "300")
    assert publish(sim, "A", 4, "t2") == -1 and queued(sim, "A") == 2


@catches("stage-any-run")
def another_run_under_the_same_name_is_refused(new: New) -> None:
    """A checkpoint was deleted: the new stream counts from 0 again, and would be ignored for ever."""
    sim = new(nodes="ABC", seed=313)
    put(sim, "A", "t1", "a")
    assert publish(sim, "A", 7, "t1") == 1
    sim.run_for(seconds=2)
    put(sim, "B", "t2", "b")
    assert publish(sim, "B", 0, "t2", run="other") == -9, "refused, not ignored"
    assert publish(sim, "A", 8, "nothing") == -9, "a stage that is gone"
