"""Charts of the past: the gold tables that the pipeline leaves in its lake, read as Parquet files without Spark."""
from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.console.names import coded

COLUMNS = ["queue", "minute", "added", "done", "wait_ms_p95", "backlog"]
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
    return found.to_arrow(COLUMNS) if found.names() else None


def queues(lake: Path | None, sees: Callable[[str], bool]) -> list[str]:
    found = table(lake)
    return [] if found is None else sorted(filter(sees, set(found.column("queue").to_pylist())))


def minutes(lake: Path | None, queue: str, sees: Callable[[str], bool]) -> dict[str, Any]:
    """Columns for the charts: time, added, done, wait p95, backlog, by minute; of one queue, or of all one sees."""
    found = table(lake)
    if found is None:
        return {"time": []}
    rows = [row for row in found.to_pylist() if sees(row["queue"]) and queue in ("", coded(row["queue"]))]
    by_minute: dict[int, dict[str, float]] = {}
    for row in rows:
        minute = int(row["minute"].timestamp()) if hasattr(row["minute"], "timestamp") else int(row["minute"])
        one = by_minute.setdefault(minute, {"added": 0, "done": 0, "wait": 0.0, "backlog": 0})
        one["added"] += row.get("added") or 0
        one["done"] += row.get("done") or 0
        one["wait"] = max(one["wait"], (row.get("wait_ms_p95") or 0) / 1000)
        one["backlog"] += row.get("backlog") or 0
    finished = time.time() - UNFINISHED_S
    latest = sorted(minute for minute in by_minute if minute <= finished)[-POINTS_MAX:]
    names = ("added", "done", "wait", "backlog")
    return {"time": latest, **{name: [by_minute[minute][name] for minute in latest] for name in names}}
