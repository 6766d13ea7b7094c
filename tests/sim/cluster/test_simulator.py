"""The simulator itself, on the model of model_node.py: does its world behave as the real one does?"""
from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from random import Random

import pytest

from holdfast.testing.history import History
from holdfast.testing.sim.clock import Clock
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.disk import EVERYSEC, CrashDisk
from holdfast.testing.sim.faults import KINDS, Fault, Faults
from holdfast.testing.sim.mutants import MUTANTS
from holdfast.testing.sim.plan import Plan, draw
from holdfast.testing.sim.run import HAD, run
from holdfast.testing.sim.scenarios import SCENARIOS, retell
from holdfast.testing.sim.shrink import Shrinker
from holdfast.testing.sim.swarm import MUST_HAPPEN, SEEDS_JUDGED, Totals, swarm
from holdfast.testing.sim.transcript import transcript

from .model_kind import KIND

new = partial(Cluster, kind=KIND)
H1 = frozenset(["h1-sizes-not-sets"])


def frames_between(sim: Cluster, a: str, b: str) -> list[bytes]:
    """Record what the node b gets from the node a."""
    got: list[bytes] = []
    host = sim.hosts[b]
    frame = host.frame

    def spy(end, data):
        if end.other.host.name == a:
            got.append(data)
        return frame(end, data)

    host.frame = spy  # type: ignore[method-assign]
    return got


def send_numbers(sim: Cluster, a: str, b: str, numbers: range) -> None:
    end = sim.hosts[a].linked[b]
    for i in numbers:
        sim.network.send(end, b'["NOOP", %d]' % i)


def test_a_clock_knows_when_it_will_show_a_time() -> None:
    for rate in (-50_000, 0, 50_000):
        clock = Clock(skew_ms=700, rate_ppm=rate)
        clock.reboot(1_234)
        for ms in (0, 1, 999, 1_000_003):
            t = clock.when(clock.start + ms)
            assert clock.mono(t) >= clock.start + ms
            assert t == 1_234 or clock.mono(t - 1) < clock.start + ms


def test_a_jump_of_the_wall_clock_leaves_the_other_alone() -> None:
    clock = Clock()
    before = clock.mono(5_000)
    clock.skew -= 3_600_000
    assert clock.mono(5_000) == before
    assert clock.wall(5_000) == before - 3_600_000


def test_a_power_cut_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    kept = set()
    for seed in range(40):
        disk = CrashDisk(EVERYSEC)
        disk.write([b"a", b"b"], 500, must_sync=False)
        disk.write([b"c", b"d"], 1_100, must_sync=False)  # the sync at 1000 has made the first two safe
        lost = disk.power_cut(1_200, Random(seed))
        assert disk.records == [b"a", b"b", b"c", b"d"][: 4 - lost]
        kept.add(len(disk.records))
    assert kept == {2, 3, 4}


def test_a_forced_sync_is_safe_at_once() -> None:
    disk = CrashDisk(EVERYSEC)
    disk.write([b"a", b"b"], 500, must_sync=True)
    assert disk.power_cut(501, Random(1)) == 0


def test_frames_arrive_in_order_and_once() -> None:
    sim = new(nodes="AB", seed=1, faults=Faults(latency_ms=(1, 500)))
    got = frames_between(sim, "A", "B")
    send_numbers(sim, "A", "B", range(50))
    sim.run_for(seconds=5)
    assert got == [b'["NOOP", %d]' % i for i in range(50)]


def test_a_short_cut_delays_and_loses_nothing() -> None:
    sim = new(nodes="AB", seed=2)
    got = frames_between(sim, "A", "B")
    sim.network.patience_ms = (5_000, 6_000)
    cut = sim.cut("A")
    send_numbers(sim, "A", "B", range(10))
    sim.run_for(seconds=2)
    assert got == []
    sim.end_fault(cut)
    sim.run_for(seconds=1)
    assert len(got) == 10
    assert "B" in sim.hosts["A"].linked


def test_a_long_cut_ends_the_link_on_both_sides_and_it_comes_back() -> None:
    sim = new(nodes="AB", seed=3)
    got = frames_between(sim, "A", "B")
    cut = sim.cut("A")
    send_numbers(sim, "A", "B", range(10))
    sim.run_for(seconds=10)
    assert not sim.hosts["A"].linked and not sim.hosts["B"].linked
    sim.end_fault(cut)
    sim.run_for(seconds=3)
    assert sim.is_calm
    assert not any(b'"NOOP", 3]' in data for data in got), "a frame of the old link arrived on the new one"


def test_in_a_one_way_cut_the_other_direction_works() -> None:
    sim = new(nodes="AB", seed=4)
    sim.network.patience_ms = (5_000, 6_000)
    there, back = frames_between(sim, "A", "B"), frames_between(sim, "B", "A")
    sim.fault("oneway", "A")
    send_numbers(sim, "A", "B", range(3))
    send_numbers(sim, "B", "A", range(3))
    sim.run_for(seconds=1)
    assert (len(there), len(back)) == (0, 3)


def test_of_a_broken_link_a_prefix_arrives_and_the_ends_notice_at_different_times() -> None:
    arrived, apart = set(), 0
    for seed in range(30):
        sim = new(nodes="AB", seed=seed, faults=Faults(latency_ms=(10, 20)))
        got = frames_between(sim, "A", "B")
        send_numbers(sim, "A", "B", range(5))
        sim.network.break_link("A", "B")
        before = dict(sim.counters)["link-downs"] if "link-downs" in sim.counters else 0
        for _ in range(2_100):
            sim.run_until(sim.now + 1)
            if sim.counters["link-downs"] == before + 1:
                apart += 1
                break
        numbers = [data for data in got if b"NOOP" in data]
        assert numbers == [b'["NOOP", %d]' % i for i in range(len(numbers))]
        arrived.add(len(numbers))
    assert len(arrived) > 2 and apart > 20


def test_a_paused_node_hears_everything_afterwards() -> None:
    sim = new(nodes="AB", seed=6)
    got = frames_between(sim, "A", "B")
    pause = sim.fault("pause", "B")
    send_numbers(sim, "A", "B", range(4))
    sim.run_for(seconds=3)
    assert got == []
    sim.end_fault(pause)
    sim.run_for(seconds=0.1)
    assert len([data for data in got if b"NOOP" in data]) == 4


def test_a_killed_node_comes_back_with_its_disk_and_a_wiped_one_as_another() -> None:
    sim = new(nodes="ABC", seed=7)
    job = sim.add_job(at="A", replicate=2, retry_s=60, holders="AB")
    was = sim.hosts["B"].incarnation
    sim.crash("B")
    assert sim.copies(job) == {"A": "queued", "B": "active"}, "what a node would know after a restart counts"
    sim.restart("B")
    sim.run_for(seconds=2)
    assert (sim.hosts["B"].incarnation, sim.copies(job)["B"]) == (was, "active")
    sim.crash("B", "wipe")
    sim.restart("B")
    sim.run_for(seconds=3)
    assert sim.hosts["B"].incarnation != was
    assert sim.copies(job) == {"A": "queued"}
    assert sim.is_calm


def test_commands_of_a_dead_node_end_unknown() -> None:
    sim = new(nodes="AB", seed=8)
    got = sim.wait_for_job(at="A")
    sim.crash("A", "power")
    assert got == []
    assert [op.type for op in sim.history.ops if op.f == "get"] == ["invoke", "info"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_ends_and_the_cluster_is_whole_again(kind: str) -> None:
    many = {"cut": "AB", "bridge": "ABCD", "rolling": "ABCD", "blackout": "ABCD", "freeze": "BC", "join": "E"}
    who = many.get(kind, "AB" if kind in ("flap", "break", "clog", "slow") else "B")
    amount = 3 if kind == "strangers" else 1_000
    sim = new(nodes="ABCD", seed=9, faults=Faults(schedule=(Fault(0, kind, who, 5_000, amount),)))
    sim.nemesis.plan(sim.faults.schedule, sim.now)
    sim.run_for(seconds=3)
    assert not sim.is_calm or kind == "jump" or not sim.nemesis.running
    sim.run_for(seconds=15)
    assert sim.is_calm, f"after a {kind} something stays broken"
    assert sim.names == {"gone": "ACD", "join": "ABCDE"}.get(kind, "ABCD")


def test_the_same_seed_gives_the_same_run() -> None:
    for seed in (1, 5, 12):
        assert run(draw(seed), kind=KIND).history.sha256() == run(draw(seed), kind=KIND).history.sha256()


def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    code = (
        "from tests.sim.cluster.model_kind import KIND\nfrom holdfast.testing.sim.run import run\n"
        "from holdfast.testing.sim.plan import draw\n"
        "print([run(draw(seed), kind=KIND).history.sha256() for seed in (3, 4)])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_a_plan_survives_json() -> None:
    for seed in range(30):
        plan = draw(seed)
        assert Plan.from_json(plan.to_json()) == plan


def test_the_model_keeps_what_it_promises_and_its_holes_are_found() -> None:
    found: dict[str, set[str]] = {}
    for seed in range(12):
        found.setdefault("", set()).update(run(draw(seed), kind=KIND).classes)
        found.setdefault("h1", set()).update(run(draw(seed), H1, KIND).classes)
    assert not found[""] & {"lost", "twice", "from-nowhere", "two-ids", "refused-but-there", "after-ttl"}
    assert "orphan" in found["h1"]


def test_shrinking_keeps_the_class_and_the_transcript_tells_the_story() -> None:
    seed = next(seed for seed in range(20) if "orphan" in run(draw(seed), H1, KIND).classes)
    plan = draw(seed)
    small = Shrinker(plan, "orphan", H1, KIND, seconds=20).shrink()
    outcome = run(small, H1, KIND)
    assert "orphan" in outcome.classes
    assert len(small.adds) <= 3 and len(small.adds) < len(plan.adds)
    job = next(each.job for each in outcome.violations if each.what == "orphan")
    story = transcript(small, job, KIND, H1)
    assert "YOURJOBS" in story and "orphan" in story
    assert len(story.splitlines()) < 200


def test_a_history_can_be_kept_and_judged_later() -> None:
    outcome = run(draw(2), kind=KIND)
    again = History.from_jsonl(outcome.history.to_jsonl().splitlines())
    assert again.sha256() == outcome.history.sha256()


def test_a_swarm_on_two_cores_counts_what_one_core_counts() -> None:
    one = swarm(range(20), kind=KIND, twice=10)
    two = swarm(range(20), kind=KIND, twice=10, jobs=2)
    assert one.seeds == two.seeds == 20
    assert one.counters == two.counters
    assert not one.changed and not two.changed
    assert [each.seed for each in one.failures] == sorted(each.seed for each in two.failures)


def test_a_swarm_in_which_nothing_happens_is_no_proof() -> None:
    totals = Totals(seeds=SEEDS_JUDGED)
    assert any("moves" in complaint for complaint in totals.complaints())
    totals.counters.update(dict.fromkeys(MUST_HAPPEN, 1) | {"adds-unparted": 10, "adds-unparted-ok": 5})
    assert totals.complaints() == ["only 5 of 10 ADDJOBs accepted in runs without partitions"]


def test_a_swarm_says_how_many_clusters_had_each_fault() -> None:
    drawn = [{fault.kind for fault in draw(seed).faults.schedule} for seed in range(12)]
    counters = swarm(range(12), kind=KIND).counters
    had = {kind: counters[f"{HAD}{kind}"] for kind in KINDS}
    assert had == {kind: sum(kind in kinds for kinds in drawn) for kind in KINDS}
    assert sum(had.values()) > 0


def test_a_scenario_that_fails_is_told_again() -> None:
    scenario = SCENARIOS["an_acked_job_does_not_return_when_a_cut_off_replica_comes_back"]
    assert retell(scenario, kind=KIND) == ""
    assert "YOURJOBS" in retell(scenario, H1, KIND)


def test_scenarios_name_mutants_that_exist() -> None:
    assert {name for scenario in SCENARIOS.values() for name in scenario.catches} <= MUTANTS.keys()
