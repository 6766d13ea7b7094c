"""Disks that do not keep what they were given: nothing is lost that another node has, and nobody is needed."""
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.core import records
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.disk import EVERYSEC, MISSING
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well

QUICK: Final = (("cluster-node-timeout", "1000"), ("heal-after-ms", "3000"))


def spoil(sim: Cluster, name: str, is_bad: Callable[[bytes], bool]) -> None:
    """Kill a node, and damage the records of its disk that are so. `restart` is for the caller."""
    sim.crash(name)
    host = sim.hosts[name]
    bad = [i for i, record in enumerate(host.disk.records) if is_bad(record)]
    assert bad, "there is no such record"
    for i in bad:
        host.disk.records[i] = MISSING
    host.note_damage(len(bad))


def later(sim: Cluster, name: str, job: str) -> Callable[[bytes], bool]:
    """Records about a job beyond the first, which tells of it."""
    kind, found = sim.kind, sim.hosts[name].disk.records
    first = next(record for record in found if kind.mentions(record, job))
    return lambda record: kind.mentions(record, job) and record is not first


@catches("salvage-trusted")
def an_ack_that_a_disk_has_lost_is_learned_from_the_others(new: New) -> None:
    """A gives its only copy of a job to B, where it is acknowledged. A's disk loses all that came after the job."""
    sim = new(nodes="ABC", seed=501, settings=QUICK)
    job = sim.add_job(at="A", replicate=1, retry_s=60)
    assert sim.consume_and_ack(at="B") == job
    sim.run_for(seconds=2)
    spoil(sim, "A", later(sim, "A", job))
    sim.restart("A")
    got = sim.wait_for_job(at="A", timeout_ms=20_000)
    sim.run_for(seconds=10)
    assert got == [], "handed out although B knows that it was acknowledged"
    end_well(sim, job)


@catches("salvage-trusted")
def a_damaged_node_table_does_not_make_a_node_queue_what_others_have(new: New) -> None:
    """A and B hold a job, B has acknowledged it while A was down, and A cannot read who else there is."""
    sim = new(nodes="ABC", seed=502, settings=QUICK)
    job = sim.add_job(at="A", replicate=2, retry_s=60, holders="AB")
    sim.run_for(seconds=1)
    spoil(sim, "A", lambda record: record[0] == records.NODE)
    sim.run_for(seconds=2)
    assert sim.ack(job, at="B") == 1
    hold = sim.hold("B", "A")
    sim.restart("A")
    got = sim.wait_for_job(at="A", timeout_ms=20_000)
    sim.run_for(seconds=3)
    sim.end_fault(hold)
    sim.run_for(seconds=10)
    assert got == [], "handed out before B was asked"
    end_well(sim, job)


@catches("damage-keeps-life")
def a_copy_that_a_disk_has_lost_is_made_again(new: New) -> None:
    """A and B hold a job, and A's disk loses it. When B is gone for good it is still there."""
    sim = new(nodes="ABC", seed=503, settings=QUICK)
    job = sim.add_job(at="B", replicate=2, retry_s=5, holders="AB")
    sim.run_for(seconds=1)
    spoil(sim, "A", lambda record: sim.kind.mentions(record, job))
    sim.restart("A")
    sim.run_for(seconds=20)
    sim.crash("B", "wipe")
    sim.run_for(seconds=1)
    sim.heal()
    assert sim.copies(job), "nobody has it any more"
    sim.consume_everything()
    sim.run_for(seconds=25)
    assert sim.history.deliveries(job) >= 1
    sim.settle()


@catches("missing-handout-trusted")
def an_at_most_once_job_whose_hand_out_is_damaged_is_dead_in_doubt(new: New) -> None:
    sim = new(nodes="ABC", seed=504, settings=QUICK)
    job = sim.add_job(at="A", replicate=1, retry_s=0)
    assert sim.consume(at="A") == job
    sim.run_for(seconds=1)
    spoil(sim, "A", later(sim, "A", job))
    sim.restart("A")
    got = sim.wait_for_job(at="A", timeout_ms=10_000)
    sim.run_for(seconds=15)
    assert got == [], "handed out twice"
    assert sim.list_dead(at="A") == [job]
    sim.check()


@catches("salvaged-copy-kept")
def an_at_most_once_job_that_another_node_has_is_not_dead_at_the_one_that_gave_it(new: New) -> None:
    """A gives a job to B, and its disk loses the word of that. B has it still."""
    sim = new(nodes="ABC", seed=505, settings=QUICK)
    job = sim.add_job(at="A", replicate=1, retry_s=0)
    assert sim.consume(at="B") == job
    sim.run_for(seconds=1)
    spoil(sim, "A", later(sim, "A", job))
    sim.restart("A")
    sim.run_for(seconds=10)
    assert sim.list_dead(at="A") == [], "in doubt at A, and out at B"
    sim.check()


@catches("loaded-not-synced")
def a_crash_and_then_a_power_cut_lose_nothing_that_was_loaded(new: New) -> None:
    """Killed before its sync, started again, and ten seconds later the power goes. A alone has the jobs."""
    sim = new(nodes="ABC", seed=506, settings=QUICK, faults=Faults(sync=EVERYSEC))
    sim.run_until(sim.now // 1000 * 1000 + 1_500)
    jobs = [sim.add_job(at="A", replicate=1, retry_s=60) for _ in range(5)]
    sim.crash("A")
    sim.run_for(seconds=1)
    sim.restart("A")
    sim.run_for(seconds=10)
    sim.crash("A", "power")
    sim.run_for(seconds=1)
    sim.restart("A")
    sim.run_for(seconds=5)
    assert all("A" in sim.copies(job) for job in jobs), "gone with the power"
    end_well(sim, *jobs)


@catches()
def a_node_that_crashes_before_all_have_answered_asks_again(new: New) -> None:
    """C cannot be heard, so A waits; killed and started again it waits still, and C knows that the job has ended."""
    sim = new(nodes="ABC", seed=507, settings=QUICK)
    job = sim.add_job(at="A", replicate=1, retry_s=60)
    assert sim.consume_and_ack(at="C") == job
    sim.run_for(seconds=1)
    spoil(sim, "A", later(sim, "A", job))
    cut = sim.cut("A", from_="C")
    sim.restart("A")
    sim.run_for(seconds=3)
    sim.crash("A")
    sim.run_for(seconds=1)
    sim.restart("A")
    got = sim.wait_for_job(at="A", timeout_ms=30_000)
    sim.run_for(seconds=3)
    assert got == []
    sim.end_fault(cut)
    sim.run_for(seconds=5)
    assert got == [], "handed out although C knows that it was acknowledged"
    end_well(sim, job)


@catches()
def two_that_doubt_the_same_job_do_not_wait_for_each_other(new: New) -> None:
    """Both holders have a damaged disk, come back together, and ask each other. One of them queues the job."""
    sim = new(nodes="ABC", seed=511, settings=QUICK)
    jobs = [sim.add_job(at="A", replicate=2, retry_s=3, holders="AB") for _ in range(6)]
    sim.run_for(seconds=1)
    for name in "AB":
        spoil(sim, name, lambda record: record[0] == records.NODE)
    sim.cut("A", from_="C")
    sim.restart("AB")
    sim.run_for(seconds=5)
    sim.heal()
    sim.consume_everything()
    sim.run_for(seconds=20)
    assert all(sim.history.deliveries(job) >= 1 for job in jobs), "waiting for each other"
    end_well(sim)


@catches()
def a_full_disk_takes_nothing_that_it_does_not_keep(new: New) -> None:
    sim = new(nodes="ABC", seed=508, settings=QUICK)
    kept = sim.add_job(at="A", replicate=2, retry_s=5, holders="AB")
    full = sim.fault("full", "A")
    sim.try_add(at="A", replicate=1, retry_s=5)
    id, said = sim.try_add(at="A", replicate=1, retry_s=5)
    assert not id and str(said.get("error", "")).startswith("MISCONF"), f"accepted, or {said}"
    sim.end_fault(full)
    sim.run_for(seconds=2)
    after = sim.add_job(at="A", replicate=1, retry_s=5)
    sim.crash("A", "power")
    sim.run_for(seconds=1)
    sim.restart("A")
    sim.consume_everything()
    sim.run_for(seconds=20)
    assert sim.history.deliveries(kept) >= 1 and sim.history.deliveries(after) >= 1
    end_well(sim)


@catches()
def a_slow_disk_keeps_its_word(new: New) -> None:
    """A job is added while each sync takes a second, and the power goes before the second is over, and after it."""
    sim = new(nodes="ABC", seed=509, settings=QUICK)
    sim.fault("slowsync", "A", amount=900)
    job = sim.add_job(at="A", replicate=1, retry_s=5)
    sim.crash("A", "power")
    sim.run_for(seconds=1)
    sim.heal()
    sim.consume_everything()
    sim.run_for(seconds=15)
    assert sim.history.deliveries(job) >= 1
    end_well(sim)


@catches("owed-words-leave")
def an_ack_that_a_full_disk_did_not_take_is_not_confirmed(new: New) -> None:
    """B hears of the ack and cannot write it down. Were it to say so over its next link, all would forget the job, and
    after a power cut B would bring it back."""
    sim = new(nodes="ABC", seed=510, settings=QUICK)
    job = sim.add_job(at="A", replicate=3, retry_s=30, holders="ABC")
    assert sim.consume(at="A") == job
    sim.fault("full", "B")
    assert sim.ack(job, at="A") == 1
    sim.run_for(seconds=10)
    sim.crash("B", "power")
    sim.run_for(seconds=15)
    sim.restart("B")
    sim.run_for(seconds=5)
    end_well(sim, job)
