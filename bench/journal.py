"""What the journal costs, beside redis-server with its append-only file: `make bench PART=journal`.

    speed     CPU time of the server per job (added, handed out, acknowledged; LPUSH and RPOP for redis) and commands
              per second, without a journal, with appendfsync everysec and with always, and with everysec and a
              history. All servers are driven in turn in each round, every second round in the other order; figures
              are medians over the rounds.
    history   how many records of it a second are read from that node, and made into Arrow tables.
    restart   CPU time and memory of a node that starts with a million pending jobs: from the journal as it was
              written, with no rewrite in between, and from a snapshot. Bytes on disk per job.

The issue of the journal set the goals for time. Those for bytes are ours: a pending job of 64 bytes takes 280 bytes in
memory (bench/core.py), and one that was read back a quarter more at most, since reading leaves garbage behind. On disk
such a job takes 113 bytes as ADD, 65 of them its body and the name of its queue, and 164 as JOB in a snapshot, which
says all there is to know. Both goals leave a fifth: whoever needs more has added a field to every job, and should know.

Each figure with a goal is a line of GOALS. The end is 0 if all are met, 1 if one falls short, 2 if a run was void,
3 if a program is missing. `--quick` runs the same steps with few jobs and judges nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from bench import common
from bench.common import Load, Missing, Server, Void
from bench.goals import Goal
from holdfast import history

CONNECTIONS = 50
BODY_BYTES = 64
RESULTS = common.ROOT / "bench" / "results"
POLICIES = ("off", "everysec", "always")
HISTORY = "history"  # everysec, and what happens to jobs is written down
PIPELINES = (1, 32)


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    jobs: dict[int, int]  # by pipeline
    always_jobs: int  # each turn waits for the disk
    restart_jobs: int


FULL = Size(5, {1: 30_000, 32: 300_000}, 10_000, 1_000_000)
QUICK = Size(1, {1: 3_000, 32: 20_000}, 1_000, 50_000)

GOALS = (
    Goal("everysec-1", "everysec, CPU per job over no journal, pipeline 1", 1.10, at_least=False),
    Goal("everysec-32", "everysec, CPU per job over no journal, pipeline 32", 1.10, at_least=False),
    Goal("always", "always, commands per second ÷ redis with always, 50 connections", 1.0, at_least=True),
    Goal("decode", "history made into Arrow tables, records per second of CPU", 500_000, at_least=True),
    Goal("restart-log", "restart with a million jobs, CPU", 5.0, at_least=False, unit=" s"),
    Goal("restart-snapshot", "restart from a snapshot of a million jobs, CPU", 3.0, at_least=False, unit=" s"),
    Goal("memory", "memory per 64-byte job after a restart", 350, at_least=False, unit=" bytes"),
    Goal("disk", "bytes on disk per 64-byte job, as written", 140, at_least=False, unit=" bytes"),
    Goal("disk-snapshot", "bytes on disk per 64-byte job in a snapshot", 200, at_least=False, unit=" bytes"),
)


@dataclass(slots=True)
class Cell:
    """A server with a policy at a pipeline: what a job costs it, over the rounds."""

    cpu_us: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)  # commands per second
    jobs: list[float] = field(default_factory=list)  # jobs per second, through all their commands

    def add(self, loads: list[Load]) -> None:
        jobs = loads[0].ops
        self.cpu_us.append(sum(load.cpu_us_per_op * load.ops for load in loads) / jobs)
        seconds = sum(load.seconds for load in loads)
        self.rate.append(sum(load.ops for load in loads) / seconds)
        self.jobs.append(jobs / seconds)

    def as_dict(self) -> dict[str, float]:
        return {
            "cpu_us_per_job": round(statistics.median(self.cpu_us), 3), "rate": round(statistics.median(self.rate)),
            "jobs_per_s": round(statistics.median(self.jobs)),
        }


def node_command(folder: Path, policy: str) -> list[str]:
    if policy == "off":
        return [*common.NODE_COMMAND]
    fsync = "everysec" if policy == HISTORY else policy
    more = ["--set", "history=yes"] if policy == HISTORY else []
    return [*common.NODE_COMMAND, "--dir", str(folder), "--set", f"appendfsync={fsync}", *more]


def redis_command(policy: str) -> list[str]:
    more = ["--appendonly", "yes", "--appendfsync", policy] if policy != "off" else ["--appendonly", "no"]
    return [common.find_redis_server(), "--port", "{port}", "--bind", common.HOST, "--save", "", *more]


def cycle(server: Server, is_redis: bool, jobs: int, pipeline: int, ids: Path) -> list[Load]:
    loads = []
    for mode in ("lpush", "rpop") if is_redis else ("addjob", "getjob", "ackjob"):
        loads.append(common.drive(
            server, mode, requests=jobs, pipeline=pipeline, connections=CONNECTIONS, body_bytes=BODY_BYTES,
            ids=ids if mode in ("getjob", "ackjob") else None, once=mode in ("getjob", "rpop"),
        ))
    return loads


def measure_speed(size: Size) -> tuple[dict[str, Cell], dict[str, float]]:
    cells: dict[str, Cell] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        servers = []
        for policy in POLICIES:
            node = stack.enter_context(common.running("node", node_command(folder / policy, policy)))
            redis = stack.enter_context(common.running("redis", redis_command(policy)))
            servers += [(f"node-{policy}", node, False, policy), (f"redis-{policy}", redis, True, policy)]
        teller = stack.enter_context(common.running("node", node_command(folder / HISTORY, HISTORY)))
        servers.append((f"node-{HISTORY}", teller, False, HISTORY))
        for pipeline in PIPELINES:
            for number in range(size.rounds):
                for name, server, is_redis, policy in servers if number % 2 == 0 else servers[::-1]:
                    if policy == "always" and pipeline > 1:
                        continue
                    jobs = size.always_jobs if policy == "always" else size.jobs[pipeline]
                    loads = cycle(server, is_redis, jobs, pipeline, folder / "ids")
                    cells.setdefault(f"{name}-{pipeline}", Cell()).add(loads)
        return cells, measure_history(teller)


def measure_history(teller: Server) -> dict[str, float]:
    """Read all that was told, and decode it: CPU time of the node per record, and of this process."""
    cursor = "first"
    records = bytes_read = 0
    decoding = 0.0
    history.decode(ask_bytes(teller.port, cursor)[1])  # pyarrow is imported, and warm
    before = teller.cpu_time().ran
    while True:
        cursor, piece = ask_bytes(teller.port, cursor)
        if not piece:
            break
        began = time.process_time()
        records += history.decode(piece).num_rows
        decoding += time.process_time() - began
        bytes_read += len(piece)
    return {
        "records": records,
        "bytes_per_record": bytes_read / records,
        "read_cpu_us_per_record": (teller.cpu_time().ran - before) * 1e6 / records,
        "decode_per_second": records / decoding,
    }


def ask_bytes(port: int, cursor: str) -> tuple[str, bytes]:
    with holdfast.open(f"holdfast://{common.HOST}:{port}") as queue:
        after, piece = queue.call("HISTORY", "READ", cursor, "COUNT", 50_000)
    return after.decode(), piece


def measure_restart(size: Size) -> dict[str, float]:
    """The first start finds a journal as it was written, the second what the clean end of the first has left."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        command = [*node_command(folder, "everysec"), "--set", "auto-aof-rewrite-percentage=0"]
        with common.running("node", command) as node:
            common.drive(node, "addjob", requests=size.restart_jobs, pipeline=32, connections=CONNECTIONS,
                         body_bytes=BODY_BYTES)
            common.ask(node.port, "CONFIG", "SET", "appendonly", "yes")
            found["disk_bytes_per_job"] = disk_bytes(folder) / size.restart_jobs
            node.process.kill()
            node.process.wait()
        with common.running("node", [*common.NODE_COMMAND]) as empty:
            idle = empty.cpu_time().ran
            idle_rss = empty.rss_bytes()
        for what in ("log", "snapshot"):
            with common.running("node", command) as node:
                jobs = int(common.ask(node.port, "QLEN", common.QUEUE))
                if jobs != size.restart_jobs:
                    raise Void(f"{jobs} jobs after a restart, not {size.restart_jobs}")
                found[f"restart_{what}_cpu_s"] = node.cpu_time().ran - idle
                found[f"restart_{what}_wall_s"] = int(node.info()["aof_load_usec"]) / 1e6
                found["rss_bytes_per_job"] = (node.rss_bytes() - idle_rss) / size.restart_jobs
        found["snapshot_bytes_per_job"] = disk_bytes(folder) / size.restart_jobs
    return found


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "journal").iterdir())


def figures(cells: dict[str, Cell], told: dict[str, float], restart: dict[str, float]) -> dict[str, float]:
    """Ratios are medians over rounds of pairs measured in the same round."""

    def over(a: str, b: str) -> float:
        return statistics.median(x / y for x, y in zip(cells[a].cpu_us, cells[b].cpu_us))

    return {
        "everysec-1": over("node-everysec-1", "node-off-1"),
        "everysec-32": over("node-everysec-32", "node-off-32"),
        "redis-everysec-1": over("redis-everysec-1", "redis-off-1"),
        "redis-everysec-32": over("redis-everysec-32", "redis-off-32"),
        "history-1": over("node-history-1", "node-everysec-1"),
        "history-32": over("node-history-32", "node-everysec-32"),
        "decode": told["decode_per_second"],
        "always": statistics.median(x / y for x, y in zip(cells["node-always-1"].rate, cells["redis-always-1"].rate)),
        "restart-log": restart["restart_log_cpu_s"],
        "restart-snapshot": restart["restart_snapshot_cpu_s"],
        "memory": restart["rss_bytes_per_job"],
        "disk": restart["disk_bytes_per_job"],
        "disk-snapshot": restart["snapshot_bytes_per_job"],
    }


def document(size: Size, is_quick: bool) -> dict[str, Any]:
    cells, told = measure_speed(size)
    restart = measure_restart(size)
    values = figures(cells, told, restart)
    return {
        "machine": common.machine(),
        "settings": {"quick": is_quick, "rounds": size.rounds, "connections": CONNECTIONS, "body_bytes": BODY_BYTES,
                     "restart_jobs": size.restart_jobs},
        "figures": {
            goal.key: {
                "title": goal.title, "value": round(values[goal.key], 3), "unit": goal.unit.strip(),
                "goal": goal.text(), "limit": goal.limit,
                "verdict": "pass" if goal.is_met_by(values[goal.key]) else "falls short",
            }
            for goal in GOALS
        },
        "ratios": {name: round(value, 3) for name, value in values.items()},
        "speed": {name: cell.as_dict() for name, cell in cells.items()},
        "history": {name: round(value, 2) for name, value in told.items()},
        "restart": {name: round(value, 2) for name, value in restart.items()},
    }


def show(result: dict[str, Any]) -> None:
    print(f"{'server':<22}{'µs CPU per job':>16}{'jobs/s':>12}{'commands/s':>12}")
    for name, cell in result["speed"].items():
        print(f"{name:<22}{cell['cpu_us_per_job']:>16}{cell['jobs_per_s']:>12}{cell['rate']:>12}")
    for name, value in [*result["history"].items(), *result["restart"].items()]:
        print(f"{name:<34}{value:>12}")
    for item in result["figures"].values():
        print(f"{item['title']}: {item['value']} {item['unit']} (goal {item['goal']}): {item['verdict']}")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description="What the journal costs.")
    parser.add_argument("--quick", action="store_true", help="few jobs; judges nothing")
    parser.add_argument("--out", type=Path, help="folder for journal.json (bench/results)")
    given = parser.parse_args(words)
    common.end_on_sigterm()
    common.leave_the_server_alone()
    try:
        result = document(QUICK if given.quick else FULL, given.quick)
    except Void as error:
        print(f"void: {error}", file=sys.stderr)
        return common.EXIT_VOID
    except Missing as error:
        print(f"missing: {error}", file=sys.stderr)
        return common.EXIT_SKIPPED
    show(result)
    folder = given.out or (common.BUILD / "quick" if given.quick else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    is_good = given.quick or all(item["verdict"] == "pass" for item in result["figures"].values())
    return common.EXIT_PASS if is_good else common.EXIT_FALLS_SHORT


if __name__ == "__main__":
    sys.exit(main())
