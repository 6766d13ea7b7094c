"""One node beside redis-server: `make bench PART=core`.

    speed     CPU time of the server per command, ADDJOB beside LPUSH, GETJOB and ACKJOB beside RPOP, at
              pipeline 1, 16 and 32. A round runs each pair back to back, and every second round in the
              other order; the figure is the median over the rounds of redis's CPU time divided by ours.
              Above 1 the node needs less than redis. ACKJOB has no equal in redis: RPOP is the cheapest
              way to take an item.
    memory    what a pending job adds to the resident memory of a node, at a million jobs
    pause     the longest stop of Python's collector while two million jobs are loaded, as the node itself
              measured it, and beside it what a client saw that PINGs every millisecond

Each figure with a goal is a line of GOALS. The end is 0 if all are met, 1 if one falls short, 2 if a run was
void (a wrong reply is worth no number), 3 if a program is missing. `--quick` runs all the same steps with
few jobs, to see that they work; it judges replies, not figures, and leaves the published results alone.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import common, report
from bench.common import Load, Server
from bench.goals import Document, Goal, Judged, conduct, judge

CONNECTIONS = 50
BODY_BYTES = 64
PIPELINES = (1, 16, 32)
RESULTS = common.ROOT / "bench" / "results"
QUICK_RESULTS = common.BUILD / "quick"
WARM_UP_REQUESTS = 20_000
LOAD_PIPELINE = 32  # for filling a server, where speed is not what we look at


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run is."""

    rounds: int
    requests: dict[int, int]  # by pipeline; about a second each on a calm machine
    memory_jobs: int
    pause_jobs: int


FULL = Size(7, {1: 60_000, 16: 300_000, 32: 500_000}, memory_jobs=1_000_000, pause_jobs=2_000_000)
QUICK = Size(2, {1: 5_000, 16: 20_000, 32: 30_000}, memory_jobs=100_000, pause_jobs=200_000)


@dataclass(frozen=True, slots=True)
class Pair:
    """A command of ours and the redis command it is measured by, as loadgen modes."""

    ours: str
    redis: str


ADD = Pair("addjob", "lpush")
GET = Pair("getjob", "rpop")
ACK = Pair("ackjob", "rpop")
PAIRS = (ADD, GET, ACK)


def speed_goal(pair: Pair, pipeline: int, limit: float) -> Goal:
    title = f"{pair.ours.upper()} at pipeline {pipeline}, CPU of redis {pair.redis.upper()} ÷ ours"
    return Goal(f"{pair.ours}-{pipeline}", title, limit, at_least=True)


GOALS = (
    speed_goal(ADD, 1, 1.0),
    speed_goal(GET, 1, 1.0),
    speed_goal(ACK, 1, 1.0),
    speed_goal(ADD, 32, 1.0),
    speed_goal(GET, 32, 1.5),
    speed_goal(ACK, 32, 1.5),
    Goal("memory", "memory per pending 64-byte job", 350, at_least=False, unit=" bytes"),
    Goal("pause", "longest pause of Python's collector", 50, at_least=False, unit=" ms"),
)


# ---------------------------------------------------------------- speed


@dataclass(slots=True)
class Speed:
    """One pair at one pipeline, over the rounds."""

    pair: Pair
    pipeline: int
    redis: list[Load] = field(default_factory=list)
    ours: list[Load] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.pair.ours}-{self.pipeline}"

    def ratios(self) -> list[float]:
        return [r.cpu_us_per_op / o.cpu_us_per_op for r, o in zip(self.redis, self.ours)]

    def ratio(self) -> float:
        return statistics.median(self.ratios())

    def as_dict(self) -> dict[str, Any]:
        ratios = self.ratios()
        return {
            "command": self.pair.ours.upper(),
            "beside": self.pair.redis.upper(),
            "pipeline": self.pipeline,
            "ratio": round(self.ratio(), 3),
            "ratio_min": round(min(ratios), 3),
            "ratio_max": round(max(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "redis": summary(self.redis),
            "ours": summary(self.ours),
        }


def summary(loads: list[Load]) -> dict[str, float]:
    """Medians over the rounds. `noise` is the time the server waited for its core, per second of the run."""
    return {
        "cpu_us_per_op": round(statistics.median(load.cpu_us_per_op for load in loads), 3),
        "rate": round(statistics.median(load.rate for load in loads)),
        "batch_p50_us": statistics.median(load.latency_us["p50"] for load in loads),
        "batch_p99_us": statistics.median(load.latency_us["p99"] for load in loads),
        "noise": round(statistics.median(load.server_wait_seconds / load.seconds for load in loads), 3),
    }


def one_round(
    redis: Server,
    node: Server,
    pipeline: int,
    requests: int,
    ids: Path,
    redis_first: bool,
    done: Callable[[], None],
) -> dict[str, Load]:
    """Fill both, then empty both, each step on both servers in direct succession. Loads by mode."""
    loads: dict[str, Load] = {}

    def run(server: Server, *modes: str) -> None:
        for mode in modes:
            takes = mode in ("rpop", "getjob")  # each body that was put in must come out, once
            loads[mode] = common.drive(
                server,
                mode,
                requests=requests,
                pipeline=pipeline,
                connections=CONNECTIONS,
                body_bytes=BODY_BYTES,
                ids=ids if mode in ("getjob", "ackjob") else None,
                once=takes,
            )
            done()

    if redis_first:
        run(redis, "lpush")
        run(node, "addjob")
        run(redis, "rpop")
        run(node, "getjob", "ackjob")
    else:
        run(node, "addjob")
        run(redis, "lpush")
        run(node, "getjob", "ackjob")
        run(redis, "rpop")
    return loads


def measure_speed(redis: Server, node: Server, size: Size, progress: Progress) -> list[Speed]:
    runs = len(PIPELINES) * size.rounds * 5
    task = progress.add_task("speed: warming up", total=runs)
    speeds = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ids = Path(folder) / "ids"
        warm_up = min(WARM_UP_REQUESTS, *size.requests.values())
        one_round(redis, node, LOAD_PIPELINE, warm_up, ids, True, lambda: None)
        for pipeline in PIPELINES:
            cells = [Speed(pair, pipeline) for pair in PAIRS]
            for number in range(size.rounds):
                where = f"pipeline {pipeline}, round {number + 1} of {size.rounds}"
                progress.update(task, description=f"speed: {where}")
                requests, redis_first = size.requests[pipeline], number % 2 == 0
                loads = one_round(
                    redis, node, pipeline, requests, ids, redis_first, lambda: progress.advance(task)
                )
                for cell in cells:
                    cell.redis.append(loads[cell.pair.redis])
                    cell.ours.append(loads[cell.pair.ours])
            speeds += cells
    progress.remove_task(task)
    return speeds


# ---------------------------------------------------------------- memory and pauses


@dataclass(frozen=True, slots=True)
class Memory:
    """What a number of jobs (or list items) added to a server."""

    jobs: int
    rss_bytes_per_job: float
    used_memory_bytes_per_job: float | None  # as the server counts it, from INFO


@dataclass(frozen=True, slots=True)
class Pauses:
    """While loading `jobs` jobs. The first two are the node's own maxima since it started."""

    jobs: int
    gc_longest_ms: float | None
    step_longest_ms: float | None
    probe_longest_ms: float
    probe_pings: int


def fill(server: Server, mode: str, jobs: int) -> None:
    common.drive(
        server, mode, requests=jobs, pipeline=LOAD_PIPELINE, connections=CONNECTIONS, body_bytes=BODY_BYTES
    )


def measure_memory(server: Server, mode: str, jobs: int) -> Memory:
    rss, used = server.rss_bytes(), server.info_number("used_memory")
    fill(server, mode, jobs)
    rss_after, used_after = server.rss_bytes(), server.info_number("used_memory")
    used_per_job = (used_after - used) / jobs if used is not None and used_after is not None else None
    return Memory(jobs, (rss_after - rss) / jobs, used_per_job)


def measure_memory_and_pauses(node: Server, size: Size) -> tuple[Memory, Pauses]:
    """The first part of the jobs gives the memory figure; the pauses are watched over all of them."""
    with common.Probe(node) as probe:
        memory = measure_memory(node, "addjob", size.memory_jobs)
        fill(node, "addjob", size.pause_jobs - size.memory_jobs)
    info = node.info()

    def as_ms(key: str) -> float | None:
        return float(info[key]) / 1e3 if key in info else None

    pauses = Pauses(
        jobs=size.pause_jobs,
        gc_longest_ms=as_ms("gc_longest_pause_usec"),
        step_longest_ms=as_ms("step_longest_usec"),
        probe_longest_ms=probe.longest_ms(),
        probe_pings=len(probe.seconds),
    )
    return memory, pauses


# ---------------------------------------------------------------- the whole run


@dataclass(frozen=True, slots=True)
class Results:
    speeds: list[Speed]
    memory: Memory
    redis_memory: Memory
    pauses: Pauses
    redis_version: str
    build: str  # compiled, pure, or another command

    def value_of(self, key: str) -> float | None:
        """The figure behind a goal; None if the node does not tell."""
        if key == "memory":
            return self.memory.rss_bytes_per_job
        if key == "pause":
            return self.pauses.gc_longest_ms
        return next(speed.ratio() for speed in self.speeds if speed.key == key)


def measure(node_command: list[str], size: Size, progress: Progress) -> Results:
    with (
        common.running("redis", common.redis_command()) as redis,
        common.running("node", node_command) as node,
    ):
        redis_version = redis.info()["redis_version"]
        modules = node.compiled_modules()
        speeds = measure_speed(redis, node, size, progress)
    task = progress.add_task("memory and pauses of a node", total=2)
    with common.running("node", node_command) as node:
        memory, pauses = measure_memory_and_pauses(node, size)
    progress.update(task, advance=1, description="memory of redis")
    with common.running("redis", common.redis_command()) as redis:
        redis_memory = measure_memory(redis, "lpush", size.memory_jobs)
    progress.remove_task(task)
    if tuple(node_command) != common.NODE_COMMAND:
        build = "another command"
    else:
        build = f"compiled, {modules} modules" if modules else "pure"
    return Results(speeds, memory, redis_memory, pauses, redis_version, build)


def as_json(results: Results, judged: Iterable[Judged], size: Size, is_quick: bool) -> dict[str, Any]:
    return {
        "machine": {**common.machine(), "redis": results.redis_version, "build": results.build},
        "settings": {
            "quick": is_quick,
            "rounds": size.rounds,
            "connections": CONNECTIONS,
            "body_bytes": BODY_BYTES,
            "requests": {str(pipeline): count for pipeline, count in size.requests.items()},
        },
        "figures": {
            item.goal.key: {
                "title": item.goal.title,
                "value": None if item.value is None else round(item.value, 3),
                "unit": item.goal.unit.strip(),
                "goal": item.goal.text(),
                "limit": item.goal.limit,
                "verdict": item.verdict,
            }
            for item in judged
        },
        "speed": [speed.as_dict() for speed in results.speeds],
        "memory": {"node": rounded(asdict(results.memory)), "redis": rounded(asdict(results.redis_memory))},
        "pauses": rounded(asdict(results.pauses)),
    }


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in values.items()}


# ---------------------------------------------------------------- the command line


@dataclass(frozen=True, slots=True)
class Choices:
    node_command: list[str]
    size: Size
    is_quick: bool
    json_only: bool
    out: Path


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def read_command_line(words: list[str] | None) -> Choices:
    parser = argparse.ArgumentParser(prog="python -m bench.core", description="A node beside redis-server.")
    add = parser.add_argument
    add("--rounds", type=at_least_one, help=f"alternating rounds ({FULL.rounds}, quick {QUICK.rounds})")
    add("--requests", type=at_least_one, help="per run, at every pipeline, in place of the defaults")
    add("--quick", action="store_true", help="few jobs; judges replies, not figures")
    add("--out", type=Path, help="folder for core.json and core.svg (bench/results)")
    add("--json-only", action="store_true", help="print core.json; no table, no plot, no files")
    add("--node-command", help="another node to measure; {port} is filled in")
    given = parser.parse_args(words)
    base = QUICK if given.quick else FULL
    requests = {pipeline: given.requests or base.requests[pipeline] for pipeline in PIPELINES}
    return Choices(
        node_command=shlex.split(given.node_command) if given.node_command else list(common.NODE_COMMAND),
        size=Size(given.rounds or base.rounds, requests, base.memory_jobs, base.pause_jobs),
        is_quick=given.quick,
        json_only=given.json_only,
        out=given.out or (QUICK_RESULTS if given.quick else RESULTS),
    )


def measure_with_progress(choices: Choices) -> Results:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        return measure(choices.node_command, choices.size, progress)


def main(words: list[str] | None = None) -> int:
    choices = read_command_line(words)

    def measured() -> tuple[Document, list[Judged]]:
        results = measure_with_progress(choices)
        judged = judge(GOALS, results.value_of)
        return as_json(results, judged, choices.size, choices.is_quick), judged

    def publish(document: Document) -> None:
        report.write_files(document, choices.out)
        report.print_tables(document)

    return conduct(measured, publish, json_only=choices.json_only, is_quick=choices.is_quick)


if __name__ == "__main__":
    sys.exit(main())
