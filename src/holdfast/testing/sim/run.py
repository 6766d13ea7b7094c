"""One plan, one run, one verdict.

Two phases: first faults, with safety checked throughout; then the cluster is healed and liveness is demanded:
everything accepted is delivered, every ack collected. A run that is not quiet at its end gets more time before
it is judged, so that slowness and never are told apart.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from holdfast.testing.checkers import Violation
from holdfast.testing.checkers.whitebox import uncollected
from holdfast.testing.history import FAIL, OK, History
from holdfast.testing.not_yet import JUDGED
from holdfast.testing.sim.machine import Kind
from holdfast.testing.sim.plan import Plan
from holdfast.testing.sim.workload import Workload
from holdfast.testing.sim.world import World

EXTRA_MS: Final = 90_000
STEP_MS: Final = 5_000
HAD: Final = "had-"
"""Counters of this beginning count clusters: those in which a kind of fault was to happen."""


@dataclass(slots=True)
class Outcome:
    plan: Plan
    mutants: frozenset[str]
    violations: list[Violation]
    history: History
    counters: Counter[str] = field(default_factory=Counter)
    simulated_ms: int = 0
    known: list[Violation] = field(default_factory=list)
    """Those that wait for a mending (testing/not_yet.py)."""

    @property
    def classes(self) -> set[str]:
        return {violation.what for violation in self.violations}


def start(plan: Plan, mutants: frozenset[str] = frozenset(), kind: Kind | None = None) -> tuple[World, Workload]:
    cluster = World(
        nodes=plan.names, seed=plan.seed, faults=plan.faults, mutants=mutants, settings=plan.settings,
        retry_max_ms=plan.retry_max_ms(), kind=kind,
    )
    return cluster, Workload(cluster, plan)


def play(cluster: World, workload: Workload) -> list[Violation]:
    plan = workload.plan
    begin = cluster.now
    cluster.rewrites = not cluster.mutants
    cluster.nemesis.plan(plan.faults.schedule, begin)
    cluster.run_until(begin + plan.fault_ms)
    cluster.heal()
    workload.drain()
    cluster.run_until(begin + plan.fault_ms + plan.drain_ms)
    until = cluster.now + EXTRA_MS
    while cluster.now < until and uncollected(cluster.watcher.followed_up(), cluster.views()):
        cluster.counters["extended"] += 1
        cluster.run_until(cluster.now + STEP_MS)
    return cluster.finish()


def run(plan: Plan, mutants: frozenset[str] = frozenset(), kind: Kind | None = None) -> Outcome:
    cluster, workload = start(plan, mutants, kind)
    found = play(cluster, workload)
    violations = [each for each in found if each.what not in JUDGED]
    counters = cluster.counters
    known = [each for each in found if each.what in JUDGED]
    counters.update({f"not-yet-{what}": 1 for what in {each.what for each in known}})
    counters["steps"] = cluster.steps
    counters["frames"] = cluster.network.frames
    for op in cluster.history.ops:
        if op.f == "add" and op.type in (OK, FAIL):
            counters[f"adds-{op.type}"] += 1
        elif op.f == "get" and op.type == OK:
            counters["deliveries"] += len(op.value["jobs"])
        elif op.f == "ack" and op.type == OK:
            counters["acks"] += 1
    counters.update({f"{HAD}{kind}": 1 for kind in {fault.kind for fault in plan.faults.schedule}})
    others = {"backs-off": plan.faults.backs_off, "shared-connection": any(add.share for add in plan.adds)}
    counters.update({f"{HAD}{what}": 1 for what, had in others.items() if had})
    if not plan.faults.has_partition:
        counters["adds-unparted"] += counters["adds"]
        counters["adds-unparted-ok"] += counters["adds-ok"]
    return Outcome(plan, mutants, violations, cluster.history, counters, cluster.now, known)
