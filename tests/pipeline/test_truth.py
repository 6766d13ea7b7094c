"""End to end on truth: known fates through three real nodes, and every figure of gold beside what it must be.

TRUTH_JOBS says how many jobs: some by default, a million by `make show PART=pipeline ONLY=truth`.
"""
from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import truth
from places import now, url

from holdfast.pipeline import run as runner
from holdfast.pipeline import sketch
from holdfast.pipeline.lake import Lake

if TYPE_CHECKING:
    from cluster_harness import Cluster
    from pyspark.sql import SparkSession

JOBS = int(os.environ.get("TRUTH_JOBS", "1500"))


def sums(rows: list[dict[str, Any]], column: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["queue"]] += row[column]
    return {name: count for name, count in counts.items() if count}


def test_every_figure_of_gold_is_what_it_must_be(
    spark: SparkSession, three: Cluster, lake: Lake
) -> None:
    three.mend()
    here = now(three)
    known = truth.drive(list(three), JOBS)
    runner.run(spark, lake, runner.Plan(url(three), once=True, starting=here), print)
    rows = lake.table("gold/queue_minute").to_arrow().to_pylist()
    for column in ("added", "done", "dead", "nacked", "handed"):
        assert sums(rows, column) == {name: count for name, count in getattr(known, column).items() if count}, column
    last = {name: max((row for row in rows if row["queue"] == name), key=lambda row: row["minute"])["backlog"]
            for name in truth.QUEUES}
    assert last == dict(known.left)
    for name in truth.QUEUES:
        mine = [row for row in rows if row["queue"] == name]
        again = sum(round(row["retry_rate"] * row["handed"]) for row in mine if row["handed"])
        assert again == known.again[name]
        assert sum(row["lost"] for row in mine) == 0 and all(not row["duplicate_rate"] for row in mine)
    waits, runs = truth.durations(truth.records(list(three)))
    for values, prefix in ((waits, "wait_ms"), (runs, "run_ms")):
        for name in truth.QUEUES:
            told = sketch.merge(dict(row[f"{prefix}_sketch"] or ()) for row in rows if row["queue"] == name)
            assert sum(told.values()) == len(values[name])
            for share in (0.50, 0.95, 0.99):
                true = truth.percentile(values[name], share)
                found = sketch.quantile(told, share)
                assert found == pytest.approx(true, rel=sketch.ERROR * 1.001, abs=1e-9) or (true < 1 and found == 0)
    jobs = lake.table("silver/jobs").to_arrow(["outcome"])["outcome"].to_pylist()
    assert Counter(jobs) == {"done": known.done.total(), "dead": known.dead.total(), None: known.left.total()}
    failures = lake.table("gold/failure_day").to_arrow().to_pylist()
    kinds: Counter[str] = Counter()
    for row in failures:
        kinds[row["signature"]] += row["jobs"]
    failed = [number for number in range(JOBS) if truth.fate(number) in (truth.AGAIN, truth.DEAD)]
    expected = Counter("ValueError: row <n> is broken" if number % 2 else "timeout after <n> ms" for number in failed)
    assert kinds == expected
    shares = [row for row in lake.table("gold/share_hour").to_arrow().to_pylist() if row["kind"] == "tenant"]
    tenants: Counter[str] = Counter()
    for row in shares:
        tenants[row["name"]] += row["added"]
    assert tenants == Counter(f"t{number % 4}" for number in range(JOBS))
    workers = lake.table("gold/worker_hour").to_arrow(["worker", "handed", "done", "dead"]).to_pylist()
    assert sum(row["handed"] for row in workers) == known.handed.total()
    assert sum(row["done"] for row in workers) == known.done.total()
    assert {row["worker"] for row in workers} <= {"worker-0", "worker-1", "worker-2"}
