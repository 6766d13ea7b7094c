"""Jobs are never out of reach: crashes hide none, and a node that dies takes none along."""
from __future__ import annotations

from typing import Final

from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.keys import unique_at
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well, node_of

LONG: Final = 300
"""RETRY in seconds, as it is by default: what comes back only after that is out of reach."""

TIMEOUT: Final = (("cluster-node-timeout", "3000"),)


def queued(sim: Cluster, jobs: list[str]) -> int:
    """How many of them some node has in its queue."""
    return sum("queued" in sim.copies(job).values() for job in jobs)


def given_back_across_a_cut(sim: Cluster) -> str:
    """A worker of A gives a job back at B, which cannot reach A and queues it. Then they meet."""
    job = sim.add_job(at="A", replicate=3, retry_s=LONG)
    assert sim.consume(at="A") == job
    sim.run_for(seconds=1)
    cut = sim.cut("A")
    sim.run_for(seconds=10)
    sim.nack(job, at="B")
    sim.end_fault(cut)
    return job


@catches("requeue-not-recorded", "visits-left-out")
def crashes_one_after_the_other_hide_no_job(new: New) -> None:
    """Jobs wait at C. It is killed and started, then B, then A: what each took over meanwhile, and gave up again, all
    know. Two seconds after the last links every job is queued."""
    for downtime in (4, 0.3):
        sim = new(nodes="ABC", seed=300, settings=TIMEOUT)
        jobs = [sim.add_job(at="C", replicate=3, retry_s=LONG) for _ in range(40)]
        for name in "CBACAB":
            sim.crash(name)
            sim.run_for(seconds=downtime)
            sim.restart(name)
            sim.run_for(seconds=3)
            assert queued(sim, jobs) == len(jobs), f"{name} was killed, and {queued(sim, jobs)} jobs are queued"
        sim.consume_everything()
        end_well(sim, *jobs)


@catches("gone-node-keeps-jobs")
def a_node_that_dies_does_not_take_its_waiting_jobs_along(new: New) -> None:
    """Jobs wait at each of three nodes. One dies, and five seconds after it counts as failed all are with consumers."""
    sim = new(nodes="ABC", seed=301, settings=TIMEOUT)
    jobs = [sim.add_job(at=name, replicate=3, retry_s=LONG) for name in "ABC" for _ in range(10)]
    sim.crash("A")
    sim.consume_everything(at="BC")
    sim.run_for(seconds=3 + 1 + 5)
    missing = [job for job in jobs if sim.history.deliveries(job) == 0]
    assert not missing, f"{len(missing)} of {len(jobs)} jobs were not handed out"
    sim.restart("A")
    end_well(sim, *jobs)


@catches("outs-untold")
def what_a_dead_node_had_out_is_out(new: New) -> None:
    """A worker has a job of A, which dies. It has all of its time; then the job comes back, and not a minute later."""
    sim = new(nodes="ABC", seed=302, settings=TIMEOUT)
    job = sim.add_job(at="A", replicate=3, retry_s=30)
    assert sim.consume(at="A") == job
    sim.run_for(seconds=1)
    sim.crash("A")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=28)
    assert got == [], "while its worker has it"
    sim.run_for(seconds=5)
    assert got == [job], "its lease was over"
    end_well(sim)


@catches("lease-kept-to-oneself")
def one_holder_that_knows_of_a_lease_is_enough(new: New) -> None:
    """A worker has a job of A. B is killed and started anew, and then A dies: C knows that the job is out."""
    for seed in range(303, 307):  # in some of which C is asked, in others asks
        sim = new(nodes="ABC", seed=seed, settings=TIMEOUT)
        job = sim.add_job(at="A", replicate=3, retry_s=60)
        assert sim.consume(at="A") == job
        sim.run_for(seconds=1)
        sim.crash("B")
        sim.crash("A")
        sim.run_for(seconds=1)
        sim.restart("B")
        got = sim.wait_for_job(at="B")
        sim.run_for(seconds=30)
        assert got == [], "while its worker has it"
        sim.run_for(seconds=40)
        assert got == [job]
        end_well(sim)


@catches("out-after-nack")
def a_late_word_that_a_job_is_out_does_not_hide_it(new: New) -> None:
    """When A and B meet, A says that the job is out before it has heard that it is not."""
    sim = new(nodes="ABC", seed=308, settings=TIMEOUT, faults=Faults(latency_ms=(150, 250)))
    job = given_back_across_a_cut(sim)
    sim.run_for(seconds=6)
    assert queued(sim, [job]) == 1, f"it is hidden: {sim.copies(job)}"
    sim.consume_everything()
    end_well(sim, job, deliveries=2)


@catches("nack-elsewhere-unread")
def what_was_given_back_elsewhere_is_not_out_after_a_restart(new: New) -> None:
    """A is killed when it has heard of it: its journal has the hand-out."""
    sim = new(nodes="ABC", seed=309, settings=TIMEOUT)
    job = given_back_across_a_cut(sim)
    sim.run_for(seconds=3)
    sim.crash("A")
    sim.run_for(seconds=1)
    sim.restart("A")
    sim.run_for(seconds=3)
    assert queued(sim, [job]) == 1, f"it is hidden: {sim.copies(job)}"
    sim.consume_everything()
    end_well(sim, job, deliveries=2)


@catches("copy-kept-as-lease")
def a_job_that_went_elsewhere_is_not_out_after_a_restart(new: New) -> None:
    """A had it out, and it was given back there and went to B. A's journal is written anew, and A started anew."""
    sim = new(nodes="ABC", seed=310)
    sim.rewrites = True
    job = sim.add_job(at="A", replicate=3, retry_s=LONG)
    assert sim.consume(at="A") == job
    got = sim.wait_for_job(at="B", timeout_ms=5_000)
    sim.nack(job, at="A")
    sim.run_for(seconds=0.5)
    assert got == [job]
    sim.do("B", "ENQUEUE", job)
    for _ in range(40):
        sim.add_job(at="A", queue="other", retry_s=LONG)
        sim.run_for(seconds=0.2)
    sim.crash("A")
    sim.restart("A")
    sim.run_for(seconds=3)
    assert queued(sim, [job]) == 1, f"it is hidden: {sim.copies(job)}"
    sim.consume_everything()
    sim.consume_everything(queue="other")
    end_well(sim, job, deliveries=3)


@catches("dead-holders-awaited")
def who_comes_back_does_not_wait_for_the_dead(new: New) -> None:
    """A and B have the job. Both die, and only A comes back, to C, D and E."""
    sim = new(nodes="ABCDE", seed=311, settings=TIMEOUT)
    job = sim.add_job(at="A", replicate=2, retry_s=LONG, holders="AB")
    sim.crash("A")
    sim.crash("B")
    sim.run_for(seconds=8)
    sim.restart("A")
    got = sim.wait_for_job(at="C")
    sim.run_for(seconds=8)
    assert got == [job], f"a minute and a half for one that is dead: {sim.copies(job)}"
    end_well(sim)


@catches("lease-ends-by-bad-clock")
def a_clock_ahead_at_a_restart_ends_no_lease(new: New) -> None:
    """A worker has the job when A is started with its clock an hour ahead, and behind. The others know what time it is:
    it has the job for as long as it was to, and no longer."""
    for copies in (1, 3):
        for amount in (3_600_000, -3_600_000):
            sim = new(nodes="ABC", seed=312)
            job = sim.add_job(at="A", replicate=copies, retry_s=60, ttl_s=6_000)
            assert sim.consume(at="A") == job
            sim.crash("A")
            sim.fault("jump", "A", amount=amount)
            sim.restart("A")
            got = [sim.wait_for_job(at=name) for name in "ABC"]
            sim.run_for(seconds=55)
            assert got == [[], [], []], "while its worker has it"
            sim.run_for(seconds=10)
            assert sum(map(len, got)) == 1, "its lease was over"
            end_well(sim)


@catches("gone-node-keeps-jobs")
def a_job_with_a_key_does_not_wait_for_its_dead_home(new: New) -> None:
    """It waited at its home, which dies; the next home hands it out at once."""
    sim = new(nodes="ABC", seed=313, settings=TIMEOUT)
    job, _ = sim.add_keyed(at="B", unique=unique_at(sim, "A"), replicate=3, retry_s=LONG)
    sim.run_for(seconds=1)
    sim.crash("A")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=3 + 1 + 5)
    assert got == [job], f"nobody hands it out: {sim.copies(job)}"
    end_well(sim)


@catches()
def a_restart_puts_no_time_off(new: New) -> None:
    """A delayed job, one that is out and one that failed: each comes when it would have come without restarts."""
    sim = new(nodes="ABC", seed=314)
    sim.add_job(at="A", replicate=3, retry_s=LONG, delay_s=30, queue="delayed")
    out = sim.add_job(at="A", replicate=3, retry_s=30, queue="out")
    assert sim.consume(at="A", queue="out") == out
    since = sim.now
    while sim.now < since + 24_000:
        for name in "ABC":
            sim.crash(name)
            sim.run_for(seconds=0.5)
            sim.restart(name)
            sim.run_for(seconds=2.5)
    got = {queue: sim.wait_for_job(at="B", queue=queue) for queue in ("delayed", "out")}
    sim.run_for(seconds=max(0.0, 29 - (sim.now - since) / 1000))
    assert got == {"delayed": [], "out": []}, "before its time"
    sim.run_for(seconds=5)
    assert [len(jobs) for jobs in got.values()] == [1, 1], f"put off by restarts: {got}"
    end_well(sim)


@catches("circle-told")
def what_explains_a_job_does_not_send_one_round_in_a_circle(new: New) -> None:
    """A and B take the job to be with each other, for a moment. EXPLAIN says so, and not that another knows better."""
    sim = new(nodes="ABC", seed=315)
    job = sim.add_job(at="C", replicate=3, retry_s=LONG)
    for name, other in ("AB", "BC", "CA"):
        node = node_of(sim, name)
        found = node.find(job.encode())
        if found.state == 2:
            found.queue.remove(found)
            found.state = 1
        found.responsible = next(peer.index for peer in node.peers if peer.node_id() == node_of(sim, other).node_id)
        node.wake_at(found, node.now + 300_000)
    reasons = sim.do("A", "EXPLAIN", job)["reply"][3]
    assert [reason[0] for reason in reasons] == ["nowhere"], f"{reasons}"


@catches("copy-says-taken")
def a_job_that_never_arrived_where_it_was_given_to_is_not_left_there(new: New) -> None:
    """A gives its job to C, which stops before that arrives, and comes back with the copy that it had before."""
    sim = new(nodes="ABC", seed=770, faults=Faults(latency_ms=(150, 150)))
    job = sim.add_job(at="A", replicate=3, retry_s=600)
    late = sim.hold("A", "C")
    sim.wait_for_job(at="C", timeout_ms=1_000)
    sim.run_for(seconds=0.5)
    assert sim.copies(job)["A"] == "moving"
    sim.crash("C")
    sim.end_fault(late)
    sim.restart("C")
    sim.run_for(seconds=5)
    assert sim.consume_and_ack(at="B") == job, f"nobody has it: {sim.copies(job)}"
    end_well(sim, job)
