"""Adds while one node is frozen, slow or away: who waits, for how long, and what is said of the copies."""
from __future__ import annotations

from typing import Final

from holdfast.testing.sim.cluster import Adding, Cluster
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well, node_of

ADD_MS: Final = 250
"""What a producer that names no number of copies waits at most, while its node hears one other."""

TIMEOUT: Final = (("cluster-node-timeout", "4000"),)


def took(sim: Cluster, adding: Adding, most_ms: int = 10_000) -> int:
    """Milliseconds from now until the add is answered."""
    begin = sim.now
    while not adding.ended and sim.now < begin + most_ms:
        sim.run_for(seconds=0.005)
    return sim.now - begin


def copies_said(adding: Adding) -> int:
    assert adding.id, adding.ended
    return int(adding.ended[0][1]["copies"])


@catches("slow-node-awaited")
def a_frozen_node_keeps_no_producer_waiting(new: New) -> None:
    """C is stopped, and its link is up: the job has two copies within a moment, that is said, and C has its copy when
    it goes on."""
    sim = new(nodes="ABC", seed=700, settings=TIMEOUT)
    frozen = sim.fault("pause", "C")
    adding = sim.begin_add(at="A", retry_s=60, replicate=0)
    assert took(sim, adding) <= ADD_MS, "a frozen node makes a producer wait"
    assert copies_said(adding) == 2
    sim.end_fault(frozen)
    sim.run_for(seconds=3)
    assert set(sim.copies(adding.id)) == set("ABC"), f"only at {set(sim.copies(adding.id))}"
    end_well(sim)


@catches("slow-node-counted")
def slow_machines_keep_nobody_waiting_where_two_nodes_share_one(new: New) -> None:
    """A and E are on one machine, B and C are cut off: A, D and E hold the job, on all machines that answer."""
    sim = new(nodes="ABCDE", seed=709, settings=TIMEOUT, faults=Faults(shared_host="AE"))
    sim.cut("BC")
    adding = sim.begin_add(at="A", retry_s=60, replicate=0, holders="ABCDE")
    assert took(sim, adding) <= ADD_MS, "machines that do not answer make a producer wait"
    assert copies_said(adding) >= 2
    end_well(sim)


@catches("slow-node-counted")
def only_the_first_adds_find_out_that_a_node_is_frozen(new: New) -> None:
    sim = new(nodes="ABC", seed=701, settings=TIMEOUT)
    frozen = sim.fault("pause", "C")
    took(sim, sim.begin_add(at="A", retry_s=60, replicate=0))
    for _ in range(20):
        assert took(sim, sim.begin_add(at="A", retry_s=60, replicate=0)) < 50, "it is waited for again"
    sim.end_fault(frozen)
    sim.run_for(seconds=1)
    awake = sim.begin_add(at="A", retry_s=60, replicate=0)
    assert took(sim, awake) < 50 and copies_said(awake) == 3, "it is awake, and not counted"
    end_well(sim)


@catches("slow-node-chosen")
def a_frozen_node_is_not_chosen_where_there_are_others(new: New) -> None:
    """Who asks for four copies of four nodes finds out; jobs with two copies are not sent there from then on."""
    sim = new(nodes="ABCD", seed=702, settings=TIMEOUT)
    frozen = sim.fault("pause", "C")
    took(sim, sim.begin_add(at="A", retry_s=60, replicate=4, timeout_ms=500))
    for _ in range(12):
        assert took(sim, sim.begin_add(at="A", retry_s=60, replicate=2)) < 50, "a frozen node was chosen"
    sim.end_fault(frozen)
    end_well(sim)


@catches("silent-node-awaited")
def two_nodes_of_which_one_is_frozen(new: New) -> None:
    """The other one is all that could hold a second copy: it is waited for as long as it is heard, and no longer."""
    sim = new(nodes="AB", seed=703, settings=(("cluster-node-timeout", "30000"),))
    frozen = sim.fault("pause", "B")
    adding = sim.begin_add(at="A", retry_s=60, replicate=0, timeout_ms=5_000)
    assert 2_000 < took(sim, adding) < 5_000, "one copy too soon, or refused"
    assert copies_said(adding) == 1
    assert took(sim, sim.begin_add(at="A", retry_s=60, replicate=0)) < 50
    sim.end_fault(frozen)
    sim.run_for(seconds=3)
    assert set(sim.copies(adding.id)) == set("AB"), f"only at {set(sim.copies(adding.id))}"
    end_well(sim)


@catches("refused-at-once")
def a_number_of_copies_is_waited_for_while_a_node_restarts(new: New) -> None:
    """Exactly three nodes, and one is down for a second: a producer that wants three copies and has five seconds gets
    them. When the node has been away for its node-timeout it is refused at once."""
    sim = new(nodes="ABC", seed=704, settings=TIMEOUT)
    sim.crash("C")
    sim.run_for(seconds=0.5)
    adding = sim.begin_add(at="A", retry_s=60, replicate=3, timeout_ms=5_000)
    sim.run_for(seconds=1)
    assert not adding.ended, f"refused: {adding.ended}"
    sim.restart("C")
    took(sim, adding)
    assert adding.id and set(sim.copies(adding.id)) == set("ABC"), adding.ended
    sim.crash("C")
    sim.run_for(seconds=8)
    gone = sim.begin_add(at="A", retry_s=60, replicate=3, timeout_ms=5_000)
    assert gone.ended and gone.ended[0][1]["error"].startswith("NOREPL Not enough"), gone.ended
    end_well(sim)


@catches()
def more_copies_than_there_are_nodes_are_refused_at_once(new: New) -> None:
    sim = new(nodes="ABC", seed=705, settings=TIMEOUT)
    many = sim.begin_add(at="A", replicate=4, timeout_ms=5_000)
    assert many.ended and many.ended[0][1]["error"].startswith("NOREPL Not enough"), many.ended
    end_well(sim)


@catches("fill-floods")
def copies_that_wait_for_a_frozen_node_are_sent_once(new: New) -> None:
    """What lies in the buffer of the link arrives when the node goes on: to send it each second would fill memory."""
    sim = new(nodes="ABC", seed=706, settings=(("cluster-node-timeout", "30000"),))
    frozen = sim.fault("pause", "C")
    for _ in range(5):
        took(sim, sim.begin_add(at="A", retry_s=60, replicate=0))
    sent = node_of(sim, "A").counters["repl"]
    sim.run_for(seconds=10)
    assert node_of(sim, "A").counters["repl"] == sent, "copies are sent again and again"
    sim.end_fault(frozen)
    end_well(sim)


@catches()
def a_full_node_and_a_dead_one_keep_no_producer_waiting(new: New) -> None:
    sim = new(nodes="ABC", seed=707, settings=TIMEOUT)
    sim.do("C", "PAUSE", "q", "in")
    assert took(sim, sim.begin_add(at="A", retry_s=60, replicate=0)) <= ADD_MS, "it refuses copies, and is waited for"
    sim.do("C", "PAUSE", "q", "none")
    sim.crash("C", "power")
    dead = sim.begin_add(at="A", retry_s=60, replicate=0)
    assert took(sim, dead) <= ADD_MS and copies_said(dead) == 2
    end_well(sim)


@catches()
def a_leaving_node_hands_out_what_it_holds(new: New) -> None:
    """An at-most-once job that is there can be had there, by whoever asks; where there is none the reply is LEAVING."""
    sim = new(nodes="AB", seed=708, settings=TIMEOUT)
    sim.cut("B")
    job = sim.add_job(at="A", retry_s=0)
    sim.do("A", "CLUSTER", "LEAVING", "yes")
    assert sim.consume(at="A") == job
    assert "LEAVING" in str(sim.do("A", "GETJOB", "FROM", "q"))
    end_well(sim)
