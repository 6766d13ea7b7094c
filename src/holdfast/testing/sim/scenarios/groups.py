"""Jobs of a group, one at a time and in order, whoever is the home of the group."""
from __future__ import annotations

from holdfast.core import home
from holdfast.testing.history import OK
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.keys import group_at, owner_of
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well


@catches()
def a_group_is_handed_out_in_order_at_any_node(new: New) -> None:
    """Added at three nodes, consumed at three nodes: one at a time, in the order in which they were accepted."""
    sim = new(nodes="ABC", seed=300)
    jobs = [sim.add_keyed(at=at, group="g", replicate=2, retry_s=5)[0] for at in "ABCABC"]
    assert all(jobs)
    for number, job in enumerate(jobs):
        at = "BCA"[number % 3]
        assert sim.consume(at=at) == job
        assert sim.consume(at="ABC"[number % 3], timeout_ms=200) == "", "two of a group at once"
        sim.ack(job, at="CAB"[number % 3])
    end_well(sim, *jobs)


@catches("group-released-on-nack")
def a_job_given_back_keeps_its_turn(new: New) -> None:
    sim = new(nodes="ABC", seed=301)
    first, _ = sim.add_keyed(at="A", group="g", replicate=2, retry_s=5)
    second, _ = sim.add_keyed(at="B", group="g", replicate=2, retry_s=5)
    assert sim.consume(at="C") == first
    sim.nack(first, at="C")
    assert sim.consume(at="C") == first, "the next of its group went before it"
    sim.ack(first, at="C")
    assert sim.consume(at="A") == second
    sim.ack(second, at="A")
    end_well(sim, second)


@catches("taken-out-keeps-turn")
def a_job_taken_out_by_hand_does_not_hold_up_its_group(new: New) -> None:
    """An at-most-once job has no retry time after which it would come back: until it is put back others go."""
    sim = new(nodes="ABC", seed=306)
    group = group_at(sim, "A")
    first, _ = sim.add_keyed(at="A", group=group, retry_s=0)
    second, _ = sim.add_keyed(at="A", group=group, retry_s=5)
    third, _ = sim.add_keyed(at="A", group=group, retry_s=5)
    assert sim.about("dequeue", "DEQUEUE", first, "A") == 1
    assert sim.consume(at="A") == second, "nobody has the first, and nobody will"
    assert sim.about("enqueue", "ENQUEUE", first, "A") == 1
    sim.ack(second, at="A")
    assert [sim.consume_and_ack(at="A"), sim.consume_and_ack(at="A")] == [first, third]
    end_well(sim, second, third)


@catches("copies-put-off")
def a_home_that_restarts_knows_whose_turn_it_is(new: New) -> None:
    """Nobody had the first of the group when its home, or everybody, was killed, and the home's journal says so. The
    others have copies, which they would queue after the retry time: that is not a word of who has it."""
    for seed, who in ((317, "A"), (318, "ABC")):
        sim = new(nodes="ABC", seed=seed)
        group = group_at(sim, "A")
        ids = [sim.add_keyed(at="A", group=group, replicate=3, retry_s=300)[0] for _ in range(3)]
        assert sim.consume_and_ack(at="B") == ids[0]
        sim.run_for(seconds=1)
        for name in who:
            sim.crash(name, "kill")
        for name in who:
            sim.restart(name)
        assert sim.consume(at="B", timeout_ms=15_000) == ids[1], "it is put off by who has nothing but a copy"
        sim.ack(ids[1], at="B")
        assert sim.consume(at="B", timeout_ms=15_000) == ids[2]
        sim.ack(ids[2], at="B")
        end_well(sim, *ids)


@catches("lent-blindly")
def a_loan_that_meets_the_ack_is_not_handed_out(new: New) -> None:
    """A lends the job to B, a holder at which somebody waits; the frame is slow. Meanwhile B is told that the job is
    done. Whoever waits there gets the next one."""
    sim = new(nodes="ABC", seed=307)
    group = group_at(sim, "AB")
    first, _ = sim.add_keyed(at="A", group=group, replicate=2, retry_s=5)
    second, _ = sim.add_keyed(at="A", group=group, replicate=2, retry_s=5)
    late = sim.hold("A", "B")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=0.1)
    sim.ack(first, at="B")
    sim.end_fault(late)
    sim.run_for(seconds=1)
    assert got == [second], "an acked job was handed out, or nobody knows that somebody waits"
    sim.ack(second, at="B")
    end_well(sim, first, second)


@catches("lent-blindly")
def a_loan_does_not_take_back_what_its_node_knows(new: New) -> None:
    """As above, but B hears from C, which cannot reach A, that the job could not be done."""
    sim = new(nodes="ABC", seed=308)
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "AB"), replicate=3, retry_s=60)
    sim.cut("C", from_="A")
    sim.run_for(seconds=10)
    late = sim.hold("A", "B")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=0.1)
    sim.command("C", "nack", [b"NACK", job.encode(), b"DELAY", b"60"], {"ids": [job]})
    sim.run_for(seconds=0.1)
    sim.end_fault(late)
    sim.run_for(seconds=1)
    assert got == [job]
    shown = [each["nacks"] for op in sim.history.ops if op.type == OK and op.f == "get" for each in op.value["jobs"]]
    assert shown == [1], "a consumer at B is shown fewer failures than B has counted"
    sim.ack(job, at="B")
    end_well(sim)


@catches("lent-while-out")
def a_loan_is_not_handed_out_where_the_job_is_out(new: New) -> None:
    """A, the home, is cut off, and has the job queued. B takes over, and a consumer there gets it. When the cut is over
    another waits at B, which A hears before it hears of the new home: it lends it the same job."""
    sim = new(nodes="ABC", seed=310)
    group = group_at(sim, "AB")
    job, _ = sim.add_keyed(at="A", group=group, replicate=3, retry_s=30)
    cut = sim.cut("A", from_="B")
    sim.cut("A", from_="C")
    taken, token = sim.take(at="B", timeout_ms=60_000)
    assert taken == job
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=5)
    sim.end_fault(cut)
    sim.run_for(seconds=10)
    assert got == [], "two consumers at B have it"
    assert sim.under("ack", job, token, at="B") == "1"
    end_well(sim, job)


@catches("unpaused-untold")
def a_loan_that_met_a_pause_comes_again(new: New) -> None:
    """Somebody waits at B, whose queue hands out nothing for a while: it gives back what it is lent."""
    sim = new(nodes="ABC", seed=311)
    got = sim.wait_for_job(at="B")
    sim.do("B", "PAUSE", "q", "out")
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "A"), retry_s=60)
    sim.run_for(seconds=1)
    assert got == []
    sim.do("B", "PAUSE", "q", "none")
    sim.run_for(seconds=1)
    assert got == [job], "A does not know that somebody at B still waits"
    sim.ack(job, at="B")
    end_well(sim, job)


@catches("loans-confused")
def a_loan_that_comes_back_late_does_not_end_the_next(new: New) -> None:
    """A lends the job to B; the frame is slow, and whoever waited there goes. When the lease is over, a consumer at C
    gets the job. Then B says that it did not hand it out: that is of the first loan, and C's consumer keeps its job.

    All of that takes less than node-timeout: a link that ends forgets what is lent."""
    sim = new(nodes="ABC", seed=309)
    job, _ = sim.add_keyed(at="A", group=group_at(sim, "A"), retry_s=1)
    late = sim.hold("A", "B")
    gone = sim.wait_for_job(at="B", timeout_ms=500)
    sim.run_for(seconds=0.8)
    again, token = sim.take(at="C")
    assert again == job
    sim.end_fault(late)
    other = sim.wait_for_job(at="A")
    sim.run_for(seconds=0.5)
    assert gone == [] and other == [], "handed out while the consumer at C has it"
    assert sim.under("ack", job, token, at="C") == "1"
    end_well(sim, job, deliveries=1)


@catches("group-by-creation")
def the_order_is_that_of_acceptance_not_of_clocks(new: New) -> None:
    """C's clock is behind: a job added there has a smaller id than one that was accepted before it was sent."""
    sim = new(nodes="ABC", seed=302, faults=Faults(skew_ms={"C": -5_000}))
    group = group_at(sim, "A")
    first, _ = sim.add_keyed(at="B", group=group, replicate=2, retry_s=5)
    second, _ = sim.add_keyed(at="C", group=group, replicate=2, retry_s=5)
    assert sim.consume(at="A") == first
    sim.ack(first, at="A")
    assert sim.consume(at="A") == second
    sim.ack(second, at="A")
    end_well(sim, first, second)


@catches("head-not-out")
def the_head_is_out_when_its_home_dies(new: New) -> None:
    """A consumer has the first job when its home dies. The next home must wait for its lease, and the second job must
    wait for the first."""
    sim = new(nodes="ABCD", seed=303)
    group = group_at(sim, "ABC")
    first, _ = sim.add_keyed(at="D", group=group, replicate=3, retry_s=15)
    second, _ = sim.add_keyed(at="D", group=group, replicate=3, retry_s=15)
    sim.run_for(seconds=1)
    assert sim.consume(at="D") == first
    sim.run_for(seconds=0.5)
    sim.crash("A")
    got = [*(sim.wait_for_job(at=at) for at in "BCD")]
    sim.run_for(seconds=12)
    assert owner_of(sim, "D", home.GROUP, group) == "B", "the next in the order takes over"
    assert not any(got), "handed out although the consumer of the first has time"
    sim.run_for(seconds=12)
    assert [job for each in got for job in each] == [first], "and then the first again, not the second"
    sim.ack(first, at="D")
    sim.run_for(seconds=2)
    assert [job for each in got for job in each] == [first, second]
    sim.ack(second, at="D")
    end_well(sim)


@catches()
def a_home_that_returns_gets_its_groups_back_in_order(new: New) -> None:
    """A is killed, B takes over, A returns and gets the group by a handover while a job is out."""
    sim = new(nodes="ABC", seed=304)
    group = group_at(sim, "AB")
    jobs = [sim.add_keyed(at="C", group=group, replicate=3, retry_s=20)[0] for _ in range(3)]
    sim.crash("A")
    sim.run_for(seconds=40)
    assert owner_of(sim, "C", home.GROUP, group) == "B"
    assert sim.consume(at="C", timeout_ms=1_000) == jobs[0]
    sim.restart("A")
    sim.run_for(seconds=10)
    assert owner_of(sim, "C", home.GROUP, group) == "A", "it was not handed over"
    assert owner_of(sim, "B", home.GROUP, group) == "A"
    assert sim.consume(at="B", timeout_ms=500) == "", "two of a group at once"
    sim.ack(jobs[0], at="C")
    assert sim.consume(at="B") == jobs[1]
    sim.ack(jobs[1], at="B")
    assert sim.consume(at="A") == jobs[2]
    sim.ack(jobs[2], at="C")
    end_well(sim, *jobs)
