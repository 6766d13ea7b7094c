"""Runs a list of promises and judges it: `python -m bench.show node`. See the package for what a list is."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from bench import common, report
from bench.show import cluster, console, doors, journal, node, pipeline, scheduler
from bench.show.lines import Line

RESULTS = common.ROOT / "bench" / "results"

LISTS: dict[str, Callable[[], list[Line]]] = {
    "node": node.lines,
    "cluster": cluster.lines,
    "journal": journal.lines,
    "scheduler": scheduler.lines,
    "doors": doors.lines,
    "pipeline": pipeline.lines,
    "console": console.lines,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    key: str
    title: str
    figure: str
    goal: str
    verdict: str


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
