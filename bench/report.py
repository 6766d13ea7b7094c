"""What bench.core found, for the eye: two tables on the terminal, and a plot.

Both are drawn from the JSON document and from nothing else, so a published core.json can be drawn again:
`python -m bench.report bench/results/core.json`.

The plot has one bar per command and pipeline, as high as redis's CPU time divided by ours, with a whisker
from the lowest to the highest round and a black stroke at the goal. The line at 1 is redis-server.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench import goals

COLORS = {"ADDJOB": "#3b6fb6", "GETJOB": "#3a9a7c", "ACKJOB": "#d98b3a"}
BAR_WIDTH = 0.26
BAR_STEP = 0.28
LOG_COLUMNS = 120
STYLE_OF_VERDICT = {"pass": "green", "falls short": "bold red", "void": "bold red"}


# ---------------------------------------------------------------- tables


def shown(verdict: str, is_quick: bool) -> str:
    if is_quick:
        return "[dim]not judged[/]"
    return f"[{STYLE_OF_VERDICT[verdict]}]{verdict}[/]"


def thousands(rate: float) -> str:
    return f"{rate / 1000:,.0f}k"


def speed_table(document: dict[str, Any]) -> Table:
    is_quick = document["settings"]["quick"]
    title = f"CPU time of the server, median of {document['settings']['rounds']} alternating rounds"
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    table.caption = "ratio: redis ÷ ours, above 1 the node needs less CPU; rates per second are wall time"
    for name in ("command", "beside"):
        table.add_column(name)
    for name in ("pipeline", "redis µs", "ours µs", "ratio", "spread", "redis/s", "ours/s", "goal"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in document["speed"]:
        figure = document["figures"].get(f"{row['command'].lower()}-{row['pipeline']}")
        table.add_row(
            row["command"],
            row["beside"],
            str(row["pipeline"]),
            f"{row['redis']['cpu_us_per_op']:.2f}",
            f"{row['ours']['cpu_us_per_op']:.2f}",
            f"[bold]{row['ratio']:.2f}[/]",
            f"{row['ratio_min']:.2f}..{row['ratio_max']:.2f}",
            thousands(row["redis"]["rate"]),
            thousands(row["ours"]["rate"]),
            figure["goal"] if figure else "",
            shown(figure["verdict"], is_quick) if figure else "",
            end_section=row["command"] == "ACKJOB",
        )
    return table


def number(value: float | None, unit: str) -> str:
    return "not told" if value is None else f"{value:,.1f} {unit}"


def memory_table(document: dict[str, Any]) -> Table:
    is_quick = document["settings"]["quick"]
    figures, pauses = document["figures"], document["pauses"]
    node, redis = document["memory"]["node"], document["memory"]["redis"]
    table = Table(title="Memory and pauses", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("verdict", no_wrap=True)
    jobs = f"at {node['jobs']:,}"
    while_loading = f"while loading {pauses['jobs']:,}"
    memory_goal = (figures["memory"]["goal"], shown(figures["memory"]["verdict"], is_quick))
    pause_goal = (figures["pause"]["goal"], shown(figures["pause"]["verdict"], is_quick))
    rows = [
        (f"resident memory per job, {jobs} jobs", node["rss_bytes_per_job"], "bytes", memory_goal),
        ("  as the node counts it (used_memory)", node["used_memory_bytes_per_job"], "bytes", ()),
        (f"redis list, resident memory per item, {jobs}", redis["rss_bytes_per_job"], "bytes", ()),
        ("  as redis counts it (used_memory)", redis["used_memory_bytes_per_job"], "bytes", ()),
        (f"longest collector pause {while_loading}", pauses["gc_longest_ms"], "ms", pause_goal),
        ("  longest step of the node", pauses["step_longest_ms"], "ms", ()),
        (f"  longest wait of {pauses['probe_pings']:,} PINGs (wall)", pauses["probe_longest_ms"], "ms", ()),
    ]
    for name, value, unit, goal in rows:
        table.add_row(name, number(value, unit), *goal)
    return table


def wide_console() -> Console:
    """In a log there is no terminal to measure; eighty columns would cut the tables."""
    return Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)


def print_tables(document: dict[str, Any]) -> None:
    console = wide_console()
    facts = document["machine"]
    place = f"{facts['cpu']}, {facts['cores']} cores; {facts['python']}"
    console.print(f"{place}; redis {facts['redis']}; node: {facts['build']}", style="dim", highlight=False)
    console.print(speed_table(document))
    console.print(memory_table(document))


# ---------------------------------------------------------------- plot


def draw(document: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "holdfast"  # the same numbers give the same file
    from matplotlib import pyplot
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, axes = pyplot.subplots(figsize=(9, 4.8))
    pipelines = sorted({row["pipeline"] for row in document["speed"]})
    for row in document["speed"]:
        place_in_group = list(COLORS).index(row["command"]) - 1
        position = pipelines.index(row["pipeline"]) + place_in_group * BAR_STEP
        draw_bar(axes, position, row, document["figures"])
    axes.axhline(1.0, color="#888888", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.text(len(pipelines) - 0.38, 1.01, "redis", color="#666666", fontsize=9, va="bottom", ha="right")

    axes.set_xticks(range(len(pipelines)))
    axes.set_xticklabels(["no pipelining" if p == 1 else f"pipeline {p}" for p in pipelines], fontsize=10)
    axes.set_xlim(-0.55, len(pipelines) - 0.45 + 0.08)
    axes.set_ylim(0, max(max(row["ratio_max"] for row in document["speed"]) * 1.12, 1.7))
    axes.set_ylabel("CPU time per command, redis ÷ Holdfast\n(higher is better)", fontsize=9.5)
    axes.tick_params(axis="x", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.grid(True, color="#eeeeee", zorder=0)
    axes.set_axisbelow(True)

    beside = {row["command"]: row["beside"] for row in document["speed"]}
    handles: list[Artist] = [Patch(color=color) for color in COLORS.values()]
    names = [f"{command} beside {beside[command]}" for command in COLORS]
    handles.append(Line2D([], [], color="black", linewidth=2.2))
    names.append("goal")
    axes.legend(handles, names, loc="upper left", frameon=False, fontsize=9, ncols=1)
    axes.set_title("Server CPU per command, beside redis-server", loc="left", fontsize=12, pad=22)
    axes.text(0, 1.025, subtitle(document), transform=axes.transAxes, fontsize=8.5, color="#666666")

    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def draw_bar(axes: Any, position: float, row: dict[str, Any], figures: dict[str, Any]) -> None:
    ratio = row["ratio"]
    axes.bar(position, ratio, BAR_WIDTH, color=COLORS[row["command"]], zorder=2)
    spread = [[ratio - row["ratio_min"]], [row["ratio_max"] - ratio]]
    axes.errorbar(position, ratio, yerr=spread, color="#444444", linewidth=1, capsize=3, zorder=3)
    axes.text(position, 0.04, f"{ratio:.2f}", ha="center", va="bottom", color="white", fontweight="bold")
    goal = figures.get(f"{row['command'].lower()}-{row['pipeline']}")
    if goal is not None:
        half = BAR_WIDTH / 2
        axes.hlines(goal["limit"], position - half, position + half, color="black", linewidth=2.2, zorder=4)


def subtitle(document: dict[str, Any]) -> str:
    facts, settings = document["machine"], document["settings"]
    return (
        f"{settings['connections']} connections, {settings['body_bytes']}-byte bodies, median and spread of "
        f"{settings['rounds']} alternating rounds; {facts['cpu']}, {facts['python']}, redis {facts['redis']}"
    )


def write_files(document: dict[str, Any], folder: Path) -> None:
    goals.write_files(document, folder / "core", draw)


if __name__ == "__main__":
    sys.exit(goals.redraw(print_tables, draw))
