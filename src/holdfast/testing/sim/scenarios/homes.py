"""Keys and schedules after their home has died, was replaced, or could not be heard; and links after a cut."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.core import home
from holdfast.testing.checkers.reach import HOME_MS, REACH_MS
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.faults import Faults
from holdfast.testing.sim.scenarios.keys import key_at, owner_of, unique_at
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well, node_of

TIMEOUT_MS: Final = 4_000
SETTINGS: Final = (("cluster-node-timeout", str(TIMEOUT_MS)),)
PATIENT: Final = (("cluster-node-timeout", "15000"),)
"""The default, which silence takes longer than any of these stories."""

FLIGHT_MS: Final = 100
"""What the messages of a decision take here, at most."""

BACKS_OFF: Final = Faults(backs_off=True, patience_ms=(60_000, 60_000))
"""TCP as it is: after a cut it waits as long again before it sends what was lost, and never gives up by itself."""


def wait_until(sim: Cluster, is_so: Callable[[], bool], most_ms: int) -> int:
    """Milliseconds from now until it is so, or more than the most."""
    begin = sim.now
    while not is_so() and sim.now <= begin + most_ms:
        sim.run_for(seconds=0.01)
    return sim.now - begin


def decide(sim: Cluster, at: str) -> set[int]:
    """Slots about which these nodes decide."""
    opened: set[int] = set()
    for name in at:
        opened.update(slot for slot, is_open in enumerate(node_of(sim, name).homes.opened) if is_open)
    return opened


def use_all(sim: Cluster) -> set[int]:
    """A key of each node is used, so that all slots have a home: these."""
    for name in sim.names:
        assert sim.add_keyed(at=name, unique=unique_at(sim, name), replicate=2, retry_s=5)[0]
    sim.run_for(seconds=1)
    found = decide(sim, sim.names)
    assert len(found) == 1024
    return found


def until_decided(sim: Cluster, at: str, slots: set[int], most_ms: int) -> int:
    """How long it takes until these nodes decide about all slots."""
    return wait_until(sim, lambda: slots <= decide(sim, at), most_ms)


def are_linked(sim: Cluster, names: str) -> bool:
    """Whether they hear each other: both ends are up, and nothing that is on its way waits for TCP."""
    return all(
        other in sim.hosts[name].linked and not sim.moments.is_late(sim.hosts[name].linked[other])
        for name in names for other in names if name != other
    )


@catches("refusal-unheard")
def keys_of_a_killed_home_are_decided_elsewhere_within_a_second(new: New) -> None:
    """Connections were closed, and nobody listens at its door: the process is dead."""
    sim = new(nodes="ABC", seed=900, settings=PATIENT)
    slots = use_all(sim)
    key = unique_at(sim, "CAB")
    sim.crash("C", "kill")
    assert until_decided(sim, "AB", slots, HOME_MS + FLIGHT_MS) <= HOME_MS + FLIGHT_MS
    began = sim.now
    assert sim.add_keyed(at="B", unique=key, replicate=2, retry_s=5)[0]
    assert sim.now - began <= FLIGHT_MS
    end_well(sim)


@catches()
def keys_of_a_silent_home_are_decided_elsewhere_after_node_timeout(new: New) -> None:
    for seed, how in ((901, "pause"), (902, "gone")):
        sim = new(nodes="ABC", seed=seed, settings=SETTINGS)
        slots = use_all(sim)
        if how == "pause":
            sim.fault("pause", "C")
        else:
            sim.crash("C", "power")
        most = TIMEOUT_MS + HOME_MS + FLIGHT_MS
        took = until_decided(sim, "AB", slots, most)
        assert TIMEOUT_MS - 1_000 <= took <= most, f"after {took} ms"
        end_well(sim)


@catches("silence-put-to-the-vote")
def a_newcomer_that_never_met_the_home_does_not_keep_its_keys(new: New) -> None:
    """D has joined, and never had a link with C. When C's machine dies, D cannot say that it does not hear C: A and B
    are two of four."""
    sim = new(nodes="ABC", seed=903, settings=SETTINGS)
    slots = use_all(sim)
    sim.fault("join", "D")
    sim.hold("C", "D", is_cut=True, is_both=True)
    sim.run_for(seconds=2)
    assert "C" not in sim.hosts["D"].linked and len(sim.hosts["D"].linked) == 2
    sim.crash("C", "power")
    most = TIMEOUT_MS + HOME_MS + FLIGHT_MS
    assert until_decided(sim, "ABD", slots, most) <= most
    sim.run_for(seconds=10)
    end_well(sim)


@catches()
def a_newcomer_that_came_too_late_does_not_keep_the_keys(new: New) -> None:
    """C's machine dies, and D joins before anybody misses C."""
    sim = new(nodes="ABC", seed=917, settings=SETTINGS)
    slots = use_all(sim)
    died = sim.now
    sim.fault("gone", "C")
    sim.run_for(seconds=1)
    sim.fault("join", "D")
    left = died + TIMEOUT_MS + HOME_MS + FLIGHT_MS - sim.now
    assert until_decided(sim, "ABD", slots, left) <= left
    sim.run_for(seconds=10)
    end_well(sim)


@catches()
def strangers_in_the_place_of_a_home_make_no_difference(new: New) -> None:
    """A container without a volume is replaced four times at the same address. Nobody forgets any of its lives."""
    sim = new(nodes="ABC", seed=904, settings=SETTINGS)
    slots = use_all(sim)
    for generation in range(4):
        fault = sim.fault("stranger", "C")
        took = until_decided(sim, "AB", slots, TIMEOUT_MS + HOME_MS + FLIGHT_MS)
        assert took <= TIMEOUT_MS + HOME_MS + FLIGHT_MS, f"generation {generation}: after {took} ms"
        sim.end_fault(fault)
        sim.run_for(seconds=0.5)
        assert sim.add_keyed(at="A", unique=f"u{generation}", replicate=2, retry_s=5)[0]
        sim.run_for(seconds=3)
        assert slots == decide(sim, "ABC")
    end_well(sim)


@catches("members-counted-by-name")
def many_strangers_in_a_row_make_no_difference(new: New) -> None:
    """Four of them within seconds: by name A and B are two of seven, and all of them were heard a moment ago."""
    sim = new(nodes="ABC", seed=918, settings=PATIENT)
    slots = use_all(sim)
    for _ in range(4):
        sim.end_fault(sim.fault("stranger", "C"))
        sim.run_for(seconds=3)
    sim.run_for(seconds=3)
    assert slots == decide(sim, "ABC") and decide(sim, "C")
    sim.crash("C", "kill")
    assert until_decided(sim, "AB", slots, HOME_MS + FLIGHT_MS) <= HOME_MS + FLIGHT_MS
    end_well(sim)


@catches("stranger-proves-nothing")
def a_stranger_that_comes_at_once_does_not_keep_the_keys(new: New) -> None:
    """SIGTERM, and a new container at the same address before anybody could find the door closed. It is another machine
    as far as it says, so it is not the first in the order of all keys of the old one."""
    sim = new(nodes="ABC", seed=905, settings=PATIENT)
    slots = use_all(sim)
    fault = sim.fault("stranger", "C")
    sim.hosts["C"].host_id = b"another"
    sim.end_fault(fault)
    sim.run_for(seconds=0.3)
    assert until_decided(sim, "ABC", slots, HOME_MS + FLIGHT_MS) <= HOME_MS + FLIGHT_MS
    end_well(sim)


@catches("the-dead-count")
def members_that_are_dead_for_long_make_no_difference(new: New) -> None:
    """D, E and F died, one after the other, and nobody forgot them. Then C dies: A and B are two of six by name."""
    sim = new(nodes="ABCDEF", seed=906, settings=SETTINGS)
    use_all(sim)
    for name in "DEF":
        sim.crash(name, "power")
        sim.run_for(seconds=12)
    slots = decide(sim, "ABC")
    assert len(slots) == 1024
    sim.crash("C", "kill")
    assert until_decided(sim, "AB", slots, HOME_MS + FLIGHT_MS) <= HOME_MS + FLIGHT_MS
    end_well(sim)


@catches("door-decides-alone")
def a_closed_door_is_no_proof_for_a_few(new: New) -> None:
    """B and C are killed: A is one of three, and cannot tell what it sees from a firewall that says no."""
    sim = new(nodes="ABC", seed=907, settings=SETTINGS)
    use_all(sim)
    mine = decide(sim, "A")
    sim.crash("B", "kill")
    sim.crash("C", "kill")
    sim.run_for(seconds=TIMEOUT_MS / 1_000)
    assert decide(sim, "A") == mine, "one of three decides about all keys"
    end_well(sim)


@catches("takeover-grabs")
def a_silent_home_that_somebody_hears_keeps_its_keys(new: New) -> None:
    """A and C do not hear each other; B hears both, and says so."""
    sim = new(nodes="ABC", seed=908, settings=SETTINGS)
    use_all(sim)
    theirs = decide(sim, "C")
    sim.hold("A", "C", is_cut=True, is_both=True)
    for _ in range(40):
        sim.run_for(seconds=0.5)
        assert not theirs & decide(sim, "AB"), "taken from a home that can be heard"
    end_well(sim)


@catches("refusal-unheard", "schedule-left-to-watch")
def every_schedule_has_an_owner_within_a_second(new: New) -> None:
    """The owner of an entry is killed just before its time, and the others see that it does nothing."""
    sim = new(nodes="ABC", seed=909, settings=PATIENT)
    use_all(sim)
    name = key_at(sim, home.CRON, "CAB", b"")
    sim.do("A", "CRON", "SET", name, "* * * * *", "q", "body", "RETRY", "5")
    sim.run_for(seconds=1)
    until_due = 60_000 - sim.hosts["A"].clock.wall(sim.now) % 60_000
    sim.run_for(seconds=until_due / 1_000 - 0.03)
    assert owner_of(sim, "A", home.CRON, name, b"") == "C"
    sim.crash("C", "kill")

    def has_run() -> bool:
        return any(node_of(sim, at).counters.get("cron-runs", 0) for at in "AB")

    assert wait_until(sim, has_run, 2 * HOME_MS) <= HOME_MS + FLIGHT_MS, "nobody made its job"
    end_well(sim)


@catches("links-left-to-tcp")
def links_are_back_soon_after_a_cut_of_any_length(new: New) -> None:
    for seed, seconds in ((910, 1.5), (911, 4), (912, 9), (913, 13), (914, 40), (915, 200)):
        sim = new(nodes="ABC", seed=seed, faults=BACKS_OFF)
        sim.add_job(at="A", replicate=3, retry_s=60)
        cut = sim.cut("C")
        sim.run_for(seconds=seconds)
        sim.end_fault(cut)
        took = wait_until(sim, partial(are_linked, sim, "ABC"), REACH_MS)
        assert took <= REACH_MS, f"after a cut of {seconds} s: more than {took} ms"
        end_well(sim)


@catches("gossip-of-the-dead-only")
def the_dead_do_not_hide_the_living(new: New) -> None:
    """Three strangers died at C's address and nobody forgot them. D joins A, and learns of B all the same."""
    sim = new(nodes="ABC", seed=916, settings=SETTINGS)
    for _ in range(4):
        sim.end_fault(sim.fault("stranger", "C"))
        sim.run_for(seconds=3)
    sim.fault("gone", "C")
    sim.run_for(seconds=10)
    sim.fault("join", "D", amount=1)
    sim.run_for(seconds=6)
    assert are_linked(sim, "ABD"), "the newcomer does not know who is there"
    end_well(sim)
