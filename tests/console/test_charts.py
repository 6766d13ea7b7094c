"""What the charts of the past are drawn from."""
from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.console import charts
from holdfast.pipeline.lake import Lake

Row = tuple[str, int, int, int]
"""Queue, minute, added and backlog."""


def lake_of(folder: Path, rows: list[Row]) -> Path:
    made = Lake(folder / "lake").create()
    table = made.table("gold/queue_minute")
    path = f"{table.new_folder()}/part.parquet"
    table.store.make(path.partition("/")[0])
    queues, minutes, added, backlog = zip(*rows, strict=True)
    times = [dt.datetime.fromtimestamp(minute, dt.UTC) for minute in minutes]
    pq.write_table(pa.table({
        "queue": queues, "minute": pa.array(times, pa.timestamp("us", "UTC")), "added": added, "done": added,
        "wait_ms_p95": [50.0] * len(rows), "backlog": backlog,
    }), table.store.full(path))
    table.change({"a day": [path]})
    return made.folder


def anybody(queue: str) -> bool:
    return True


def test_a_minute_that_is_not_over_is_left_out(tmp_path: Path) -> None:
    """The pipeline has written the first seconds of it: drawn, it would look like a fall."""
    this = int(time.time()) // 60 * 60
    minutes = [this - 60 * back for back in range(5, -1, -1)]
    lake = lake_of(tmp_path, [("q", minute, 3 if minute == this else 60, 0) for minute in minutes])
    found = charts.minutes(lake, "q", anybody)
    assert found["time"][:3] == minutes[:3] and this not in found["time"]
    assert set(found["added"]) == {60}


def test_a_queue_in_which_nothing_happens_keeps_its_backlog(tmp_path: Path) -> None:
    """`still` has a row only for its first minute, `busy` for others: between and after them both are there."""
    first = 1_767_268_800
    at = [first + 60 * number for number in range(6)]
    rows = [("still", at[0], 7, 7), ("busy", at[1], 1, 1), ("busy", at[3], 2, 2), ("busy", at[5], 1, 0)]
    lake = lake_of(tmp_path, rows)
    found = charts.minutes(lake, "", anybody)
    assert found["time"] == at
    assert found["backlog"] == [7, 8, 8, 9, 9, 7]
    assert found["added"] == [7, 1, 0, 2, 0, 1]
    assert charts.minutes(lake, "still", anybody)["time"] == at
    assert charts.minutes(lake, "still", anybody)["backlog"] == [7] * 6
    assert charts.minutes(lake, "busy", anybody)["backlog"] == [1, 1, 2, 2, 0]
    assert charts.minutes(lake, "", lambda queue: queue == "busy")["backlog"] == [1, 1, 2, 2, 0]
    assert charts.minutes(lake, "nobody's", anybody)["time"] == []


def test_a_chart_begins_with_what_was_there_before_it(tmp_path: Path) -> None:
    first = 1_767_268_800
    lake = lake_of(tmp_path, [("still", first, 7, 7), ("busy", first + 60 * 5000, 1, 1)])
    found = charts.minutes(lake, "", anybody)
    assert len(found["time"]) == charts.POINTS_MAX
    assert found["backlog"][0] == 7 and found["backlog"][-1] == 8
