"""Leases without a message per hand-out: who may queue a job again, and when."""
from __future__ import annotations

from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well, node_of


@catches("silence-is-permission")
def a_lease_outlives_the_node_that_gave_it(new: New) -> None:
    """The job waits at A for nearly its retry time, is handed out, and A dies before it has told that, and before it
    counts as failed. B's own timer would end at once; but the consumer has its retry time."""
    sim = new(nodes="ABC", seed=40, settings=(("cluster-node-timeout", "15000"),))
    job = sim.add_job(at="A", replicate=2, retry_s=10, holders="AB")
    sim.run_for(seconds=9)
    assert sim.consume(at="A") == job
    sim.crash("A", "power")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=7)
    assert got == [], "two workers at once"
    sim.run_for(seconds=10)
    assert got == [job], "and after the lease it must come"
    end_well(sim)


@catches("willqueue-unanswered")
def a_lease_given_late_is_told_to_those_who_ask(new: New) -> None:
    """As above, but A lives: asked by B it says how long the lease still runs."""
    sim = new(nodes="ABC", seed=41)
    job = sim.add_job(at="A", replicate=2, retry_s=4, holders="AB")
    sim.run_for(seconds=3)
    assert sim.consume(at="A") == job
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=2.5)
    assert got == [], "two workers at once"
    sim.run_for(seconds=6)
    assert got == [job]
    end_well(sim)


@catches("answers-not-awaited")
def an_answer_is_waited_for_however_long_it_takes(new: New) -> None:
    """As above, over a network on which question and answer take longer than node-timeout: nobody is silent."""
    sim = new(nodes="ABC", seed=55, faults=Faults(latency_ms=(1_500, 1_500)))
    job = sim.add_job(at="A", replicate=2, retry_s=4, holders="AB", timeout_ms=4_000)
    sim.run_for(seconds=2)
    assert sim.consume(at="A") == job
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=4)
    assert got == [], "two workers at once"
    sim.run_for(seconds=10)
    assert got == [job], "and after the lease it must come"
    end_well(sim)


@catches("no-holder-order")
def replicas_whose_timers_end_together_do_not_requeue_together(new: New) -> None:
    """A dies with the lease; B and C got their copies at the same moment, and each asks the other before it has
    heard that the other asks, too."""
    for seed in range(42, 52):
        sim = new(nodes="ABC", seed=seed, faults=Faults(latency_ms=(150, 250)))
        sim.add_job(at="A", replicate=3, retry_s=6, holders="ABC")
        assert sim.consume(at="A")
        sim.run_for(seconds=0.6)
        sim.crash("A", "power")
        b, c = sim.wait_for_job(at="B"), sim.wait_for_job(at="C")
        sim.run_for(seconds=11)
        assert len(b) + len(c) == 1, f"handed out by {len(b) + len(c)} replicas"
        end_well(sim)


@catches("taker-unannounced")
def the_taker_is_no_stranger_to_the_other_holders(new: New) -> None:
    """A gives the job to D, at which by then nobody waits any more, and dies. B and C never heard of D. The job is
    handed out by D late: they must know that it is with D."""
    sim = new(nodes="ABCD", seed=52)
    sim.wait_for_job(at="D", timeout_ms=1_500)
    sim.run_for(seconds=1)
    late = sim.hold("A", "D")
    job = sim.add_job(at="A", replicate=3, retry_s=5, holders="ABC")
    sim.run_for(seconds=1)
    sim.end_fault(late)
    sim.run_for(seconds=0.1)
    assert sim.copies(job)["D"] == "queued"
    sim.crash("A")
    sim.run_for(seconds=3.5)
    assert sim.consume(at="D") == job
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=4)
    assert got == [], "queued by a holder although D's consumer has time"
    end_well(sim)


@catches("gift-untold")
def a_job_on_its_way_is_not_idle(new: New) -> None:
    """A's worker is not heard of again, and A gives the job to D, to which it is long on its way. B and C, whose own
    time has come, ask A."""
    for seed in range(220, 224):
        sim = new(nodes="ABCD", seed=seed)
        job = sim.add_job(at="A", replicate=3, retry_s=3, holders="ABC")
        taken, _ = sim.take(at="A")
        assert taken == job
        sim.run_for(seconds=2)
        d = sim.wait_for_job(at="D")
        sim.run_for(seconds=0.1)
        b, c = sim.wait_for_job(at="B"), sim.wait_for_job(at="C")
        sim.run_for(seconds=0.5)
        late = sim.hold("A", "D")
        sim.run_for(seconds=1.5)
        sim.end_fault(late)
        sim.run_for(seconds=0.5)
        assert b + c + d == d == [job], f"handed out by {len(b + c + d)} nodes"
        end_well(sim)


@catches("gift-untold")
def what_the_taker_said_before_is_old(new: New) -> None:
    """B asks A and D. D answers that it has nothing against it, then A gives it the job; now B's question comes to A,
    and A's answer to B before D's word that the job is there."""
    for seed in range(224, 232):
        sim = new(nodes="ABD", seed=seed)
        job = sim.add_job(at="A", replicate=3, retry_s=3, holders="ABD")
        sim.run_for(seconds=2.8)
        question = sim.hold("B", "A")
        sim.run_for(seconds=1)
        word = sim.hold("D", "B")
        d = sim.wait_for_job(at="D")
        sim.run_for(seconds=0.1)
        assert d == [job]
        b = sim.wait_for_job(at="B")
        sim.end_fault(question)
        sim.run_for(seconds=1)
        sim.end_fault(word)
        sim.run_for(seconds=0.2)
        assert b == [], "two workers at once"
        end_well(sim)


@catches("no-reannounce")
def after_a_cut_one_queued_copy_is_left(new: New) -> None:
    """Each side of a cut had queued the job. When the cut heals they must hear of each other."""
    sim = new(nodes="ABC", seed=53)
    job = sim.add_job(at="A", replicate=2, retry_s=3, holders="AB")
    cut = sim.cut("B")
    sim.run_for(seconds=20)
    assert sim.copies(job) == {"A": "queued", "B": "queued"}, f"each side queues: {sim.copies(job)}"
    sim.end_fault(cut)
    sim.run_for(seconds=3)
    assert sorted(sim.copies(job).values()) == ["active", "queued"], f"not settled: {sim.copies(job)}"
    end_well(sim)


@catches("queued-lost")
def what_was_said_into_a_dying_link_is_said_again(new: New) -> None:
    """A and B both queue the job, and neither hears of the other, since their link is about to end."""
    sim = new(nodes="AB", seed=57)
    job = sim.add_job(at="A", replicate=2, retry_s=60, holders="AB")
    assert sim.consume(at="A") == job
    sim.hold("A", "B", is_both=True)
    sim.do("A", "NACK", job)
    sim.do("B", "ENQUEUE", job)
    sim.cut("B")
    sim.run_for(seconds=8)
    sim.heal()
    sim.run_for(seconds=8)
    assert list(sim.copies(job).values()).count("queued") == 1, f"queued twice: {sim.copies(job)}"


@catches("refusal-queues")
def a_node_that_refuses_a_copy_says_nothing_about_the_other_holders(new: New) -> None:
    """D, leaving, adds a job that others keep, and forgets it. One has it with a consumer and is slow to say so; the
    others ask D, too, take it for a holder that lost its copy, and send it one, which it refuses."""
    for seed in range(110, 114):
        sim = new(nodes="ABCD", seed=seed, settings=(("cluster-node-timeout", "6000"),))
        sim.do("D", "CLUSTER", "LEAVING", "yes")
        job = sim.add_job(at="D", replicate=3, retry_s=5)
        sim.run_for(seconds=4.5)
        first = next(name for name, state in sim.copies(job).items() if state == "queued")
        others = "ABC".replace(first, "")
        sim.hold(first, others)
        assert sim.consume(at=first) == job
        got = [sim.wait_for_job(at=name) for name in others]
        sim.run_for(seconds=3)
        assert got == [[], []], "two workers at once"
        end_well(sim)


@catches("queued-answer-unheard")
def who_asks_and_queues_before_the_answer_hears_that_it_is_queued(new: New) -> None:
    """As above, with the job still queued where it was: of two queued copies one is left."""
    for seed in range(114, 118):
        sim = new(nodes="ABCD", seed=seed)
        sim.do("D", "CLUSTER", "LEAVING", "yes")
        job = sim.add_job(at="D", replicate=3, retry_s=5)
        sim.run_for(seconds=4.5)
        first = next(name for name, state in sim.copies(job).items() if state == "queued")
        late = sim.hold(first, "ABC".replace(first, ""))
        sim.run_for(seconds=3)
        sim.end_fault(late)
        sim.run_for(seconds=1)
        assert list(sim.copies(job).values()).count("queued") == 1, f"queued twice: {sim.copies(job)}"
        end_well(sim)


@catches("late-enqueue-obeyed")
def a_slow_word_to_queue_a_job_is_too_late(new: New) -> None:
    """D, leaving, adds a job that others keep, and asks A to queue it. That is slow: another has queued it by then, as
    nobody else seemed to."""
    for seed in range(118, 124):
        sim = new(nodes="ABCD", seed=seed, settings=(("cluster-node-timeout", "6000"),))
        sim.do("D", "CLUSTER", "LEAVING", "yes")
        adding = sim.begin_add(at="D", replicate=3, retry_s=2)
        while not all(sim.views()[name] for name in "ABC"):
            sim.run_for(seconds=0.001)
        late = sim.hold("D", "A")
        sim.run_for(seconds=4)
        sim.end_fault(late)
        sim.run_for(seconds=1)
        copies = sim.copies(adding.id)
        assert list(copies.values()).count("queued") == 1, f"queued nowhere, or twice: {copies}"
        end_well(sim)


@catches("held-by-the-deaf")
def one_that_does_not_hear_a_node_does_not_keep_its_jobs_from_those_who_do(new: New) -> None:
    """A comes back with its jobs, and C does not hear it yet. Where C comes first it waits for its whole retry time, in
    which A could have a consumer; but B has asked A, and must not wait for C."""
    sim = new(nodes="ABC", seed=50)
    jobs = [sim.add_job(at="A", replicate=3, retry_s=300) for _ in range(12)]
    sim.run_for(seconds=2)
    sim.crash("A", "kill")
    sim.hold("A", "C", is_cut=True, is_both=True)
    sim.run_for(seconds=8)
    sim.restart("A")
    sim.run_for(seconds=30)
    queued = [job for job in jobs if "queued" in sim.copies(job).values()]
    assert queued == jobs, f"{len(jobs) - len(queued)} of {len(jobs)} jobs are queued nowhere"


@catches("restart-forgets-leases")
def a_restart_does_not_end_a_lease(new: New) -> None:
    sim = new(nodes="AB", seed=54)
    job = sim.add_job(at="A", replicate=1, retry_s=10)
    assert sim.consume(at="A") == job
    sim.run_for(seconds=0.5)
    sim.crash("A")
    sim.run_for(seconds=0.5)
    sim.restart("A")
    got = sim.wait_for_job(at="A")
    sim.run_for(seconds=7)
    assert got == [], "handed out again while the lease runs"
    sim.run_for(seconds=5)
    assert got == [job]
    end_well(sim)


@catches("sleeper-hands-out")
def a_node_that_slept_asks_before_it_hands_out(new: New) -> None:
    """A has the job queued and is stopped; B queues it, hands it out, and it is acked. A wakes up."""
    sim = new(nodes="ABC", seed=55)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB")
    pause = sim.fault("pause", "A")
    sim.run_for(seconds=8)
    assert sim.consume(at="B", timeout_ms=10_000) == job
    sim.end_fault(pause)
    got = sim.wait_for_job(at="A")
    sim.run_for(seconds=0.5)
    assert got == [], "handed out by the sleeper while B's consumer works on it"
    end_well(sim)


@catches("sleeper-begins")
def a_node_that_slept_asks_before_it_begins(new: New) -> None:
    """A has the job, which is delayed, when A is stopped with somebody waiting there; B queues it, hands it out, and it
    is acked. A wakes up, and the first thing it sees is that the delay is over."""
    sim = new(nodes="ABC", seed=55)
    job = sim.add_job(at="A", replicate=2, retry_s=2, delay_s=1, holders="AB")
    got = sim.wait_for_job(at="A")
    pause = sim.fault("pause", "A")
    assert sim.consume_and_ack(at="B", timeout_ms=20_000) == job
    sim.end_fault(pause)
    sim.run_for(seconds=3)
    assert got == [], "handed out by the sleeper, though it is done"
    end_well(sim, job)


@catches("queued-counts-as-failed")
def a_job_that_waits_at_a_node_that_restarts_has_not_failed(new: New) -> None:
    """Its lease has ended once at A, and it waits there for somebody to try again. A is restarted: that is no second
    failure, after which the job would be dead."""
    for seed in range(4):  # one in two of which has A first in the job's order
        sim = new(nodes="AB", seed=seed)
        job = sim.add_job(at="A", replicate=2, retry_s=2, attempts=2)
        assert sim.consume(at="A") == job
        sim.run_for(seconds=3)
        sim.crash("A")
        sim.restart("A")
        sim.run_for(seconds=8)
        assert sim.consume_and_ack(at="A") == job
        end_well(sim, job, deliveries=2)


@catches("old-moves-kept")
def a_move_that_is_over_does_not_end_a_lease(new: New) -> None:
    """A gives the job to B, which never gets it, and after its retry time hands it out itself. Then A is started anew,
    from its journal as it was written or as it was rewritten: what B says of that move is of no interest any more."""
    for is_rewritten in (False, True):
        sim = new(nodes="AB", seed=38)
        sim.rewrites = is_rewritten
        sim.wait_for_job(at="B")
        sim.run_for(seconds=1)
        cut = sim.cut("A")
        job = sim.add_job(at="A", retry_s=2)
        taken, token = sim.take(at="A", lease_ms=60_000, timeout_ms=30_000)
        assert taken == job
        for _ in range(20):
            sim.add_job(at="A", queue="other")
            sim.run_for(seconds=0.5)
        sim.crash("A", "kill")
        sim.restart("A")
        sim.end_fault(cut)
        sim.run_for(seconds=8)
        assert sim.under("ack", job, token, at="A") == "1", "its worker had a minute"
        sim.consume_everything(queue="other")
        end_well(sim, job)


@catches("old-idle-counts")
def an_answer_to_an_earlier_question_gives_no_leave(new: New) -> None:
    """The job waits at C, and B asks whether it may queue it. A has nothing against that, but its frames reach B after
    three seconds. Meanwhile A gets the job from C, a worker takes it there, C dies, and B asks again: the first answer
    of A arrives, and is not to this question."""
    sim = new(nodes="ABC", seed=56)  # in the order of this job B comes before A
    job = sim.add_job(at="C", replicate=3, retry_s=1)
    slow = sim.fault("slow", "AB")
    path = sim.network.paths["A", "B"]
    for ms in range(500, 3_001, 500):  # slower and slower: the link never seems silent
        path.low = path.high = ms
        sim.run_for(seconds=0.6)
    asked = questions_of(sim, "B")
    until = sim.now + 60_000
    while questions_of(sim, "B") == asked and sim.now < until:
        sim.run_for(seconds=0.001)
    assert questions_of(sim, "B") > asked
    sim.run_for(seconds=0.02)
    taken, token = sim.take(at="A", lease_ms=60_000, timeout_ms=500)
    assert taken == job
    sim.run_for(seconds=0.05)
    sim.crash("C")
    again = sim.wait_for_job(at="B")
    sim.run_for(seconds=20)
    assert again == [], "queued by leave of an old answer, while a worker of A has the job"
    assert sim.under("ack", job, token, at="A") == "1"
    sim.end_fault(slow)
    sim.restart("C")
    end_well(sim, job)


def questions_of(sim: Cluster, name: str) -> int:
    """How often the node has asked the other holders of a job whether it may queue it."""
    return int(node_of(sim, name).counters.get("willqueue", 0))
