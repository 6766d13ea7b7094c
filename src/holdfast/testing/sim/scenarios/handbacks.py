"""Jobs given back or queued by hand, without a token, at whichever node that is said."""
from __future__ import annotations

from typing import Any

from holdfast.testing.history import OK
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.keys import group_at
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well


def last_handed_out(sim: Cluster) -> Any:
    return [op for op in sim.history.ops if op.f == "get" and op.type == OK and op.value["jobs"]][-1].value["jobs"][0]


def say(sim: Cluster, at: str, command: str, job: str, *options: str) -> int:
    words = [word.encode() for word in (command, job, *options)]
    return int(sim.command(at, command.lower(), words, {"ids": [job]})[1]["count"])


@catches("handed-back-anywhere")
def a_word_without_a_token_reaches_the_node_that_gave_the_lease(new: New) -> None:
    """Added at A, with a consumer of B, given back at C: that is answered by what B did."""
    for seed, command, attempt in ((250, "NACK", 2), (251, "RELEASE", 1), (252, "ENQUEUE", 2)):
        sim = new(nodes="ABC", seed=seed)
        job = sim.add_job(at="A", replicate=3, retry_s=60)
        assert sim.consume(at="B") == job
        assert say(sim, "C", command, job) == 1
        assert sim.take(at="B")[0] == job, f"{command} was answered, and nothing came of it"
        assert last_handed_out(sim)["attempt"] == attempt
        assert sim.ack(job, at="C") == 1
        assert say(sim, "C", command, job) == 0
        end_well(sim, job, deliveries=2)


@catches("handed-back-anywhere")
def what_a_worker_says_of_a_job_with_keys_is_kept(new: New) -> None:
    """The home A has lent it to B; C, a holder, is told that it failed, and why. That is one failure."""
    sim = new(nodes="ABC", seed=253)
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "A"), replicate=3, retry_s=60)
    assert sim.take(at="B")[0] == job
    assert say(sim, "C", "NACK", job, "ERROR", "no ink") == 1
    assert sim.take(at="B")[0] == job
    assert last_handed_out(sim)["attempt"] == 2
    assert "no ink" in str(sim.do("A", "SHOW", job))
    assert sim.ack(job, at="B") == 1
    end_well(sim, job, deliveries=2)


@catches("nack-keeps-lease")
def a_nack_that_came_in_while_a_link_was_cut_ends_the_lease(new: New) -> None:
    """C cannot ask B, whose consumer has the job, and queues it. B hears of it when the cut is over."""
    sim = new(nodes="ABC", seed=254)
    job = sim.add_job(at="A", replicate=3, retry_s=60)
    assert sim.consume(at="B") == job
    cut = sim.cut("B", from_="C")
    sim.run_for(seconds=10)
    assert say(sim, "C", "NACK", job, "ERROR", "no ink") == 1
    sim.end_fault(cut)
    sim.run_for(seconds=5)
    assert list(sim.copies(job).values()).count("queued") == 1, f"B keeps its lease: {sim.copies(job)}"
    assert sim.consume_and_ack(at="B") == job
    end_well(sim, job, deliveries=2)


@catches("nack-keeps-lease")
def a_nacked_job_that_is_given_to_who_had_it_out_is_taken(new: New) -> None:
    """Two wait at B, and A has given it the job, which C has not heard: told that the job failed, C asks A, which says
    that it is with a third, and gives it to B, whose other consumer still waits."""
    sim = new(nodes="ABC", seed=255)
    one, two = sim.wait_for_job(at="B"), sim.wait_for_job(at="B")
    sim.run_for(seconds=0.5)
    late = sim.hold("B", "C")
    job = sim.add_job(at="A", replicate=2, retry_s=60, holders="AC")
    sim.run_for(seconds=0.1)
    assert one + two == [job]
    assert sim.nack(job, at="C") == 1
    sim.run_for(seconds=0.5)
    assert one + two == [job, job], "B keeps a lease that a NACK has ended"
    sim.end_fault(late)
    sim.ack(job, at="B")
    end_well(sim, job, deliveries=2)


@catches("push-not-told")
def the_home_hears_that_a_job_was_given_back_at_a_node_that_could_not_reach_it(new: New) -> None:
    """And counts that as one failure."""
    sim = new(nodes="ABC", seed=256)
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "A"), replicate=3, retry_s=60)
    assert sim.take(at="B")[0] == job
    cut = sim.cut("C", from_="A")
    sim.run_for(seconds=10)
    assert say(sim, "C", "NACK", job, "ERROR", "no ink") == 1
    sim.end_fault(cut)
    assert sim.take(at="B", timeout_ms=9_000)[0] == job, "the home has not heard of it"
    assert last_handed_out(sim)["attempt"] == 2
    assert sim.ack(job, at="B") == 1
    end_well(sim, job, deliveries=2)


@catches("death-keeps-lease")
def a_job_that_was_sent_back_has_all_its_attempts(new: New) -> None:
    """It has died at B, while the lease of its home A still ran, of which B could not know."""
    sim = new(nodes="ABC", seed=259)
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "A"), replicate=3, retry_s=60, attempts=1)
    assert sim.take(at="C")[0] == job
    cut = sim.cut("B", from_="A")
    sim.run_for(seconds=10)
    assert say(sim, "B", "NACK", job) == 1
    sim.end_fault(cut)
    sim.run_for(seconds=5)
    assert set(sim.copies(job).values()) == {"dead"}
    assert sim.under("retry", job, "", at="B") == "1"
    assert sim.take(at="C", timeout_ms=5_000)[0] == job, f"dead again, and nobody had it: {sim.copies(job)}"
    assert sim.ack(job, at="C") == 1
    end_well(sim, job, deliveries=2)


@catches("push-not-told")
def a_delay_that_was_ended_by_hand_does_not_begin_again(new: New) -> None:
    """C passes the job on as soon as it can reach its home, which knows of the delay."""
    sim = new(nodes="ABC", seed=257)
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "A"), replicate=3, retry_s=60, delay_s=300)
    cut = sim.cut("C", from_="A")
    sim.run_for(seconds=10)
    assert say(sim, "C", "ENQUEUE", job) == 1
    sim.end_fault(cut)
    assert sim.take(at="C", timeout_ms=9_000)[0] == job, "it still waits for its delay"
    assert last_handed_out(sim)["attempt"] == 1
    assert sim.ack(job, at="C") == 1
    end_well(sim, job)


@catches("handed-back-anywhere")
def a_delay_is_ended_at_any_holder(new: New) -> None:
    sim = new(nodes="ABC", seed=258)
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "A"), replicate=3, retry_s=60, delay_s=300)
    assert say(sim, "C", "ENQUEUE", job) == 1
    assert sim.copies(job)["A"] == "queued"
    assert sim.consume_and_ack(at="B") == job
    end_well(sim, job)
