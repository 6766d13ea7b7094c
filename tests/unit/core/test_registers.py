"""Settings of the cluster: the later stamp wins, whatever the order of words."""
from __future__ import annotations

from holdfast.core import registers
from holdfast.core.doubt import SKEW_MS
from holdfast.core.records import QUEUE
from holdfast.core.registers import STEPS, Register, digest_of
from holdfast.core.snapshot import Walk
from holdfast.testing.sim.cluster import Cluster

from .making import NODE_ID, START_MS, Bench

OTHER = b"f" * 40


def setting(sim: Cluster, name: str, queue: str = "q", field: str = "maxlen") -> bytes | None:
    node = sim.hosts[name].node
    assert node is not None
    return registers.value(node, b"queue", queue.encode(), field.encode())


def test_a_word_to_one_node_is_heard_by_all() -> None:
    sim = Cluster(nodes="ABC", seed=1)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "7", "rate", "5/s")
    sim.run_for(seconds=1)
    assert [setting(sim, name) for name in "ABC"] == [b"7"] * 3
    assert [setting(sim, name, field="rate") for name in "ABC"] == [b"5/s"] * 3
    sim.check()


def test_of_two_words_that_follow_each_other_at_once_the_second_counts() -> None:
    """One to a single node, then one to all, by somebody who asks one node after the other: their clocks show the same,
    though what each knows of the others' is late."""
    for seed in range(10):
        sim = Cluster(nodes="ABCDE", seed=seed)
        sim.run_for(seconds=3)
        for one, two in ("AB", "BC", "CD", "DE", "EA"):
            assert sim.do(one, "PAUSE", f"q{one}", "all") == {"reply": "all"}
            sim.do(two, "PAUSE", f"q{one}", "none", "bcast")
        sim.run_for(seconds=1)
        states = [sim.do(name, "PAUSE", f"q{name}", "state") for name in "ABCDE"]
        assert states == [{"reply": "none"}] * 5, seed


def test_fields_are_set_apart() -> None:
    """Two set different fields of one queue on the two sides of a cut: both stay."""
    sim = Cluster(nodes="ABC", seed=2)
    sim.cut("C")
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "7")
    sim.do("C", "QUEUE", "SET", "q", "attempts", "3")
    sim.run_for(seconds=5)
    assert setting(sim, "C") is None
    sim.heal()
    sim.run_for(seconds=10)
    for name in "ABC":
        assert (setting(sim, name), setting(sim, name, field="attempts")) == (b"7", b"3")


def test_of_two_words_on_the_same_field_the_later_wins_everywhere() -> None:
    sim = Cluster(nodes="ABC", seed=3)
    sim.cut("C")
    sim.do("C", "QUEUE", "SET", "q", "maxlen", "1")
    sim.run_for(seconds=1)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "2")
    sim.heal()
    sim.run_for(seconds=10)
    assert [setting(sim, name) for name in "ABC"] == [b"2"] * 3


def test_a_deletion_does_not_come_back_with_an_old_word() -> None:
    """A deletes while C is away, and knows of the deletion until C has heard of it; then nobody keeps it."""
    sim = Cluster(nodes="ABC", seed=4)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "5")
    sim.run_for(seconds=2)
    cut = sim.cut("C")
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "0")
    sim.run_for(seconds=70)
    assert setting(sim, "C") == b"5"
    sim.end_fault(cut)
    sim.run_for(seconds=15)
    assert [setting(sim, name) for name in "ABC"] == [None] * 3
    for name in "ABC":
        node = sim.hosts[name].node
        assert node is not None and node.registers.count == 0


def test_settings_outlive_a_restart_and_reach_a_node_that_lost_its_disk() -> None:
    sim = Cluster(nodes="ABC", seed=5)
    sim.do("A", "QUEUE", "SET", "q", "maxlen", "7")
    sim.do("B", "DOMAIN", "SET", "*.example.com", "RATE", "1/s")
    sim.run_for(seconds=1)
    sim.crash("A", "kill")
    sim.crash("B", "wipe")
    sim.run_for(seconds=1)
    sim.restart("AB")
    sim.join(sim.hosts["B"])
    sim.run_for(seconds=15)
    for name in "ABC":
        node = sim.hosts[name].node
        assert setting(sim, name) == b"7"
        assert node is not None and registers.value(node, b"domain", b"*.example.com", b"rate") == b"1/s"


def test_a_stamp_from_the_future_is_refused_and_told_and_made_anew() -> None:
    """C's clock is ahead, and nobody could tell it so. Its word is not taken over until it hears the others."""
    sim = Cluster(nodes="ABC", seed=6)
    cut = sim.cut("C")
    sim.hosts["C"].clock.skew += SKEW_MS + 60_000
    sim.run_for(seconds=3)
    sim.do("C", "QUEUE", "SET", "q", "maxlen", "9")
    sim.end_fault(cut)
    sim.run_for(seconds=15)
    assert [setting(sim, name) for name in "ABC"] == [b"9"] * 3
    nodes = {name: sim.hosts[name].node for name in "AC"}
    assert nodes["A"] is not None and nodes["A"].counters["settings-from-the-future"] > 0
    assert nodes["C"] is not None and nodes["C"].counters["settings-made-anew"] == 1


def test_a_clock_that_is_wrong_is_outvoted() -> None:
    """C's clock is ahead, and the others say so: what it sets has their time, and so has the end of a pause."""
    sim = Cluster(nodes="ABC", seed=6)
    sim.hosts["C"].clock.skew += SKEW_MS + 60_000
    sim.run_for(seconds=3)
    sim.do("C", "QUEUE", "SET", "q", "maxlen", "9")
    sim.do("C", "PAUSE", "q", "all", "FOR", "5")
    sim.run_for(seconds=1)
    assert [setting(sim, name) for name in "ABC"] == [b"9"] * 3
    assert [sim.do(name, "PAUSE", "q", "state")["reply"] for name in "ABC"] == ["all"] * 3
    sim.run_for(seconds=6)
    assert [sim.do(name, "PAUSE", "q", "state")["reply"] for name in "ABC"] == ["none"] * 3


def test_the_digest_is_of_living_values_in_any_order() -> None:
    bench, other = Bench(), Bench()
    bench.do("QUEUE", "SET", "q", "maxlen", "1")
    bench.do("QUEUE", "SET", "p", "maxlen", "2")
    for kind, name, field in ((b"queue", b"p", b"maxlen"), (b"queue", b"q", b"maxlen")):
        found = bench.node.registers.find(kind, name, field)
        assert found is not None
        registers.store(other.node, kind, name, field, found)
        assert digest_of(kind, name, field, found) >> 63 == 0
    assert bench.node.registers.digest == other.node.registers.digest != 0
    bench.do("QUEUE", "SET", "q", "maxlen", "0")
    bench.do("QUEUE", "SET", "p", "maxlen", "0")
    assert bench.node.registers.digest == 0


def test_a_stamp_is_never_behind_one_that_was_seen() -> None:
    bench = Bench()
    ahead = (START_MS + 5_000) << STEPS
    registers.store(bench.node, b"queue", b"q", b"maxlen", Register(b"1", ahead, OTHER))
    bench.do("QUEUE", "SET", "q", "maxlen", "2")
    found = bench.node.registers.find(b"queue", b"q", b"maxlen")
    assert found is not None and (found.value, found.time, found.writer) == (b"2", ahead + 1, NODE_ID)


def test_a_snapshot_has_them_all() -> None:
    bench = Bench()
    bench.do("QUEUE", "SET", "q", "maxlen", "3", "rate", "2/s", "burst", "4")
    bench.do("DOMAIN", "SET", "d", "RATE", "1/s", "BURST", "1")
    bench.do("TENANT", "SET", "q", "acme", "3")
    bench.do("PAUSE", "q", "out", "FOR", "60")
    bench.do("ADDJOB", "q", "x", "0", "DOMAIN", "d")
    walk = Walk(bench.node)
    kept = []
    while not walk.is_done:
        kept += walk.take_records(1000)
    again = Bench()
    again.node.load(kept)
    assert again.do("QUEUE", "GET", "q") == bench.do("QUEUE", "GET", "q")
    assert again.do("DOMAIN", "GET", "d") == bench.do("DOMAIN", "GET", "d")
    assert again.do("TENANT", "LIST", "q") == bench.do("TENANT", "LIST", "q")
    assert again.do("PAUSE", "q", "state") == b"+out\r\n"
    again.wait(60_000)
    assert again.do("PAUSE", "q", "state") == b"+none\r\n"


def test_a_journal_that_tells_no_stamps_of_pauses_is_read() -> None:
    """What was said to this node alone is after the last word to all; a pause with an end has it still."""
    sim = Cluster(nodes="A", seed=8)
    for queue in ("open", "short"):
        sim.do("A", "PAUSE", queue, "all", "bcast", "FOR", "20")
    sim.do("A", "PAUSE", "open", "none")
    sim.do("A", "PAUSE", "alone", "in")
    sim.crash("A")
    disk = sim.hosts["A"].disk
    disk.records[:] = [data[:-8] if data[0] == QUEUE else data for data in disk.records]
    sim.restart("A")
    assert [pause(sim, queue) for queue in ("open", "short", "alone")] == ["none", "all", "in"]
    sim.run_for(seconds=21)
    assert [pause(sim, queue) for queue in ("open", "short", "alone")] == ["none", "none", "in"]


def pause(sim: Cluster, queue: str) -> object:
    return sim.do("A", "PAUSE", queue, "state")["reply"]
