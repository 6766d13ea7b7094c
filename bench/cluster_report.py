"""What bench.cluster found, for the eye: tables on the terminal, and a plot.

Both are drawn from the JSON document and from nothing else, so a published cluster.json can be drawn again:
`python -m bench.cluster_report bench/results/cluster.json`.

The plot has a group of bars for each pipeline: what one job costs all servers together, in microseconds of CPU
time, a node's share in a shade of its own, redis beside it. A black stroke is the goal, as so many times redis.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from bench import goals
from bench.report import shown, subtitle, thousands, wide_console

SHADES = ("#3b6fb6", "#7fa6d9", "#bcd2ee")
REDIS_COLOR = "#b4553f"
BARS = ("lpush", "addjob REPLICATE 1", "addjob REPLICATE 3")
BAR_WIDTH = 0.26
BAR_STEP = 0.29


# ---------------------------------------------------------------- tables


def copies_table(document: dict[str, Any]) -> Table:
    settings = document["settings"]
    title = f"{settings['nodes']} nodes, {settings['connections']} connections to one of them"
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    table.caption = "CPU time per job; × redis: beside LPUSH for ADDJOB, RPOP for the others; rates are wall time"
    table.add_column("step", no_wrap=True)
    for name in ("pipeline", "jobs/s", "CPU µs by node", "sum", "× redis", "spread", "bus B", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in document["copies"]:
        table.add_row(
            row["step"],
            str(row["pipeline"]),
            thousands(row["rate"]),
            " ".join(f"{cpu:.2f}" for cpu in row["cpu_us"]),
            f"{row['cpu_us_total']:.2f}",
            f"[bold]{row['ratio']:.2f}[/]",
            f"{row['ratio_min']:.2f}..{row['ratio_max']:.2f}",
            f"{row['bus_bytes']:.0f}" if row["bus_bytes"] else "",
            f"{row['batch_p50_us'] / 1e3:.2f}",
            f"{row['batch_p99_us'] / 1e3:.2f}",
        )
    return table


def cores_table(document: dict[str, Any]) -> Table:
    many = f"--cores {document['settings']['cores']}"
    title = f"{many} beside one node: added, got and acknowledged"
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    table.caption = (
        f"CPU with the generator apart; crowded and jobs/s with all on the same {document['machine']['cores']} cores, "
        "of one of which the generator takes its share"
    )
    names = ["pipeline", "one, µs", f"{many}, µs", "ratio", "crowded, µs", "ratio"]
    for name in [*names, "one, jobs/s", many, "ratio", "generator"]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in document["cores"]:
        table.add_row(
            str(row["pipeline"]),
            f"{row['one']['cpu_us']:.2f}",
            f"{row['many']['cpu_us']:.2f}",
            f"[bold]{row['cpu_ratio']:.2f}[/]",
            f"{row['one']['cpu_us_crowded']:.2f}, {row['many']['cpu_us_crowded']:.2f}",
            f"[bold]{row['cpu_ratio_crowded']:.2f}[/]",
            thousands(row["one"]["rate"]),
            thousands(row["many"]["rate"]),
            f"[bold]{row['rate_ratio']:.2f}[/]",
            f"{row['one']['generator_share']:.2f}, {row['many']['generator_share']:.2f}",
        )
    return table


def goals_table(document: dict[str, Any]) -> Table:
    table = Table(title="Goals", title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    latency = document["latency_ms"]
    longest = f"p90 {latency['p90']:.2f} ms, longest {latency['max']:.2f} ms"
    table.caption = f"latency: {latency['samples']:,} jobs, {longest}"
    table.add_column("figure")
    for name in ("value", "goal"):
        table.add_column(name, justify="right")
    table.add_column("verdict", no_wrap=True)
    for figure in document["figures"].values():
        value = f"{figure['value']:.2f} {figure['unit']}".strip()
        table.add_row(figure["title"], value, figure["goal"], shown(figure["verdict"], document["settings"]["quick"]))
    return table


def print_tables(document: dict[str, Any]) -> None:
    console = wide_console()
    facts = document["machine"]
    place = f"{facts['cpu']}, {facts['cores']} cores; {facts['python']}"
    console.print(f"{place}; redis {facts['redis']}; node: {facts['build']}", style="dim", highlight=False)
    for table in (copies_table(document), cores_table(document), goals_table(document)):
        console.print(table)


# ---------------------------------------------------------------- plot


def draw(document: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "holdfast"  # the same numbers give the same file
    from matplotlib import pyplot
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    pipelines = sorted({row["pipeline"] for row in document["copies"]})
    figure, panels = pyplot.subplots(1, len(pipelines), figsize=(9, 4.8), squeeze=False)
    for axes, pipeline in zip(panels[0], pipelines):
        rows = {row["step"]: row for row in document["copies"] if row["pipeline"] == pipeline}
        for position, name in enumerate(BARS):
            draw_bar(axes, position * BAR_STEP, name, rows[name])
        draw_goal(axes, rows, document["figures"][f"copies-{pipeline}"]["limit"])
        axes.set_xticks([position * BAR_STEP for position in range(len(BARS))])
        axes.set_xticklabels(["redis\nLPUSH", "ADDJOB\nREPLICATE 1", "ADDJOB\nREPLICATE 3"], fontsize=9)
        axes.set_title("no pipelining" if pipeline == 1 else f"pipeline {pipeline}", loc="left", fontsize=10)
        axes.tick_params(axis="x", length=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.grid(True, color="#eeeeee", zorder=0)
        axes.set_axisbelow(True)
    panels[0][0].set_ylabel("CPU time per job, µs, all servers", fontsize=9.5)
    handles: list[Artist] = [Patch(color=REDIS_COLOR), *(Patch(color=shade) for shade in SHADES)]
    handles.append(Line2D([], [], color="black", linewidth=2.2))
    names = ["redis", "node the clients talk to", "second node", "third node", "goal"]
    panels[0][0].legend(handles, names, loc="upper left", frameon=False, fontsize=8.5)
    figure.suptitle("A job that three nodes hold, beside redis-server", x=0.07, ha="left", fontsize=12)
    figure.text(0.07, 0.905, subtitle(document), fontsize=8, color="#666666")
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def draw_bar(axes: Any, position: float, name: str, row: dict[str, Any]) -> None:
    bottom = 0.0
    for share, shade in zip(row["cpu_us"], SHADES):
        axes.bar(position, share, BAR_WIDTH, bottom=bottom, color=REDIS_COLOR if name == "lpush" else shade, zorder=2)
        bottom += share
    words = f"{bottom:.1f}" if name == "lpush" else f"{bottom:.1f}\n{row['ratio']:.1f} × redis"
    axes.text(position, bottom, words, ha="center", va="bottom", fontsize=9)


def draw_goal(axes: Any, rows: dict[str, Any], limit: float) -> None:
    position, half = (len(BARS) - 1) * BAR_STEP, BAR_WIDTH / 2
    height = limit * rows["lpush"]["cpu_us_total"]
    axes.hlines(height, position - half, position + half, color="black", linewidth=2.2, zorder=4)
    axes.set_ylim(0, max(height, rows[BARS[-1]]["cpu_us_total"]) * 1.25)


def write_files(document: dict[str, Any], folder: Path) -> None:
    goals.write_files(document, folder / "cluster", draw)


if __name__ == "__main__":
    sys.exit(goals.redraw(print_tables, draw))
