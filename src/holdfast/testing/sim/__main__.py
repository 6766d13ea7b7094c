"""The command line of the simulator.

    python -m holdfast.testing.sim run --seeds 0:700 [--fresh 700] [--jobs 2] [--minutes n] [--mutant NAME]
    python -m holdfast.testing.sim replay SEED [--job ID] [--plan FILE] | replay --test SCENARIO
    python -m holdfast.testing.sim shrink SEED [--class NAME] [--out FILE]
    python -m holdfast.testing.sim mutants [--seeds 0:500] [--plans FOLDER] [NAME ...]

A run fails if a promise was broken, if a seed gave another history the second time, or if nothing happened.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from random import SystemRandom

from holdfast.testing.sim import real
from holdfast.testing.sim.mutants import MUTANTS, switches
from holdfast.testing.sim.plan import Plan, draw
from holdfast.testing.sim.run import HAD, run
from holdfast.testing.sim.scenarios import SCENARIOS, caught_by_scenario, retell
from holdfast.testing.sim.shrink import Shrinker
from holdfast.testing.sim.swarm import Result, Totals, swarm
from holdfast.testing.sim.transcript import transcript

SHOWN = ("adds", "adds-ok", "deliveries", "acks", "moves", "requeues", "setacks", "restarts", "link-downs", "mid-turn")


FRESH_FROM, FRESH_UNTIL = 1_000_000, 1_000_000_000
"""Where fresh seeds begin: beyond those that tests and people name."""


def seeds_of(text: str) -> Iterable[int]:
    """`A:B` from A up to B, `A:` from A for ever."""
    first, _, last = text.partition(":")
    return range(int(first), int(last)) if last else count(int(first))


def fresh(count: int) -> Iterable[int]:
    """Seeds nobody has run before, told so that they can be run again."""
    first = SystemRandom().randrange(FRESH_FROM, FRESH_UNTIL)
    print(f"fresh seeds from {first}", flush=True)
    return range(first, first + count)


def report(totals: Totals) -> int:
    hours, cpu_s = totals.simulated_ms / 3_600_000, max(totals.cpu_s, 1e-9)
    print(
        f"{totals.seeds} clusters in {totals.wall_s:.1f} s ({totals.seeds / cpu_s:.1f} per second and core), "
        f"{hours:.1f} simulated hours ({3600 * hours / cpu_s:.0f}x real time)"
    )
    print("  ".join(f"{name} {totals.counters[name]}" for name in SHOWN))
    had = {name.removeprefix(HAD): n for name, n in totals.counters.most_common() if name.startswith(HAD)}
    print("clusters with each fault:  " + "  ".join(f"{name} {n}" for name, n in had.items()))
    others = {name: n for name, n in sorted(totals.counters.items()) if name not in SHOWN and not name.startswith(HAD)}
    print("  ".join(f"{name} {n}" for name, n in others.items()))
    for what, n, result in totals.classes():
        first = next((str(each) for each in result.violations if each.what == what), result.error)
        print(f"\n{what}: {n} seeds, the first {result.seed}\n  {first}\n  make replay SEED={result.seed}")
    for complaint in totals.complaints():
        print(f"\nthe swarm as a whole: {complaint}")
    return 1 if totals.failures or totals.complaints() else 0


def tell(result: Result) -> None:
    found = result.error or result.violations[0]
    print(f"seed {result.seed}: {found}", flush=True)


def plan_of(arguments: argparse.Namespace) -> Plan:
    return Plan.from_json(Path(arguments.plan).read_text()) if arguments.plan else draw(arguments.seed)


def replay(arguments: argparse.Namespace) -> int:
    if arguments.test:
        story = retell(SCENARIOS[arguments.test], frozenset(arguments.mutant))
        print(story or "nothing is wrong with this scenario")
        return 1 if story else 0
    plan, mutants = plan_of(arguments), frozenset(arguments.mutant)
    outcome = run(plan, mutants)
    print(plan.faults)
    print(f"{outcome.simulated_ms / 1000:.1f} simulated seconds, history {outcome.history.sha256()}")
    for violation in outcome.violations:
        print(violation)
    for violation in outcome.known:
        print(f"not judged yet: {violation}")
    job = arguments.job or next((each.job for each in [*outcome.violations, *outcome.known] if each.job), "")
    if job:
        print(transcript(plan, job, real.KIND, mutants))
    return 1 if outcome.violations else 0


def shrink(arguments: argparse.Namespace) -> int:
    plan, mutants = plan_of(arguments), frozenset(arguments.mutant)
    found = run(plan, mutants).violations
    if not found:
        print("nothing is wrong with this seed")
        return 0
    what = arguments.what or found[0].what
    shrinker = Shrinker(plan, what, mutants, seconds=arguments.seconds)
    small = shrinker.shrink()
    path = Path(arguments.out or f"sim-{plan.seed}-{what}.json")
    path.write_text(small.to_json())
    violation = next(each for each in run(small, mutants).violations if each.what == what)
    print(f"{shrinker.runs} runs; kept in {path}: {len(small.names)} nodes, {len(small.adds)} jobs, "
          f"{len(small.consumers)} consumers, {len(small.faults.schedule)} faults\n{small.faults}\n{violation}")
    if violation.job:
        print(transcript(small, violation.job, real.KIND, mutants))
    print(f"make replay SEED={plan.seed} PLAN={path}")
    return 1


def caught_by_plan(mutant: str, folder: str) -> str:
    """The name of a plan that once found a hole, kept in a folder, and finds this one."""
    for path in sorted(Path(folder).glob("*.json")) if folder else ():
        if run(Plan.from_json(path.read_text()), switches(mutant)).violations:
            return path.stem
    return ""


def hunt(arguments: argparse.Namespace) -> int:
    """Every mutant must be caught: by a scenario that names it, or by some seed."""
    free = 0
    for name in arguments.names or MUTANTS:
        scenario = caught_by_scenario(name)
        if scenario:
            print(f"{name:<32} caught by the scenario {scenario}", flush=True)
            continue
        plan = caught_by_plan(name, arguments.plans)
        if plan:
            print(f"{name:<32} caught by the plan {plan}", flush=True)
            continue
        totals = swarm(
            seeds_of(arguments.seeds), jobs=arguments.jobs, mutants=switches(name), twice=0, stop_at_first=True
        )
        if totals.failures:
            what, _, result = totals.classes()[0]
            print(f"{name:<32} caught by seed {result.seed}: {what}", flush=True)
        else:
            free += 1
            print(f"{name:<32} NOT CAUGHT in {totals.seeds} seeds: {MUTANTS.get(name, '')}", flush=True)
    return 1 if free else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.sim")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "replay", "shrink", "mutants"):
        command = commands.add_parser(name)
        command.add_argument("--mutant", action="append", default=[], choices=sorted(MUTANTS), metavar="NAME")
        if name in ("run", "mutants"):
            command.add_argument("--seeds", default="0:500")
            command.add_argument("--jobs", type=int, default=1)
        if name == "run":
            command.add_argument("--minutes", type=float, default=0)
            command.add_argument("--fresh", type=int, default=0, help="so many more seeds that nobody has run before")
            command.add_argument("--twice", type=int, default=50, help="run every n-th seed twice and compare")
        if name in ("replay", "shrink"):
            command.add_argument("seed", type=int, nargs="?", default=0)
            command.add_argument("--plan", default="", help="a plan kept by shrink")
        if name == "replay":
            command.add_argument("--job", default="")
            command.add_argument("--test", default="", help="a directed scenario in place of a seed")
        if name == "shrink":
            command.add_argument("--class", dest="what", default="")
            command.add_argument("--seconds", type=float, default=60)
            command.add_argument("--out", default="")
        if name == "mutants":
            command.add_argument("names", nargs="*")
            command.add_argument("--plans", default="", help="a folder of plans to try before seeds")
    arguments = parser.parse_args()
    if arguments.command == "run":
        seeds = chain(seeds_of(arguments.seeds), fresh(arguments.fresh) if arguments.fresh else ())
        return report(swarm(
            seeds, jobs=arguments.jobs, minutes=arguments.minutes,
            mutants=frozenset(arguments.mutant), twice=arguments.twice, on_failure=tell,
        ))
    return {"replay": replay, "shrink": shrink, "mutants": hunt}[arguments.command](arguments)


if __name__ == "__main__":
    sys.exit(main())
