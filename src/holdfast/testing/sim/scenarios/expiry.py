"""Jobs whose time is over before they were done, and that go to the dead letters: one node decides, all know."""
from __future__ import annotations

from holdfast.testing.sim.clock import EPOCH_MS
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.plan import Add
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well, node_of


def add(sim: Cluster, at: str = "A", **options: int | str) -> str:
    given: dict[str, int | str] = {"replicate": 3, "retry_s": 2, "ttl_s": 10, "onexpire": "dead", **options}
    return sim.add_job(at=at, **given)  # type: ignore[arg-type]


def deaths(sim: Cluster) -> int:
    return sum(node_of(sim, name).counters.get("deaths", 0) for name in sim.names)


@catches("expired-vanishes", "expired-decided-alone")
def a_job_that_nobody_worked_is_among_the_dead(new: New) -> None:
    """One node lets it die, once, and all holders have it as dead; sent back, it lives as long as at first."""
    sim = new(nodes="ABC", seed=700)
    job = add(sim)
    sim.run_for(seconds=9)
    assert sim.list_dead(at="C") == []
    sim.run_for(seconds=4)
    assert sim.causes_of_death(at="C") == {job: "expired"}, "it vanished"
    assert sim.copies(job) == {"A": "dead", "B": "dead", "C": "dead"}
    assert deaths(sim) == 1, "more than one node decided"
    assert sim.wait_for_end(job, at="B") == ("dead", "its time was over before it was done")
    sim.command("B", "retry", [b"DEAD", b"RETRY", job.encode()], {"ids": [job]})
    sim.run_for(seconds=1)
    assert sim.consume_and_ack(at="C") == job
    end_well(sim, job)


@catches("expired-vanishes")
def the_node_that_had_it_queued_is_gone(new: New) -> None:
    """A holder that only has a copy takes over, though the time of the job is over by then."""
    sim = new(nodes="ABC", seed=701)
    job = add(sim)
    sim.run_for(seconds=2)
    sim.crash("A")
    sim.run_for(seconds=30)
    assert sim.causes_of_death(at="B") == {job: "expired"}
    sim.restart("A")
    sim.run_for(seconds=20)
    assert sim.copies(job) == {"A": "dead", "B": "dead", "C": "dead"}
    assert sim.consume(at="A") == "", "the dead are not handed out"
    sim.check()


@catches("expired-decided-alone")
def work_that_has_begun_may_end(new: New) -> None:
    """Its time ends while a worker has it, and goes on saying so."""
    sim = new(nodes="ABC", seed=702)
    job = add(sim, retry_s=5)
    sim.run_for(seconds=8)
    taken, token = sim.take(at="A", lease_ms=4_000)
    assert taken == job
    for _ in range(4):
        sim.run_for(seconds=3)
        assert sim.under("keepalive", job, token, at="A", ms=4_000) == "ok", "taken from a worker that is at it"
    assert sim.list_dead(at="B") == []
    assert sim.under("ack", job, token, at="A") == "1"
    end_well(sim, job)


@catches()
def a_worker_that_is_gone_when_its_time_is_over(new: New) -> None:
    """The lease ends after the life: it is not handed out again, it is dead."""
    sim = new(nodes="ABC", seed=703)
    job = add(sim, retry_s=4)
    sim.run_for(seconds=8)
    taken, token = sim.take(at="A")
    assert taken == job and sim.list_dead(at="A") == []
    sim.run_for(seconds=8)
    assert sim.causes_of_death(at="B") == {job: "expired"}
    assert sim.under("ack", job, token, at="A") in ("LEASELOST", "1")
    sim.check()


@catches("expired-ending-forgotten")
def done_is_remembered_for_who_was_away(new: New) -> None:
    """C is cut off while the job is done. When its time is over there C hears nobody, and takes it for dead; as soon as
    it is back, long after, it is told better."""
    sim = new(nodes="ABC", seed=704)
    job = add(sim, replicate=3)
    sim.cut("C")
    assert sim.consume_and_ack(at="A") == job
    sim.run_for(seconds=120)
    assert sim.copies(job)["C"] == "dead"
    sim.heal()
    sim.run_for(seconds=10)
    assert sim.list_dead(at="B") == [], "done, and listed as never done"
    end_well(sim, job)


@catches("expired-not-loaded", "expired-vanishes")
def a_restart_after_its_time(new: New) -> None:
    """The only node is down when the time of its jobs is over. What was dead before stays so."""
    sim = new(nodes="A", seed=705)
    first = add(sim, replicate=1, ttl_s=5)
    sim.run_for(seconds=7)
    second = add(sim, replicate=1)
    sim.crash("A")
    sim.run_for(seconds=30)
    sim.restart("A")
    sim.run_for(seconds=5)
    assert sim.causes_of_death(at="A") == {first: "expired", second: "expired"}
    sim.crash("A", "power")
    sim.restart("A")
    sim.run_for(seconds=5)
    assert sim.causes_of_death(at="A") == {first: "expired", second: "expired"}
    sim.check()


@catches()
def a_rejected_job_outlives_its_first_life_over_a_restart(new: New) -> None:
    """Dead jobs are kept for their retention, not for their TTL: also where a restart reads when they were added."""
    sim = new(nodes="A", seed=706)
    job = sim.add_job(at="A", ttl_s=10, attempts=1)
    taken, token = sim.take(at="A")
    assert taken == job and sim.under("nack", job, token, at="A") == "1"
    assert sim.causes_of_death(at="A") == {job: "attempts"}
    sim.crash("A")
    sim.run_for(seconds=60)
    sim.restart("A")
    sim.run_for(seconds=2)
    assert sim.causes_of_death(at="A") == {job: "attempts"}
    sim.check()


@catches("expire-by-bad-clock")
def a_start_with_a_wrong_clock_lets_nothing_die(new: New) -> None:
    """A restarts with its wall clock an hour ahead; its peers know better."""
    sim = new(nodes="ABC", seed=707)
    job = add(sim, ttl_s=600)
    sim.run_for(seconds=2)
    sim.crash("A")
    sim.run_for(seconds=1)
    sim.fault("jump", "A", amount=3_600_000)
    sim.restart("A")
    sim.run_for(seconds=20)
    assert sim.list_dead(at="A") == [], "dead by a wrong clock"
    assert sim.consume_and_ack(at="B") == job
    end_well(sim, job)


@catches()
def at_most_once_and_handed_out_is_no_death(new: New) -> None:
    """Somebody had it, and nobody will ever say what came of it: that is no job that nobody did."""
    sim = new(nodes="ABC", seed=708)
    had, lay = add(sim, replicate=1, retry_s=0), ""
    assert sim.consume(at="A") == had
    lay = add(sim, replicate=1, retry_s=0)
    sim.run_for(seconds=15)
    assert sim.causes_of_death(at="B") == {lay: "expired"}
    assert sim.copies(had) == {}
    sim.check()


@catches("expired-vanishes")
def the_line_of_a_group_goes_on(new: New) -> None:
    """Jobs that stand in line are as good as queued: those whose time is over die, and the next has its turn."""
    sim = new(nodes="ABC", seed=709)
    turn, short, long = (
        sim.try_add(at="A", keys=Add(0, 0, group="g"), replicate=2, retry_s=30, ttl_s=ttl_s, onexpire="dead")[0]
        for ttl_s in (600, 5, 600)
    )
    assert sim.consume(at="B") == turn
    sim.run_for(seconds=15)
    assert sim.causes_of_death(at="C") == {short: "expired"}
    sim.ack(turn, at="B")
    assert sim.consume_and_ack(at="A") == long
    sim.check()


@catches()
def a_delay_of_weeks_and_a_life_without_end(new: New) -> None:
    """Clocks go on for months: TTL none lives, and a delay longer than the usual life is no longer than it says."""
    sim = new(nodes="ABC", seed=710)
    said = [sim.do("A", "ADDJOB", "q", body, "0", *words) for body, words in (
        ("endless", ["TTL", "none"]), ("delayed", ["DELAY", "172800"]), ("plain", []))]
    ids = [str(each["reply"]) for each in said]
    assert all(id.startswith("DI") for id in ids), said
    views = sim.views()["A"]
    assert {views[id].state for id in ids} <= {"queued", "active"}
    node = node_of(sim, "A")
    lives = [(node.find(id.encode()).expire - EPOCH_MS) // 3_600_000 for id in ids]
    assert lives[0] > 24 * 365 * 49 and lives[1] == 72 and lives[2] == 24
