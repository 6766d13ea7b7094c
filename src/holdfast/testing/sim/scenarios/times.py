"""Lives, delays and clocks."""
from __future__ import annotations

from holdfast.core import home
from holdfast.testing.sim.clock import EPOCH_MS
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.keys import key_at, unique_at
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well, node_of


@catches("life-longer-by-hop")
def moving_a_job_adds_nothing_to_its_life(new: New) -> None:
    """Four moves, none acked: after the TTL it is gone everywhere."""
    sim = new(nodes="ABCD", seed=60)
    job = sim.add_job(at="A", replicate=1, retry_s=1, ttl_s=8)
    for name in "BCDB":
        sim.consume(at=name, timeout_ms=1_500)
    sim.run_for(seconds=max(0.0, 9.5 - sim.now / 1000))
    assert sim.copies(job) == {}, f"its life is over, but it is at {sim.copies(job)}"
    end_well(sim)


@catches("flight-not-counted")
def time_on_the_way_is_part_of_a_life(new: New) -> None:
    """A gives B a job that lives for eight seconds; it takes five to get there, and nobody waits for it any more."""
    sim = new(nodes="AB", seed=65, settings=(("cluster-node-timeout", "15000"),))
    sim.wait_for_job(at="B", timeout_ms=1_500)
    sim.run_for(seconds=1)
    late = sim.hold("A", "B")
    job = sim.add_job(at="A", retry_s=0, ttl_s=8)
    sim.run_for(seconds=5)
    sim.end_fault(late)
    sim.run_for(seconds=0.1)
    assert sim.copies(job)["B"] == "queued"
    sim.run_for(seconds=4)
    assert sim.consume(at="B", timeout_ms=100) == "", "its life was over"
    end_well(sim)


@catches("life-on-the-wall")
def a_jump_of_the_wall_clock_ends_no_life_and_no_lease(new: New) -> None:
    sim = new(nodes="AB", seed=61)
    job = sim.add_job(at="A", replicate=1, retry_s=5, ttl_s=60)
    assert sim.consume(at="A") == job
    sim.fault("jump", "A", amount=3_600_000)
    got = sim.wait_for_job(at="A")
    sim.run_for(seconds=3)
    assert got == [] and "A" in sim.copies(job), "the wall clock was believed"
    sim.run_for(seconds=4)
    assert got == [job]
    end_well(sim)


@catches("made-in-the-future")
def a_start_among_clocks_that_are_behind_makes_no_job_younger_than_now(new: New) -> None:
    """All restart, and A hears B first, whose clock is an hour behind: as far as A can see its own is ahead. What it
    loaded is old all the same: it keeps its place before what is added now, and no delay waits for that hour."""
    sim = new(nodes="ABC", seed=69)
    sim.rewrites = True  # so that a later start reads what this one believed
    old = sim.add_job(at="A", replicate=3, retry_s=60, holders="ABC")
    sim.fault("jump", "B", seconds=1, amount=-3_600_000)
    sim.crash("ABC")
    away = sim.cut("C")
    sim.restart("ABC")
    sim.run_for(seconds=5)
    sim.end_fault(away)
    for _ in range(40):
        sim.add_job(at="A", retry_s=60, delay_s=300)
        sim.run_for(seconds=0.2)
    sim.crash("A")
    sim.restart("A")
    sim.run_for(seconds=5)
    sim.add_job(at="A", retry_s=60)
    assert sim.consume_and_ack(at="A") == old, "a job that is older was behind one that was added now"
    sim.consume_and_ack(at="A")
    delayed = sim.add_job(at="A", retry_s=60, delay_s=2)
    assert sim.consume_and_ack(at="A", timeout_ms=4_000) == delayed, "a delay of two seconds takes an hour"


@catches("expire-by-bad-clock")
def a_start_with_a_wrong_clock_expires_nothing(new: New) -> None:
    """A restarts with its wall clock an hour ahead; its peers know better."""
    sim = new(nodes="ABC", seed=62)
    job = sim.add_job(at="A", replicate=1, retry_s=1, ttl_s=600)
    sim.crash("A")
    sim.fault("jump", "A", amount=3_600_000)
    sim.restart("A")
    sim.run_for(seconds=5)
    assert "A" in sim.copies(job), "expired by a wrong clock"
    end_well(sim)


@catches("start-judged-by-todays-clock")
def a_clock_set_right_after_the_start_expires_nothing(new: New) -> None:
    """As a machine boots: its clock is wrong, the journal is read, the clock is set right, and then come the links."""
    sim = new(nodes="ABC", seed=67)
    job = sim.add_job(at="A", replicate=1, retry_s=1, ttl_s=600)
    sim.crash("A")
    cut = sim.cut("A")
    sim.fault("jump", "A", amount=3_600_000)
    sim.restart("A")
    sim.run_for(seconds=3)
    sim.fault("jump", "A", amount=-3_600_000)
    sim.end_fault(cut)
    sim.run_for(seconds=5)
    assert "A" in sim.copies(job), "expired by the clock that it was read by"
    end_well(sim)


@catches("doubt-of-jobs-only")
def a_start_with_a_wrong_clock_keeps_what_a_forgotten_node_has_missed(new: New) -> None:
    """B is away and forgotten when its job is acked. All that A has is a tombstone, which stays as long as the job
    could have lived, whatever A's clock says at a start."""
    sim = new(nodes="ABC", seed=68)
    job = sim.add_job(at="A", replicate=2, retry_s=1, ttl_s=3_600, holders="AB")
    sim.crash("B")
    sim.run_for(seconds=1)
    for name in "AC":
        sim.tell(name, "CLUSTER", "FORGET", sim.hosts["B"].node_id)
    sim.ack(job, at="A")
    sim.run_for(seconds=60)
    assert sim.copies(job) == {"B": "active"}, "it is not collected"
    sim.crash("A")
    sim.fault("jump", "A", amount=2 * 3_600_000)
    sim.restart("A")
    sim.run_for(seconds=5)
    sim.restart("B")
    sim.join(sim.hosts["B"])
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=60)
    assert got == [], "an acked job came back with a forgotten node"
    end_well(sim)


@catches("life-begins-by-bad-clock")
def a_job_that_waits_gets_back_no_more_than_a_wrong_clock_took(new: New) -> None:
    """It has failed and waits for its next attempt when A restarts an hour ahead. It must not live for an hour then."""
    sim = new(nodes="ABC", seed=69)
    job = sim.add_job(at="A", replicate=1, retry_s=5, ttl_s=60, attempts=5, backoff_s=20)
    assert sim.consume(at="A") == job
    sim.nack(job, at="A")
    sim.crash("A")
    sim.fault("jump", "A", amount=3_600_000)
    sim.restart("A")
    sim.run_for(seconds=5)
    assert "A" in sim.copies(job)
    sim.run_for(seconds=60)
    assert sim.copies(job) == {}, f"its life is over, but it is at {sim.copies(job)}"
    end_well(sim)


@catches("delay-ends-by-bad-clock")
def a_start_with_a_wrong_clock_ends_no_delay(new: New) -> None:
    """A restarts with its wall clock an hour ahead. Once more, set right, it knows the delay still."""
    sim = new(nodes="ABC", seed=70)
    job = sim.add_job(at="A", replicate=1, retry_s=5, ttl_s=6_000, delay_s=60)
    for amount in (3_600_000, -3_600_000):
        sim.crash("A")
        sim.fault("jump", "A", amount=amount)
        sim.restart("A")
        got = sim.wait_for_job(at="A")
        sim.run_for(seconds=20)
        assert got == [], "before its delay was over"
    sim.run_for(seconds=25)
    assert got == [job]
    end_well(sim)


@catches()
def the_delay_holds_when_the_adder_is_silent(new: New) -> None:
    """B holds a copy of a job that A will queue in ten seconds, and hears nothing of A any more."""
    sim = new(nodes="ABC", seed=63)
    sim.add_job(at="A", replicate=2, retry_s=1, delay_s=10, holders="AB")
    sim.crash("A")
    got = sim.wait_for_job(at="B")
    sim.run_for(seconds=9)
    assert got == [], "before its delay was over"
    sim.run_for(seconds=8)
    assert len(got) == 1
    end_well(sim)


@catches("delay-ends-with-move")
def a_delay_holds_when_its_job_gets_another_home(new: New) -> None:
    """An at-most-once job with a key goes along with its slot when its home leaves, before its time has come."""
    sim = new(nodes="ABC", seed=66)
    job, _ = sim.add_keyed(at="B", unique=unique_at(sim, "A"), retry_s=0, delay_s=10)
    sim.do("A", "CLUSTER", "LEAVING", "yes")
    got = sim.wait_for_job(at="C")
    sim.run_for(seconds=9)
    assert "A" not in sim.copies(job), f"it has not left: {sim.copies(job)}"
    assert got == [], "before its delay was over"
    sim.run_for(seconds=3)
    assert got == [job]
    end_well(sim)


@catches("own-clock-believed")
def a_time_of_day_is_that_of_most_clocks(new: New) -> None:
    """ADDJOB … AT to a node whose clock is an hour ahead, or behind: the job is handed out when it was to be."""
    for amount in (3_600_000, -3_600_000):
        sim = new(nodes="ABC", seed=71)
        sim.fault("jump", "C", amount=amount)
        sim.run_for(seconds=3)
        sim.do("C", "ADDJOB", "q", "body", "1000", "AT", str((EPOCH_MS + sim.now) // 1000 + 60))
        got = sim.wait_for_job(at="C")
        sim.run_for(seconds=55)
        assert got == [], "before its time"
        sim.run_for(seconds=10)
        assert len(got) == 1, "not in time"


def runs(sim: Cluster, seconds: int) -> int:
    """How many jobs a schedule makes meanwhile."""
    before = sum(int(sim.do(name, "QLEN", "q")["count"]) for name in sim.names)
    sim.run_for(seconds=seconds)
    return sum(int(sim.do(name, "QLEN", "q")["count"]) for name in sim.names) - before


@catches("own-clock-believed")
def a_schedule_goes_by_most_clocks(new: New) -> None:
    """The clock of an entry's owner is an hour ahead for a while, and that of another, which is then the owner, an hour
    behind: no run comes too early, and none is missing."""
    sim = new(nodes="ABC", seed=72)
    entry = key_at(sim, home.CRON, "AB", b"")
    sim.do("A", "CRON", "SET", entry, "*/10 * * * * *", "q", "body", "RETRY", "600", "TTL", "6000")
    assert runs(sim, 60) == 6
    sim.fault("jump", "A", amount=3_600_000)
    sim.fault("jump", "B", amount=-3_600_000)
    assert runs(sim, 60) == 6, "by a clock that is wrong"
    sim.fault("jump", "A", amount=-3_600_000)
    assert runs(sim, 60) == 6
    sim.do("A", "CLUSTER", "LEAVING", "yes")
    assert runs(sim, 60) == 6, "at a new owner"


@catches("cron-ran-ahead")
def a_schedule_goes_on_when_all_clocks_were_ahead(new: New) -> None:
    """For a minute. What seemed to have run by then comes again when its time does, and not only what is after it."""
    sim = new(nodes="ABC", seed=73)
    sim.do("A", "CRON", "SET", "e", "*/10 * * * * *", "q", "body", "RETRY", "600", "TTL", "6000")
    assert runs(sim, 60) == 6
    for amount in (3_600_000, -3_600_000):
        for name in "ABC":
            sim.fault("jump", name, amount=amount)
        sim.run_for(seconds=70)
    assert runs(sim, 60) == 6, "an hour without runs"


@catches("deletion-by-own-clock")
def a_deletion_is_kept_long_enough_whatever_the_clock(new: New) -> None:
    """A's clock is an hour ahead. It sets something and deletes it at once; the others hear the first, and then nothing
    of A for a while. What they have must not come back to A."""
    sim = new(nodes="ABC", seed=74)
    sim.fault("jump", "A", amount=3_600_000)
    sim.run_for(seconds=5)
    node = node_of(sim, "A")
    while node.chores_at - node.now < 500:
        sim.run_for(seconds=0.01)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "9")
    sim.run_for(seconds=0.1)
    late = sim.hold("A", "BC", is_both=True)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "0")
    sim.run_for(seconds=30)
    sim.end_fault(late)
    sim.run_for(seconds=10)
    assert [sim.do(name, "QUEUE", "GET", "q", "maxlen")["reply"][1] for name in "ABC"] == [0] * 3, "it came back"


@catches("own-clock-believed")
def what_has_died_lately_is_not_old(new: New) -> None:
    """Somebody deletes what has been dead for an hour, at a node whose clock is two hours ahead."""
    sim = new(nodes="ABC", seed=75)
    job = sim.add_job(at="A", replicate=3, retry_s=30, attempts=1)
    assert sim.consume(at="A") == job
    sim.nack(job, at="A")
    sim.fault("jump", "A", amount=2 * 3_600_000)
    sim.run_for(seconds=5)
    assert sim.do("A", "DEAD", "DELETE", "OLDER", "3600") == {"count": 0}
    assert sim.list_dead(at="B") == [job]


@catches()
def links_stay_up_in_calm_times_however_short_the_node_timeout(new: New) -> None:
    sim = new(nodes="ABC", seed=64, settings=(("cluster-node-timeout", "500"),))
    sim.run_for(seconds=60)
    assert sim.counters["link-downs"] == 0, f"{sim.counters['link-downs']} links went down for no reason"
