"""Events made by hand: `ev("10:00:05 handed job1 worker=w1 attempt=2")`, and tables as sorted dicts."""
from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.pipeline.lake import Lake

DAY = "2026-03-01"
NAMES = {"handed": "handed-out", "lost": "lease-lost"}


def at(text: str) -> dt.datetime:
    """`10:00:05`, or `2026-03-02T10:00:05`, in UTC."""
    return dt.datetime.fromisoformat(text if "T" in text else f"{DAY}T{text}").replace(tzinfo=dt.UTC)


def ev(text: str) -> dict[str, Any]:
    """One event: time, type, job and then names and values; queue and node have a default."""
    time, kind, job, *rest = text.split(" ")
    told: dict[str, Any] = dict(word.split("=", 1) for word in rest)
    node = told.pop("node", "n1")
    row: dict[str, Any] = {
        "event_id": told.pop("id", f"{node}/{time}-{kind}-{job}"), "type": NAMES.get(kind, kind), "at": at(time),
        "node": node, "job_id": None if job == "-" else job, "queue": told.pop("queue", "q"),
        "attempt": int(told.pop("attempt", 1 if kind == "handed" else 0)), "copy": bool(told.pop("copy", "")),
        "schema_version": int(told.pop("version", 1)),
    }
    for name in ("worker", "error", "cause", "tenant", "domain"):
        row[name] = told.pop(name, "").replace("_", " ") or None
    row["parent_id"] = told.pop("parent", None)
    row["body_bytes"] = int(told.pop("bytes", 10))
    for name in ("delay_ms", "lease_ms", "count", "priority", "ttl_s"):
        row[name] = int(told.pop(name)) if name in told else None
    assert not told, told
    return row


def events(spark: SparkSession, text: str) -> DataFrame:
    """One event per line."""
    from holdfast.pipeline.stages.events import EVENTS

    return spark.createDataFrame([tuple(row.values()) for row in told(text)], EVENTS)


def told(text: str) -> list[dict[str, Any]]:
    """One event per line, as rows of bronze."""
    from holdfast.pipeline.stages.events import EVENTS

    found = [ev(" ".join(line.split())) for line in text.splitlines() if line.strip()]
    return [{name: row.get(name) for name in EVENTS.names} for row in found]


def ingest(lake: Lake, text: str, key: str) -> None:
    """Events as one part of bronze."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from holdfast.pipeline.stages.events import arrow

    table = lake.table("bronze/events")
    path = f"{table.new_folder()}/a.parquet"
    table.store.make(path.partition("/")[0])
    pq.write_table(pa.Table.from_pylist(told(text), arrow()), table.store.full(path), filesystem=table.store.fs)
    table.change({key: [path]})


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of these columns, sorted; times as HH:MM:SS."""
    def plain(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return value.isoformat()[11:19] if value.date().isoformat() == DAY else value.isoformat()[:19]
        return round(value, 6) if isinstance(value, float) else value

    return sorted((tuple(plain(value) for value in row) for row in frame.select(*columns).collect()), key=repr)
