"""Nodes die and come back empty while producers and consumers work: nothing that was accepted is lost.

The history of the clients is judged by the checkers of the simulator. There is no journal yet, so a node that
was killed has lost its copies; jobs have three, so two nodes may go at once, and the next only when the copies
are made anew.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from cluster_harness import IN_MEMORY, SETTINGS, Cluster, Member, until
from load import Load, loaded
from verdict import finish, wait_until_restored

REPLICATE = 3
PRODUCERS_GO_ON_S = 5.0
HEAL_AFTER_MS = "2000"
JOBS_BETWEEN = 50


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts a cluster of so many nodes; it is stopped afterwards, and must have had no fault of its own."""
    clusters: list[Cluster] = []

    def of_size(size: int, settings: dict[str, str] = IN_MEMORY) -> Cluster:
        cluster = Cluster(tmp_path, size, settings)
        clusters.append(cluster)
        cluster.set({"heal-after-ms": HEAL_AFTER_MS})
        return cluster

    yield of_size
    for cluster in clusters:
        cluster.stop()
        assert {node: node.faults() for node in cluster if node.faults()} == {}


def new_load(cluster: Cluster) -> Load:
    load = Load(cluster.nodes, seed=1, producers=4, consumers=4, adds_per_s=80, replicate=REPLICATE, slack_ms=5_000)
    load.mark("calm", on=True)
    wait_for_jobs(load, JOBS_BETWEEN)
    return load


def wait_for_jobs(load: Load, count: int) -> None:
    """So many more are accepted."""
    goal = len(load.rows) + count

    def are_there() -> bool:
        load.check()
        return len(load.rows) >= goal

    until(are_there)


def kill(load: Load, nodes: Sequence[Member]) -> None:
    load.mark("calm", on=False)
    for node in nodes:
        node.kill()
        load.mark("loss", str(node.number))


def bring_back(load: Load, cluster: Cluster, nodes: Sequence[Member]) -> None:
    """They run again, all links are there, and every job has its copies."""
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_ready()
        node.ask("CONFIG", "SET", "heal-after-ms", HEAL_AFTER_MS)
        load.mark("restart", str(node.number))
    cluster.settle()
    load.mark("calm", on=True)
    assert wait_until_restored(load, cluster, len(nodes)), load.history.ops[-1]


def longest_wait_s(load: Load, since: int) -> float:
    """The longest time from `since` on in which no job was accepted anywhere."""
    times = sorted(row.t for row in list(load.rows.values()))  # it grows meanwhile
    times = [since, *times[bisect_left(times, since):], load.now()]
    return max(b - a for a, b in pairwise(times)) / 1000


@pytest.mark.parametrize("size", [3, 5])
def test_any_two_nodes_are_killed_and_the_producers_go_on(start: Callable[..., Cluster], size: int) -> None:
    """Of five nodes three are left, which make three copies. Of three one is left, and the producers have to wait
    until the others run again, which whoever looks after them sees to at once."""
    cluster = start(size)
    longest_s = 0.0
    with loaded(new_load(cluster)) as load:
        for victims in combinations(cluster.nodes, REPLICATE - 1):
            since = load.now()
            kill(load, victims)
            if size > REPLICATE:
                wait_for_jobs(load, JOBS_BETWEEN)
            bring_back(load, cluster, victims)
            wait_for_jobs(load, JOBS_BETWEEN)
            longest_s = max(longest_s, longest_wait_s(load, since))
            assert longest_s < PRODUCERS_GO_ON_S, f"no job was accepted for {longest_s:.1f} s without {victims}"
        verdict = finish(load, cluster)
    assert verdict.violations == []
    print(
        f"{verdict.accepted} jobs accepted, {verdict.delivered} delivered; producers waited {longest_s:.1f} s at most; "
        f"acks collected {verdict.collected_s:.1f} s after the end"
    )


def test_all_nodes_restart_one_after_the_other_under_load(start: Callable[..., Cluster]) -> None:
    """Each is stopped in the orderly way, comes back empty, and the next has to wait for the copies."""
    cluster = start(5)
    with loaded(new_load(cluster)) as load:
        for node in cluster:
            before = node.starts
            load.mark("calm", on=False)
            node.stop()
            load.mark("loss", str(node.number))
            bring_back(load, cluster, [node])
            assert node.starts == before + 1
            wait_for_jobs(load, JOBS_BETWEEN)
        verdict = finish(load, cluster)
    assert verdict.violations == []
    assert all(node.starts == 2 for node in cluster)


def test_nodes_with_journals_restart_one_after_the_other_without_waiting(start: Callable[..., Cluster]) -> None:
    """Each comes back with all it had, so the next need not wait for copies: only for the node to run again."""
    cluster = start(3, SETTINGS)
    with loaded(new_load(cluster)) as load:
        for node in [*cluster, *cluster]:
            load.mark("calm", on=False)
            node.stop()
            node.start()
            node.ask("CONFIG", "SET", "heal-after-ms", HEAL_AFTER_MS)
            load.mark("restart", str(node.number))
            wait_for_jobs(load, JOBS_BETWEEN)
        cluster.settle()
        load.mark("calm", on=True)
        verdict = finish(load, cluster)
    assert verdict.violations == []
    assert all(node.starts == 3 for node in cluster)
