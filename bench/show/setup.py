"""The list of setting up: a fresh clone with cold caches, its first and second `make run`, `make test`, and an edit.

One clone serves all lines, in their order: what an earlier line prepared, a later one finds. Each line also runs alone,
after a first `make run` of its own. Caches of uv, pip and npm are empty folders, and objects are compiled in the clone.
"""
from __future__ import annotations

import atexit
import functools
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import common
from bench.show.fresh_clone import CONSOLE, PORTS, Short, Terminal, is_listened_at, plain, wait_for
from bench.show.lines import LOGS, Answer, Line

COLD_RUN_S = 240.0
COMPILER_MB = 600.0
SECOND_RUN_S = 5.0
EDIT_S = 40.0
TESTS_S = 720.0
CHECK_S = 60.0
PATIENCE = 5.0
"""A line waits for so many times its goal, so that a miss has a figure, too."""
EDITED = "src/holdfast/core/acks.py"
EDIT = '\n\ndef added_by_the_list(number: int) -> str:\n    return f"{number + 76543} is new"\n'
ALONE = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""What follows runs with a loopback and no other network."""
WALL = re.compile(r"^ *([\d.]+) +[\d.]+ +\d+  all \d+ parts$", re.MULTILINE)
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


class Fresh:
    """A clone of what is committed, and the environment of a person that has never set it up."""

    def __init__(self) -> None:
        if taken := [str(port) for port in PORTS if is_listened_at(port)]:
            raise common.Void(f"ports of `make run` are taken: {', '.join(taken)}")
        self.home = tempfile.TemporaryDirectory(prefix="fresh-setup-")
        atexit.register(self.home.cleanup)
        self.folder = Path(self.home.name) / "holdfast"
        subprocess.run(["git", "clone", "-q", str(common.ROOT), str(self.folder)], check=True)
        self.caches = {
            name: f"{self.home.name}/{name}" for name in ("UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache")
        }
        self.cold_run_s = self.until_console("cold-run", COLD_RUN_S)
        self.prepared: dict[str, float] = self.read("build/prepare.json")["seconds"]
        self.compiled: dict[str, float] = self.read("build/compile/report.json")

    def read(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / name).read_text()))

    def until_console(self, key: str, goal_s: float, *before: str) -> float:
        """Seconds until `make run` shows the address of the console; it is ended then by Ctrl-C."""
        began = time.monotonic()
        # A terminal has the environment of somebody else; what is ours comes by env.
        caches = [f"{name}={folder}" for name, folder in self.caches.items()]
        terminal = Terminal([*before, "env", *caches, "make", "run"], self.folder)
        try:
            wait_for("the address of the console", goal_s * PATIENCE, lambda: terminal.is_there(CONSOLE))
            took = time.monotonic() - began
            terminal.interrupt()
        finally:
            LOGS.mkdir(parents=True, exist_ok=True)
            (LOGS / f"setup-{key}.log").write_text(terminal.screen)
            terminal.close()
        return took

    def timed(self, key: str, command: str, goal_s: float) -> tuple[float, str]:
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env={**plain(), **self.caches},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            timeout=goal_s * PATIENCE,
        )
        LOGS.mkdir(parents=True, exist_ok=True)
        (LOGS / f"setup-{key}.log").write_text(done.stdout)
        if done.returncode != 0:
            raise Short(f"{command}: exit code {done.returncode}: {done.stdout.strip()[-300:]}")
        return time.monotonic() - began, done.stdout


@functools.cache
def first() -> Fresh | Short:
    """A clone that could not be set up is no better at the second try."""
    try:
        return Fresh()
    except Short as short:
        return short


def fresh() -> Fresh:
    if isinstance(found := first(), Short):
        raise found
    return found


def steps(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {took:.1f}" for name, took in seconds.items())


def cold_run() -> Answer:
    clone = fresh()
    compiled = {name: clone.compiled[f"{name}_s"] for name in ("generate", "compile", "link")}
    figure = f"{clone.cold_run_s:.0f} s; side by side: {steps(clone.prepared)} ({steps(compiled)})"
    return figure, clone.cold_run_s <= COLD_RUN_S


def memory() -> Answer:
    """The larger of what writes C and of the largest C compiler."""
    found = {name: fresh().compiled[f"{name}_mb"] for name in ("generate", "compiler")}
    return f"{steps(found)} MB", max(found.values()) <= COMPILER_MB


def second_run() -> Answer:
    took = fresh().until_console("second-run", SECOND_RUN_S)
    return f"{took:.1f} s", took <= SECOND_RUN_S


def without_network() -> Answer:
    if os.geteuid() != 0:
        return "only root can take the network away", None
    took = fresh().until_console("no-network", SECOND_RUN_S, *ALONE)
    return f"{took:.1f} s", took <= SECOND_RUN_S


def edit() -> Answer:
    """Another text, number and function: more than a changed comment, which gives the same C."""
    clone = fresh()
    source = clone.folder / EDITED
    before = source.read_text()
    source.write_text(before + EDIT)
    try:
        took, printed = clone.timed(
            "edit", "python3.11 -m tools.prepare run compile && .venv/bin/holdfast --version", EDIT_S
        )
        report = clone.read("build/compile/report.json")
    finally:
        source.write_text(before)
    is_compiled = printed.strip().endswith("(compiled)")
    figure = f"{took:.1f} s; {report['compiled']} C files compiled, {report['kept']} kept; {printed.split()[-1]}"
    return figure, took <= EDIT_S and is_compiled


def whole_test() -> Answer:
    """What `make test` needs is set up first, and told apart; then all tests, in both forms."""
    clone = fresh()
    setup_s, _ = clone.timed("test-setup", "make setup", COLD_RUN_S)
    test_s, printed = clone.timed("test", "make test", TESTS_S)
    wall, counts = WALL.search(printed), COUNTS.search(printed)
    if wall is None or counts is None:
        return "make test printed no summary", None
    passed, failed, skipped = map(int, counts.groups())
    figure = f"{test_s:.0f} s, tests {wall[1]} s of it; set-up before {setup_s:.0f} s; {counts[0]}"
    return figure, test_s <= TESTS_S and passed > 0 and failed == skipped == 0


def check() -> Answer:
    took, _ = fresh().timed("check", "make check", CHECK_S)
    return f"{took:.0f} s", took <= CHECK_S


def told(find_out: Callable[[], Answer]) -> Callable[[], Answer]:
    """A command that failed or never ended is an answer."""

    def answer() -> Answer:
        try:
            return find_out()
        except Short as short:
            return str(short), False
        except subprocess.TimeoutExpired as error:
            return f"not finished after {error.timeout:.0f} s", False

    return answer


def lines() -> list[Line]:
    return [
        Line("cold-run", "fresh clone, cold caches: make run is up", f"≤ {COLD_RUN_S:.0f} s", told(cold_run)),
        Line("memory", "the compile: peak memory of a process", f"≤ {COMPILER_MB:.0f} MB", told(memory)),
        Line("second-run", "make run again", f"≤ {SECOND_RUN_S:.0f} s", told(second_run)),
        Line("no-network", "make run again, without network", f"≤ {SECOND_RUN_S:.0f} s", told(without_network)),
        Line("edit", f"an edit of {EDITED} until it runs compiled", f"≤ {EDIT_S:.0f} s", told(edit)),
        Line("check", "make check", f"≤ {CHECK_S:.0f} s", told(check)),
        Line("test", "make test after its set-up", f"≤ {TESTS_S:.0f} s, all pass", told(whole_test)),
    ]
