"""Python programs at our door and at others': add, take and acknowledge; and no-op tasks through workers.

    python -m bench.clients [--rounds 3] [--quick] [--peers build/peers/bin/python] [--only brokers|tasks] [--out DIR]

Brokers: one producer process, then one consumer process, 64-byte jobs, one server at a time with a fresh folder, all
keeping jobs with an fsync about every second. Four phases: single adds, single take + ack, bulk adds, batch take + ack.
Tasks: jobs of a no-op task are added, a worker with concurrency 10 is started, and the last 80 % of its runs are
timed; its CPU time (all its processes) is divided by them. Rounds alternate over all systems, each second one
backwards.

Wall time says little on a machine that others use. So beside it stands the *quiet* rate, which it would be if nobody
did: one client that waits for each answer can be no faster than its CPU time and that of the server, one after the
other; a worker and its server work at the same time, and the busier of the two counts, or both on two cores. The goals
are judged by it. The median of the rounds counts.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.common import BUILD, EXIT_FALLS_SHORT, EXIT_PASS, ROOT, end_on_sigterm, machine
from bench.goals import Goal, judge
from bench.peers.brokers import BROKERS, PHASES
from bench.peers.servers import Missing, end, running

RESULTS = ROOT / "bench" / "results"
CHILD_S_MAX = 180.0
STALL_S = 30.0

# How a worker of each library is started: server, module with add(), command. {py} is the Python of the peers.
TASKS: dict[str, tuple[str, str, list[str]]] = {
    "holdfast, async": ("holdfast", "holdfast_app:loop", [
        sys.executable, "-m", "holdfast", "worker", "bench.peers.apps.holdfast_app:app", "-q", "loop", "-c", "10"]),
    "holdfast, threads": ("holdfast", "holdfast_app:threads", [
        sys.executable, "-m", "holdfast", "worker", "bench.peers.apps.holdfast_app:app", "-q", "threads", "-c", "10"]),
    "celery": ("redis", "celery_app", [
        "{py}", "-m", "celery", "-A", "bench.peers.apps.celery_app", "worker", "-c", "10", "-l", "error",
        "--without-gossip", "--without-mingle", "--without-heartbeat"]),
    "rq": ("redis", "rq_app", [
        "{py}", "-m", "rq.cli", "worker-pool", "-n", "10", "-w", "rq.worker.SimpleWorker", "-u", "{redis}", "-q",
        "default"]),
    "dramatiq": ("redis", "dramatiq_app", [
        "{py}", "-m", "dramatiq", "bench.peers.apps.dramatiq_app", "-p", "2", "-t", "5"]),
    "huey (at most once)": ("redis", "huey_app", [
        "{py}", "-m", "huey.bin.huey_consumer", "bench.peers.apps.huey_app.huey", "-k", "process", "-w", "10", "-q",
        "-n"]),
    "taskiq": ("redis", "taskiq_app", [
        "{py}", "-m", "taskiq", "worker", "bench.peers.apps.taskiq_app:broker", "--workers", "1", "--max-async-tasks",
        "10", "--log-level", "ERROR"]),
    "saq": ("redis", "saq_app", ["{py}", "-m", "saq", "bench.peers.apps.saq_app.settings", "--quiet"]),
    "arq": ("redis", "arq_app", ["{py}", "-m", "arq", "bench.peers.apps.arq_app.WorkerSettings"]),
}


class Runner:
    """One run of everything."""

    def __init__(self, peers: str, scale: float) -> None:
        self.peers = peers
        self.scale = scale
        self.missing: dict[str, str] = {}

    def python(self, server: str) -> str:
        return sys.executable if server == "holdfast" else self.peers

    def broker(self, name: str) -> dict[str, Any]:
        """The four phases at a fresh server."""
        found: dict[str, Any] = {}
        server = BROKERS[name].server
        with tempfile.TemporaryDirectory(dir=BUILD) as folder, running(server, Path(folder)) as (port, pid):
            self._child(server, name, port, "create", 0)
            for phase in PHASES:
                count = int((40_000 if phase in ("add_bulk", "take_batch") else 4_000) * self.scale)
                count = max(500, count - count % 500)
                before = cpu_of(pid)
                meter = self._child(server, name, port, phase, count)
                served = cpu_of(pid) - before
                found[phase] = figures(count, meter["wall"], meter["cpu"], served, meter["cpu"] + served)
        return found

    def _child(self, server: str, name: str, port: int, phase: str, count: int) -> dict[str, float]:
        done = subprocess.run(
            [self.python(server), "-m", "bench.peers.brokers", name, str(port), phase, str(count)], cwd=ROOT,
            env=self._environment(port), capture_output=True, text=True, timeout=CHILD_S_MAX, check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name}, {phase}: {done.stderr[-500:]}")
        answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _environment(self, port: int, count: str = os.devnull) -> dict[str, str]:
        return {
            **os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "BENCH_PORT": str(port), "BENCH_COUNT": count,
        }

    def tasks(self, name: str) -> dict[str, Any]:
        """A worker that runs no-op tasks."""
        server, module, command = TASKS[name]
        module, _, queue = module.partition(":")
        total = int((30_000 if server == "holdfast" else 4_000) * self.scale)
        with tempfile.TemporaryDirectory(dir=BUILD) as place, running(server, Path(place)) as (port, pid):
            counter = Path(place) / "count"
            counter.touch()
            environment = self._environment(port, str(counter))
            add = f"from bench.peers.apps import {module} as a; a.add({total}{f', {queue!r}' if queue else ''})"
            subprocess.run(
                [self.python(server), "-c", add], cwd=ROOT, env=environment, check=True, timeout=CHILD_S_MAX,
                capture_output=True,
            )
            redis = f"redis://127.0.0.1:{port}/0"
            argv = [word.format(py=self.peers, redis=redis) for word in command]
            with (Path(place) / "worker.log").open("wb") as log:
                worker = subprocess.Popen(
                    argv, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            try:
                return watch(worker, counter, total, pid)
            except RuntimeError as error:
                raise RuntimeError(f"{error}: {(Path(place) / 'worker.log').read_text()[-500:]}") from None
            finally:
                end(worker)


def figures(count: int, wall: float, cpu: float, served: float, bound: float) -> dict[str, float]:
    """Per second and per job. `bound` is the least time it can take."""
    return {
        "wall_rate": count / wall, "rate": count / max(bound, 1e-6), "cpu_us": 1e6 * cpu / count,
        "server_cpu_us": 1e6 * served / count,
    }


def watch(worker: subprocess.Popen[bytes], counter: Path, total: int, server: int) -> dict[str, Any]:
    """How fast the last four fifths run, and what CPU time they take."""
    began, seen = 0.0, 0
    first = (0.0, 0, 0.0, 0.0, 0.0)
    last_change = time.monotonic()
    while seen < total:
        time.sleep(0.005)
        count = counter.stat().st_size
        now = time.monotonic()
        if count != seen:
            last_change = now
        seen = count
        if not began and seen >= total // 5:
            began = now
            first = (now, seen, cpu_of(worker.pid), cpu_of(server), busiest(worker.pid))
        if worker.poll() is not None or now - last_change > STALL_S:
            raise RuntimeError(f"{seen} of {total} jobs ran")
    wall, jobs = time.monotonic() - first[0], seen - first[1]
    cpu, served = cpu_of(worker.pid) - first[2], cpu_of(server) - first[3]
    alone = busiest(worker.pid) - first[4]
    return figures(jobs, wall, cpu, served, max(alone, served, (cpu + served) / 2))


def cpu_of(pid: int, is_alone: bool = False) -> float:
    """CPU seconds of a process and all below it."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = (int(words[11]) + int(words[12])) / tick
        for task in () if is_alone else Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += cpu_of(int(child))
    except (FileNotFoundError, ProcessLookupError):
        return total
    return total


def busiest(pid: int) -> float:
    """CPU seconds of the busiest process of a tree: no worker process is faster than one core."""
    below = [busiest(int(child)) for task in Path(f"/proc/{pid}/task").iterdir()
             for child in (task / "children").read_text().split()]
    return max([cpu_of(pid, is_alone=True), *below])


# -- what it comes to -------------------------------------------------------------------------------------


def medians(rounds: list[dict[str, Any]], phases: tuple[str, ...]) -> dict[str, Any]:
    return {
        phase: {key: statistics.median(each[phase][key] for each in rounds) for key in rounds[0][phase]}
        for phase in phases
    }


WITH_STATE = ("redis stream", "beanstalkd", "rabbitmq", "nats jetstream")
"""Brokers that know of each job who has it. A Redis list does not."""
WORKERS = {"async": "holdfast, async", "threads": "holdfast, threads"}
PER_S = " thousand/s"
GOALS = (
    *(Goal(f"first-{phase}", f"{phase.replace('_', ' ')}: beside the best other broker with state", 1.0, True)
      for phase in PHASES),
    Goal("beat-add_single", "single adds (beanstalkd once: 15.7)", 15.7, True, PER_S),
    Goal("beat-take_single", "single take + ack (beanstalkd once: 7.5)", 7.5, True, PER_S),
    Goal("beat-add_bulk", "bulk adds (Disque once: 72)", 72.0, True, PER_S),
    Goal("beat-take_batch", "batch take + ack (Disque once: 189)", 189.0, True, PER_S),
    Goal("list-add_bulk", "bulk adds beside a bare Redis list", 0.7, True),
    Goal("list-take_batch", "batch take + ack beside a bare Redis list", 0.7, True),
    Goal("worker-async", "no-op jobs through a worker process, async handlers", 15.0, True, PER_S),
    Goal("worker-async-cpu", "CPU of the worker per job, async handlers", 60.0, False, " µs"),
    Goal("worker-threads", "no-op jobs through a worker process, threads", 15.0, True, PER_S),
    Goal("worker-threads-cpu", "CPU of the worker per job, threads", 60.0, False, " µs"),
)


def value_of(document: dict[str, Any], key: str) -> float | None:
    """A figure with a goal; None: what it needs did not run."""
    kind, _, what = key.partition("-")
    if kind == "worker":
        row = document["tasks"].get(WORKERS[what.removesuffix("-cpu")])
        if row is None:
            return None
        return float(row["run"]["cpu_us"] if what.endswith("-cpu") else row["run"]["rate"] / 1000)
    rates = {name: row[what]["rate"] for name, row in document["brokers"].items()}
    ours = [rate for name, rate in rates.items() if name.startswith("holdfast")]
    others = [rates[name] for name in (("redis list",) if kind == "list" else WITH_STATE) if name in rates]
    if not ours or (kind != "beat" and not others):
        return None
    return float(max(ours) / 1000 if kind == "beat" else max(ours) / max(others))


def shown(row: dict[str, float]) -> str:
    return f"{row['rate']:,.0f}, {row['wall_rate']:,.0f}; {row['cpu_us']:.1f}, {row['server_cpu_us']:.1f}"


def report(document: dict[str, Any]) -> None:
    console = Console(width=120)
    table = Table(title="per second: quiet, wall; µs of CPU: client, server", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("broker")
    for phase in PHASES:
        table.add_column(phase.replace("_", " "), justify="right")
    for name, row in document["brokers"].items():
        table.add_row(name, *(shown(row[phase]) for phase in PHASES))
    console.print(table)
    table = Table(title="no-op tasks, concurrency 10", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("library")
    table.add_column("jobs", justify="right")
    for name, row in document["tasks"].items():
        table.add_row(name, shown(row["run"]))
    console.print(table)
    for goal in GOALS:
        figure = document["figures"][goal.key]
        value = "not found out" if figure["value"] is None else f"{figure['value']:.2f}{goal.unit}"
        console.print(f"{figure['verdict']:12} {goal.title}: {value} ({goal.text()})")
    for name, why in document["missing"].items():
        console.print(f"left out     {name}: {why}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs, one round, nothing written")
    parser.add_argument("--peers", default=str(ROOT / "build" / "peers" / "bin" / "python"))
    parser.add_argument("--only", choices=["brokers", "tasks"])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for clients.json")
    options = parser.parse_args()
    end_on_sigterm()
    BUILD.mkdir(parents=True, exist_ok=True)
    runner = Runner(options.peers, 0.1 if options.quick else 1.0)
    work = [("brokers", name) for name in BROKERS if options.only != "tasks"]
    work += [("tasks", name) for name in TASKS if options.only != "brokers"]
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {each: [] for each in work}
    for number in range(1 if options.quick else options.rounds):
        for kind, name in work if number % 2 == 0 else reversed(work):
            if name in runner.missing:
                continue
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
            try:
                found = runner.broker(name) if kind == "brokers" else {"run": runner.tasks(name)}
            except (Missing, RuntimeError, subprocess.SubprocessError, FileNotFoundError) as error:
                runner.missing[name] = str(error)[-300:]
                continue
            rounds[(kind, name)].append(found)
    document: dict[str, Any] = {
        "machine": machine(), "rounds": options.rounds,
        "brokers": {name: medians(rounds[("brokers", name)], PHASES)
                    for kind, name in work if kind == "brokers" and rounds[(kind, name)]},
        "tasks": {name: medians(rounds[("tasks", name)], ("run",))
                  for kind, name in work if kind == "tasks" and rounds[(kind, name)]},
        "missing": runner.missing,
    }
    judged = judge(GOALS, lambda key: value_of(document, key))
    document["figures"] = {
        each.goal.key: {"value": each.value, "unit": each.goal.unit.strip(), "verdict": each.verdict} for each in judged
    }
    report(document)
    if options.quick:
        return EXIT_PASS
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "clients.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return EXIT_PASS if all(each.verdict == "pass" for each in judged) else EXIT_FALLS_SHORT


if __name__ == "__main__":
    sys.exit(main())
