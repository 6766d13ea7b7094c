"""Every promise of a release, run and judged: `make show-node`, `make show-cluster`, and later other lists.

A list is a sequence of lines: what is promised, the goal in words, and a function that finds out. It returns
the figure as text and True, False, or None for "could not be found out". At the end there is one table:

    pass           the goal is met
    falls short    it is not
    void           the run gave no answer: skipped, broken, or a program is missing

Void counts as falling short: a promise nobody checked is not kept. The exit code is 0 only if every line
passes. Long output of the commands goes to build/bench/show/<key>.log, the table also to
bench/results/show-<list>.json.

To add a list, write its lines and enter it in LISTS.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from bench import cluster, common, core, journal, report, scheduler
from bench.goals import Goal

RESULTS = common.ROOT / "bench" / "results"
LOGS = common.BUILD / "show"
CORE_RESULTS = LOGS / "core"
CLUSTER_RESULTS = LOGS / "cluster"
JOURNAL_RESULTS = LOGS / "journal"
SCHEDULER_RESULTS = LOGS / "scheduler"
PYTHON = sys.executable

COMMAND_SECONDS_MAX = 1_800.0
READY_SECONDS_MAX = 600.0  # `make run` may have to compile first
STOP_SECONDS_MAX = 30.0
MODEL_RUNS = 1_000
LOSSES = "tests/proc/test_losses.py"
JOURNAL = "tests/proc/test_journal.py"
FOLDERS = "tests/proc/test_folders.py"
HISTORY = "tests/proc/test_history.py"
OVERFLOW = "tests/proc/test_overflow.py"
OVERFLOW_MB = 10_240
KILLS = 100  # for each of two policies
TOOK_TOO_LONG = -1  # in place of an exit code
READY = re.compile(r"\bready\b.*\n", re.IGNORECASE)  # a whole word: pip likes to say "already"
TERMINAL_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

Answer = tuple[str, bool | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One promise. `key` is its name for --only and its log file."""

    key: str
    title: str
    goal: str
    find_out: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class Outcome:
    key: str
    title: str
    figure: str
    goal: str
    verdict: str


# ---------------------------------------------------------------- commands


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


def tests(key: str, *arguments: str, show: bool = False, **environment: str) -> Answer:
    """Tests that must all run and pass: a skipped one has told us nothing."""
    done = run(key, [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *arguments], **environment)
    if show:
        print(done.output, flush=True)
    counts = pytest_counts(done.output)
    if counts.passed == 0 and counts.failed == 0:
        return f"no test ran, exit code {done.code}", None
    return counts.text(), done.code == 0 and counts.skipped == 0


# ---------------------------------------------------------------- a node started by hand


def read_until_ready(terminal: int) -> str:
    """What the screen shows up to the line that contains "ready"; less if that never comes."""
    screen = ""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        readable, _, _ = select.select([terminal], [], [], 0.2)
        if not readable:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side of a terminal closed
            break
        screen += TERMINAL_COLORS.sub("", piece.decode(errors="replace"))
        if not piece or READY.search(screen):
            break
    return screen


def drain_until_end(terminal: int, process: subprocess.Popen[bytes]) -> None:
    """A process that still writes would wait for ever for a terminal that nobody reads."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        readable, _, _ = select.select([terminal], [], [], 0.1)
        if readable:
            with contextlib.suppress(OSError):
                os.read(terminal, 65536)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C for the node alone: make itself would end with an error, however well the node ended."""
    below = common.descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(below[-1] if below else process.pid, signal.SIGINT)


def talk_to_it(screen: str) -> str | None:
    """The port on the screen, if PING is answered there."""
    for port in re.findall(r"(?:port\s+|:)(\d{4,5})\b", screen):
        with contextlib.suppress(OSError, ValueError):
            if common.ask(int(port), "PING") == "PONG":
                return str(port)
    return None


def started_by_hand(command: Sequence[str]) -> Answer:
    """Start it on a terminal as a person would, talk to it, and stop it with Ctrl-C."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=common.ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        screen = read_until_ready(ours)
        LOGS.mkdir(parents=True, exist_ok=True)
        (LOGS / "run.log").write_text(screen)
        if not READY.search(screen):
            return "no line with 'ready' appeared", False
        port = talk_to_it(screen)
        interrupt(process)
        drain_until_end(ours, process)
        code = process.poll()
    finally:
        end_group(process)
        os.close(ours)
    if port is None:
        return "ready, but no PING answered on a port it printed", False
    ended = "did not end" if code is None else f"exit code {code}"
    return f"ready and answering on port {port}; after Ctrl-C: {ended}", code == 0


# ---------------------------------------------------------------- bench-core, once for all its lines


@functools.cache
def core_run() -> Finished:
    # A folder of its own, emptied first: an older file must not answer for a run that failed.
    (CORE_RESULTS / "core.json").unlink(missing_ok=True)
    return run("core", [PYTHON, "-m", "bench.core", "--out", str(CORE_RESULTS)])


def core_figure(goal: Goal) -> Answer:
    return figure_of(core_run(), CORE_RESULTS / "core.json", goal)


# ---------------------------------------------------------------- bench-cluster, once for all its lines


@functools.cache
def cluster_run() -> Finished:
    (CLUSTER_RESULTS / "cluster.json").unlink(missing_ok=True)
    return run("cluster", [PYTHON, "-m", "bench.cluster", "--out", str(CLUSTER_RESULTS)])


def cluster_figure(goal: Goal) -> Answer:
    return figure_of(cluster_run(), CLUSTER_RESULTS / "cluster.json", goal)


def figure_of(done: Finished, results: Path, goal: Goal) -> Answer:
    """A figure that a bench has written and judged."""
    if done.code not in (common.EXIT_PASS, common.EXIT_FALLS_SHORT):
        last = done.output.strip().splitlines()[-1:] or ["no output"]
        return f"the bench ended with code {done.code}: {last[0]}", None
    figure = json.loads(results.read_text())["figures"][goal.key]
    if figure["verdict"] == "void":
        return "not told by the node", None
    return f"{figure['value']:.2f} {figure['unit']}".strip(), figure["verdict"] == "pass"


# ---------------------------------------------------------------- the lists


def node_lines() -> list[Line]:
    lines = [
        Line("test", "make test, compiled", "all green", lambda: green("test", ["make", "test"])),
        Line("pure", "make test-pure, uncompiled", "all green", lambda: green("pure", ["make", "test-pure"])),
        Line(
            "run",
            "make run: a running node, instructions on screen",
            "answers PING; Ctrl-C ends it with code 0",
            lambda: started_by_hand(["make", "run"]),
        ),
    ]
    lines += [
        Line(f"core-{goal.key}", goal.title, goal.text(), functools.partial(core_figure, goal))
        for goal in core.GOALS
    ]
    lines += [
        Line(
            "clients",
            "redis-cli, redis-py and pydisque work",
            "all pass, none skipped",
            lambda: tests("clients", "tests/proc/test_clients.py"),
        ),
        Line(
            "model",
            f"{MODEL_RUNS:,} seeded runs against the model",
            "all pass, none skipped",
            lambda: tests("model", "-s", "tests/sim/test_model.py", show=True, MODEL_RUNS=str(MODEL_RUNS)),
        ),
    ]
    return lines


def netns() -> Answer:
    """Ten minutes of faults on a real network. Where there can be no namespaces it has told us nothing."""
    done = run("netns", ["make", "netns", "MINUTES=10"])
    facts = dict(re.findall(r"^(operations|collected|violations) +(.*)$", done.output, re.MULTILINE))
    if not facts:
        return (done.output.strip().splitlines()[-1:] or ["no output"])[0], None
    return "; ".join(f"{name} {text}" for name, text in facts.items()), done.code == 0


SWARM_MINUTES = 30
CLUSTERS = 700
FRESH = 200  # of these, never run before
CLUSTERS_SECONDS_MAX = 60.0
BAD_FRAMES = 100_000
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


@functools.cache
def journal_run() -> Finished:
    (JOURNAL_RESULTS / "journal.json").unlink(missing_ok=True)
    return run("journal", [PYTHON, "-m", "bench.journal", "--out", str(JOURNAL_RESULTS)])


def journal_figure(goal: Goal) -> Answer:
    return figure_of(journal_run(), JOURNAL_RESULTS / "journal.json", goal)


def journal_lines() -> list[Line]:
    green = "all pass, none skipped"
    lines = [
        Line(
            "points",
            "a crash at every write and sync of append, rotation, snapshot and rewrite, all torn lengths",
            "nothing answered is lost, nothing at most once comes twice",
            lambda: tests("points", "tests/unit/journal/test_crashes.py"),
        ),
        Line(
            "kills",
            f"SIGKILL of a real node {2 * KILLS} times, at random, under load",
            "nothing answered is lost, nothing at most once comes twice",
            lambda: tests("kills", f"{JOURNAL}::test_a_node_killed_at_random_keeps_every_word", KILLS=str(KILLS)),
        ),
        Line(
            "sim",
            f"{CLUSTERS} clusters simulated with power cuts and restarts",
            "no violation",
            lambda: simulated(
                "journal-sim", [PYTHON, "-m", "holdfast.testing.sim", "run", "--jobs", "2", "--seeds", f"0:{CLUSTERS}"]
            ),
        ),
        Line(
            "faults",
            "disk full, sync error, torn end, damage, wrong owner, a folder that is in use, in the way, or read-only",
            green,
            lambda: tests("faults", "tests/unit/journal", JOURNAL, FOLDERS, KILLS="1"),
        ),
        Line(
            "overflow",
            f"{OVERFLOW_MB // 1024} GB of queued bodies on a node with maxmemory 1gb",
            "less than 1.5 GB resident, adding and getting go on, order kept",
            lambda: tests("overflow", OVERFLOW, OVERFLOW_MB=str(OVERFLOW_MB)),
        ),
        Line(
            "history-points",
            "history: a crash at every step, every torn length, rotation, retention, a full disk, a failed sync",
            "no reader misses or is shown twice what is there",
            lambda: tests("history-points", "tests/unit/journal/test_history.py", "tests/unit/core/test_history.py"),
        ),
        Line(
            "history-kills",
            f"history over {KILLS // 5} kills of a real node under load",
            "all that was answered is told, once and in order",
            lambda: tests("history-kills", HISTORY, KILLS=str(KILLS)),
        ),
        Line(
            "restart",
            "a clean restart under load",
            "no job in flight is doubled",
            lambda: tests("restart", f"{JOURNAL}::test_a_clean_restart_under_load_doubles_no_job_in_flight"),
        ),
    ]
    lines += [
        Line(
            "rolling",
            "three nodes with journals restarted one after the other under load, without waiting",
            "nothing lost",
            lambda: tests("rolling", f"{LOSSES}::test_nodes_with_journals_restart_one_after_the_other_without_waiting"),
        ),
    ]
    lines += [
        Line(f"bench-{goal.key}", goal.title, goal.text(), functools.partial(journal_figure, goal))
        for goal in journal.GOALS
    ]
    return lines


@functools.cache
def scheduler_run() -> Finished:
    (SCHEDULER_RESULTS / "scheduler.json").unlink(missing_ok=True)
    return run("scheduler", [PYTHON, "-m", "bench.scheduler", "--out", str(SCHEDULER_RESULTS)])


def scheduler_figure(goal: Goal) -> Answer:
    return figure_of(scheduler_run(), SCHEDULER_RESULTS / "scheduler.json", goal)


def scheduler_lines() -> list[Line]:
    green = "all pass, none skipped"
    lines = [
        Line(
            "sim",
            f"{CLUSTERS} clusters simulated, with groups, keys, limits, tenants, leases and schedules at random",
            "no violation",
            lambda: simulated(
                "scheduler-sim",
                [PYTHON, "-m", "holdfast.testing.sim", "run", "--jobs", "2", "--seeds", f"0:{CLUSTERS}"],
            ),
        ),
        Line("mutants", "each rule of the cluster taken away in turn, those of the scheduler among them", "all caught",
             mutants),
        Line(
            "scenarios",
            "directed scenarios: rates, bounds, settings, schedules, groups, keys, leases, fates, batches",
            green,
            lambda: tests("scheduler-scenarios", "tests/sim/cluster/test_scenarios.py"),
        ),
        Line(
            "life",
            "a worker or its node killed before, during and after the work",
            "acked or dead, with its tries counted",
            lambda: tests("life", "tests/proc/test_steps_of_a_life.py"),
        ),
        Line(
            "limits",
            "rates, concurrency and bounds over three nodes; tenants; cron; settings",
            green,
            lambda: tests(
                "limits", "tests/unit/core/test_shared_limits.py", "tests/unit/core/test_rules.py",
                "tests/unit/core/test_cron.py", "tests/unit/core/test_schedule.py", "tests/unit/core/test_registers.py",
            ),
        ),
        Line(
            "input",
            "rates of 0, negative and huge, names of 64 KB, schedules that are none, results too long, open batches",
            "clear errors, nothing lost",
            lambda: tests("input", "tests/conformance"),
        ),
    ]
    lines += [
        Line(f"bench-{goal.key}", goal.title, goal.text(), functools.partial(scheduler_figure, goal))
        for goal in scheduler.GOALS
    ]
    return lines


def cluster_lines() -> list[Line]:
    simulator = [PYTHON, "-m", "holdfast.testing.sim", "run", "--jobs", "2"]
    lines = [
        Line(
            "sim",
            "clusters of 3 to 5 nodes simulated under faults, some of them never run before",
            f"≥ {CLUSTERS} in ≤ {CLUSTERS_SECONDS_MAX:.0f} s, nothing broken, nothing idle, the same when run again",
            lambda: simulated(
                "sim", [*simulator, "--seeds", f"0:{CLUSTERS - FRESH}", "--fresh", str(FRESH)],
                CLUSTERS_SECONDS_MAX,
            ),
        ),
        Line("mutants", "each rule of the cluster taken away in turn", "every one is noticed", mutants),
        Line(
            "swarm",
            f"make swarm MINUTES={SWARM_MINUTES}",
            "no violation",
            lambda: simulated("swarm", ["make", "swarm", f"MINUTES={SWARM_MINUTES}"]),
        ),
        Line(
            "stories",
            "Disque's thirteen test stories on seven real nodes",
            "all pass, none skipped",
            lambda: tests("stories", "tests/proc/cluster"),
        ),
        Line(
            "frames",
            f"{BAD_FRAMES:,} malformed or spoofed bus frames",
            "link closed, node unharmed",
            lambda: tests(
                "frames", "tests/wire/test_bad_frames.py", "tests/proc/test_bus.py", BAD_FRAMES=str(BAD_FRAMES)
            ),
        ),
    ]
    lines += [
        Line(f"bench-{goal.key}", goal.title, goal.text(), functools.partial(cluster_figure, goal))
        for goal in cluster.GOALS
    ]
    lines += [
        Line(
            "cores",
            "nodes behind one port: spread, settings, figures, signals, a node that dies",
            "all pass, none skipped",
            lambda: tests("cores", "tests/proc/test_cores.py"),
        ),
        Line(
            "netns",
            "make netns MINUTES=10: 5 nodes, 13 kinds of fault",
            "300 operations/s, nothing lost or twice, acks collected in 60 s",
            netns,
        ),
        Line(
            "kills",
            "kill -9 of any replicate - 1 nodes under load",
            "nothing lost, producers go on within 5 s",
            lambda: tests("kills", f"{LOSSES}::test_any_two_nodes_are_killed_and_the_producers_go_on"),
        ),
        Line(
            "rolling",
            "rolling restart of all nodes under load",
            "nothing lost",
            lambda: tests("rolling", f"{LOSSES}::test_all_nodes_restart_one_after_the_other_under_load"),
        ),
    ]
    return lines


LISTS: dict[str, Callable[[], list[Line]]] = {
    "node": node_lines, "cluster": cluster_lines, "journal": journal_lines, "scheduler": scheduler_lines,
}


# ---------------------------------------------------------------- running a list


def judge(line: Line) -> Outcome:
    """Whatever goes wrong inside a line is that line's answer, not the end of the table."""
    try:
        figure, passed = line.find_out()
    except (common.Void, common.Missing, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        figure, passed = f"{type(error).__name__}: {error}", None
    verdict = "void" if passed is None else "pass" if passed else "falls short"
    return Outcome(line.key, line.title, figure, line.goal, verdict)


def table_of(outcomes: Sequence[Outcome]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="what was promised, and what was found", title_justify="left")
    for name in ("line", "figure", "goal"):
        table.add_column(name, overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        verdict = f"[{report.STYLE_OF_VERDICT[outcome.verdict]}]{outcome.verdict}[/]"
        table.add_row(escape(outcome.title), escape(outcome.figure), escape(outcome.goal), verdict)
    return table


def write_json(name: str, outcomes: Sequence[Outcome], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machine": common.machine(), "lines": [asdict(outcome) for outcome in outcomes]}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    (folder / f"show-{name}.json").write_text(text.replace(str(common.ROOT), "."))


def chosen(lines: Sequence[Line], only: str | None) -> list[Line]:
    """`core` stands for all lines that begin with core-."""
    if only is None:
        return list(lines)
    keys = only.split(",")
    unknown = [key for key in keys if not any(matches(line, key) for line in lines)]
    if unknown:
        raise SystemExit(
            f"no such line: {', '.join(unknown)}; there are {', '.join(line.key for line in lines)}"
        )
    return [line for line in lines if any(matches(line, key) for key in keys)]


def matches(line: Line, key: str) -> bool:
    return line.key == key or line.key.startswith(f"{key}-")


def show(name: str, lines: Sequence[Line], folder: Path | None) -> int:
    """Run the lines, print the table, keep it in `folder` unless that is None."""
    console = report.wide_console()
    outcomes = []
    for position, line in enumerate(lines, 1):
        with console.status(f"{position} of {len(lines)}: {line.title}"):
            outcome = judge(line)
        style = report.STYLE_OF_VERDICT[outcome.verdict]
        console.print(f"[{style}]{outcome.verdict:>11}[/]  {escape(line.title)}: {escape(outcome.figure)}")
        outcomes.append(outcome)
    console.print(table_of(outcomes))
    if folder is not None:
        write_json(name, outcomes, folder)
    short = [outcome for outcome in outcomes if outcome.verdict != "pass"]
    if short:
        console.print(f"{len(short)} of {len(outcomes)} fall short.", style="bold red")
        return common.EXIT_FALLS_SHORT
    console.print(f"all {len(outcomes)} pass.", style="green")
    return common.EXIT_PASS


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.show", description="Run and judge a list of promises."
    )
    parser.add_argument("name", choices=sorted(LISTS))
    parser.add_argument(
        "--only", metavar="KEYS", help="some lines, separated by commas; the published file stays"
    )
    parser.add_argument("--list", action="store_true", help="print the lines and their keys, run nothing")
    given = parser.parse_args(words)
    common.end_on_sigterm()
    lines = chosen(LISTS[given.name](), given.only)
    if given.list:
        for line in lines:
            print(f"{line.key:16} {line.title}; goal: {line.goal}")
        return common.EXIT_PASS
    # A table of some lines is not the table: keep what the last whole run wrote.
    return show(given.name, lines, RESULTS if given.only is None else None)


if __name__ == "__main__":
    sys.exit(main())
