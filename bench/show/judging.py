"""Runs lines, one after the other, and writes the table: what was promised, what was found, and is that enough."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from bench import common, report
from bench.show.lines import Line


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
