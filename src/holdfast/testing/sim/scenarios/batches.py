"""The job that runs when all of a batch are over: once, and not before, whoever counts."""
from __future__ import annotations

from holdfast.core import home
from holdfast.testing.history import OK, Value
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.keys import key_at, owner_of
from holdfast.testing.sim.scenarios.scenario import New, catches


def batch_at(sim: Cluster, order: str) -> str:
    return key_at(sim, home.BATCH, order, b"")


def added(sim: Cluster, at: str, queue: str, body: str, *words: str) -> str:
    """A command that adds a job, now or later; its id."""
    value: Value = {
        "queue": queue, "body": body, "replicate": 1, "retry": 5, "ttl": 86_400, "delay": 0, "async": False,
        "timeout": 2_000,
    }
    type, said = sim.command(at, "add", [word.encode() for word in words], value)
    assert type == OK, said
    return str(said["id"])


def add_member(sim: Cluster, at: str, name: str, index: int, replicate: int = 2) -> str:
    words = ["RETRY", "5", "REPLICATE", str(replicate), "BATCH", name, "INDEX", str(index)]
    return added(sim, at, "q", f"m{index}", "ADDJOB", "q", f"m{index}", "2000", *words)


def close(sim: Cluster, at: str, name: str, count: int, *options: str) -> str:
    """The id of the job that is added in the end."""
    words = ["THEN", "after", "sum up", "RETRY", "5", *options]
    return added(sim, at, "after", "sum up", "BATCH", "CLOSE", name, str(count), *words)


def is_there(sim: Cluster, job: str) -> bool:
    return bool(sim.copies(job))


@catches("batch-counts-twice")
def a_batch_is_over_when_all_of_it_is(new: New) -> None:
    """Added, acknowledged and closed at different nodes; one is acknowledged twice, at two nodes."""
    sim = new(nodes="ABC", seed=340)
    name = batch_at(sim, "B")
    jobs = [add_member(sim, at, name, index) for index, at in enumerate("ABC")]
    final = close(sim, "C", name, 3)
    sim.hold("A", "B")  # so that each of the two tells of it by itself
    sim.ack(jobs[0], at="A")
    sim.ack(jobs[0], at="C")
    sim.ack(jobs[1], at="C")
    sim.heal()
    sim.run_for(seconds=5)
    assert not is_there(sim, final), "over although one of it is not"
    sim.ack(jobs[2], at="A")
    sim.run_for(seconds=5)
    assert is_there(sim, final), "all are done, and nothing comes"
    assert sim.consume_and_ack(at="A", queue="after") == final
    sim.settle()
    for job in [*jobs, final]:
        assert sim.copies(job) == {}, f"{job} is still at {sim.copies(job)}"
    sim.check()


@catches("batch-bit-not-awaited")
def an_end_is_not_forgotten_before_it_is_counted(new: New) -> None:
    """All that count are out of reach, unnoticed, when the job is acknowledged and could be collected."""
    sim = new(nodes="ABCDE", seed=341)
    name = batch_at(sim, "ABC")
    job = add_member(sim, "D", name, 0, replicate=1)
    final = close(sim, "D", name, 1)
    cut = sim.cut("D")
    sim.run_for(seconds=0.1)
    sim.ack(job, at="D")  # it tells the three, so it does not count itself
    sim.run_for(seconds=4)  # its links are gone with what was said, and it has not taken over anything yet
    sim.end_fault(cut)
    sim.run_for(seconds=20)
    assert is_there(sim, final), "its end was never told"
    sim.consume_and_ack(at="E", queue="after")
    sim.settle()
    sim.check()


@catches()
def a_batch_is_counted_on_by_the_next_home(new: New) -> None:
    """The home dies for good with half of the bits: the next one has them, and makes the same last job."""
    sim = new(nodes="ABCD", seed=342)
    name = batch_at(sim, "AB")
    jobs = [add_member(sim, "D", name, index, replicate=3) for index in range(4)]
    final = close(sim, "C", name, 4)
    sim.ack(jobs[0], at="C")
    sim.ack(jobs[1], at="D")
    sim.run_for(seconds=3)
    sim.crash("A", "wipe")
    sim.run_for(seconds=20)
    assert owner_of(sim, "C", home.BATCH, name, b"") == "B"
    for job in jobs[2:]:
        sim.ack(job, at="D")
    sim.run_for(seconds=10)
    assert is_there(sim, final), "the next home does not know of what was done before"
    assert sim.consume_and_ack(at="D", queue="after") == final
    sim.heal()
    sim.settle()
    sim.check()


@catches("batch-id-by-home")
def a_batch_closed_by_two_homes_has_one_last_job(new: New) -> None:
    """CLOSE is on its way to a home that sleeps, then the next one does it; the first wakes up, and does it, too."""
    sim = new(nodes="ABCD", seed=343)
    name = batch_at(sim, "AB")
    for index in range(2):
        sim.ack(add_member(sim, "D", name, index), at="D")
    sim.do("A", "BATCH", "GET", name)  # so that it is the home
    sim.run_for(seconds=5)
    sleep = sim.fault("pause", "A", seconds=60)
    sim.run_for(seconds=0.1)  # D has a link to it yet
    final = close(sim, "D", name, 2)
    assert owner_of(sim, "D", home.BATCH, name, b"") == "B"
    sim.end_fault(sleep)
    sim.settle()
    sim.consume_everything(queue="after")
    sim.run_for(seconds=15)
    assert sim.history.deliveries(final) == 1, "the job that was promised never came"
    sim.settle()
    sim.check()


@catches("batch-home-untold")
def a_home_that_was_closed_in_tells_the_next_one_of_its_batches(new: New) -> None:
    """CLOSE is said to a home that nobody else hears; it is killed, another one takes over, and it comes back."""
    sim = new(nodes="ABC", seed=344)
    name = batch_at(sim, "AB")
    jobs = [add_member(sim, at, name, index, replicate=1) for index, at in enumerate("BC")]
    sim.crash("A", "kill")
    sim.run_for(seconds=20)
    sim.do("B", "BATCH", "GET", name)
    sim.run_for(seconds=5)
    assert owner_of(sim, "B", home.BATCH, name, b"") == "B"
    cut = sim.cut("B")
    sim.run_for(seconds=2)
    sim.ack(jobs[0], at="B")
    final = close(sim, "B", name, 2)
    sim.crash("B", "kill")
    sim.restart("A")  # the first in the order, so it does not hand the slot over to B again
    sim.run_for(seconds=30)
    sim.do("C", "BATCH", "GET", name)
    assert owner_of(sim, "C", home.BATCH, name, b"") == "A"
    sim.ack(jobs[1], at="C")
    sim.end_fault(cut)
    sim.restart("B")
    sim.run_for(seconds=20)
    assert is_there(sim, final), "the new home was never told that the batch is closed"
    assert sim.consume_and_ack(at="C", queue="after") == final
    sim.settle()
    sim.check()


@catches("batch-end-not-awaited")
def a_last_job_that_the_home_of_its_group_refuses_is_tried_again(new: New) -> None:
    """A counts the batch, B decides about the group of the last job, and has no room for it in its queue at first."""
    sim = new(nodes="ABC", seed=345)
    name = batch_at(sim, "A")
    group = key_at(sim, home.GROUP, "B", b"after")
    sim.do("B", "QUEUE", "SET", "after", "maxlen", "1")
    first = sim.add_job(at="B", retry_s=60, queue="after", holders="B")
    member = add_member(sim, "C", name, 0)
    final = close(sim, "C", name, 1, "GROUP", group, "REPLICATE", "1")
    sim.ack(member, at="C")
    sim.run_for(seconds=5)
    assert not is_there(sim, final), "there is no room for it"
    assert "MAXLEN" in str(sim.do("C", "BATCH", "GET", name)), "nobody is told why it does not come"
    assert sim.consume_and_ack(at="B", queue="after") == first
    sim.run_for(seconds=5)
    assert is_there(sim, final), "its queue has room now, and nothing comes"
    assert "complete" in str(sim.do("C", "BATCH", "GET", name))
    assert sim.consume_and_ack(at="C", queue="after") == final
    sim.settle()
    sim.check()
