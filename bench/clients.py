"""Python programs at our door and at others': add, take and acknowledge; and no-op tasks through workers.

    python -m bench.clients [--rounds 3] [--quick] [--peers build/peers/bin/python] [--only brokers|tasks]

Brokers: one producer process, then one consumer process, 64-byte jobs, one server at a time with a fresh folder, all
keeping jobs with an fsync about every second. Four phases: single adds, single take + ack, bulk adds, batch take + ack.
Tasks: jobs of a no-op task are added, a worker with concurrency 10 is started, and the last 80 % of its runs are
timed; its CPU time (all its processes) is divided by them. Rounds alternate over all systems, each second one
backwards.

Wall time on a busy machine says little by itself; the systems beside each other in the same minutes say more. The
median of the rounds counts. The goals are at the bottom.
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
from bench.peers.brokers import BROKERS, PHASES
from bench.peers.servers import Missing, end, running

RESULTS = ROOT / "bench" / "results" / "clients.json"
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
        with tempfile.TemporaryDirectory(dir=BUILD) as folder, running(server, Path(folder)) as port:
            self._child(server, name, port, "create", 0)
            for phase in PHASES:
                count = int((40_000 if phase in ("add_bulk", "take_batch") else 4_000) * self.scale)
                count -= count % 500
                meter = self._child(server, name, port, phase, count)
                found[phase] = {"rate": count / meter["wall"], "cpu_us": 1e6 * meter["cpu"] / count}
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
        with tempfile.TemporaryDirectory(dir=BUILD) as place, running(server, Path(place)) as port:
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
                return watch(worker, counter, total)
            except RuntimeError as error:
                raise RuntimeError(f"{error}: {(Path(place) / 'worker.log').read_text()[-500:]}") from None
            finally:
                end(worker)


def watch(worker: subprocess.Popen[bytes], counter: Path, total: int) -> dict[str, Any]:
    """How fast the last four fifths run, and what CPU time they take."""
    began, seen = 0.0, 0
    first = (0.0, 0, 0.0)
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
            first = (now, seen, cpu_of(worker.pid))
        if worker.poll() is not None or now - last_change > STALL_S:
            raise RuntimeError(f"{seen} of {total} jobs ran")
    wall, jobs = time.monotonic() - first[0], seen - first[1]
    return {"rate": jobs / wall, "cpu_us": 1e6 * (cpu_of(worker.pid) - first[2]) / jobs}


def cpu_of(pid: int) -> float:
    """CPU seconds of a process and all below it."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = (int(words[11]) + int(words[12])) / tick
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += cpu_of(int(child))
    except (FileNotFoundError, ProcessLookupError):
        return total
    return total


# -- what it comes to -------------------------------------------------------------------------------------


def medians(rounds: list[dict[str, Any]], phases: tuple[str, ...]) -> dict[str, Any]:
    return {
        phase: {key: statistics.median(each[phase][key] for each in rounds) for key in ("rate", "cpu_us")}
        for phase in phases
    }


WITH_STATE = ("redis stream", "beanstalkd", "rabbitmq", "nats jetstream")
"""Brokers that know of each job who has it. A Redis list does not."""


def judge(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The goals: first among brokers with state in every column, not far from a bare list, and a worker's speed."""
    goals: list[dict[str, Any]] = []
    brokers, tasks = document["brokers"], document["tasks"]
    if "holdfast" in brokers:
        ours = {phase: max(brokers[name][phase]["rate"] for name in brokers if name.startswith("holdfast"))
                for phase in PHASES}
        for phase in PHASES:
            others = {name: brokers[name][phase]["rate"] for name in WITH_STATE if name in brokers}
            if others:
                best = max(others, key=lambda name: others[name])
                goals.append(goal(f"{phase}: first among brokers with state ({best})", ours[phase] / others[best], 1.0))
        if "redis list" in brokers:
            for phase in ("add_bulk", "take_batch"):
                ratio = ours[phase] / brokers["redis list"][phase]["rate"]
                goals.append(goal(f"{phase}: beside a Redis list", ratio, 0.7))
    for name in ("holdfast, async", "holdfast, threads"):
        if name in tasks:
            run = tasks[name]["run"]
            goals.append(goal(f"{name}: thousands of jobs per second and process", run["rate"] / 1000, 15.0))
            goals.append(goal(f"{name}: 60 µs ÷ CPU per job", 60 / run["cpu_us"], 1.0))
    return goals


def goal(words: str, value: float, least: float) -> dict[str, Any]:
    verdict = "pass" if value >= least else "falls short"
    return {"goal": words, "value": round(value, 2), "least": least, "verdict": verdict}


def report(document: dict[str, Any]) -> None:
    console = Console(width=120)
    table = Table(title="per second, and µs of the client's CPU", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("broker")
    for phase in PHASES:
        table.add_column(phase.replace("_", " "), justify="right")
    for name, row in document["brokers"].items():
        table.add_row(name, *(f"{row[phase]['rate']:,.0f}  {row[phase]['cpu_us']:.0f}" for phase in PHASES))
    console.print(table)
    table = Table(title="no-op tasks, concurrency 10", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("library", "jobs/s", "µs CPU per job"):
        table.add_column(column, justify="left" if column == "library" else "right")
    for name, row in document["tasks"].items():
        table.add_row(name, f"{row['run']['rate']:,.0f}", f"{row['run']['cpu_us']:.0f}")
    console.print(table)
    for each in document["goals"]:
        console.print(f"{each['verdict']:12} {each['goal']}: {each['value']} (≥ {each['least']})")
    for name, why in document["missing"].items():
        console.print(f"left out     {name}: {why}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs, one round, nothing written")
    parser.add_argument("--peers", default=str(ROOT / "build" / "peers" / "bin" / "python"))
    parser.add_argument("--only", choices=["brokers", "tasks"])
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
    document["goals"] = judge(document)
    report(document)
    if options.quick:
        return EXIT_PASS
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    return EXIT_PASS if all(each["verdict"] == "pass" for each in document["goals"]) else EXIT_FALLS_SHORT


if __name__ == "__main__":
    sys.exit(main())
