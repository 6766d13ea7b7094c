"""Many seeds on many cores: as many as asked for, or as many as fit the minutes.

What comes back from each seed is small: its violations, its counters, its fingerprint. The sums are judged,
too: a run of many seeds in which nothing was ever moved, requeued or restarted has tested nothing, and one in
which adding mostly failed has been too cruel to mean much.
"""
from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic, process_time
from typing import Final, NamedTuple

from holdfast.testing.checkers import Violation
from holdfast.testing.sim.machine import Kind
from holdfast.testing.sim.plan import draw
from holdfast.testing.sim.run import run

CHUNK: Final = 8
CHANGED: Final = "changed"
MUST_HAPPEN: Final = ("moves", "requeues", "setacks", "restarts", "link-downs", "acks", "deliveries")
"""Counters that may not be zero over a swarm."""

ADDS_OK_SHARE: Final = 0.6
"""Of the ADDJOBs in runs without partitions and stops, at least this share is accepted."""

SEEDS_JUDGED: Final = 100
"""Below so many seeds a zero proves nothing."""


@dataclass(slots=True)
class Result:
    seed: int
    violations: list[Violation]
    counters: Counter[str]
    simulated_ms: int
    cpu_s: float
    sha256: str = ""
    error: str = ""


@dataclass(slots=True)
class Totals:
    seeds: int = 0
    simulated_ms: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)  # seeds whose second run was another one

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.simulated_ms += result.simulated_ms
        self.cpu_s += result.cpu_s
        flight = max(self.counters["flight-ms-max"], result.counters["flight-ms-max"])
        self.counters.update(result.counters)
        self.counters["flight-ms-max"] = flight
        if result.violations or result.error:
            self.failures.append(result)

    def classes(self) -> list[tuple[str, int, Result]]:
        """Classes of violations, the most frequent first, with a seed that shows it."""
        count: Counter[str] = Counter()
        first: dict[str, Result] = {}
        for result in sorted(self.failures, key=lambda each: each.seed):
            for what in sorted({each.what for each in result.violations}) or ["exception"]:
                count[what] += 1
                first.setdefault(what, result)
        return [(what, n, first[what]) for what, n in count.most_common()]

    def complaints(self) -> list[str]:
        """What is wrong with the swarm as a whole."""
        found: list[str] = []
        if self.changed:
            found.append(f"seeds that gave another history when run again: {self.changed}")
        if self.seeds >= SEEDS_JUDGED:
            found += [f"nothing counted under '{name}'" for name in MUST_HAPPEN if not self.counters[name]]
            adds, ok = self.counters["adds-unparted"], self.counters["adds-unparted-ok"]
            if adds and ok < ADDS_OK_SHARE * adds:
                found.append(f"only {ok} of {adds} ADDJOBs accepted in runs without partitions")
        return found


class Work(NamedTuple):
    """Some seeds for a worker process; every `twice`-th is run again and compared."""

    seeds: list[int]
    mutants: frozenset[str]
    twice: int
    kind: Kind | None


def one(seed: int, work: Work, want_sha: bool) -> Result:
    """One seed; of a mutant only what it does and the node as it is does not."""
    begin = process_time()
    try:
        outcome = run(draw(seed), work.mutants, work.kind)
        if work.mutants and outcome.violations:
            usual = run(draw(seed), kind=work.kind).classes
            outcome.violations = [each for each in outcome.violations if each.what not in usual]
    except Exception as error:
        return Result(seed, [], Counter(), 0, process_time() - begin, error=f"{type(error).__name__}: {error}")
    sha = outcome.history.sha256() if want_sha else ""
    return Result(seed, outcome.violations, outcome.counters, outcome.simulated_ms, process_time() - begin, sha)


def chunk(work: Work) -> list[Result]:
    gc.disable()
    results: list[Result] = []
    for seed in work.seeds:
        is_checked = bool(work.twice) and seed % work.twice == 0
        result = one(seed, work, is_checked)
        if is_checked and not result.error and one(seed, work, True).sha256 != result.sha256:
            result.sha256 = CHANGED
        results.append(result)
    gc.enable()
    gc.collect()
    return results


def chunks(seeds: Iterable[int], mutants: frozenset[str], twice: int, kind: Kind | None) -> Iterator[Work]:
    each = iter(seeds)
    while some := list(islice(each, CHUNK)):
        yield Work(some, mutants, twice, kind)


def swarm(
    seeds: Iterable[int], *, jobs: int = 1, minutes: float = 0, mutants: frozenset[str] = frozenset(),
    twice: int = 50, stop_at_first: bool = False, kind: Kind | None = None,
    on_failure: Callable[[Result], None] = lambda _: None,
) -> Totals:
    """Run the seeds. With `minutes` it stops when they are over, with `stop_at_first` at the first failure.

    A long run should not keep to itself what it has found: `on_failure` is told of each at once.
    """
    totals = Totals()
    begin = monotonic()
    until = begin + minutes * 60 if minutes else float("inf")
    work = chunks(seeds, mutants, twice, kind)
    if jobs == 1:
        for each in work:
            take(totals, chunk(each), on_failure)
            if monotonic() > until or (stop_at_first and totals.failures):
                break
    else:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            waiting = [pool.apply_async(chunk, (each,)) for each in islice(work, 2 * jobs)]
            while waiting:
                take(totals, waiting.pop(0).get(), on_failure)
                if monotonic() > until or (stop_at_first and totals.failures):
                    break
                waiting += [pool.apply_async(chunk, (each,)) for each in islice(work, 1)]
    totals.wall_s = monotonic() - begin
    return totals


def take(totals: Totals, results: list[Result], on_failure: Callable[[Result], None]) -> None:
    for result in results:
        totals.add(result)
        if result.violations or result.error:
            on_failure(result)
        if result.sha256 == CHANGED:
            totals.changed.append(result.seed)
