"""This build beside an earlier commit: `make bench PART=before COMMIT=HEAD~1`.

    node      CPU time of a node per ADDJOB, GETJOB and ACKJOB, at pipeline 1 and 32
    cluster   CPU time of three nodes, summed, per job that is added with REPLICATE 3, got and acknowledged; until the
              last node has collected the last job

Both builds run in every round, every second round in the other order. The figure is the median over the rounds of the
CPU time of this build divided by that of the earlier one: above 1 this build needs more. The earlier commit is compiled
once, into build/. Exit codes and `--quick` are as in bench.core.
"""
from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import cluster, common, earlier
from bench.common import Server, Void
from bench.core import QUICK_RESULTS
from bench.earlier import say
from bench.goals import Document, Goal, Judged, conduct, judge

MODES = ("addjob", "getjob", "ackjob")
PIPELINES = (1, 32)
COPIES = "REPLICATE 3"
NODE_MOST = 1.02
CLUSTER_MOST = 1.05
"""A build may cost so much more than the one before it; less than that is noise on a machine that others use."""

GOALS = (
    *(Goal(f"{mode}-{pipeline}", f"{mode.upper()} at pipeline {pipeline}, CPU of this build ÷ earlier", NODE_MOST,
           at_least=False)
      for pipeline in PIPELINES for mode in MODES),
    *(Goal(f"cluster-{pipeline}", f"three nodes, a job's life at pipeline {pipeline}, CPU of this build ÷ earlier",
           CLUSTER_MOST, at_least=False)
      for pipeline in PIPELINES),
)


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    node_requests: dict[int, int]  # by pipeline
    cluster_requests: dict[int, int]


FULL = Size(9, {1: 60_000, 32: 500_000}, {1: 30_000, 32: 100_000})
QUICK = Size(1, {1: 2_000, 32: 10_000}, {1: 1_000, 32: 3_000})

Costs = dict[str, list[float]]
"""CPU time per job in µs, over the rounds, by the key of a goal."""


class Build:
    """One of the two: its nodes, and what they cost."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        self.costs: Costs = {}

    def note(self, key: str, us: float) -> None:
        self.costs.setdefault(key, []).append(us)


def node_round(build: Build, node: Server, pipeline: int, requests: int, ids: Path) -> None:
    for mode in MODES:
        step = cluster.measured([node], partial(cluster.run, node, mode, pipeline, requests, ids=ids_of(mode, ids)))
        build.note(f"{mode}-{pipeline}", step.total_us)


def cluster_round(build: Build, nodes: Sequence[Server], pipeline: int, requests: int, ids: Path) -> None:
    def until_collected() -> None:
        cluster.wait_for("the nodes to collect what was acknowledged", lambda: all(map(cluster.is_empty, nodes)))

    total = 0.0
    for mode in MODES:
        safety = COPIES if mode == "addjob" else ""
        drive = partial(cluster.run, nodes[0], mode, pipeline, requests, safety, ids_of(mode, ids))
        total += cluster.measured(nodes, drive, until_collected if mode == "ackjob" else lambda: None).total_us
    build.note(f"cluster-{pipeline}", total)


def ids_of(mode: str, ids: Path) -> Path | None:
    return None if mode == "addjob" else ids


def alternate(what: str, builds: Sequence[Build], rounds: int, turn: Callable[[Build], None]) -> None:
    """Every second round in the other order, after one that warms up and is not counted."""
    for build in builds:
        turn(Build(build.name, build.command))
    for number in range(rounds):
        for build in builds if number % 2 == 0 else reversed(builds):
            turn(build)
        say(f"{what}: round {number + 1} of {rounds}")


def demand_same_form(builds: Sequence[Build], nodes: dict[str, Server]) -> None:
    if len({nodes[build.name].compiled_modules() > 0 for build in builds}) > 1:
        raise Void("one of the two is compiled and the other is not")


def measure(commit: str, size: Size) -> list[Build]:
    folder = earlier.build(commit)
    ours = Build("this", common.NODE_COMMAND)
    theirs = Build("earlier", [*earlier.python_of(folder), *common.NODE_COMMAND])
    builds = (ours, theirs)
    with tempfile.TemporaryDirectory(prefix="bench-") as kept:
        ids = Path(kept) / "ids"
        with common.running("this", ours.command) as mine, common.running("earlier", theirs.command) as other:
            nodes = {"this": mine, "earlier": other}
            demand_same_form(builds, nodes)

            def node_turn(pipeline: int, build: Build) -> None:
                node_round(build, nodes[build.name], pipeline, size.node_requests[pipeline], ids)

            for pipeline in PIPELINES:
                alternate(f"node, pipeline {pipeline}", builds, size.rounds, partial(node_turn, pipeline))
        with (
            cluster.cluster_of(cluster.NODES, ours.command) as many,
            cluster.cluster_of(cluster.NODES, theirs.command) as others,
        ):
            clusters = {"this": many, "earlier": others}

            def cluster_turn(pipeline: int, build: Build) -> None:
                cluster_round(build, clusters[build.name], pipeline, size.cluster_requests[pipeline], ids)

            for pipeline in PIPELINES:
                alternate(f"cluster, pipeline {pipeline}", builds, size.rounds, partial(cluster_turn, pipeline))
    return list(builds)


def ratios(builds: Sequence[Build], key: str) -> list[float]:
    ours, theirs = (build.costs[key] for build in builds)
    return [new / old for new, old in zip(ours, theirs, strict=True)]


def as_document(builds: Sequence[Build], judged: Sequence[Judged], commit: str, is_quick: bool) -> dict[str, Any]:
    return {
        "machine": common.machine(),
        "settings": {"quick": is_quick, "commit": earlier.resolve(commit)},
        "figures": {
            item.goal.key: {
                "title": item.goal.title,
                "value": None if item.value is None else round(item.value, 3),
                "least": round(min(ratios(builds, item.goal.key)), 3),
                "most": round(max(ratios(builds, item.goal.key)), 3),
                **{f"{build.name}_us": round(statistics.median(build.costs[item.goal.key]), 3) for build in builds},
                "goal": item.goal.text(),
                "verdict": item.verdict,
            }
            for item in judged
        },
    }


def show(document: Document) -> None:
    for figure in document["figures"].values():
        print(
            f"{figure['verdict']:>11}  {figure['title']}: {figure['value']} ({figure['least']} to {figure['most']}; "
            f"{figure['this_us']} and {figure['earlier_us']} µs), goal {figure['goal']}"
        )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.before", description="This build beside an earlier commit.")
    parser.add_argument("--commit", default="HEAD~1", help="the earlier one (HEAD~1)")
    parser.add_argument("--rounds", type=int, help=f"alternating rounds ({FULL.rounds})")
    parser.add_argument("--quick", action="store_true", help="few jobs; judges nothing")
    parser.add_argument("--out", type=Path, help="folder for before.json (build/quick)")
    given = parser.parse_args(words)
    size = QUICK if given.quick else FULL
    if given.rounds:
        size = Size(given.rounds, size.node_requests, size.cluster_requests)

    def measured() -> tuple[Document, list[Judged]]:
        builds = measure(given.commit, size)
        judged = judge(GOALS, lambda key: statistics.median(ratios(builds, key)))
        return as_document(builds, judged, given.commit, given.quick), judged

    def publish(document: Document) -> None:
        folder = given.out or QUICK_RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "before.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        show(document)

    return conduct(measured, publish, json_only=False, is_quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())
