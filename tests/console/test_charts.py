"""What the charts of the past are drawn from."""
from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.console import charts
from holdfast.pipeline.lake import Lake


def test_a_minute_that_is_not_over_is_left_out(tmp_path: Path) -> None:
    """The pipeline has written the first seconds of it: drawn, it would look like a fall."""
    this = int(time.time()) // 60 * 60
    minutes = [this - 60 * back for back in range(5, -1, -1)]
    made = Lake(tmp_path / "lake").create()
    table = made.table("gold/queue_minute")
    folder = table.new_folder()
    folder.mkdir(parents=True)
    times = [dt.datetime.fromtimestamp(minute, dt.UTC) for minute in minutes]
    pq.write_table(pa.table({
        "queue": ["q"] * 6, "minute": pa.array(times, pa.timestamp("us", "UTC")), "added": [60] * 5 + [3],
        "done": [60] * 5 + [3], "wait_ms_p95": [50.0] * 6, "backlog": [0] * 6,
    }), folder / "part.parquet")
    table.change({"a day": folder}, time_column="minute")
    found = charts.minutes(made.folder, "q", lambda queue: True)
    assert found["time"][:3] == minutes[:3] and this not in found["time"]
    assert set(found["added"]) == {60}
