"""Directed scenarios: the schedules of RELIABILITY.md and CLUSTER.md, played one by one.

A scenario is a function of `new`, which makes a cluster; it raises AssertionError if a promise was broken. It
passes on the node as it is, and fails on the mutants it names with `catches`: both are checked, by our tests
and by `python -m holdfast.testing.sim mutants`.
"""
from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.testing.checkers import check
from holdfast.testing.history import OK
from holdfast.testing.sim import real
from holdfast.testing.sim.cluster import Cluster
from holdfast.testing.sim.machine import Kind
from holdfast.testing.sim.mutants import switches
from holdfast.testing.sim.scenarios import (
    acks,
    batches,
    bounds,
    claims,
    disks,
    expiry,
    fates,
    figures,
    groups,
    handbacks,
    healing,
    homes,
    leases,
    limits,
    once,
    reach,
    slow_nodes,
    stages,
    times,
    unique,
)
from holdfast.testing.sim.scenarios.scenario import Scenario, scenarios_of
from holdfast.testing.sim.transcript import Story, text_of

SCENARIOS: dict[str, Scenario] = {
    each.name: each
    for module in (
        acks, disks, once, leases, times, healing, groups, unique, batches, fates, claims, limits, bounds, stages,
        handbacks, slow_nodes, expiry, figures, homes, reach,
    )
    for each in scenarios_of(module)
}


def play(scenario: Scenario, mutants: frozenset[str] = frozenset(), kind: Kind | None = None) -> None:
    """Raises AssertionError if a promise was broken."""
    try:
        scenario.play(partial(Cluster, mutants=mutants, kind=kind))
    except AssertionError as error:
        raise AssertionError(f"{error}\nmake replay TEST={scenario.name}") from error


def retell(scenario: Scenario, mutants: frozenset[str] = frozenset(), kind: Kind = real.KIND) -> str:
    """Play it, and if it fails once more, now with the transcript of the job at fault."""
    last: list[Cluster] = []

    def new(**options: Any) -> Cluster:
        last[:] = [Cluster(mutants=mutants, kind=kind, **options)]
        return last[0]

    try:
        scenario.play(new)
    except AssertionError as error:
        sim, seed = last[0], last[0].seed
        found = check(sim.history)
        added = [op.value["id"] for op in sim.history.ops if op.f == "add" and op.type == OK]
        jobs = [each.job for each in found if each.job.startswith("DI")] + added[-1:]  # some complain about a queue
        return f"{error}\n" + (retold(scenario, mutants, Story(kind, jobs[0]), seed) if jobs else "")
    return ""


def retold(scenario: Scenario, mutants: frozenset[str], story: Story, seed: int) -> str:
    def new(**options: Any) -> Cluster:
        if options.get("seed", 0) != seed:
            return Cluster(mutants=mutants, kind=story.kind, **options)
        sim = Cluster(mutants=mutants, kind=story, **options)
        story.cluster = sim
        return sim

    with suppress(AssertionError):
        scenario.play(new)
    return text_of(story)


def caught_by_scenario(mutant: str, kind: Kind | None = None) -> str:
    """The name of a scenario that tells this mutant from the node as it is; empty if none does."""
    for scenario in SCENARIOS.values():
        if mutant in scenario.catches:
            try:
                play(scenario, switches(mutant), kind)
            except AssertionError:
                return scenario.name
    return ""
