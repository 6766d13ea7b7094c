"""Three nodes beside redis-server, and one machine's cores: `make bench PART=cluster`.

    copies    three nodes, 50 connections to one of them: jobs added, got and acknowledged with REPLICATE 3
              and REPLICATE 1, beside redis's LPUSH and RPOP, at pipeline 1 and 32. All of them run in every
              round, every second round in the other order. CPU time is counted on each node, and for acks
              until the last node has collected the last job; bytes on the bus are what all nodes sent. The
              figure is the median over the rounds of our CPU time, summed, divided by redis's.
    cores     `--cores 2` beside one node: jobs that are added, got and acknowledged by the same connection.
              Apart: the generator on a core of its own and the servers on the others, as everywhere else; with
              two cores the nodes then take turns on one. Crowded: every core for all of them, so that the nodes
              do run at the same time; only this gives a rate. CPU per job is judged both ways. What the generator
              took of the cores is told: on two, little is left to gain, and where others use the machine, two
              processes get more of it than one, so a rate says less than it seems to.
    latency   a consumer blocked at one node, a job added at another: from sending ADDJOB to having the job

Goals, exit codes and `--quick` are as in bench.core. CPU times are read from outside, with the connecting of 50
clients in them, for every server alike.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import cluster_report, common
from bench.common import ALLOWED_CORES, LOAD_CORE, Load, Server, Talk, Void
from bench.core import BODY_BYTES, CONNECTIONS, QUICK_RESULTS, RESULTS, at_least_one
from bench.goals import Document, Goal, Judged, conduct, judge

NODES = 3
CORES = 2
PIPELINES = (1, 32)
NODE_CORES = set(ALLOWED_CORES) - LOAD_CORE or LOAD_CORE
SETTLE_SECONDS_MAX = 60.0
SETTLE_PAUSE_SECONDS = 0.05
QUEUES = 16  # of the latency measurement: a queue is sometimes new to the nodes, mostly not
SAFETY = ("REPLICATE 3", "REPLICATE 1")


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run is."""

    rounds: int
    requests: dict[int, int]  # by pipeline
    latencies: int


FULL = Size(5, {1: 40_000, 32: 200_000}, latencies=2_000)
QUICK = Size(1, {1: 2_000, 32: 5_000}, latencies=50)


GOALS = (
    Goal("copies-1", "ADDJOB REPLICATE 3 at pipeline 1, CPU of three nodes ÷ redis LPUSH", 3.0, at_least=False),
    Goal("copies-32", "ADDJOB REPLICATE 3 at pipeline 32, CPU of three nodes ÷ redis LPUSH", 12.0, at_least=False),
    Goal("cores-cpu-1", "--cores 2 at pipeline 1, CPU per job ÷ one node", 1.15, at_least=False),
    Goal("cores-cpu-32", "--cores 2 at pipeline 32, CPU per job ÷ one node", 1.15, at_least=False),
    Goal("cores-crowded-1", "the same at pipeline 1, all on all cores", 1.15, at_least=False),
    Goal("cores-crowded-32", "the same at pipeline 32, all on all cores", 1.15, at_least=False),
    Goal("cores-rate", "--cores 2 at pipeline 32, jobs per second ÷ one node", 1.0, at_least=True),
    Goal("latency-p50", "blocked consumer at another node, p50", 5.0, at_least=False, unit=" ms"),
    Goal("latency-p99", "blocked consumer at another node, p99", 50.0, at_least=False, unit=" ms"),
)


# ---------------------------------------------------------------- a cluster


@contextlib.contextmanager
def cluster_of(count: int, of: Sequence[str] = common.NODE_COMMAND) -> Iterator[list[Server]]:
    """Nodes that have all met, over TCP as if they were on different machines."""
    with contextlib.ExitStack() as stack:
        nodes: list[Server] = []
        place = ""
        for number in range(count):
            bus_port = common.free_port()
            command = [*of, "--set", f"cluster-bus-port={bus_port}"]
            command += ["--join", place] if place else []
            nodes.append(stack.enter_context(common.running(f"node{number}", command, NODE_CORES)))
            place = place or f"{common.HOST}:{nodes[0].port}@{bus_port}"
        wait_for("the nodes to meet", lambda: all(fact(node, "cluster_reachable_nodes") == count - 1 for node in nodes))
        yield nodes


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while not is_so():
        if time.monotonic() > deadline:
            raise Void(f"waited {SETTLE_SECONDS_MAX:.0f} s in vain for {what}")
        time.sleep(SETTLE_PAUSE_SECONDS)


def fact(node: Server, name: str) -> int:
    """A number from CLUSTER INFO."""
    lines = (line.partition(":") for line in common.ask(node.port, "CLUSTER", "INFO").splitlines())
    return next(int(value) for key, _, value in lines if key == name)


def is_empty(node: Server) -> bool:
    """No job is known here, in whatever state: all that were acknowledged are collected."""
    return node.info_number("registered_jobs") == 0


# ---------------------------------------------------------------- copies


@dataclass(frozen=True, slots=True)
class Step:
    """One run of the generator, and what it cost every server."""

    rate: float
    cpu_us: list[float]  # per job, by server
    bus_bytes: float  # per job, sent by all
    latency_us: dict[str, int]

    @property
    def total_us(self) -> float:
        return sum(self.cpu_us)


def measured(servers: Sequence[Server], drive: Callable[[], Load], until: Callable[[], None] = lambda: None) -> Step:
    """Drive the servers, and wait `until` the work is really done before the clocks are read."""
    is_cluster = len(servers) > 1
    cpu_before = [server.cpu_time().ran for server in servers]
    bytes_before = sum(fact(server, "cluster_stats_bytes_sent") for server in servers) if is_cluster else 0
    load = drive()
    until()
    cpu_after = [server.cpu_time().ran for server in servers]
    bytes_after = sum(fact(server, "cluster_stats_bytes_sent") for server in servers) if is_cluster else 0
    cpu_us = [(after - before) * 1e6 / load.ops for before, after in zip(cpu_before, cpu_after)]
    return Step(load.rate, cpu_us, (bytes_after - bytes_before) / load.ops, load.latency_us)


@dataclass(slots=True)
class Copies:
    """All steps at one pipeline, by name ("lpush", "addjob REPLICATE 3"), over the rounds."""

    pipeline: int
    steps: dict[str, list[Step]] = field(default_factory=dict)

    def note(self, name: str, step: Step) -> None:
        self.steps.setdefault(name, []).append(step)

    def ratios(self, name: str) -> list[float]:
        """Our CPU time by redis's in the same round."""
        yardstick = "lpush" if name.startswith("addjob") else "rpop"
        return [ours.total_us / redis.total_us for ours, redis in zip(self.steps[name], self.steps[yardstick])]

    def rows(self) -> list[dict[str, Any]]:
        return [self.row(name) for name in self.steps]

    def row(self, name: str) -> dict[str, Any]:
        steps, ratios = self.steps[name], self.ratios(name)
        by_node = list(zip(*(step.cpu_us for step in steps)))
        return {
            "step": name,
            "pipeline": self.pipeline,
            "rate": round(statistics.median(step.rate for step in steps)),
            "cpu_us": [round(statistics.median(times), 3) for times in by_node],
            "cpu_us_total": round(statistics.median(step.total_us for step in steps), 3),
            "bus_bytes": round(statistics.median(step.bus_bytes for step in steps), 1),
            "batch_p50_us": statistics.median(step.latency_us["p50"] for step in steps),
            "batch_p99_us": statistics.median(step.latency_us["p99"] for step in steps),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_min": round(min(ratios), 3),
            "ratio_max": round(max(ratios), 3),
        }


def redis_round(redis: Server, copies: Copies, requests: int) -> None:
    for mode in ("lpush", "rpop"):
        copies.note(mode, measured([redis], partial(run, redis, mode, copies.pipeline, requests)))


def cluster_round(nodes: Sequence[Server], safety: str, copies: Copies, requests: int, ids: Path) -> None:
    """Add, get and acknowledge through the first node."""

    def until_collected() -> None:
        wait_for("the nodes to collect what was acknowledged", lambda: all(map(is_empty, nodes)))

    add = partial(run, nodes[0], "addjob", copies.pipeline, requests, safety)
    get = partial(run, nodes[0], "getjob", copies.pipeline, requests, ids=ids)
    ack = partial(run, nodes[0], "ackjob", copies.pipeline, requests, ids=ids)
    copies.note(f"addjob {safety}", measured(nodes, add))
    copies.note(f"getjob {safety}", measured(nodes, get))
    copies.note(f"ackjob {safety}", measured(nodes, ack, until_collected))


def run(
    server: Server, mode: str, pipeline: int, requests: int, safety: str = "", ids: Path | None = None,
    cores: set[int] = LOAD_CORE,
) -> Load:
    return common.drive(
        server, mode, requests=requests, pipeline=pipeline, connections=CONNECTIONS, body_bytes=BODY_BYTES,
        ids=ids, once=mode in ("rpop", "getjob"), more=["--add-options", safety] if safety else [], cores=cores,
    )


def measure_copies(size: Size, progress: Progress) -> tuple[list[Copies], str, int]:
    """The steps by pipeline; redis's version; how many modules of a node are compiled."""
    found = []
    task = progress.add_task("copies", total=len(PIPELINES) * size.rounds * (1 + len(SAFETY)))
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        common.running("redis", common.redis_command()) as redis,
        cluster_of(NODES) as nodes,
    ):
        ids = Path(folder) / "ids"
        version, modules = redis.info()["redis_version"], nodes[0].compiled_modules()
        for pipeline in PIPELINES:
            requests = size.requests[pipeline]
            copies = Copies(pipeline)
            turns = [partial(redis_round, redis, copies, requests)]
            turns += [partial(cluster_round, nodes, safety, copies, requests, ids) for safety in SAFETY]
            warm_up = Copies(pipeline)
            redis_round(redis, warm_up, min(requests, QUICK.requests[pipeline]))
            cluster_round(nodes, SAFETY[0], warm_up, min(requests, QUICK.requests[pipeline]), ids)
            for number in range(size.rounds):
                progress.update(task, description=f"copies: pipeline {pipeline}, round {number + 1} of {size.rounds}")
                for turn in turns if number % 2 == 0 else reversed(turns):
                    turn()
                    progress.advance(task)
            found.append(copies)
    progress.remove_task(task)
    return found, version, modules


# ---------------------------------------------------------------- cores


@dataclass(frozen=True, slots=True)
class Together:
    """A run against one node or several behind one port: with the generator apart, and with all on all cores."""

    cpu_us: float  # of all its processes, per job
    cpu_us_crowded: float  # the same with all on all cores
    rate: float
    generator_share: float  # of one core, that the generator took then


@dataclass(slots=True)
class Cores:
    pipeline: int
    one: list[Together] = field(default_factory=list)
    many: list[Together] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "one": self.summary(self.one),
            "many": self.summary(self.many),
            "cpu_ratio": round(self.cpu_ratio(), 3),
            "cpu_ratio_crowded": round(self.cpu_ratio_crowded(), 3),
            "rate_ratio": round(self.rate_ratio(), 3),
        }

    @staticmethod
    def summary(runs: list[Together]) -> dict[str, float]:
        return {
            "rate": round(statistics.median(run.rate for run in runs)),
            "cpu_us": round(statistics.median(run.cpu_us for run in runs), 3),
            "cpu_us_crowded": round(statistics.median(run.cpu_us_crowded for run in runs), 3),
            "generator_share": round(statistics.median(run.generator_share for run in runs), 2),
        }

    def cpu_ratio(self) -> float:
        return statistics.median(many.cpu_us / one.cpu_us for one, many in zip(self.one, self.many))

    def cpu_ratio_crowded(self) -> float:
        return statistics.median(many.cpu_us_crowded / one.cpu_us_crowded for one, many in zip(self.one, self.many))

    def rate_ratio(self) -> float:
        return statistics.median(many.rate / one.rate for one, many in zip(self.one, self.many))


def together(server: Server, pipeline: int, requests: int) -> Together:
    everywhere = set(ALLOWED_CORES)
    server.move_to(NODE_CORES)
    apart = measured([server], partial(run, server, "cycle", pipeline, requests))
    server.move_to(everywhere)
    generator_before = generator_seconds()
    crowded = measured([server], partial(run, server, "cycle", pipeline, requests, cores=everywhere))
    share = (generator_seconds() - generator_before) * crowded.rate / requests
    return Together(apart.total_us, crowded.total_us, crowded.rate, share)


def generator_seconds() -> float:
    """CPU time of the processes that we started and that have ended: runs of the generator."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_cores(size: Size, progress: Progress) -> list[Cores]:
    task = progress.add_task("cores", total=len(PIPELINES) * size.rounds)
    found = []
    with (
        common.running("one", common.NODE_COMMAND) as one,
        common.running("many", [*common.NODE_COMMAND, "--cores", str(CORES)]) as many,
    ):
        wait_for("the nodes of a machine to meet", lambda: fact(many, "cluster_reachable_nodes") == CORES - 1)
        for pipeline in PIPELINES:
            cores = Cores(pipeline)
            requests = size.requests[pipeline]
            turns = [(one, cores.one), (many, cores.many)]
            for server, _ in turns:
                together(server, pipeline, min(requests, QUICK.requests[pipeline]))
            for number in range(size.rounds):
                progress.update(task, description=f"cores: pipeline {pipeline}, round {number + 1} of {size.rounds}")
                for server, runs in turns if number % 2 == 0 else reversed(turns):
                    runs.append(together(server, pipeline, requests))
                progress.advance(task)
            found.append(cores)
    progress.remove_task(task)
    return found


# ---------------------------------------------------------------- latency


def measure_latency(size: Size, progress: Progress) -> list[float]:
    """Milliseconds from ADDJOB at one node to the job at a consumer that waits at another; sorted."""
    task = progress.add_task("latency: a consumer at another node", total=size.latencies)
    found = []
    with cluster_of(NODES) as nodes, contextlib.ExitStack() as stack:
        producer, consumer, watcher = (
            stack.enter_context(Talk(node.port)) for node in (nodes[0], nodes[1], nodes[1])
        )
        for number in range(size.latencies):
            queue, body = f"{common.QUEUE}{number % QUEUES}", f"body-{number}"
            consumer.send("GETJOB", "TIMEOUT", str(int(SETTLE_SECONDS_MAX * 1000)), "FROM", queue)
            wait_until_blocked(watcher)
            began = time.perf_counter()
            producer.send("ADDJOB", queue, body, "0")
            got = consumer.read_words()
            found.append((time.perf_counter() - began) * 1e3)
            if len(got) != 3 or got[0] != queue or got[2] != body:
                raise Void(f"a consumer waited for {body} of {queue} and got {got}")
            if producer.read() != got[1] or consumer.ask("ACKJOB", got[1]) != "1":
                raise Void(f"job {got[1]} is not the one that was added, or is not known where it was got")
            progress.advance(task)
    progress.remove_task(task)
    return sorted(found)


def wait_until_blocked(watcher: Talk) -> None:
    """Asked over another connection to the same node, so without a pause: each answer is a turn of the node."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while "blocked_clients:1" not in watcher.ask("INFO", "clients"):
        if time.monotonic() > deadline:
            raise Void("a consumer was never blocked")


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


# ---------------------------------------------------------------- the whole run


@dataclass(frozen=True, slots=True)
class Results:
    copies: list[Copies]
    cores: list[Cores]
    latencies_ms: list[float]
    redis_version: str
    build: str

    def value_of(self, key: str) -> float:
        """The figure behind a goal."""
        kind, _, rest = key.partition("-")
        if kind == "copies":
            copies = next(item for item in self.copies if str(item.pipeline) == rest)
            return statistics.median(copies.ratios("addjob REPLICATE 3"))
        if kind == "latency":
            return percentile(self.latencies_ms, {"p50": 0.50, "p99": 0.99}[rest])
        if rest == "rate":
            return self.cores[-1].rate_ratio()
        arrangement, _, pipeline = rest.partition("-")
        cores = next(item for item in self.cores if str(item.pipeline) == pipeline)
        return cores.cpu_ratio() if arrangement == "cpu" else cores.cpu_ratio_crowded()


def as_json(results: Results, judged: Sequence[Judged], size: Size, is_quick: bool) -> dict[str, Any]:
    return {
        "machine": {**common.machine(), "redis": results.redis_version, "build": results.build},
        "settings": {
            "quick": is_quick,
            "rounds": size.rounds,
            "nodes": NODES,
            "cores": CORES,
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
        "copies": [row for copies in results.copies for row in copies.rows()],
        "cores": [cores.as_dict() for cores in results.cores],
        "latency_ms": {
            "samples": len(results.latencies_ms),
            **{
                name: round(percentile(results.latencies_ms, share), 3)
                for name, share in (("p50", 0.50), ("p90", 0.90), ("p99", 0.99), ("max", 1.0))
            },
        },
    }


# ---------------------------------------------------------------- the command line


@dataclass(frozen=True, slots=True)
class Choices:
    size: Size
    is_quick: bool
    json_only: bool
    out: Path


def read_command_line(words: list[str] | None) -> Choices:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description="Three nodes beside redis-server.")
    add = parser.add_argument
    add("--rounds", type=at_least_one, help=f"alternating rounds ({FULL.rounds}, quick {QUICK.rounds})")
    add("--quick", action="store_true", help="few jobs; judges replies, not figures")
    add("--out", type=Path, help="folder for cluster.json and cluster.svg (bench/results)")
    add("--json-only", action="store_true", help="print cluster.json; no table, no plot, no files")
    given = parser.parse_args(words)
    base = QUICK if given.quick else FULL
    return Choices(
        size=Size(given.rounds or base.rounds, base.requests, base.latencies),
        is_quick=given.quick,
        json_only=given.json_only,
        out=given.out or (QUICK_RESULTS if given.quick else RESULTS),
    )


def measure(size: Size) -> Results:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        copies, version, modules = measure_copies(size, progress)
        cores = measure_cores(size, progress)
        latencies = measure_latency(size, progress)
    return Results(copies, cores, latencies, version, f"compiled, {modules} modules" if modules else "pure")


def main(words: list[str] | None = None) -> int:
    choices = read_command_line(words)

    def measured() -> tuple[Document, list[Judged]]:
        results = measure(choices.size)
        judged = judge(GOALS, results.value_of)
        return as_json(results, judged, choices.size, choices.is_quick), judged

    def publish(document: Document) -> None:
        cluster_report.write_files(document, choices.out)
        cluster_report.print_tables(document)

    return conduct(measured, publish, json_only=choices.json_only, is_quick=choices.is_quick)


if __name__ == "__main__":
    sys.exit(main())
