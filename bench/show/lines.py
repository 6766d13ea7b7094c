"""A promise and how it is found out: run a command, tests, a simulation or a benchmark, and read what it says.

Each way returns the figure as text and True, False, or None for "could not be found out". All that a command prints
goes to the log of its line. A benchmark runs once for all lines that read a figure of it.
"""
from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import common
from bench.goals import Goal

LOGS = common.BUILD / "show"
PYTHON = sys.executable

COMMAND_SECONDS_MAX = 1_800.0
STOP_SECONDS_MAX = 30.0
TOOK_TOO_LONG = -1  # in place of an exit code
ALL_PASS = "all pass, none skipped"

Answer = tuple[str, bool | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One promise. `key` is its name for --only and its log file."""

    key: str
    title: str
    goal: str
    find_out: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    output: str
    seconds: float


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process we started and its group. Asked first, so that it can stop the servers it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS_MAX)


def run(key: str, command: Sequence[str], **environment: str) -> Finished:
    """Run to the end; all output to the log of this line."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{key}.log"
    started = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=common.ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            code = TOOK_TOO_LONG
        finally:
            end_group(process)
    return Finished(code, log.read_text(errors="replace"), time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class Counts:
    """What pytest's last lines say, summed if a target runs pytest more than once."""

    passed: int
    skipped: int
    failed: int

    def text(self) -> str:
        parts = [f"{self.passed:,} passed"]
        parts += [f"{self.skipped:,} skipped"] if self.skipped else []
        parts += [f"{self.failed:,} failed"] if self.failed else []
        return ", ".join(parts)


def pytest_counts(output: str) -> Counts:
    summaries = [
        line
        for line in output.splitlines()
        if re.search(r"\d+ (passed|failed|skipped|error).* in [\d.]+s", line)
    ]

    def total(*words: str) -> int:
        pattern = re.compile(rf"(\d+) (?:{'|'.join(words)})\b")
        return sum(int(number) for line in summaries for number in pattern.findall(line))

    return Counts(
        total("passed"), total("skipped", "xfailed", "deselected"), total("failed", "errors?", "xpassed")
    )


def green(key: str, command: Sequence[str]) -> Answer:
    """A command that must end with code 0."""
    done = run(key, command)
    figure = f"{pytest_counts(done.output).text()}, {done.seconds:.0f} s, exit code {done.code}"
    return figure, done.code == 0


def tests(key: str, *arguments: str, show: bool = False, figure: str = "", **environment: str) -> Answer:
    """Tests that must all run and pass: a skipped one has told us nothing. What they print like `figure` is shown."""
    done = run(key, [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *arguments], **environment)
    if show:
        print(done.output, flush=True)
    counts = pytest_counts(done.output)
    if counts.passed == 0 and counts.failed == 0:
        return f"no test ran, exit code {done.code}", None
    figures = re.findall(figure, done.output) if figure else []
    return "; ".join([counts.text(), *figures]), done.code == 0 and counts.skipped == 0


# -- benchmarks, each run once for all its lines ----------------------------------------------------------


def bench_lines(name: str, goals: Sequence[Goal], prefix: str = "bench") -> list[Line]:
    """A line for each goal of bench/<name>.py."""
    folder = LOGS / name
    results = folder / f"{name}.json"

    @functools.cache
    def bench() -> Finished:
        # A folder of its own, emptied first: an older file must not answer for a run that failed.
        results.unlink(missing_ok=True)
        return run(name, [PYTHON, "-m", f"bench.{name}", "--out", str(folder)])

    def figure(goal: Goal) -> Answer:
        done = bench()
        if done.code not in (common.EXIT_PASS, common.EXIT_FALLS_SHORT):
            last = done.output.strip().splitlines()[-1:] or ["no output"]
            return f"the bench ended with code {done.code}: {last[0]}", None
        found = json.loads(results.read_text())["figures"][goal.key]
        if found["verdict"] == "void":
            return "not told by the node", None
        told = f"{found['value']:.2f} {found['unit']}".strip()
        if "spread" in found:
            told += f" ({found['spread']['least']:.3f} to {found['spread']['most']:.3f})"
        return told, found["verdict"] == "pass"

    return [
        Line(f"{prefix}-{goal.key}", goal.title, goal.text(), functools.partial(figure, goal)) for goal in goals
    ]


# -- simulated clusters -----------------------------------------------------------------------------------

CLUSTERS = 700
SIMULATOR = (PYTHON, "-m", "holdfast.testing.sim", "run", "--jobs", "2")
SIMULATED = re.compile(r"^(\d+) clusters in ([\d.]+) s", re.MULTILINE)


def simulated(key: str, command: Sequence[str], seconds_max: float = float("inf")) -> Answer:
    """Clusters under faults: how many, in what time, and whether any broke a promise."""
    done = run(key, command)
    found = SIMULATED.search(done.output)
    if found is None:
        return (done.output.strip().splitlines()[-1:] or ["no output"])[0], None
    broken = len(re.findall(r"^make replay|^  make replay", done.output, re.MULTILINE))
    clusters, seconds = int(found[1]), float(found[2])
    figure = f"{clusters:,} clusters in {seconds:.0f} s, {broken} kinds of violation, exit code {done.code}"
    return figure, done.code == 0 and clusters >= CLUSTERS and seconds <= seconds_max


def mutants() -> Answer:
    done = run("mutants", ["make", "mutants"])
    caught = len(re.findall(r" caught by ", done.output))
    free = len(re.findall(r" NOT CAUGHT ", done.output))
    return f"{caught} caught, {free} not", None if caught + free == 0 else done.code == 0
