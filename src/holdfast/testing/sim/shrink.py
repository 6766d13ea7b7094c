"""The smallest plan that still fails the same way.

Leaves out faults, then errands, consumers and jobs, then calms the network, then takes away nodes and time;
a step is kept if the same class of violation remains. Every part of a plan has its own dice, so what is left
does as before.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from holdfast.testing.sim.faults import CALM
from holdfast.testing.sim.machine import Kind
from holdfast.testing.sim.plan import Habits, Plan
from holdfast.testing.sim.run import run

SECONDS_MAX: Final = 60.0

QUIET: Final = Habits(
    die=0, elsewhere=0, nack=0, working=0, fastack=0, late=0, lose_reply=0, impatient=0, work_ms=20
)


class Shrinker:
    def __init__(
        self, plan: Plan, what: str, mutants: frozenset[str] = frozenset(), kind: Kind | None = None,
        seconds: float = SECONDS_MAX,
    ) -> None:
        self.plan = plan
        self.what = what
        self.mutants = mutants
        self.kind = kind
        self.until = monotonic() + seconds
        self.runs = 0

    def fails(self, plan: Plan) -> bool:
        self.runs += 1
        try:
            return self.what in run(plan, self.mutants, self.kind).classes
        except AssertionError:
            return False  # it did not even come together: another story

    def keep(self, plan: Plan) -> bool:
        """Take the plan over if it still fails the same way."""
        if plan == self.plan or monotonic() > self.until or not self.fails(plan):
            return False
        self.plan = plan
        return True

    def drop(self, items: Callable[[Plan], tuple[Any, ...]], rebuild: Callable[[Plan, tuple[Any, ...]], Plan]) -> None:
        """Leave out as many of the items as possible: first halves, then quarters, at last single ones."""
        size = len(items(self.plan))
        while size:
            i = 0
            while i < len(items(self.plan)):
                left = items(self.plan)
                if not self.keep(rebuild(self.plan, left[:i] + left[i + size:])):
                    i += size
            size //= 2

    def simplify(self) -> None:
        """Make the world plainer, one property at a time."""
        for name in ("latency_ms", "tail", "patience_ms", "backs_off", "sync", "skew_ms", "rate_ppm", "shared_host"):
            faults = replace(self.plan.faults, **{name: getattr(CALM, name)})
            self.keep(replace(self.plan, faults=faults))
        self.keep(replace(self.plan, adds=tuple(replace(add, share=0) for add in self.plan.adds)))
        if not self.keep(replace(self.plan, habits=QUIET)):
            for name in Habits.__slots__:
                self.keep(replace(self.plan, habits=replace(self.plan.habits, **{name: getattr(QUIET, name)})))

    def fewer_nodes(self) -> None:
        for name in reversed(self.plan.names):
            plan = self.plan
            if len(plan.names) <= 2 or any(name in fault.who and len(fault.who) < 3 for fault in plan.faults.schedule):
                continue
            schedule = tuple(replace(f, who=f.who.replace(name, "")) for f in plan.faults.schedule)
            self.keep(replace(
                plan, names=plan.names.replace(name, ""), faults=replace(plan.faults, schedule=schedule),
                errands=tuple(errand for errand in plan.errands if errand.node != name),
            ))

    def less_time(self) -> None:
        plan = self.plan
        for fault_ms in (2_000, 5_000, 10_000, 15_000, 20_000, 25_000):
            if fault_ms >= plan.fault_ms:
                break
            schedule = tuple(fault for fault in plan.faults.schedule if fault.at_ms < fault_ms)
            if self.keep(replace(
                plan, fault_ms=fault_ms, faults=replace(plan.faults, schedule=schedule),
                adds=tuple(add for add in plan.adds if add.at_ms < fault_ms),
                errands=tuple(errand for errand in plan.errands if errand.at_ms < fault_ms),
            )):
                break

    def shrink(self) -> Plan:
        before = None
        while before != self.plan and monotonic() < self.until:
            before = self.plan
            self.drop(
                lambda p: p.faults.schedule,
                lambda p, left: replace(p, faults=replace(p.faults, schedule=left)),
            )
            self.drop(lambda p: p.errands, lambda p, left: replace(p, errands=left))
            self.drop(lambda p: p.consumers, lambda p, left: replace(p, consumers=left))
            self.drop(lambda p: p.adds, lambda p, left: replace(p, adds=left))
            self.simplify()
            self.fewer_nodes()
            self.less_time()
        return self.plan
