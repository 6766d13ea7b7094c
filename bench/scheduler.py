"""What the scheduler costs and keeps: `make bench PART=scheduler`.

    before     jobs that use no feature, against the last commit before the scheduler, built beside this one: CPU time
               of the server per job (ADDJOB, GETJOB, ACKJOB), pairs in turn, every second one in the other order.
    features   the same for jobs with a priority, attempts, a tenant, a domain, a limited domain, a group, a unique key,
               a place in a batch, against plain jobs of a node like it in the same round.
    scale      a million waiting jobs in a hundred thousand domains of which ten are open, or in so many groups: what a
               GETJOB costs, against one of a plain queue with a million jobs.
    fairness   a tenant with a million jobs and one with one: for how many hand-outs that one waits.
    rates      three nodes, a thousand domains with different rates, for a minute (scheduler_cluster.py).
    bound      three nodes, fifty producers, totalmaxlen: exactly as many are accepted.

Each figure with a goal is a line of GOALS, and each step is told as it begins. All of it takes some eight minutes, and
once as long to build the commit before. The end is 0 if all are met, 1 if one falls short or its run was void (the
others are told all the same), 3 if a program is missing. `--quick` runs the same steps with few jobs and judges
nothing; `--only` some of the parts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import common, earlier, scheduler_cluster
from bench.common import Load, Missing, Server, Void
from bench.earlier import say
from bench.goals import Goal

BEFORE = "54b73a5b3d37bb4c50fd6b16616cae3179a09a21"
"""The last commit without any of it."""

CONNECTIONS = 50
BODY_BYTES = 64
RESULTS = common.ROOT / "bench" / "results"
GB = ("--set", "maxmemory=4gb")

FEATURES: dict[str, tuple[str, int]] = {  # further words of ADDJOB, and how many keys (0: each job has its own)
    "priority": ("PRIORITY 7", 0),
    "attempts": ("ATTEMPTS 5 BACKOFF 1", 0),
    "tenant": ("TENANT #", 100),
    "domain": ("DOMAIN #", 1000),
    "limited-domain": ("DOMAIN #", 1000),
    "group": ("GROUP #", 0),
    "unique": ("UNIQUE #", 0),
    "batch": ("BATCH b{round} INDEX #", 0),
}


@dataclass(frozen=True, slots=True)
class Size:
    pairs: int
    jobs: int
    rounds: int
    waiting: int
    keys: int
    gets: int
    domains: int
    seconds: int
    bound: int


FULL = Size(10, 30_000, 5, 1_000_000, 100_000, 20_000, 1000, 60, 1000)
QUICK = Size(2, 3_000, 1, 20_000, 2_000, 400, 60, 8, 100)

GOALS = (
    Goal("before", "jobs without a feature, CPU per job over the last commit before", 1.03, at_least=False),
    *(Goal(f"feature-{name}", f"jobs with {name.replace('-', ' ')}, CPU per job over plain ones", 1.20, at_least=False)
      for name in FEATURES),
    Goal("scale-domains", "GETJOB with 1M jobs in 100k domains, 10 open, over a plain queue", 2.0, at_least=False),
    Goal("scale-groups", "GETJOB with 1M jobs in 100k groups, over a plain queue", 2.0, at_least=False),
    Goal("fairness", "hand-outs that the one job of a tenant waits for, beside one with 1M", 2, at_least=False),
    Goal("rates-above", "hand-outs above rate + burst in any second, 1,000 domains, 3 nodes", 0, at_least=False),
    Goal("rates-used", "least share of its rate, less one token, that a domain got", 0.95, at_least=True),
    Goal("bound", "accepted ÷ totalmaxlen, 3 nodes, 50 producers", 1.0, at_least=True),
    Goal("bound-above", "accepted above totalmaxlen", 0, at_least=False),
)


# ---------------------------------------------------------------- loads


@dataclass(slots=True)
class Cost:
    """CPU time of the server per job, over rounds."""

    us: list[float] = field(default_factory=list)

    def add(self, loads: list[Load]) -> None:
        self.us.append(sum(load.cpu_us_per_op * load.ops for load in loads) / loads[0].ops)


def cycle(server: Server, jobs: int, ids: Path, words: str = "", keys: int = 0) -> list[Load]:
    more = ["--add-options", words, "--keys", str(keys)] if words else []
    return [
        common.drive(server, mode, requests=jobs, pipeline=1, connections=CONNECTIONS, body_bytes=BODY_BYTES,
                     ids=ids if mode != "addjob" else None, once=mode == "getjob",
                     more=more if mode == "addjob" else [])
        for mode in ("addjob", "getjob", "ackjob")
    ]


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 4), "least": round(ordered[0], 4), "most": round(ordered[-1], 4),
        "first_quarter": round(ordered[len(ordered) // 4], 4),
        "third_quarter": round(ordered[3 * len(ordered) // 4], 4),
    }


def node_command(*more: str) -> list[str]:
    return [*common.NODE_COMMAND, *GB, *more]


# ---------------------------------------------------------------- against the commit before


def measure_before(size: Size) -> dict[str, Any]:
    folder_before = earlier.build(BEFORE)
    ours, theirs, ratios = Cost(), Cost(), []
    old_command = [*earlier.python_of(folder_before), *node_command()]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        new = stack.enter_context(common.running("new", node_command()))
        old = stack.enter_context(common.running("old", old_command))
        if (new.compiled_modules() > 0) != (old.compiled_modules() > 0):
            raise Void("one of the two is compiled and the other is not")
        for number in range(-1, size.pairs):
            for server, cost in ((new, ours), (old, theirs)) if number % 2 == 0 else ((old, theirs), (new, ours)):
                loads = cycle(server, size.jobs, folder / "ids")
                if number >= 0:  # the first pair is to warm up
                    cost.add(loads)
            if number >= 0:
                ratios.append(ours.us[-1] / theirs.us[-1])
                say(f"before: pair {number + 1} of {size.pairs}: {ours.us[-1]:.2f} and {theirs.us[-1]:.2f} us a job")
    return {"before": statistics.median(ratios), "spread": spread(ratios), "new_us": spread(ours.us),
            "old_us": spread(theirs.us)}


# ---------------------------------------------------------------- features


def measure_features(size: Size) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ratios: dict[str, list[float]] = {name: [] for name in FEATURES}
    costs: dict[str, Cost] = {name: Cost() for name in ("plain", *FEATURES)}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        nodes = {name: stack.enter_context(common.running(name, node_command())) for name in costs}
        common.ask(nodes["limited-domain"].port, "DOMAIN", "SET", "*", "RATE", "1000000/s", "BURST", "1000000")
        for number in range(-1, size.rounds):
            for name in costs if number % 2 == 0 else reversed(costs):
                words, keys = FEATURES.get(name, ("", 0))
                words = words.replace("{round}", str(number + 1))
                loads = cycle(nodes[name], size.jobs, folder / "ids", words, keys)
                if number >= 0:
                    costs[name].add(loads)
            if number >= 0:
                for name in FEATURES:
                    ratios[name].append(costs[name].us[-1] / costs["plain"].us[-1])
                told = ", ".join(f"{name} {ratios[name][-1]:.2f}" for name in FEATURES)
                say(f"features: round {number + 1} of {size.rounds}, over plain: {told}")
    for name in FEATURES:
        found[f"feature-{name}"] = statistics.median(ratios[name])
    found["us"] = {name: spread(cost.us) for name, cost in costs.items()}
    found["spread"] = {name: spread(values) for name, values in ratios.items()}
    return found


# ---------------------------------------------------------------- many keys


def fill(server: Server, jobs: int, words: str = "", keys: int = 0) -> None:
    more = ["--add-options", words, "--keys", str(keys)] if words else []
    common.drive(
        server, "addjob", requests=jobs, pipeline=32, connections=CONNECTIONS, body_bytes=BODY_BYTES, more=more
    )


def getjobs(server: Server, count: int) -> Load:
    return common.drive(server, "getjob", requests=count, pipeline=1, connections=CONNECTIONS, body_bytes=BODY_BYTES)


def measure_scale(size: Size) -> dict[str, Any]:
    """GETJOBs of a plain queue, of one with domains that are nearly all closed, and of one with groups, in turn."""
    found: dict[str, list[float]] = {"plain": [], "domains": [], "groups": []}
    with ExitStack() as stack:
        nodes = {name: stack.enter_context(common.running(name, node_command())) for name in found}
        say(f"scale: {size.waiting:,} jobs for each of three nodes")
        fill(nodes["plain"], size.waiting)
        fill(nodes["groups"], size.waiting, "GROUP #", size.keys)
        node = nodes["domains"]
        common.ask(node.port, "DOMAIN", "SET", "*", "RATE", "1/d", "BURST", "1")
        fill(node, size.waiting, "DOMAIN #", size.keys)
        getjobs(node, size.keys)  # each domain had one token
        for key in range(10):
            common.ask(node.port, "DOMAIN", "SET", f"{key:08d}", "RATE", "1000000/s", "BURST", "1000000")
        for number in range(5):
            fill(node, size.gets, "DOMAIN #", 10)
            for name in found if number % 2 == 0 else reversed(found):
                found[name].append(getjobs(nodes[name], size.gets).cpu_us_per_op)
            say("scale: us for a GETJOB: " + ", ".join(f"{name} {each[-1]:.2f}" for name, each in found.items()))
    return {
        "scale-domains": statistics.median(a / b for a, b in zip(found["domains"], found["plain"])),
        "scale-groups": statistics.median(a / b for a, b in zip(found["groups"], found["plain"])),
        "us": {name: spread(values) for name, values in found.items()},
    }


def measure_fairness(size: Size) -> dict[str, Any]:
    """One tenant has very many jobs, another one: how many go out before that one."""
    with common.running("node", node_command()) as node:
        say(f"fairness: {size.waiting:,} jobs of one tenant")
        fill(node, size.waiting, "TENANT many")
        common.ask(node.port, "ADDJOB", common.QUEUE, "the-one", "0", "TENANT", "one")
        with common.Talk(node.port) as talk:
            for number in range(1, 100):
                talk.send("GETJOB", "NOHANG", "FROM", common.QUEUE)
                if talk.read_words()[2] == "the-one":
                    return {"fairness": number - 1}
    raise Void("the one did not come within a hundred hand-outs")


# ---------------------------------------------------------------- all of it


PARTS: dict[str, Callable[[Size], dict[str, Any]]] = {
    "before": measure_before,
    "features": measure_features,
    "scale": measure_scale,
    "fairness": measure_fairness,
    "rates": lambda size: scheduler_cluster.measure_rates(size.domains, size.seconds),
    "bound": lambda size: scheduler_cluster.measure_bound(size.bound),
}


def document(size: Size, is_quick: bool, only: list[str]) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {}
    for name in only:
        say(f"== {name}")
        try:
            parts[name] = PARTS[name](size)
        except Void as error:
            say(f"void: {error}")
            parts[name] = {"void": str(error)}
    values = {key: value for part in parts.values() for key, value in part.items() if isinstance(value, float | int)}
    return {
        "machine": common.machine(),
        "settings": {"quick": is_quick, "pairs": size.pairs, "rounds": size.rounds, "jobs": size.jobs,
                     "connections": CONNECTIONS, "before": BEFORE},
        "figures": {
            goal.key: {
                "title": goal.title, "value": round(values.get(goal.key, 0), 3), "unit": goal.unit.strip(),
                "goal": goal.text(), "limit": goal.limit, "verdict": verdict(goal, values),
            }
            for goal in GOALS if part_of(goal) in only
        },
        "parts": parts,
    }


def part_of(goal: Goal) -> str:
    """Which of PARTS finds out about a goal: the one its key begins like."""
    return next(name for name in PARTS if goal.key.startswith(name.removesuffix("s")))


def verdict(goal: Goal, values: dict[str, float]) -> str:
    if goal.key not in values:
        return "void"
    return "pass" if goal.is_met_by(values[goal.key]) else "falls short"


def show(result: dict[str, Any]) -> None:
    for name, part in result["parts"].items():
        print(f"{name}: {json.dumps(part, indent=1)}")
    for item in result["figures"].values():
        print(f"{item['title']}: {item['value']} {item['unit']} (goal {item['goal']}): {item['verdict']}")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scheduler", description="What the scheduler costs.")
    parser.add_argument("--quick", action="store_true", help="few jobs; judges nothing")
    parser.add_argument("--only", help=f"some parts, with commas: {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="folder for scheduler.json (bench/results)")
    given = parser.parse_args(words)
    only = given.only.split(",") if given.only else list(PARTS)
    unknown = [name for name in only if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    common.end_on_sigterm()
    common.leave_the_server_alone()
    try:
        common.build_loadgen()
        result = document(QUICK if given.quick else FULL, given.quick, only)
    except Void as error:
        print(f"void: {error}", file=sys.stderr)
        return common.EXIT_VOID
    except Missing as error:
        print(f"missing: {error}", file=sys.stderr)
        return common.EXIT_SKIPPED
    show(result)
    folder = given.out or (common.BUILD / "quick" if given.quick or given.only else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scheduler.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    is_good = given.quick or all(item["verdict"] == "pass" for item in result["figures"].values())
    return common.EXIT_PASS if is_good else common.EXIT_FALLS_SHORT


if __name__ == "__main__":
    sys.exit(main())
