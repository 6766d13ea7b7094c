"""Healing, leaving, returning; and moves in general."""
from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from holdfast.testing.checkers.whitebox import QUEUED
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.disk import EVERYSEC
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well

QUICK: Final = (("cluster-node-timeout", "1000"), ("heal-after-ms", "3000"))


@catches("no-healing")
def copies_are_brought_back_after_a_loss(new: New) -> None:
    """B is gone for good; after a while A has brought the job back to two copies, and A may go, too."""
    sim = new(nodes="ABC", seed=70, settings=QUICK)
    job = sim.add_job(at="A", replicate=2, retry_s=2, holders="AB")
    sim.crash("B", "wipe")
    sim.run_for(seconds=30)
    assert set(sim.copies(job)) == {"A", "C"}, f"not healed: {sim.copies(job)}"
    sim.crash("A", "wipe")
    sim.run_for(seconds=1)
    sim.heal()
    sim.consume_everything()
    sim.run_for(seconds=25)
    assert sim.history.deliveries(job) >= 1, "lost although it had been healed"
    sim.settle()


@catches("old-life-counts", "unknown-holder-believed")
def who_has_not_met_the_new_life_of_a_node_does_not_bring_back_the_old_one(new: New) -> None:
    """B comes back with nothing and meets A and D, but not C; A brings the job back to three copies with one at D. C's
    answer to A, which asks before it queues the job again, still names B. Then D is lost: a copy is missing, and A must
    know."""
    sim = new(nodes="ABCD", seed=87, settings=QUICK)
    job = sim.add_job(at="A", replicate=3, retry_s=2, holders="ABC")
    assert sim.consume(at="A") == job
    healer = sim.hosts["A"].node
    sim.kind.force_holders(healer, [sim.hosts["D"].node_id])
    sim.cut("B", from_="C")
    sim.crash("B", "wipe")
    sim.run_for(seconds=1)
    sim.restart("B")
    sim.run_for(seconds=10)
    assert "D" in sim.copies(job), f"healed elsewhere: {sim.copies(job)}"
    sim.kind.force_holders(healer, None)
    sim.crash("D", "wipe")
    sim.run_for(seconds=20)
    assert set(sim.copies(job)) == set("ABC"), f"not healed: {sim.copies(job)}"
    end_well(sim)


@catches("everybody-heals")
def one_holder_heals(new: New) -> None:
    """Frames take a quarter of a second: the beat of B comes before it can hear that A has healed a job. B leaves it to
    A all the same."""
    sim = new(nodes="ABCDE", seed=71, settings=QUICK, faults=Faults(latency_ms=(250, 300)))
    jobs = [sim.add_job(at="A", replicate=3, retry_s=30, holders="ABC") for _ in range(12)]
    sim.crash("C", "wipe")
    sim.run_for(seconds=30)
    extra = [job for job in jobs if len(sim.copies(job)) > 3]
    assert not extra, f"{len(extra)} of {len(jobs)} jobs were healed twice"
    end_well(sim)


@catches("heal-at-once")
def a_restart_is_no_reason_to_heal(new: New) -> None:
    sim = new(nodes="ABC", seed=72, settings=(("cluster-node-timeout", "1000"), ("heal-after-ms", "30000")))
    job = sim.add_job(at="A", replicate=2, retry_s=20, holders="AB")
    sim.crash("B")
    sim.run_for(seconds=6)
    sim.restart("B")
    sim.run_for(seconds=3)
    assert set(sim.copies(job)) == {"A", "B"}, f"copied needlessly: {sim.copies(job)}"
    end_well(sim)


@catches("heal-sends-first")
def a_healer_that_dies_has_said_where_the_copy_went(new: New) -> None:
    """The healer loses power soon after it healed, before anything is synced by the clock; after its restart the
    job is acked there. The copy it had sent must hear of that."""
    sim = new(nodes="ABC", seed=73, settings=QUICK, faults=Faults(sync=EVERYSEC))
    job = sim.add_job(at="A", replicate=2, retry_s=20, holders="AB")
    sim.crash("B", "wipe")
    while "C" not in sim.copies(job):
        sim.run_for(seconds=0.01)
        assert sim.now < 60_000, "nobody healed"
    sim.crash("A", "power")
    sim.restart("A")
    sim.run_for(seconds=0.5)
    sim.ack(job, at="A")
    end_well(sim, job, deliveries=0)


@catches()
def a_copy_that_is_refused_is_no_copy(new: New) -> None:
    """B is gone for good. C takes nothing for this queue, so the copy the healer sends there is none."""
    for seed in range(90, 96):
        sim = new(nodes="ABCD", seed=seed, settings=QUICK)
        job = sim.add_job(at="A", replicate=2, retry_s=60, holders="AB")
        sim.do("C", "PAUSE", "q", "in")
        sim.crash("B", "wipe")
        sim.run_for(seconds=25)
        assert set(sim.copies(job)) == {"A", "D"}, f"not healed: {sim.copies(job)}"
        sim.do("C", "PAUSE", "q", "none")
        end_well(sim)


@catches()
def delays_that_a_leaving_node_was_to_end_are_ended_by_others(new: New) -> None:
    """A leaves, is safe to stop, and gone; B, or whoever holds the job by then, queues it when its delay is over, and
    not a retry time later."""
    for replicate, holders in ((1, "A"), (2, "AB")):
        sim = new(nodes="ABC", seed=97, settings=QUICK)
        job = sim.add_job(at="A", replicate=replicate, retry_s=60, delay_s=20, holders=holders)
        sim.do("A", "CLUSTER", "LEAVING", "yes")
        sim.run_for(seconds=5)
        assert sim.do("A", "CLUSTER", "LEAVING", "status") == {"reply": "safe"}
        sim.crash("A", "wipe")
        got = sim.wait_for_job(at="C")
        sim.run_for(seconds=14)
        assert got == [], "before its delay was over"
        sim.run_for(seconds=5)
        assert got == [job], "not in time"
        end_well(sim)


@catches("forgotten-joins-at-once", "tombstone-too-short")
def a_forgotten_node_reads_what_it_missed_before_it_queues(new: New) -> None:
    """B holds a copy, goes down and is forgotten; the job is acked and collected without it. Much later B is
    back, with the copy on its disk, and for a while it does not reach A, who knows how the job ended. Then it does,
    and A is gone a moment later."""
    sim = new(nodes="ABC", seed=81)
    job = sim.add_job(at="A", replicate=2, retry_s=5, holders="AB")
    assert sim.consume(at="A") == job
    sim.crash("B")
    sim.run_for(seconds=1)
    for name in "AC":
        sim.tell(name, "CLUSTER", "FORGET", sim.hosts["B"].node_id)
    sim.ack(job, at="A")
    sim.run_for(seconds=300)
    cut = sim.cut("A", from_="B")
    sim.restart("B")
    sim.join(sim.hosts["B"])
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=12)
    sim.end_fault(cut)
    while "A" not in sim.hosts["B"].linked:
        sim.run_for(seconds=0.1)
    sim.run_for(seconds=0.1)
    sim.crash("A")
    sim.run_for(seconds=120)
    assert got == [], "an acked job came back with a forgotten node"
    end_well(sim)


@catches("had-not-wanted")
def a_job_accepted_with_few_copies_gets_the_rest_later(new: New) -> None:
    """SYNC answers when B has a copy; nobody else is asked yet. A third copy was wanted, and is made."""
    sim = new(nodes="ABC", seed=82)
    node = sim.hosts["A"].node
    sim.kind.force_holders(node, [sim.hosts["B"].node_id])
    said = sim.do("A", "ADDJOB", "q", "later", "900", "REPLICATE", "3", "SYNC", "2", "RETRY", "60")
    sim.kind.force_holders(node, None)
    job = str(said["reply"])
    assert set(sim.copies(job)) == {"A", "B"}
    sim.run_for(seconds=5)
    assert len(sim.copies(job)) == 3, f"given up: {sim.copies(job)}"


@catches("no-healing")
def a_job_added_while_others_are_away_gets_its_copies_when_they_are_back(new: New) -> None:
    """It does not say how many copies it wants: those that can be had count, and the rest are made later."""
    sim = new(nodes="ABC", seed=85, settings=QUICK)
    gone = sim.cut("A")
    sim.run_for(seconds=4)
    job = sim.add_job(at="A", replicate=0, retry_s=60)
    assert set(sim.copies(job)) == {"A"}
    sim.end_fault(gone)
    sim.run_for(seconds=12)
    assert set(sim.copies(job)) == {"A", "B", "C"}


@catches("default-is-fixed")
def a_producer_that_asks_for_no_number_of_copies_is_not_kept_waiting(new: New) -> None:
    """It gets as many as can be had: one less when C, which was counted on, refuses, or is not heard any more."""
    sim = new(nodes="ABC", seed=86, settings=QUICK)
    sim.do("C", "PAUSE", "q", "in")
    refused = sim.begin_add(at="A", replicate=0, retry_s=60, timeout_ms=0)
    sim.run_for(seconds=0.5)
    assert refused.id and set(sim.copies(refused.id)) == {"A", "B"}
    sim.do("C", "PAUSE", "q", "none")
    sim.cut("C")
    silent = sim.begin_add(at="A", replicate=0, retry_s=60, timeout_ms=0)
    sim.run_for(seconds=5)
    assert silent.id, "the producer still waits for a node that is not heard"


@catches("copies-in-doubt-dropped")
def a_copy_lost_with_its_link_is_sent_again(new: New) -> None:
    """B is slow to answer, so D is asked for a copy as well, and its link ends with the copy in it. B and C answer,
    the job is accepted, and C loses its disk: whoever takes D for a holder would think there are enough."""
    sim = new(nodes="ABCD", seed=84, settings=QUICK)
    slow = sim.hold("B", "A")
    lost = sim.hold("A", "D")
    adding = sim.begin_add(at="A", replicate=3, retry_s=60, holders="ABCD", timeout_ms=9_000)
    sim.run_for(seconds=0.2)
    gone = sim.cut("D")
    sim.end_fault(slow)
    sim.run_for(seconds=3)
    assert adding.id and set(sim.copies(adding.id)) == {"A", "B", "C"}
    sim.end_fault(lost)
    sim.end_fault(gone)
    sim.run_for(seconds=8)
    sim.crash("C", "wipe")
    sim.run_for(seconds=15)
    assert len(sim.copies(adding.id)) >= 3, f"only at {set(sim.copies(adding.id))}"


@catches("safe-too-soon")
def safe_to_stop_means_safe(new: New) -> None:
    """A leaves and says when it may be stopped; its disk is then thrown away, and nothing is lost."""
    sim = new(nodes="ABC", seed=83, settings=QUICK)
    jobs = [sim.add_job(at="A", replicate=1 + i % 2, retry_s=2) for i in range(10)]
    sim.do("A", "CLUSTER", "LEAVING", "yes")
    for _ in range(120):
        if sim.do("A", "CLUSTER", "LEAVING", "status") == {"reply": "safe"}:
            break
        sim.run_for(seconds=0.5)
    sim.crash("A", "wipe")
    sim.run_for(seconds=1)
    sim.heal()
    sim.consume_everything()
    sim.run_for(seconds=30)
    lost = [job for job in jobs if not sim.history.deliveries(job)]
    assert not lost, f"{len(lost)} of {len(jobs)} jobs were lost with a node that was safe to stop"


@catches("may-hold-counts", "nobody-adopts")
def a_copy_that_was_lost_on_its_way_does_not_make_it_safe_to_stop(new: New) -> None:
    """A leaves and sends B the copy of its job, over a link that breaks: B is a holder for A, and has nothing."""
    sim = new(nodes="AB", seed=83, settings=QUICK)
    job = sim.add_job(at="A", replicate=1, retry_s=60, delay_s=90)
    held = sim.hold("A", "B")
    sim.do("A", "CLUSTER", "LEAVING", "yes")
    sim.run_for(seconds=0.7)
    cut = sim.cut("A")
    for i in range(200):
        is_safe = sim.do("A", "CLUSTER", "LEAVING", "status") == {"reply": "safe"}
        assert not is_safe or "B" in sim.copies(job), "safe to stop with the only copy"
        if is_safe:
            break
        if i == 50:
            sim.end_fault(held)
            sim.end_fault(cut)
        sim.run_for(seconds=0.1)
    assert is_safe, "never safe to stop"
    sim.crash("A", "wipe")
    end_well(sim)


@catches("strangers-refused")
def a_node_that_hears_of_more_than_it_can_know_goes_on_talking(new: New) -> None:
    """A and B have seen many nodes come, take a copy, and go for good: the sets of their jobs name them all. C is new,
    and has met none of those."""
    sim = new(nodes="ABC", seed=87, settings=QUICK)
    sim.crash("C", "wipe")
    job = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    other = sim.add_job(at="A", replicate=2, retry_s=30, holders="AB")
    for name in "AB":
        name_the_dead(sim, name, 40)
    sim.restart("C")
    sim.run_for(seconds=10)
    assert set(sim.copies(job)) == set("ABC"), f"no copy at the new node: {sim.copies(job)}"
    sim.ack(job, at="C")
    sim.ack(other, at="A")
    sim.run_for(seconds=20)
    assert sim.copies(job) == sim.copies(other) == {}, f"not collected: {sim.copies(job)}, {sim.copies(other)}"
    end_well(sim)


def name_the_dead(sim: Cluster, at: str, count: int) -> None:
    """As if so many nodes had been there, held all jobs, and been forgotten."""
    node: Any = sim.hosts[at].node
    peers = import_module("holdfast.core.peers")
    for i in range(count):
        peer = node.add_peer(peers.PeerFacts(b"%040x" % (i + 1), 1, "", 0, 0))
        peer.forgotten_until = node.now
        for job in node.all_jobs():
            job.holders |= peer.bit
            job.replicate = 3


@catches("missed-acks-not-read")
def a_node_that_returns_asks_before_it_hands_out(new: New) -> None:
    """B has the job queued when it goes down; meanwhile A is told that it is done. Somebody waits at B when it
    comes back."""
    sim = new(nodes="ABC", seed=86)
    job = sim.add_job(at="B", replicate=2, retry_s=30, holders="BA")
    sim.crash("B")
    sim.run_for(seconds=1)
    sim.ack(job, at="A")
    sim.restart("B")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=10)
    assert got == [], "an acked job was handed out by a node that had been away"
    end_well(sim, job, deliveries=0)


@catches("hops-unbounded")
def a_job_does_not_go_round_in_circles(new: New) -> None:
    """Consumers come and go at three nodes, always gone before the job arrives: it follows them a few times, and
    then rests."""
    sim = new(nodes="ABC", seed=84, faults=Faults(latency_ms=(40, 50)))
    sim.add_job(at="A", replicate=1, retry_s=600)
    for i in range(40):
        sim.wait_for_job(at="BCA"[i % 3], timeout_ms=30)
        sim.run_for(seconds=0.12)
    moves = sum(sim.kind.counters(host.node).get("moves", 0) for host in sim.hosts.values() if host.node)
    assert moves <= 16, f"{moves} moves in five seconds"
    end_well(sim)


@catches("credits-add-up")
def credits_are_what_the_last_word_says(new: New) -> None:
    """At D consumers come and go, and each is announced; one is left, so one job is given."""
    sim = new(nodes="AD", seed=88)
    for _ in range(3):
        sim.wait_for_job(at="D", timeout_ms=50)
        sim.run_for(seconds=0.1)
    got = sim.wait_for_job(at="D")
    sim.run_for(seconds=0.1)
    jobs = [sim.add_job(at="A", replicate=1, retry_s=60) for _ in range(3)]
    sim.run_for(seconds=0.5)
    assert got == jobs[:1]
    assert not [job for job in jobs[1:] if "D" in sim.copies(job)], "given away for nobody"
    end_well(sim)


@catches("old-refusal-counts")
def a_late_refusal_does_not_bring_back_a_job_that_was_given_again(new: New) -> None:
    """Somebody waits at B, and the job A gives it is lost with the link. A queues it again, and over the next link
    two things cross: A asks what became of the first move, and B says that somebody waits. So A gives it anew, and
    then hears that B never took the first."""
    sim = new(nodes="AB", seed=98, settings=QUICK)
    got, job = lose_a_move(sim)
    sim.run_for(seconds=3)
    assert got == [job]
    other = sim.wait_for_job(at="A")
    sim.run_for(seconds=3)
    assert other == [], "queued at the giver, too, while the taker has it leased"
    sim.ack(job, at="B")
    end_well(sim, job)


@catches()
def a_job_whose_second_move_is_lost_like_the_first_is_given_a_third_time(new: New) -> None:
    """As above, but the second move is lost as well. A asks about both and hears that both were refused: the first
    does not count, the second does, and at once, not when the time of the job has come."""
    sim = new(nodes="AB", seed=98, settings=QUICK)
    got, job = lose_a_move(sim)
    while sim.kind.counters(sim.hosts["A"].node).get("moves", 0) < 2:
        sim.run_for(seconds=0.001)
    held = sim.hold("A", "B")
    sim.run_for(seconds=0.5)
    cut = sim.cut("A")
    sim.run_for(seconds=3)
    assert got == [], "the second move was not lost"
    sim.end_fault(held)
    sim.end_fault(cut)
    sim.run_for(seconds=4)
    assert got == [job], "not given again"
    sim.ack(job, at="B")
    end_well(sim, job)


def lose_a_move(sim: Cluster) -> tuple[list[str], str]:
    """A gives B a job over a link that breaks, and has queued it again when there is a new one; what B gets."""
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=0.5)
    held = sim.hold("A", "B")
    job = sim.add_job(at="A", replicate=1, retry_s=8)
    sim.run_for(seconds=0.2)
    cut = sim.cut("A")
    sim.run_for(seconds=15)
    assert sim.copies(job) == {"A": QUEUED} and got == []
    sim.end_fault(held)
    sim.end_fault(cut)
    return got, job


@catches("interest-outlives-link")
def nobody_is_given_jobs_for_a_consumer_of_an_older_link(new: New) -> None:
    """Somebody waits at D; the link breaks, and the consumer goes while it is down."""
    sim = new(nodes="AD", seed=85)
    sim.wait_for_job(at="D", timeout_ms=4_000)
    sim.run_for(seconds=0.5)
    cut = sim.cut("A")
    sim.run_for(seconds=10)
    sim.end_fault(cut)
    sim.run_for(seconds=3)
    job = sim.add_job(at="A", replicate=1, retry_s=60)
    sim.run_for(seconds=2)
    assert set(sim.copies(job)) == {"A"}, f"given away for nobody: {sim.copies(job)}"
    end_well(sim)


@catches("twin-forgotten")
def a_job_that_was_queued_by_a_holder_while_it_was_added_is_queued_once(new: New) -> None:
    """A waits for the word of C that it has its copy. Meanwhile somebody has the job queued at B, which says so; then A
    hears from C, and queues it, too."""
    sim = new(nodes="ABC", seed=99)
    late = sim.hold("C", "A")
    adding = sim.begin_add(at="A", replicate=3, retry_s=60, holders="ABC", timeout_ms=9_000)
    sim.run_for(seconds=0.2)
    (job,) = sim.views()["B"]
    sim.do("B", "ENQUEUE", job)
    sim.run_for(seconds=0.2)
    assert sim.copies(job)["B"] == QUEUED and not adding.ended
    sim.end_fault(late)
    sim.run_for(seconds=1)
    assert adding.id == job
    assert list(sim.copies(job).values()).count(QUEUED) == 1, f"queued twice: {sim.copies(job)}"
    end_well(sim, job, deliveries=1)


@catches("twin-forgotten", "twin-not-asked")
def a_job_that_is_out_when_its_adder_accepts_it_is_not_handed_out_there(new: New) -> None:
    """As above, but a consumer at B has the job, and another one waits at A when A hears from C."""
    sim = new(nodes="ABC", seed=100)
    late = sim.hold("C", "A")
    adding = sim.begin_add(at="A", replicate=3, retry_s=60, holders="ABC", timeout_ms=9_000)
    sim.run_for(seconds=0.2)
    (job,) = sim.views()["B"]
    sim.do("B", "ENQUEUE", job)
    sim.run_for(seconds=0.2)
    assert sim.take(at="B")[0] == job and not adding.ended
    sim.end_fault(late)
    assert sim.consume(at="A") == "", "B has it out"
    assert adding.id == job
    sim.ack(job, at="B")
    end_well(sim, job, deliveries=1)


@catches("staying-untold")
def who_waits_at_a_node_that_stays_after_all_is_served(new: New) -> None:
    """B leaves, stays, and somebody waits there at once. Who has a job for it must not think that B still leaves."""
    sim = new(nodes="ABC", seed=98)
    sim.do("B", "CLUSTER", "LEAVING", "yes")
    sim.run_for(seconds=3)
    sim.do("B", "CLUSTER", "LEAVING", "no")
    got = sim.wait_for_job(at="B")
    job = sim.add_job(at="A", retry_s=60)
    sim.run_for(seconds=10)
    assert got == [job], "A does not know that somebody at B waits"
    sim.ack(job, at="B")
    end_well(sim, job)
