"""`holdfast pipeline report`: the gold tables as one page that needs nothing else, with plots. No Spark.

Plots are drawn by matplotlib as SVG inside the page, and the first of them, all queues together, also as PNG.
"""
from __future__ import annotations

import datetime as dt
import html
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import sketch
from .lake import Lake

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUEUES_SHOWN: Final = 8
"""Queues with a curve of their own, the busiest; more cannot be told apart."""
STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
code { font-size: 90%; }
"""


@dataclass(frozen=True)
class Queue:
    """A queue over the whole time of the report."""

    name: str
    added: int
    done: int
    failed: int
    dead: int
    backlog: int
    wait: sketch.Sketch
    run: sketch.Sketch


def write(lake: Lake, out: Path, days: int, png: Path | None = None) -> Path:
    """Make the page; where it is."""
    names = lake.table("gold/queue_minute").names()[-days:]
    rows = lake.table("gold/queue_minute").to_arrow(keys=names).to_pylist()
    failures = lake.table("gold/failure_day").to_arrow(keys=names).to_pylist()
    workers = lake.table("gold/worker_hour").to_arrow(keys=names).to_pylist()
    queues = sum_up(rows)
    figures = [("Jobs per minute", throughput(rows, queues)), ("Backlog", backlog(rows, queues)),
               ("Wait before the first hand-out, 95th percentile", waits(rows, queues))] if rows else []
    span = f"{names[0]} to {names[-1]}" if names else "nothing yet"
    out.write_text(page(span, queues, figures, failures, workers), "utf-8")
    if png is not None and figures:
        figures[0][1].savefig(png, dpi=120)
    close(figure for _, figure in figures)
    return out


def sum_up(rows: Sequence[dict[str, Any]]) -> list[Queue]:
    """One row per queue, the busiest first. Percentiles are those of all minutes together."""
    by_queue: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_queue[row["queue"]].append(row)
    queues = [
        Queue(
            name, sum(row["added"] for row in minutes), sum(row["done"] for row in minutes),
            sum(row["nacked"] + row["lost"] for row in minutes), sum(row["dead"] for row in minutes),
            max(minutes, key=lambda row: row["minute"])["backlog"],
            sketch.merge(dict(row["wait_ms_sketch"] or ()) for row in minutes),
            sketch.merge(dict(row["run_ms_sketch"] or ()) for row in minutes),
        )
        for name, minutes in by_queue.items()
    ]
    return sorted(queues, key=lambda queue: (-queue.added, queue.name))


# -- plots ------------------------------------------------------------------------------------------------


def axes(label: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    plot = figure.add_subplot()
    plot.set_ylabel(label)
    plot.grid(alpha=0.3)
    return figure, plot


def series(rows: Sequence[dict[str, Any]], queue: str, column: str) -> tuple[list[dt.datetime], list[float]]:
    points = sorted((row["minute"], row[column]) for row in rows if row["queue"] == queue and row[column] is not None)
    return [at for at, _ in points], [value for _, value in points]


def curves(rows: Sequence[dict[str, Any]], queues: Sequence[Queue], column: str, label: str, **style: Any) -> Figure:
    figure, plot = axes(label)
    for queue in queues[:QUEUES_SHOWN]:
        plot.plot(*series(rows, queue.name, column), label=queue.name, linewidth=1.2, **style)
    plot.set_ylim(bottom=0)
    plot.legend(loc="upper left", fontsize="small", frameon=False)
    return figure


def throughput(rows: Sequence[dict[str, Any]], queues: Sequence[Queue]) -> Figure:
    figure, plot = axes("jobs")
    for column in ("added", "done", "dead"):
        per_minute: dict[dt.datetime, int] = defaultdict(int)
        for row in rows:
            per_minute[row["minute"]] += row[column]
        plot.plot(sorted(per_minute), [per_minute[at] for at in sorted(per_minute)], label=column, linewidth=1.2)
    plot.set_ylim(bottom=0)
    plot.legend(loc="upper left", fontsize="small", frameon=False)
    return figure


def backlog(rows: Sequence[dict[str, Any]], queues: Sequence[Queue]) -> Figure:
    return curves(rows, queues, "backlog", "jobs", drawstyle="steps-post")


def waits(rows: Sequence[dict[str, Any]], queues: Sequence[Queue]) -> Figure:
    return curves(rows, queues, "wait_ms_p95", "ms")


def svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue().partition("<svg")[1] + out.getvalue().partition("<svg")[2]


def close(figures: Any) -> None:
    for figure in figures:
        figure.clear()


# -- the page ---------------------------------------------------------------------------------------------


def ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1000:,.1f} s" if value >= 1000 else f"{value:,.0f} ms"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def page(
    span: str, queues: Sequence[Queue], figures: Sequence[tuple[str, Figure]], failures: Sequence[dict[str, Any]],
    workers: Sequence[dict[str, Any]],
) -> str:
    q = sketch.quantile
    parts = [f"<h1>Queues, {html.escape(span)}</h1>", table(
        ["queue", "added", "done", "failed", "dead", "left", "wait p50", "p95", "p99", "run p50", "p95", "p99"],
        [[queue.name, *(f"{n:,}" for n in (queue.added, queue.done, queue.failed, queue.dead, queue.backlog)),
          *(ms(q(each, share)) for each in (queue.wait, queue.run) for share in (0.5, 0.95, 0.99))]
         for queue in queues],
    )]
    parts += [f"<h2>{html.escape(title)}</h2>\n{svg(figure)}" for title, figure in figures]
    worst = sorted(failures, key=lambda row: -(row["failures"] + row["dead"]))[:30]
    if worst:
        parts += ["<h2>Failures</h2>", table(
            ["what", "queue", "day", "failures", "dead", "jobs", "for example"],
            [[row["signature"], row["queue"] or "–", str(row["day"]), f"{row['failures']:,}", f"{row['dead']:,}",
              f"{row['jobs']:,}", row["sample_job"] or "–"] for row in worst],
        )]
    if workers:
        by_worker: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
        for row in workers:
            for i, name in enumerate(("handed", "done", "dead", "busy_ms")):
                by_worker[row["worker"]][i] += row[name]
        busiest = sorted(by_worker.items(), key=lambda item: -item[1][3])[:30]
        parts += ["<h2>Workers</h2>", table(
            ["worker", "handed out", "done", "dead", "busy"],
            [[name, *(f"{n:,.0f}" for n in sums[:3]), ms(sums[3])] for name, sums in busiest],
        )]
    if not queues:
        parts.append("<p>The lake has no events yet. Run <code>holdfast pipeline run</code> first.</p>")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Holdfast: {html.escape(span)}</title><style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
