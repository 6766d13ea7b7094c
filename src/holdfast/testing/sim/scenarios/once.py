"""At most once, in every schedule: hand-outs, moves and restarts of jobs with retry 0."""
from __future__ import annotations

from holdfast.testing.sim.disk import EVERYSEC
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.keys import unique_at
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well


@catches("once-not-synced")
def a_power_cut_after_the_hand_out_does_not_bring_it_back(new: New) -> None:
    """With a sync every second the record of the hand-out would be lost, and the replay hand out again."""
    for seed in range(8):
        sim = new(nodes="AB", seed=seed, faults=Faults(sync=EVERYSEC))
        sim.add_job(at="A", retry_s=0)
        sim.run_for(seconds=2)
        assert sim.consume(at="A")
        sim.crash("A", "power")
        sim.run_for(seconds=1)
        end_well(sim)


@catches("once-requeued-at-start")
def what_a_torn_tail_left_in_doubt_is_not_queued(new: New) -> None:
    for seed in range(20, 28):
        sim = new(nodes="AB", seed=seed, faults=Faults(sync=EVERYSEC))
        for _ in range(3):
            sim.add_job(at="A", retry_s=0)
        sim.run_for(seconds=1.5)
        sim.consume(at="A")
        sim.consume(at="B")
        sim.crash("A", "power")
        sim.run_for(seconds=1)
        end_well(sim)


@catches("move-not-recorded")
def a_giver_that_restarts_remembers_what_it_gave(new: New) -> None:
    """B hands it out, its answer never comes, and A restarts."""
    sim = new(nodes="AB", seed=30)
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    sim.hold("B", "A")
    sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=0.1)
    assert len(got) == 1
    sim.crash("A", "power")
    sim.run_for(seconds=0.5)
    end_well(sim)


@catches("took-not-recorded", "h10-import-not-logged")
def a_taker_that_restarts_remembers_what_it_took(new: New) -> None:
    """B hands it out, and A hears nothing of it; B restarts and is asked what became of the move."""
    sim = new(nodes="AB", seed=31)
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    sim.hold("B", "A")
    sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=1)
    assert len(got) == 1
    sim.crash("B", "power")
    sim.run_for(seconds=1)
    end_well(sim)


@catches()
def a_taker_that_dies_between_two_records_has_taken_it_once(new: New) -> None:
    """The power goes while B writes that it took the job: it has all of it, or none, or it is in doubt."""
    for seed in range(100, 130):
        sim = new(nodes="AB", seed=seed)
        sim.wait_for_job(at="B")
        sim.run_for(seconds=1)
        sim.fault("crash", "B", seconds=2)
        sim.add_job(at="A", retry_s=0)
        sim.run_for(seconds=3)
        end_well(sim)


@catches("moves-by-the-clock")
def a_move_is_not_taken_for_one_before_the_clock_was_set_back(new: New) -> None:
    """B takes a job, and remembers the move. A is started anew, by its clock at the same time as before, and gives B
    another job, which is lost with the link: what B took was not that one."""
    sim = new(nodes="AB", seed=37)
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    back = sim.hold("B", "A")
    sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=0.5)
    assert len(got) == 1
    sim.crash("A", "kill")
    sim.fault("jump", "A", amount=-sim.now)
    sim.restart("A")
    sim.end_fault(back)
    sim.wait_for_job(at="B")
    sim.run_for(seconds=5)
    sim.hold("A", "B", is_cut=True)
    job = sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=20)
    end_well(sim)
    assert sim.history.deliveries(job) == 1, f"{job} was given to B, which never saw it"


@catches("taken-not-synced")
def a_giver_that_loses_power_does_not_ask_a_taker_that_forgot(new: New) -> None:
    """B took the job, said so, and handed it out; A heard it, said something else, so that B knows it did, and
    loses power at once."""
    for seed in range(8):
        sim = new(nodes="AB", seed=seed, faults=Faults(sync=EVERYSEC))
        got = sim.wait_for_job(at="B")
        sim.wait_for_job(at="B")
        sim.run_for(seconds=2.1)
        job = sim.add_job(at="A", retry_s=0)
        while "A" in sim.copies(job):
            sim.run_for(seconds=0.001)
        sim.add_job(at="A", retry_s=5)
        sim.run_for(seconds=0.1)
        sim.crash("A", "power")
        sim.ack(job, at="B")
        sim.run_for(seconds=4)
        assert got == [job]
        end_well(sim)


@catches("give-back-on-silence")
def a_giver_that_hears_nothing_waits(new: New) -> None:
    """The frame arrives, the answer does not: B hands it out, and so must A not."""
    sim = new(nodes="ABC", seed=32)
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    sim.hold("B", "A", is_cut=True)
    sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=20)
    again = sim.consume(at="A")
    assert not (got and again), "handed out by the taker and by the giver"
    end_well(sim)


@catches("in-doubt-requeued")
def a_move_to_a_node_that_lost_its_disk_is_in_doubt(new: New) -> None:
    """B hands it out, A hears nothing of it, and B comes back with an empty disk: nobody knows any more."""
    sim = new(nodes="AB", seed=33)
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    sim.hold("B", "A")
    sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=0.5)
    assert len(got) == 1
    sim.crash("B", "wipe")
    sim.run_for(seconds=1)
    end_well(sim)


@catches()
def an_operator_may_queue_what_is_in_doubt(new: New) -> None:
    """B, which may have taken the job, has lost its disk before it handed anything out. ENQUEUE brings the job back,
    and a restart does not take it away again."""
    sim = new(nodes="AB", seed=37)
    sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    sim.hold("A", "B")
    job = sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=0.2)
    gone = sim.crash("B", "wipe")
    sim.heal()
    sim.end_fault(gone)
    sim.run_for(seconds=8)
    assert sim.do("A", "ENQUEUE", job)["count"] == 1
    sim.crash("A", "power")
    sim.restart("A")
    sim.run_for(seconds=5)
    assert sim.consume(at="A") == job
    sim.ack(job, at="A")
    end_well(sim, job)


@catches("doubt-not-recorded")
def a_restart_does_not_end_a_doubt(new: New) -> None:
    """As above, and A, which knows that nobody can say whether B took the job, restarts and finds B again."""
    sim = new(nodes="AB", seed=36)
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    sim.hold("B", "A")
    sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=0.5)
    assert len(got) == 1
    sim.crash("B", "wipe")
    sim.run_for(seconds=1)
    sim.heal()
    sim.run_for(seconds=8)
    sim.crash("A", "kill")
    sim.run_for(seconds=1)
    end_well(sim)


@catches("h7-gives-repeated", "resend-after-reconnect")
def a_give_is_not_repeated_after_a_reconnect(new: New) -> None:
    sim = new(nodes="AB", seed=34)
    sim.wait_for_job(at="B")
    sim.wait_for_job(at="B")
    sim.run_for(seconds=1)
    back = sim.hold("B", "A", is_cut=True)
    sim.add_job(at="A", retry_s=0)
    sim.run_for(seconds=12)
    sim.end_fault(back)
    sim.run_for(seconds=5)
    end_well(sim)


@catches("once-copied")
def at_most_once_jobs_have_one_holder(new: New) -> None:
    sim = new(nodes="ABC", seed=35, settings=(("cluster-node-timeout", "1000"), ("heal-after-ms", "2000")))
    job = sim.add_job(at="A", retry_s=0, replicate=0)
    sim.run_for(seconds=1)
    assert set(sim.copies(job)) == {"A"}
    sim.cut("C")
    sim.run_for(seconds=20)
    assert set(sim.copies(job)) == {"A"}
    end_well(sim)


@catches("once-returned-forgotten")
def a_job_that_came_back_unused_is_handed_out_after_a_restart(new: New) -> None:
    """Its home lends it to a node where somebody waits. When it gets there nobody does any more, so it goes back, and
    is queued. Then its home is restarted."""
    sim = new(nodes="ABC", seed=38)
    key = unique_at(sim, "A")
    sim.add_keyed(at="A", unique=key)
    sim.consume_and_ack(at="A")
    sim.wait_for_job(at="B", timeout_ms=1_000)
    sim.run_for(seconds=0.8)
    late = sim.hold("A", "B")
    job, _ = sim.add_keyed(at="A", unique=key, retry_s=0)
    sim.run_for(seconds=0.5)
    assert sim.copies(job) == {"A": "active"}, f"it was not lent: {sim.copies(job)}"
    sim.end_fault(late)
    sim.run_for(seconds=0.5)
    assert sim.copies(job) == {"A": "queued"}, f"it did not come back: {sim.copies(job)}"
    sim.crash("A")
    sim.restart("A")
    sim.run_for(seconds=5)
    assert sim.consume(at="A") == job, "nobody had it, and nobody will"
    sim.ack(job, at="A")
    end_well(sim, job)
