"""An acknowledgement is neither forgotten nor overtaken: H1-H6, H8, H9, H12-H14."""
from __future__ import annotations

from holdfast.testing.sim.disk import EVERYSEC
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well


@catches()
def an_acked_job_does_not_return_when_a_cut_off_replica_comes_back(new: New) -> None:
    """B imports the job by federation and its consumer acks it while C, a replica, is cut off. The ack must
    outlive the cut: when C returns it must learn of the ack, not requeue."""
    sim = new(nodes="ABC", seed=1)
    job = sim.add_job(at="A", replicate=2, retry_s=1, holders="AC")
    sim.cut("C", from_="AB")
    assert sim.consume_and_ack(at="B") == job
    sim.run_for(seconds=20)
    end_well(sim, job)


@catches("h2-give-unacks", "unserved-untold")
def a_give_that_meets_the_ack_does_not_queue_the_job(new: New) -> None:
    """A gives the job to D, a holder at which somebody waits; the frame is slow. Meanwhile D is told that the job
    is done. Whoever waits there gets the next one."""
    sim = new(nodes="ABD", seed=2)
    got = sim.wait_for_job(at="D")
    sim.run_for(seconds=1)
    back = sim.hold("BD", "A")
    adding = sim.begin_add(at="A", replicate=3, retry_s=5, holders="ABD", timeout_ms=9_000)
    sim.run_for(seconds=0.02)
    late = sim.hold("A", "D")
    sim.end_fault(back)
    sim.run_for(seconds=0.1)
    sim.ack(adding.id, at="D")
    sim.end_fault(late)
    sim.run_for(seconds=1)
    assert got == [], "an acked job was handed out"
    job = sim.add_job(at="A", retry_s=60)
    sim.run_for(seconds=2)
    assert got == [job], "A does not know that somebody at D still waits"
    sim.ack(job, at="D")
    end_well(sim, adding.id, deliveries=0)


@catches("h3-acks-not-durable")
def an_ack_survives_a_restart(new: New) -> None:
    """A takes the ack and dies before it could tell B, the other holder."""
    sim = new(nodes="ABC", seed=3)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB")
    sim.cut("A")
    assert sim.consume_and_ack(at="A") == job
    sim.crash("A", "power")
    sim.run_for(seconds=1)
    end_well(sim, job)


@catches("h3-acks-not-durable")
def an_ack_for_an_unknown_job_survives_a_restart(new: New) -> None:
    """D is told that a job is done which only A and B know, and dies before it could tell them."""
    sim = new(nodes="ABD", seed=4)
    job = sim.add_job(at="A", replicate=2, retry_s=4, holders="AB")
    assert sim.consume(at="A") == job
    sim.cut("D")
    sim.ack(job, at="D")
    sim.crash("D", "power")
    sim.run_for(seconds=0.5)
    end_well(sim, job)


@catches("own-number-not-believed")
def an_ack_counts_though_the_clock_was_set_back_since_the_job_was_made(new: New) -> None:
    """A dies before its job is accepted, so it has no record of it, and comes back an hour earlier. B has the job, and
    is cut off."""
    sim = new(nodes="AB", seed=13)
    sim.hold("B", "A")
    sim.begin_add(at="A", replicate=2, retry_s=3)
    sim.run_for(seconds=0.5)
    sim.crash("A")
    sim.fault("jump", "A", amount=-3_600_000)
    sim.cut("A")
    sim.restart("A")
    job = sim.consume(at="B", timeout_ms=20_000)
    assert job
    sim.ack(job, at="A")
    sim.run_for(seconds=2)
    end_well(sim, job)


@catches("h4-no-tombstone-for-unknown")
def a_copy_that_comes_after_the_ack_stays_dead(new: New) -> None:
    """A's REPL to C is slow, so B is asked in its place. The job is done and B collects the ack: C is told
    `done` before it ever saw the job. Then the copy arrives."""
    sim = new(nodes="ABC", seed=5)
    late = sim.hold("A", "C")
    job = sim.add_job(at="A", replicate=2, retry_s=1, holders="ACB")
    assert sim.consume(at="A") == job
    sim.ack(job, at="B")
    sim.run_for(seconds=1.5)
    sim.end_fault(late)
    sim.run_for(seconds=5)
    end_well(sim, job)


@catches("h12-unknown-counts-for-good")
def who_knew_nothing_is_asked_again_when_somebody_names_it(new: New) -> None:
    """As above: C says it knows nothing, then gets A's copy, and is cut off. B must not collect before C has been
    asked again."""
    sim = new(nodes="ABC", seed=5)
    late = sim.hold("A", "C")
    job = sim.add_job(at="A", replicate=2, retry_s=5, holders="ACB")
    assert sim.consume(at="A") == job
    sim.ack(job, at="B")
    sim.run_for(seconds=0.1)
    sim.hold("B", "C", is_cut=True, is_both=True)
    sim.end_fault(late)
    sim.run_for(seconds=0.02)
    sim.cut("C")
    sim.run_for(seconds=10)
    end_well(sim, job)


@catches()
def an_aborted_add_does_not_erase_an_ack(new: New) -> None:
    """A's ADDJOB waits for copies; B has one, queues it after its retry time, hands it out, and it is acked there,
    while C, which has one, too, is cut off. Then A gives up: its abort must not make B forget the ack."""
    sim = new(nodes="ABC", seed=6)
    back = sim.hold("BC", "A")
    got = sim.wait_for_job(at="B")
    sim.begin_add(at="A", replicate=3, retry_s=1, holders="ABC", timeout_ms=2_600)
    sim.run_for(seconds=0.1)
    sim.cut("C")
    sim.hold("A", "B", is_cut=True)
    sim.run_for(seconds=2.4)
    for job in got:
        sim.ack(job, at="B")
    sim.run_for(seconds=3)
    sim.end_fault(back)
    sim.run_for(seconds=3)
    end_well(sim, *got)


@catches("h5-abort-erases-ack")
def an_abort_does_not_erase_who_else_has_it(new: New) -> None:
    """As above, but B gave its copy to D, which worked on it and is cut off when the ack comes to B. What B and C
    say does not reach A before its link breaks; A's abort leaves before A takes the link for silent. If that abort
    made them forget the ack, they would forget D with it; D would queue the job again, and nobody would know better."""
    sim = new(nodes="ABCD", seed=17)
    got = sim.wait_for_job(at="D")
    back = sim.hold("BCD", "A")
    adding = sim.begin_add(at="A", replicate=3, retry_s=1, holders="ABC", timeout_ms=1_500)
    sim.run_for(seconds=0.1)
    (job,) = sim.views()["B"]
    sim.do("B", "ENQUEUE", job)  # of which A is asked, who does not answer
    sim.run_for(seconds=0.1)
    assert got == [job]
    sim.cut("D")
    sim.ack(job, at="B")
    while not adding.ended:
        sim.run_for(seconds=0.1)
    sim.run_for(seconds=0.1)
    gone = sim.cut("A")
    sim.run_for(seconds=8)
    sim.end_fault(back)
    sim.end_fault(gone)
    sim.run_for(seconds=200)
    end_well(sim, *got)


@catches("gotack-not-kept")
def who_confirms_an_ack_has_it_on_disk(new: New) -> None:
    """B says that it holds the ack, A forgets the job, and B loses power before its disk was synced by the clock.
    When it is back nobody is left to tell it."""
    for seed in range(8):
        sim = new(nodes="AB", seed=seed, faults=Faults(sync=EVERYSEC))
        job = sim.add_job(at="A", replicate=2, retry_s=5, holders="AB")
        sim.run_for(seconds=2.2)
        assert sim.consume(at="A") == job
        sim.ack(job, at="A")
        while sim.copies(job):
            sim.run_for(seconds=0.001)
        sim.crash("B", "power")
        sim.run_for(seconds=200)
        end_well(sim, job)


@catches("collector-forgets")
def who_collects_an_ack_has_it_on_disk(new: New) -> None:
    """B confirms that it holds the ack, A tells it to forget the job, and loses power before its own disk was synced by
    the clock. It comes back with the job when B's tombstone is gone."""
    for seed in range(8):
        sim = new(nodes="AB", seed=seed, faults=Faults(sync=EVERYSEC))
        job = sim.add_job(at="A", replicate=2, retry_s=5, holders="AB")
        sim.run_for(seconds=2.2)
        assert sim.consume(at="B") == job
        sim.ack(job, at="A")
        while sim.copies(job):
            sim.run_for(seconds=0.001)
        sim.crash("A", "power")
        sim.run_for(seconds=200)
        end_well(sim, job)


@catches("h6-no-tombstone-at-collection", "h12-no-gotack-barrier")
def a_give_that_comes_after_collection_stays_dead(new: New) -> None:
    """A gives the job to D, a holder at which somebody waits; the frame is slow. Meanwhile B is told that the job
    is done, and asks A and D. If A's answer counted, B would collect, D would forget, and then the give arrive."""
    sim = new(nodes="ABD", seed=7)
    got = sim.wait_for_job(at="D")
    sim.run_for(seconds=1)
    back = sim.hold("BD", "A")
    adding = sim.begin_add(at="A", replicate=3, retry_s=5, holders="ABD", timeout_ms=9_000)
    sim.run_for(seconds=0.02)
    late = sim.hold("A", "D")
    sim.end_fault(back)
    sim.run_for(seconds=0.1)
    sim.ack(adding.id, at="B")
    sim.run_for(seconds=1.5)
    sim.end_fault(late)
    sim.run_for(seconds=3)
    assert got == [], "a job was handed out after it had been acked and collected"
    end_well(sim, adding.id, deliveries=0)


@catches("h8-gotack-without-set")
def a_holder_that_only_one_node_knows_hears_of_the_ack(new: New) -> None:
    """A gives the job to D, and D hands it out. B, a first holder, knows nothing of D; the ack goes to B."""
    sim = new(nodes="ABCD", seed=8)
    cut = sim.cut("BC", from_="AD")
    sim.end_fault(cut)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB")
    apart = sim.hold("D", "BC", is_cut=True, is_both=True)
    assert sim.consume(at="D") == job
    sim.ack(job, at="B")
    sim.run_for(seconds=8)
    sim.end_fault(apart)
    sim.run_for(seconds=8)
    end_well(sim, job)


@catches("h9-deaf-while-acked")
def a_holder_nobody_listed_is_noted_even_while_acked(new: New) -> None:
    """C was asked for a copy late, so B knows nothing of it. B holds the ack; A is gone. C tells B that it will
    queue the job, and B's answer is lost. A comes back with an empty disk: B knows of C from C's own words only,
    and must not forget the ack before C has it, however long that takes."""
    sim = new(nodes="ABC", seed=9)
    slow = sim.hold("B", "A")
    adding = sim.begin_add(at="A", replicate=2, retry_s=1, holders="ABC", timeout_ms=9_000)
    sim.run_for(seconds=0.3)
    assert adding.id
    sim.end_fault(slow)
    sim.run_for(seconds=0.1)
    gone = sim.crash("A", "wipe")
    sim.ack(adding.id, at="B")
    sim.hold("B", "C")
    sim.run_for(seconds=1.5)
    sim.cut("C")
    sim.run_for(seconds=10)
    sim.end_fault(gone)
    sim.run_for(seconds=200)
    sim.heal()
    sim.run_for(seconds=10)
    sim.consume_everything()
    sim.run_for(seconds=10)
    assert sim.history.deliveries(adding.id) == 0, "the ack was forgotten although somebody still had a copy"


@catches("h13-ack-only-vouches")
def two_nodes_that_never_held_it_do_not_vouch_for_each_other(new: New) -> None:
    """D and E, on one side of a cut, are told at the same moment that the job is done; its holders are on the
    other side. Neither may forget because the other knows."""
    sim = new(nodes="ABDE", seed=10)
    job = sim.add_job(at="A", replicate=2, retry_s=20, holders="AB")
    assert sim.consume(at="A") == job
    cut = sim.cut("DE")
    apart = [sim.hold("D", "E"), sim.hold("E", "D")]
    sim.ack(job, at="D")
    sim.ack(job, at="E")
    for number in apart:
        sim.end_fault(number)
    sim.run_for(seconds=10)
    sim.end_fault(cut)
    sim.run_for(seconds=5)
    end_well(sim, job)


@catches("h14-abort-forgets-holders")
def an_aborted_add_is_told_to_all_who_may_have_it(new: New) -> None:
    """A's ADDJOB times out: it never heard that B and C took their copies, and C is cut off when it gives up.
    The copies must go all the same, before anybody gets them."""
    sim = new(nodes="ABC", seed=11)
    sim.hold("BC", "A")
    adding = sim.begin_add(at="A", replicate=3, retry_s=20, holders="ABC", timeout_ms=500)
    sim.run_for(seconds=0.2)
    sim.cut("C")
    sim.run_for(seconds=12)
    assert adding.ended and adding.ended[0][1]["error"].startswith("NOREPL")
    sim.heal()
    sim.settle()
    left = {name: dict(view) for name, view in sim.views().items()}
    assert not any(copy.state != "tombstone" for view in left.values() for copy in view.values()), f"ghosts: {left}"


@catches("incarnation-ignored")
def a_wiped_node_counts_as_no_copy_and_no_ack(new: New) -> None:
    """B had confirmed the ack and loses its disk; C was cut off. What B confirmed died with it, and a copy
    counted at B is none."""
    sim = new(nodes="ABC", seed=12)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB")
    sim.crash("B", "wipe")
    sim.run_for(seconds=1)
    sim.restart("B")
    sim.run_for(seconds=5)
    sim.crash("A", "wipe")
    sim.run_for(seconds=1)
    sim.heal()
    sim.consume_everything()
    sim.run_for(seconds=20)
    assert sim.history.deliveries(job) >= 1, "healed to one copy, and that one was counted at a wiped node"
    sim.check()


@catches("tombstone-not-journaled")
def a_tombstone_survives_a_restart(new: New) -> None:
    """A, B and C held the job, it was acked and collected while C was paused. C restarts from its disk, with the
    copy; A and B have restarted, too, and must still know."""
    sim = new(nodes="ABC", seed=13)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB")
    assert sim.consume(at="A") == job
    sim.ack(job, at="A")
    sim.run_for(seconds=1)
    assert sim.copies(job) == {}
    sim.crash("A", "power")
    sim.restart("A")
    sim.run_for(seconds=2)
    tombs = {name: view[job].state for name, view in sim.views().items() if job in view}
    assert set(tombs) >= {"A", "B"}, f"known to {sorted(tombs)} only"
    end_well(sim, job)


@catches()
def an_abort_survives_a_restart(new: New) -> None:
    """A's ADDJOB times out while C, which has a copy, is cut off. A restarts before it could tell C."""
    sim = new(nodes="ABC", seed=14)
    sim.hold("BC", "A")
    adding = sim.begin_add(at="A", replicate=3, retry_s=20, holders="ABC", timeout_ms=500)
    sim.run_for(seconds=0.2)
    sim.cut("C")
    sim.run_for(seconds=2)
    assert adding.ended and adding.ended[0][1]["error"].startswith("NOREPL")
    sim.crash("A", "power")
    sim.crash("B", "power")
    sim.run_for(seconds=1)
    sim.heal()
    sim.settle()
    left = {name: dict(view) for name, view in sim.views().items()}
    assert not any(copy.state != "tombstone" for view in left.values() for copy in view.values()), f"ghosts: {left}"


@catches()
def the_copies_of_an_async_job_are_remembered(new: New) -> None:
    """ASYNC answers before the copies are made. A restarts after they are: it must know who has them, or its ack
    is collected without them."""
    sim = new(nodes="ABC", seed=15)
    job = str(sim.do("A", "ADDJOB", "q", "soon", "0", "REPLICATE", "3", "ASYNC", "RETRY", "10")["reply"])
    sim.run_for(seconds=1)
    assert set(sim.copies(job)) == {"A", "B", "C"}
    sim.crash("A", "power")
    sim.restart("A")
    sim.run_for(seconds=0.5)
    sim.ack(job, at="A")
    end_well(sim, job, deliveries=0)


@catches()
def who_keeps_no_copy_tells_all_holders_of_each_other(new: New) -> None:
    """A leaves: it keeps no copy of what it accepts. B and C, which do, must know of each other, since A will not
    remember."""
    sim = new(nodes="ABCD", seed=16)
    sim.do("A", "CLUSTER", "LEAVING", "yes")
    sim.run_for(seconds=1)
    job = sim.add_job(at="A", replicate=2, retry_s=8, holders="ABC")
    sim.run_for(seconds=0.2)
    assert set(sim.copies(job)) == {"B", "C"}
    sim.ack(job, at="B")
    sim.run_for(seconds=1)
    assert sim.copies(job) == {}, f"acked at B, and still {sim.copies(job)}"
    end_well(sim, job, deliveries=0)


@catches("late-holders-untold")
def a_holder_that_was_asked_late_is_known_to_those_asked_early(new: New) -> None:
    """C is slow, so D is asked, too; B had been told of A and C only. A, who knew of all, loses its disk, and the job
    is acked at B: D must hear of it, though it will not ask before every tombstone is gone."""
    sim = new(nodes="ABCD", seed=98)
    late = sim.hold("A", "C")
    job = sim.add_job(at="A", replicate=3, retry_s=100, holders="ABCD")
    sim.end_fault(late)
    sim.run_for(seconds=1)
    assert set(sim.copies(job)) == set("ABCD")
    for name in "BCD":
        sim.do(name, "PAUSE", "q", "in")  # so that none queues it, and tells the others of itself, before the ack
        sim.kind.force_holders(sim.hosts[name].node, [sim.hosts["A"].node_id])  # nor heals with a copy at D
    sim.crash("A", "wipe")
    sim.restart("A")
    sim.run_for(seconds=5)
    sim.ack(job, at="B")
    for name in "BCD":
        sim.do(name, "PAUSE", "q", "none")
    got = sim.wait_for_job(at="D")
    sim.run_for(seconds=150)
    assert got == [], "a holder was not told of the ack"
    end_well(sim, job, deliveries=0)


@catches("refusal-is-for-good")
def who_refused_a_copy_and_is_sent_another_is_a_holder(new: New) -> None:
    """B refuses a copy. While its word is on the way A, whose producer did not wait, sends another, which B takes; it
    arrives when the job has been acked and C, which was asked instead, has collected that. Then B is away until nobody
    has a tombstone any more."""
    sim = new(nodes="ABC", seed=104, settings=(("cluster-node-timeout", "20000"),))
    sim.do("B", "PAUSE", "q", "in")
    late = sim.hold("B", "A")
    adder = sim.hosts["A"].node
    sim.kind.force_holders(adder, [sim.hosts[name].node_id for name in "BC"])
    words = ["ADDJOB", "q", "body", "0", "REPLICATE", "2", "RETRY", "2", "TTL", "600", "ASYNC"]
    value = {"queue": "q", "body": "body", "replicate": 2, "retry": 2, "ttl": 600, "delay": 0, "async": True,
             "timeout": 0, "attempts": 0, "backoff": 0}
    job = str(sim.command("A", "add", [word.encode() for word in words], value)[1]["id"])
    sim.run_for(seconds=0.1)
    second = sim.hold("A", "B")
    sim.do("B", "PAUSE", "q", "none")
    sim.run_for(seconds=1.5)
    sim.end_fault(late)
    sim.run_for(seconds=0.5)
    assert set(sim.copies(job)) == {"A", "C"}, "B refused, and C was asked"
    sim.kind.force_holders(adder, None)
    assert sim.consume_and_ack(at="A") == job
    sim.run_for(seconds=8)
    sim.end_fault(second)
    sim.run_for(seconds=0.1)
    sim.cut("B")
    sim.run_for(seconds=90)
    end_well(sim, job)


@catches("forgetful-holder-believed")
def an_ack_reaches_a_copy_of_which_only_the_adder_knew(new: New) -> None:
    """C is slow, so D is asked, too, and A dies before B has heard that. B, all alone, queues the job, and it is acked
    there. Then B meets A and C again, who know nothing of it. D, which is away, does."""
    sim = new(nodes="ABCD", seed=99)
    slow = sim.hold("A", "C")
    sim.begin_add(at="A", replicate=3, retry_s=2, holders="ABCD", timeout_ms=9_000)
    sim.run_for(seconds=0.03)
    late = sim.hold("A", "B")
    sim.run_for(seconds=0.2)
    sim.crash("A")
    sim.cut("D")
    alone = sim.cut("B")
    job = sim.consume(at="B", timeout_ms=20_000)
    assert set(sim.copies(job)) == {"B", "D"}
    sim.ack(job, at="B")
    for fault in (alone, slow, late):
        sim.end_fault(fault)
    sim.restart("A")
    sim.run_for(seconds=10)
    end_well(sim, job)


@catches("lost-tail-trusted")
def an_ack_reaches_a_copy_of_which_the_power_cut_left_no_trace(new: New) -> None:
    """A gives the job to B, and tells C. A second later that would be on their disks, but the power fails before. B
    is away when they are back, and the job is acked."""
    for seed in range(4):
        sim = new(nodes="ABC", seed=seed, faults=Faults(sync=EVERYSEC))
        job = sim.add_job(at="A", replicate=2, retry_s=5, holders="AC")
        sim.run_for(seconds=1.5)
        assert sim.consume(at="B") == job
        sim.crash("A", "power")
        sim.crash("C", "power")
        sim.cut("B")
        sim.restart("AC")
        sim.run_for(seconds=1)
        sim.ack(job, at="C")
        sim.run_for(seconds=10)
        end_well(sim, job)


@catches("early-no-idea-counts")
def an_ack_is_kept_for_a_copy_that_was_given_to_a_node_that_knew_nothing(new: New) -> None:
    """B is told that the job is done, and cannot hear C, which has it. A says that it knows nothing, and is given the
    job a moment later; then C loses its disk, and knows nothing either."""
    sim = new(nodes="ABC", seed=100)
    job = sim.add_job(at="C", retry_s=20)
    sim.cut("C", from_="B")
    sim.run_for(seconds=1)
    sim.ack(job, at="B")
    sim.run_for(seconds=1)
    assert sim.consume(at="A") == job
    sim.crash("C", "wipe")
    sim.run_for(seconds=1)
    sim.heal()
    sim.run_for(seconds=30)
    end_well(sim, job)


@catches("old-answers-count")
def an_answer_counts_for_the_question_it_was_given_to(new: New) -> None:
    """As above, but what A said comes late: when C is back, and B has asked A once more. A never hears that."""
    sim = new(nodes="ABC", seed=105, settings=(("cluster-node-timeout", "20000"),))
    job = sim.add_job(at="C", retry_s=60)
    cut = sim.cut("C", from_="B")
    sim.run_for(seconds=10)
    late = sim.hold("A", "B")
    sim.ack(job, at="B")
    sim.run_for(seconds=0.1)
    assert sim.consume(at="A") == job
    sim.crash("C", "wipe")
    sim.run_for(seconds=1)
    sim.hold("B", "A")
    sim.end_fault(cut)
    sim.restart("C")
    sim.run_for(seconds=8)
    sim.end_fault(late)
    sim.run_for(seconds=1)
    sim.cut("A", from_="B")
    sim.run_for(seconds=10)
    end_well(sim, job)
