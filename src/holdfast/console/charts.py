"""Charts of the past. Of the last hour and day: what the nodes remember (gateway/past.py). Of the days before: the gold
tables that the pipeline leaves in its lake, read as Parquet files without Spark."""
from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.client.past import as_rates
from holdfast.console.names import coded
from holdfast.gateway import past
from holdfast.gateway.members import NEAR
from holdfast.gateway.problems import tables

COLUMNS = ["queue", "minute", "added", "done", "wait_ms_p95", "backlog"]
SERIES = ("added", "done", "wait", "backlog")
MINUTE_S = 60
POINTS_MAX = 1440
"""Minutes on one chart: a day."""
UNFINISHED_S = 120
"""The pipeline writes a minute while it lasts and some time after; until then it would look like a fall."""


def table(lake: Path | None) -> Any:
    """The queue-by-minute table, or None where there is none yet."""
    if lake is None or not lake.is_dir():
        return None
    from holdfast.pipeline.lake import Lake

    found = Lake(lake).table("gold/queue_minute")
    with tables():
        return found.to_arrow(COLUMNS) if found.names() else None


def queues(lake: Path | None, sees: Callable[[str], bool]) -> list[str]:
    found = table(lake)
    return [] if found is None else sorted(filter(sees, set(found.column("queue").to_pylist())))


def minutes(lake: Path | None, queue: str, sees: Callable[[str], bool]) -> dict[str, Any]:
    """Columns for the charts: time, added, done, wait p95, backlog, of each minute; of one queue, or of all one sees.

    The table has no row for a minute in which nothing happened in a queue. Its backlog is then what it was before.
    """
    found = table(lake)
    if found is None:
        return {"time": []}
    every = [(minute_of(row["minute"]), row) for row in found.to_pylist()]
    rows = sorted(
        ((minute, row) for minute, row in every if sees(row["queue"]) and queue in ("", coded(row["queue"]))),
        key=lambda one: one[0],
    )
    finished = time.time() - UNFINISHED_S
    last = max((minute for minute, _ in every if minute <= finished), default=0)
    if not rows or rows[0][0] > last:
        return {"time": [], **{name: [] for name in SERIES}}
    shown = list(range(max(rows[0][0], last - (POINTS_MAX - 1) * MINUTE_S), last + 1, MINUTE_S))
    series: dict[str, list[float]] = {name: [] for name in SERIES}
    backlogs: dict[str, int] = {}
    coming = 0
    for minute in shown:
        now: dict[str, float] = dict.fromkeys(SERIES, 0)
        while coming < len(rows) and rows[coming][0] <= minute:
            when, row = rows[coming]
            coming += 1
            backlogs[row["queue"]] = row.get("backlog") or 0
            if when == minute:
                now["added"] += row.get("added") or 0
                now["done"] += row.get("done") or 0
                now["wait"] = max(now["wait"], (row.get("wait_ms_p95") or 0) / 1000)
        now["backlog"] = sum(backlogs.values())
        for name in SERIES:
            series[name].append(now[name])
    return {"time": shown, **series}


def minute_of(value: Any) -> int:
    return int(value.timestamp()) if hasattr(value, "timestamp") else int(value)


LATE_S = 5
"""A node that came so much later than the first is missing in the rows before."""


def rows_of(told: past.Told) -> dict[str, Any]:
    """Times, columns, and the seconds of a row. A minute that is not over would look like a fall: it is left out."""
    if told.past is None:
        return {"time": [], "step": 1}
    columns = as_rates(told.past)
    if told.past.step > 1:
        columns = {name: values[:-1] for name, values in columns.items()}
    return {**columns, "step": told.past.step}


def notes(told: past.Told) -> list[dict[str, Any]]:
    """Whose share is missing, and up to when: a chart must not pass for more than it is."""
    said: list[dict[str, Any]] = []
    if told.silent:
        near = ", ".join(each[:NEAR] for each in told.silent)
        nodes = "node" if len(told.silent) == 1 else "nodes"
        said.append({"words": f"Without {nodes} {near}, which did not answer."})
    if told.past is not None:
        first = max(told.past.begin, min(told.since.values(), default=0))
        slack = max(LATE_S, told.past.step)
        late = sorted((since, node) for node, since in told.since.items() if since > first + slack)
        said += [{"until": at, "words": f"without node {node[:NEAR]}, which began anew then."} for at, node in late]
    if told.is_cut:
        said.append({"words": f"The sum of the {past.BOUND_QUEUES} busiest of your queues."})
    elif told.past is None:
        said.append({"words": "No node remembers anything of it."})
    return said
