"""Parts of a bound that nodes have: when the bound is new, or gone for a while, and when a node comes or goes."""
from __future__ import annotations

from holdfast.core import home
from holdfast.core.quota import JOBS, OUT_OF_DOMAIN
from holdfast.testing.history import Value
from holdfast.testing.sim.clients import Client
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.scenarios.keys import key_at, owner_of
from holdfast.testing.sim.scenarios.scenario import New, catches


def add(sim: Cluster, at: str, count: int, *options: str) -> int:
    """So many jobs of one copy, one after the other; how many are accepted."""
    words = ["RETRY", "500", "REPLICATE", "1", *options]
    return sum("reply" in sim.do(at, "ADDJOB", "q", f"b{number}", "1000", *words) for number in range(count))


def bound(sim: Cluster, most: int) -> str:
    """A bound on the queue, and its home."""
    sim.do("A", "QUEUE", "SET", "q", "totalmaxlen", str(most))
    sim.run_for(seconds=1)
    return owner_of(sim, "A", home.QUOTA, "q", b"%d" % JOBS)


def limit(sim: Cluster, most: int) -> str:
    """A concurrency of the domain, and its home."""
    sim.do("A", "DOMAIN", "SET", "d", "CONCURRENCY", str(most))
    sim.run_for(seconds=1)
    return owner_of(sim, "A", home.QUOTA, "d", b"%d" % OUT_OF_DOMAIN)


@catches("unlent-untold")
def a_new_bound_counts_what_other_nodes_have(new: New) -> None:
    """Each of three has four jobs of a queue that gets a bound of ten: when each has lost one there is
    room for one, in the eyes of all."""
    sim = new(nodes="ABC", seed=420)
    for name in "ABC":
        add(sim, name, 4)
    bound(sim, 10)
    for name in "ABC":
        sim.consume_and_ack(at=name)
    assert sum(add(sim, name, 3) for name in "ABC") == 1, "there are more than there may be"


@catches("new-bound-unasked")
def a_bound_that_was_gone_for_a_while_counts_what_came_meanwhile(new: New) -> None:
    """What the home of the bound knew of the others was true before."""
    sim = new(nodes="ABC", seed=421)
    at = bound(sim, 10)
    assert [add(sim, name, 1) for name in "ABC"] == [1, 1, 1]
    bound(sim, 0)
    assert add(sim, sim.names.replace(at, "")[0], 7) == 7
    bound(sim, 10)
    assert [add(sim, name, 3) for name in "ABC"] == [0, 0, 0], "there are more than there may be"


@catches("bounded-uncounted", "unlent-untold")
def a_bound_counts_what_a_node_has_that_was_started_anew(new: New) -> None:
    """First the home, then another, which has also accepted a job for a third: it is the home of its group."""
    sim = new(nodes="ABC", seed=422)
    at = bound(sim, 7)
    one, other = list(sim.names.replace(at, ""))
    assert [add(sim, name, 2) for name in "ABC"] == [2, 2, 2]
    assert add(sim, other, 1, "GROUP", key_at(sim, home.GROUP, one)) == 1
    for name in (at, one):
        sim.crash(name)
        sim.run_for(seconds=1)
        sim.restart(name)
        sim.run_for(seconds=5)
        assert [add(sim, each, 3) for each in "ABC"] == [0, 0, 0], "there are more than there may be"


@catches("places-not-recounted")
def places_that_were_left_while_there_was_no_limit_are_free(new: New) -> None:
    """Three of a domain are out at one node, as many as may be. The limit is taken away, the three are acked, and it is
    there again. Then another node has jobs, and that one has nothing to do with the domain any more."""
    sim = new(nodes="ABC", seed=423)
    at = limit(sim, 3)
    one, other = list(sim.names.replace(at, ""))
    add(sim, one, 3, "DOMAIN", "d")
    out = [sim.consume(at=one) for _ in range(3)]
    limit(sim, 0)
    for job in out:
        sim.ack(job, at=one)
    sim.run_for(seconds=1)
    limit(sim, 3)
    add(sim, other, 4, "DOMAIN", "d")
    got = [sim.consume(at=other, timeout_ms=8_000) for _ in range(4)]
    assert all(got[:3]), "nobody has them, and their domain is closed"
    assert not got[3], "more are out than may be"


@catches("unlent-untold")
def a_new_limit_counts_what_is_out_at_other_nodes(new: New) -> None:
    sim = new(nodes="ABC", seed=424)
    at = owner_of(sim, "A", home.QUOTA, "d", b"%d" % OUT_OF_DOMAIN)
    one, other = list(sim.names.replace(at, ""))
    add(sim, one, 3, "DOMAIN", "d")
    out = [sim.consume(at=one) for _ in range(3)]
    limit(sim, 3)
    add(sim, other, 1, "DOMAIN", "d")
    got = sim.wait_for_job(at=other)
    sim.run_for(seconds=5)
    assert got == [], "more are out than may be"
    sim.ack(out[0], at=one)
    sim.run_for(seconds=2)
    assert got, "a place is free, and nobody gets it"


@catches("forgotten-keeps-its-part")
def what_a_forgotten_node_had_of_a_bound_is_free(new: New) -> None:
    """A node that fills a queue by itself is lost, and will not be back."""
    sim = new(nodes="ABC", seed=425)
    at = bound(sim, 5)
    lost, other = list(sim.names.replace(at, ""))
    assert add(sim, lost, 5) == 5
    sim.crash(lost, "wipe")
    sim.run_for(seconds=30)
    assert add(sim, other, 1) == 0, "it may come back"
    for name in (at, other):
        sim.tell(name, "CLUSTER", "FORGET", sim.hosts[lost].node_id)
    sim.run_for(seconds=1)
    assert add(sim, other, 6) == 5, "the queue is empty, and takes nothing"


class Worker:
    """Takes a job, works on it for a while, acks it, takes the next."""

    def __init__(self, sim: Cluster, at: str) -> None:
        self.sim = sim
        self.client = Client(sim, f"worker-{at}", sim.hosts[at])
        self.done = 0
        self.ask(None)

    def ask(self, _: object) -> None:
        self.client.send("get", [b"GETJOB", b"TIMEOUT", b"60000", b"FROM", b"q"], {"queues": ["q"]}, self.got)

    def got(self, _: str, said: Value) -> None:
        for job in said.get("jobs", []):
            self.sim.push(self.sim.now + 100, self.ack, job["id"])

    def ack(self, job: str) -> None:
        self.done += 1
        self.client.send("ack", [b"ACKJOB", job.encode()], {"ids": [job]})
        self.sim.push(self.sim.now + 1, self.ask, None)


@catches("first-is-always-first")
def the_one_place_of_a_domain_is_taken_in_turn(new: New) -> None:
    """At each node there are jobs and somebody who waits for them. Whoever is first in the eyes of the home must not
    have the place again and again, nor must the home itself wait until nobody else does."""
    sim = new(nodes="ABC", seed=426)
    limit(sim, 1)
    for name in "ABC":
        add(sim, name, 150, "DOMAIN", "d")
    workers = [Worker(sim, name) for name in "ABC"]
    sim.run_for(seconds=15)
    done = [worker.done for worker in workers]
    assert sum(done) >= 100, f"{done} in 15 seconds: the place is not used"
    assert min(done) >= 5, f"{done}: some do not get their turn"
