"""What the figures of a benchmark are held against, and how a benchmark is run, judged and published.

Every benchmark is the same from outside: it measures, writes JSON and a plot, prints tables, says which goals were
missed by how much, and ends with a code that tells a pass from a miss from a run that means nothing.
"""
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import common
from bench.common import Missing, Void


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure we promise: `key` finds it among the results."""

    key: str
    title: str
    limit: float
    at_least: bool
    unit: str = ""

    def text(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{self.unit}"

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def missed_by(self, value: float) -> str:
        side = "below" if self.at_least else "above"
        return f"{abs(value - self.limit) / self.limit:.0%} {side}"


@dataclass(frozen=True, slots=True)
class Judged:
    goal: Goal
    value: float | None
    verdict: str  # pass, falls short, void

    def sentence(self) -> str:
        if self.value is None:
            return f"{self.goal.title}: the node does not tell; the goal {self.goal.text()} counts as missed."
        value, missed_by = f"{self.value:.2f}{self.goal.unit}", self.goal.missed_by(self.value)
        return f"{self.goal.title}: {value}, {missed_by} the goal of {self.goal.text()}."


def judge(goals: Sequence[Goal], value_of: Callable[[str], float | None]) -> list[Judged]:
    judged = []
    for goal in goals:
        value = value_of(goal.key)
        if value is None:
            verdict = "void"
        else:
            verdict = "pass" if goal.is_met_by(value) else "falls short"
        judged.append(Judged(goal, value, verdict))
    return judged


Document = dict[str, Any]


def conduct(
    measure: Callable[[], tuple[Document, list[Judged]]], publish: Callable[[Document], None], *,
    json_only: bool, is_quick: bool,
) -> int:
    """Run a benchmark and say how it went. A quick one is too short to be held against anything."""
    common.end_on_sigterm()
    common.leave_the_server_alone()
    try:
        common.build_loadgen()
        document, judged = measure()
    except Missing as error:
        print(f"SKIPPED: {error}", file=sys.stderr)
        return common.EXIT_SKIPPED
    except Void as error:
        print(f"void: {error}", file=sys.stderr)
        return common.EXIT_VOID
    if json_only:
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        publish(document)
    missed = [item for item in judged if item.verdict != "pass"]
    if is_quick or not missed:
        return common.EXIT_PASS
    for item in missed:
        print(item.sentence(), file=sys.stderr)
    return common.EXIT_FALLS_SHORT


def write_files(document: Document, stem: Path, draw: Callable[[Document, Path], None]) -> None:
    """The JSON and the plot, side by side."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    draw(document, stem.with_suffix(".svg"))


def redraw(print_tables: Callable[[Document], None], draw: Callable[[Document, Path], None]) -> int:
    """The command line of a report: tables and plot again, from the JSON of a run."""
    if len(sys.argv) != 2:
        print(f"usage: python -m bench.{Path(sys.argv[0]).stem} JSON", file=sys.stderr)
        return 1
    path = Path(sys.argv[1])
    document = json.loads(path.read_text())
    print_tables(document)
    draw(document, path.with_suffix(".svg"))
    return 0
