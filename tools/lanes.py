"""Runs tests side by side, each part in a process of its own: `python -m tools.lanes [--lanes N] PART… [-- OPTION…]`.

    tests/proc/cluster                  a folder or a file of tests
    "HOLDFAST_PURE=1 tests/unit"        the same with these variables
    "make types"                        any command: more words than one

Tests with real processes wait more than they compute, so there is a lane more than there are cores. A lane takes the
next part as soon as it is free: name the long ones first. What follows `--` is handed to pytest.

A part that failed is shown in full when it is done, and named again at the end. Then come what each part took, the ten
slowest tests of all, and, as the last line, how many tests passed, failed and were skipped. A part in which no test ran
has failed. What each part printed is kept in build/tests.
"""
from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

KEPT = Path("build") / "tests"
WHOLE = Path(__file__).with_name("whole.py")
OUTCOMES = ("passed", "failed", "skipped")
NO_TESTS = 5  # pytest's own code for it
SLOWEST = 10
FRAME_S = 1.0


@dataclass
class Part:
    text: str
    options: Sequence[str]
    number: int

    def __post_init__(self) -> None:
        words = shlex.split(self.text)
        self.variables: dict[str, str] = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            self.variables[name] = value
        self.is_tests = len(words) == 1
        self.name = " ".join(words) + (" (pure)" if self.variables.get("HOLDFAST_PURE") == "1" else "")
        self.words = [sys.executable, "-m", "pytest", "-p", "tools.durations", *self.options, *words]
        if not self.is_tests:
            self.words = words


@dataclass
class Done:
    part: Part
    code: int
    wall_s: float
    cpu_s: float
    printed: str
    counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    fault: str = ""
    """Why it has failed, or nothing."""


def fault(done: Done) -> str:
    if done.part.is_tests and done.code in (0, NO_TESTS) and not done.counts.total():
        return "no test ran"
    return f"exit code {done.code}" if done.code != 0 else ""


def run(part: Part) -> Done:
    log, notes = KEPT / f"{part.number:02d}.log", KEPT / f"{part.number:02d}.json"
    environ = {**os.environ, **part.variables, "PART_NOTES": str(notes.absolute())}
    # A thousand Pythons are started in a run: they would compile our sources each time, and not keep what they made.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    with log.open("wb") as sink:
        words = [sys.executable, str(WHOLE), *part.words]
        process = subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    done = Done(part, process.returncode, time.monotonic() - began, used.ru_utime + used.ru_stime,
                log.read_text("utf-8", "replace").rstrip())
    if notes.exists():
        noted = json.loads(notes.read_text())
        done.counts, done.seconds, done.failed = Counter(noted["counts"]), noted["seconds"], noted["failed"]
    done.fault = fault(done)
    if done.fault and part.is_tests and not done.counts["failed"]:
        done.counts["failed"] = 1  # it has said of none that it failed
        done.failed = [f"{part.name}: {done.fault}"]
    return done


# -- what is shown ----------------------------------------------------------------------------------------


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def counted(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)


class Screen:
    """Lines, and on a terminal a last line that says what is going on."""

    def __init__(self, parts: int) -> None:
        self.parts, self.done = parts, 0
        self.began = time.monotonic()
        self.running: dict[str, float] = {}
        self.is_live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.lock = threading.Lock()
        self.ending = threading.Event()
        threading.Thread(target=self.live, daemon=True).start()

    def line(self, text: str) -> None:
        with self.lock:
            print(f"\r\x1b[K{text}" if self.is_live else text, flush=True)

    def live(self) -> None:
        while self.is_live and not self.ending.wait(FRAME_S):
            with self.lock:
                now = time.monotonic()
                names = ", ".join(f"{name} {clock(now - since)}" for name, since in self.running.items())
                text = f"{clock(now - self.began)}  {self.done} of {self.parts} parts; {names}"
                print(f"\r\x1b[K{text[:os.get_terminal_size().columns - 1]}", end="", flush=True)

    def begins(self, part: Part) -> None:
        self.running[part.name] = time.monotonic()
        if not self.is_live:
            self.line(f"{clock(time.monotonic() - self.began):>5}  {part.name} begins")

    def ends(self, done: Done) -> None:
        self.running.pop(done.part.name)
        self.done += 1
        what = counted(done.counts) if done.part.is_tests else "done"
        verdict = f"FAILED ({done.fault})" if done.fault else f"ok, {what}"
        self.line(f"{clock(time.monotonic() - self.began):>5}  {done.part.name}: {verdict} in {done.wall_s:.0f} s "
                  f"({self.done} of {self.parts})")
        if done.fault:
            self.line(f"-- {done.part.name} {'-' * 80}\n{done.printed}\n{'-' * 84}")


def summary(all_done: Sequence[Done], wall_s: float) -> str:
    counts: Counter[str] = Counter()
    tests: list[tuple[float, str]] = []
    for done in all_done:
        counts += done.counts
        form = " (pure)" if done.part.name.endswith(" (pure)") else ""
        tests += [(seconds, name + form) for name, seconds in done.seconds.items()]
    lines = ["", "   wall    CPU  tests  part, in seconds"]
    for done in sorted(all_done, key=lambda done: -done.wall_s):
        fault = f"  FAILED: {done.fault}" if done.fault else ""
        lines.append(f"{done.wall_s:7.1f}{done.cpu_s:7.1f}{done.counts.total() or '':>7}  {done.part.name}{fault}")
    cpu_s = sum(done.cpu_s for done in all_done)
    lines += [f"{wall_s:7.1f}{cpu_s:7.1f}{counts.total():7}  all {len(all_done)} parts", ""]
    lines.append("the ten slowest tests, with their fixtures, in seconds")
    lines += [f"{seconds:7.1f}  {name}" for seconds, name in sorted(tests, reverse=True)[:SLOWEST]]
    failed = [done for done in all_done if done.fault]
    if failed:
        lines += ["", f"FAILED: {', '.join(done.part.name for done in failed)}"]
        lines += [f"  {name}" for done in failed for name in done.failed]
    return "\n".join([*lines, "", counted(counts)])


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours, options = given, []
    if "--" in given:
        ours, options = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser(description="Run tests side by side.")
    parser.add_argument("--lanes", type=int, default=(os.cpu_count() or 1) + 1, help="how many at a time (cores + 1)")
    parser.add_argument("parts", nargs="+", metavar="PART", help="tests or a command, long ones first")
    chosen = parser.parse_args(ours)

    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.iterdir():
        old.unlink()
    parts = [Part(text, options, number) for number, text in enumerate(chosen.parts)]
    screen = Screen(len(parts))
    all_done: list[Done] = []

    def go(part: Part) -> Done:
        screen.begins(part)
        return run(part)

    with ThreadPoolExecutor(chosen.lanes) as lanes:
        try:
            for each in as_completed([lanes.submit(go, part) for part in parts]):
                all_done.append(each.result())
                screen.ends(all_done[-1])
        except KeyboardInterrupt:
            lanes.shutdown(wait=False, cancel_futures=True)  # what runs has got Ctrl-C, too, and is waited for
    screen.ending.set()
    screen.line(summary(all_done, time.monotonic() - screen.began))
    return 1 if len(all_done) < len(parts) or any(done.fault for done in all_done) else 0


if __name__ == "__main__":
    sys.exit(main())
