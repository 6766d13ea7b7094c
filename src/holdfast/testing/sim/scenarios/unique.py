"""A unique key has one job, at whatever node somebody asks, and whoever decides about it."""
from __future__ import annotations

from holdfast.core import home
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.plan import Add
from holdfast.testing.sim.scenarios.keys import owner_of, unique_at
from holdfast.testing.sim.scenarios.scenario import New, catches, end_well


@catches("replaced-lives-on")
def a_key_means_the_same_at_every_node(new: New) -> None:
    sim = new(nodes="ABC", seed=320)
    first, word = sim.add_keyed(at="A", unique="u", replicate=2)
    assert word == "added"
    assert sim.add_keyed(at="B", unique="u", replicate=2) == (first, "existing")
    assert sim.add_keyed(at="C", unique="u", replicate=2, ondup="reject")[1].startswith(f"DUPLICATE {first}")
    second, word = sim.add_keyed(at="B", unique="u", replicate=2, ondup="replace")
    assert word == "replaced" and second != first
    assert sim.consume_and_ack(at="A") == second
    assert sim.consume(at="A", timeout_ms=1_000) == "", "the one that was replaced"
    third, word = sim.add_keyed(at="C", unique="u", replicate=2)
    assert word == "added"
    end_well(sim, first, second, third)


@catches("unique-lost-on-restart")
def a_restart_does_not_free_keys(new: New) -> None:
    sim = new(nodes="ABC", seed=321)
    key = unique_at(sim, "A")
    first, _ = sim.add_keyed(at="B", unique=key, replicate=2, delay_s=60)
    sim.crash("A")
    sim.run_for(seconds=0.5)
    sim.restart("A")
    sim.run_for(seconds=5)
    assert sim.add_keyed(at="C", unique=key, replicate=2) == (first, "existing")
    sim.ack(first, at="B")
    end_well(sim, first)


@catches("unique-unaccepted-answered")
def an_id_is_answered_when_its_job_is_accepted(new: New) -> None:
    """The first waits for copies that it will not get, and is aborted. The second must not be told of it."""
    sim = new(nodes="ABC", seed=322)
    key = unique_at(sim, "A")
    sim.add_keyed(at="A", unique="other", replicate=1)  # so that slots have homes
    sim.run_for(seconds=1)
    late = sim.hold("BC", "A")
    one = sim.begin_add(at="A", replicate=3, timeout_ms=1_000, keys=keys_of(key))
    two = sim.begin_add(at="A", replicate=1, timeout_ms=4_000, keys=keys_of(key))
    sim.run_for(seconds=1.5)
    sim.end_fault(late)
    sim.run_for(seconds=3)
    assert one.ended[0][1]["error"].startswith("NOREPL"), one.ended
    assert two.id and two.ended[0][1]["dup"] == "added", two.ended
    got = {sim.consume_and_ack(at="B", timeout_ms=1_000), sim.consume_and_ack(at="B", timeout_ms=1_000)}
    assert two.id in got, "accepted, and nobody got it"
    end_well(sim, two.id)


def keys_of(unique: str, ondup: str = "") -> Add:
    return Add(0, 0, unique=unique, ondup=ondup)


@catches("late-add-done")
def an_add_that_comes_too_late_replaces_nothing(new: New) -> None:
    """B's frame to the home is held up until its producer was told UNKNOWN, and another has added its job since."""
    sim = new(nodes="ABC", seed=330)
    key = unique_at(sim, "A")
    sim.add_keyed(at="B", unique="other", replicate=1)  # so that slots have homes
    sim.run_for(seconds=1)
    late = sim.hold("B", "A")
    old = sim.begin_add(at="B", timeout_ms=500, keys=keys_of(key, "replace"))
    sim.run_for(seconds=1)
    assert old.ended[0][1]["error"].startswith("UNKNOWN"), old.ended
    job, word = sim.add_keyed(at="C", unique=key, ondup="replace")
    assert word == "added"
    sim.end_fault(late)
    sim.run_for(seconds=1)
    got = {sim.consume_and_ack(at="A", timeout_ms=1_000) for _ in range(3)}
    assert job in got, "accepted, and its place was taken by one that is older"
    end_well(sim, job)


@catches("repeated-add-refused")
def who_is_asked_again_and_refuses_does_not_say_that_nothing_was_added(new: New) -> None:
    """The home, B, gave C a copy and was killed before it had accepted the job. When it is asked again its queue takes
    nothing any more; C has the job, and comes to queue it."""
    sim = new(nodes="ABC", seed=332)
    key = unique_at(sim, "BCA")
    sim.add_keyed(at="A", unique=key, replicate=1)  # so that its slot has a home
    sim.run_for(seconds=1)
    assert sim.consume_and_ack(at="A")
    sim.hold("C", "B")
    adding = sim.begin_add(at="A", replicate=2, timeout_ms=10_000, keys=keys_of(key), holders="BC", home="B")
    sim.run_for(seconds=0.03)
    sim.crash("B")
    sim.restart("B")
    sim.do("B", "PAUSE", "q", "in")
    sim.run_for(seconds=3)
    assert [type for type, _ in adding.ended] == ["info"], f"C has the job, and its producer was told {adding.ended}"
    sim.do("B", "PAUSE", "q", "none")
    end_well(sim)


@catches("repeated-add-known")
def a_job_made_twice_under_one_id_ends_everywhere(new: New) -> None:
    """The home, B, gave C a copy and was killed before it had accepted the job. Asked again it makes the job anew, with
    a copy at A; C is away until nobody has a tombstone any more."""
    sim = new(nodes="ABC", seed=331)
    key = unique_at(sim, "BCA")
    sim.add_keyed(at="A", unique=key, replicate=1)  # so that its slot has a home
    sim.run_for(seconds=1)
    assert sim.consume_and_ack(at="A")
    late = sim.hold("C", "B")
    adding = sim.begin_add(at="A", replicate=2, timeout_ms=10_000, keys=keys_of(key), holders="BC", home="B")
    sim.run_for(seconds=0.03)
    sim.crash("B")
    sim.cut("C")
    sim.end_fault(late)
    sim.run_for(seconds=0.5)
    sim.restart("B")
    sim.run_for(seconds=3)
    job = adding.id
    assert job and set(sim.copies(job)) == {"A", "B", "C"}, (adding.ended, sim.copies(job))
    assert sim.consume_and_ack(at="A") == job
    sim.run_for(seconds=60)
    end_well(sim, job)


@catches("window-ends-with-job")
def a_window_outlives_its_job_and_its_home(new: New) -> None:
    sim = new(nodes="ABC", seed=323)
    key = unique_at(sim, "AB")
    first, _ = sim.add_keyed(at="C", unique=key, replicate=3, window_s=120)
    assert sim.consume_and_ack(at="C") == first
    sim.run_for(seconds=3)
    assert sim.add_keyed(at="C", unique=key, window_s=120) == (first, "existing")
    sim.crash("A")
    sim.run_for(seconds=20)
    assert sim.add_keyed(at="C", unique=key, window_s=120) == (first, "existing")
    end_well(sim, first)


@catches("takeover-asks-nobody")
def a_new_home_asks_for_what_it_does_not_hold(new: New) -> None:
    """The copies are at A and D; A dies, and B, the next home, has none."""
    sim = new(nodes="ABCD", seed=324)
    key = unique_at(sim, "AB")
    first, _ = sim.add_keyed(at="A", unique=key, replicate=2, delay_s=100, holders="AD", home="A")
    sim.crash("A")
    sim.run_for(seconds=15)
    assert owner_of(sim, "C", home.UNIQUE, key) == "B"
    assert sim.add_keyed(at="C", unique=key) == (first, "existing")
    sim.ack(first, at="D")
    end_well(sim, first)


@catches("takeover-grabs", "home-by-sight")
def a_home_that_others_see_is_not_taken_over(new: New) -> None:
    """A and B do not see each other, and both see C. B is the home: A asks through C."""
    sim = new(nodes="ABC", seed=325)
    key = unique_at(sim, "BA")
    first, _ = sim.add_keyed(at="C", unique=key, delay_s=100, replicate=1)
    sim.hold("A", "B", is_cut=True, is_both=True)
    for _ in range(25):
        sim.run_for(seconds=1)
        assert owner_of(sim, "A", home.UNIQUE, key) == "B", "taken from a home that is there"
    assert sim.add_keyed(at="A", unique=key) == (first, "existing")
    assert sim.add_keyed(at="C", unique=key) == (first, "existing")
    sim.heal()
    sim.ack(first, at="B")
    end_well(sim, first)


@catches("stale-copy-believed")
def a_stale_copy_is_not_believed(new: New) -> None:
    """D was away, and home to everything for itself, when the job was acknowledged. Back again it hands over what it
    has to the next home, before it has heard of that. A has lost power: a process that ends is replaced at once, and
    then the new home has already asked C about the job when D returns."""
    sim = new(nodes="ABCD", seed=326)
    key = unique_at(sim, "AB")
    first, _ = sim.add_keyed(at="A", unique=key, replicate=3, retry_s=60, holders="ACD", home="A")
    cut = sim.cut("D")
    sim.run_for(seconds=12)
    assert sim.consume_and_ack(at="A") == first
    sim.run_for(seconds=2)
    sim.crash("A", "power")
    late = sim.hold("C", "D", is_cut=True, is_both=True)
    sim.end_fault(cut)
    sim.run_for(seconds=15)
    assert owner_of(sim, "C", home.UNIQUE, key) == "B"
    second, word = sim.add_keyed(at="C", unique=key, retry_s=5)
    assert word == "added", "the new job vanished in favour of one that is done"
    sim.end_fault(late)
    end_well(sim, first, second)


@catches("lower-epoch-goes-on")
def a_home_that_was_cut_off_stops_when_it_hears_of_another(new: New) -> None:
    sim = new(nodes="ABC", seed=327)
    key = unique_at(sim, "AB")
    sim.add_keyed(at="A", unique="other", replicate=1)
    sim.cut("A")
    sim.run_for(seconds=15)
    first, word = sim.add_keyed(at="C", unique=key, delay_s=100)
    assert word == "added" and owner_of(sim, "C", home.UNIQUE, key) == "B"
    sim.heal()
    sim.run_for(seconds=1.5)
    assert sim.add_keyed(at="A", unique=key) == (first, "existing")
    sim.ack(first, at="B")
    end_well(sim, first)


@catches("handover-forgets")
def a_handover_carries_the_keys(new: New) -> None:
    """Added while A was away, with copies at B and C: A gets the slot back, and must know of it."""
    sim = new(nodes="ABC", seed=328)
    key = unique_at(sim, "AB")
    sim.add_keyed(at="A", unique="other", replicate=1)
    sim.crash("A")
    sim.run_for(seconds=15)
    first, word = sim.add_keyed(at="C", unique=key, replicate=2, delay_s=200)
    assert word == "added"
    sim.restart("A")
    sim.run_for(seconds=10)
    assert owner_of(sim, "C", home.UNIQUE, key) == "A"
    assert sim.add_keyed(at="B", unique=key) == (first, "existing")
    sim.ack(first, at="C")
    end_well(sim, first)


@catches("passed-on-uncounted")
def a_lease_that_ends_after_a_handover_is_counted(new: New) -> None:
    """When the lease ends at B it is A that would queue the job: it must know that it has failed as often as it may."""
    sim = new(nodes="ABC", seed=332)
    job = hand_over_while_out(sim)
    again = [sim.wait_for_job(at=name) for name in "ABC"]
    sim.run_for(seconds=20)
    assert again == [[], [], []], "handed out more often than it may fail"
    assert sim.list_dead(at="A") == [job]
    end_well(sim)


@catches("passed-on-uncounted")
def a_lease_that_ends_while_there_is_no_home_is_counted(new: New) -> None:
    """A loses power before the lease ends at B, and C is slow to say that it does not hear A either."""
    sim = new(nodes="ABC", seed=333)
    job = hand_over_while_out(sim)
    again = [sim.wait_for_job(at=name) for name in "BC"]
    sim.run_for(seconds=1)
    sim.crash("A", "power")
    sim.run_for(seconds=1.8)
    late = sim.hold("C", "B")
    sim.run_for(seconds=1.5)
    sim.end_fault(late)
    sim.run_for(seconds=30)
    assert again == [[], []], "handed out more often than it may fail"
    assert sim.list_dead(at="B") == [job]
    sim.restart("A")
    end_well(sim)


def hand_over_while_out(sim: Cluster) -> str:
    """A job with ATTEMPTS 1 that B hands out while it is the home, for 12 seconds; after 8 of them A is the home."""
    key = unique_at(sim, "AB")
    sim.add_keyed(at="A", unique="other", replicate=1)
    sim.consume_and_ack(at="A")
    sim.crash("A")
    sim.run_for(seconds=15)
    sim.restart("A")
    sim.run_for(seconds=1)
    job, word = sim.add_keyed(at="B", unique=key, replicate=3, retry_s=12, attempts=1)
    assert word == "added" and owner_of(sim, "B", home.UNIQUE, key) == "B"
    assert sim.take(at="B")[0] == job
    sim.run_for(seconds=8)
    assert owner_of(sim, "B", home.UNIQUE, key) == "A", "not handed over while the job was out"
    return job


@catches("never-merged", "handover-puts-off")
def added_on_two_sides_of_a_cut_it_becomes_one(new: New) -> None:
    sim = new(nodes="ABCD", seed=329)
    key = unique_at(sim, "AC")
    sim.add_keyed(at="A", unique="other", replicate=1)
    sim.run_for(seconds=1)
    sim.consume_and_ack(at="A")
    sim.cut("AB")
    sim.run_for(seconds=20)
    one, _ = sim.add_keyed(at="B", unique=key, retry_s=5, replicate=2)
    two, _ = sim.add_keyed(at="D", unique=key, retry_s=5, replicate=2)
    assert one and two and one != two
    sim.heal()
    sim.run_for(seconds=20)
    told = str(sim.do("C", "SHOW", max(one, two)))
    assert min(one, two) in told, f"who asks for the other is told of this one, not of {told}"
    got = [sim.consume_and_ack(at=at, timeout_ms=1_000) for at in "ABCD"]
    assert [job for job in got if job] == [min(one, two)], f"{one} and {two}: {got}"
    end_well(sim, min(one, two))


@catches("window-ends-by-bad-clock")
def a_start_with_a_wrong_clock_ends_no_window(new: New) -> None:
    """A restarts with its wall clock an hour ahead: the key of a job that is gone is taken still, and that of one which
    ends after the start for as long as it would have been."""
    sim = new(nodes="ABC", seed=334)
    gone, here = unique_at(sim, "AB"), unique_at(sim, "AC")
    ids = {key: sim.add_keyed(at="A", unique=key, window_s=600, ttl_s=300)[0] for key in (gone, here)}
    assert sim.consume_and_ack(at="A") == ids[gone]
    sim.run_for(seconds=5)
    sim.crash("A")
    sim.fault("jump", "A", amount=3_600_000)
    sim.restart("A")
    sim.run_for(seconds=10)
    assert sim.consume_and_ack(at="A") == ids[here]
    sim.run_for(seconds=5)
    for key, id in ids.items():
        assert sim.add_keyed(at="A", unique=key) == (id, "existing"), "its window has ended"
    sim.run_for(seconds=600)
    for key in ids:
        assert sim.add_keyed(at="A", unique=key)[1] == "added", "its window is too long"
    sim.check()


@catches()
def of_two_windows_in_the_journal_the_later_counts(new: New) -> None:
    """The first was over when the second job got the key."""
    sim = new(nodes="ABC", seed=335)
    key = unique_at(sim, "A")
    for window_s in (5, 600):
        last, word = sim.add_keyed(at="A", unique=key, window_s=window_s)
        assert word == "added" and sim.consume_and_ack(at="A") == last
        sim.run_for(seconds=10)
    sim.crash("A")
    sim.restart("A")
    sim.run_for(seconds=10)
    assert sim.add_keyed(at="A", unique=key) == (last, "existing")
    sim.check()
