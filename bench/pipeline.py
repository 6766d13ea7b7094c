"""How fast the data pipeline is, beside Spark's own source and Redis read by plain Python: `make bench PART=pipeline`.

    floor      Spark's own `rate` source to nowhere, so many rows a trigger: what nobody can be faster than
    redis      the same number of bodies read from a Redis list by one Python process into Arrow, without Spark
    sink       rows added as jobs, as a batch and as a stream; staged, published once
    browse     jobs that are there, read as a batch
    events     the history read as a batch, and as a stream
    jobs       taken, read and acknowledged as a stream
    trigger    milliseconds of a micro-batch of one job, of ours and of Spark's own
    backfill   a Parquet file of rows to jobs, exactly once
    gold       history to bronze, silver and gold

One node on this machine, bodies of 100 bytes, everything warmed up by a small run first. A batch is measured as a
whole, Spark's planning included; a stream by its full triggers, of 100,000 rows each, the middle one of them. The load
of the machine is written beside the figures: on a busy one they mean little.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import common
from bench.goals import Goal, Judged, judge
from holdfast.client.connection import Connection
from holdfast.client.target import Target

BODY = "x" * 100
PER_TRIGGER = 100_000
FLOOR_TRIGGERS = 6
RESULTS = common.ROOT / "bench" / "results"
GOALS = (
    Goal("events-batch", "history read as a batch", 150_000, True, " rows/s"),
    Goal("sink-batch", "rows written as jobs", 100_000, True, " rows/s"),
    Goal("jobs-stream", "jobs taken by a stream, 100,000 per trigger", 80_000, True, " rows/s"),
    Goal("backfill-seconds", "a backfill of a million jobs", 60, False, " s"),
)


class Bench:
    def __init__(self, spark: Any, port: int, folder: Path) -> None:
        self.spark = spark
        self.url = f"holdfast://127.0.0.1:{port}"
        self.node = Connection(Target(port=port))
        self.folder = folder
        self.figures: dict[str, float] = {}

    # -- how a figure is found -----------------------------------------------------------------------------

    def note(self, name: str, value: float, unit: str = "rows/s", words: str = "") -> None:
        self.figures[name] = value
        print(f"{name:<20}{value:>14,.0f} {unit:<7} {words}", flush=True)

    def batch(self, name: str, rows: int, action: Callable[[], object]) -> None:
        begun = time.perf_counter()
        action()
        seconds = time.perf_counter() - begun
        self.note(name, rows / seconds, words=f"{seconds:8.2f} s for {rows:,}")

    def stream(self, name: str, frame: Any, per_trigger: int, form: str = "noop", **options: Any) -> int:
        """Run a stream to its end; the rate of its full triggers, and how many rows came."""
        begun = time.perf_counter()
        query = (
            frame.writeStream.format(form).options(**options)
            .option("checkpointLocation", str(self.folder / f"{name}-{time.monotonic_ns()}"))
            .trigger(availableNow=True).start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - begun
        steps = [each for each in query.recentProgress if each["numInputRows"]]
        rows = sum(each["numInputRows"] for each in steps)
        full = [each for each in steps if each["numInputRows"] >= per_trigger] or steps
        rates = [1000 * each["numInputRows"] / each["durationMs"]["triggerExecution"] for each in full]
        self.note(name, statistics.median(rates),
                  words=f"{seconds:8.2f} s for {rows:,} in {len(steps)} triggers, {rows / seconds:,.0f}/s as a whole")
        return rows

    def fill(self, queue: str, count: int) -> None:
        for start in range(0, count, 1000):
            size = min(1000, count - start)
            self.node.call(["ADDJOBS", queue, 0, size, *[BODY] * size, "RETRY", 300])

    def source(self, kind: str, stream: bool = False, **options: Any) -> Any:
        reader = self.spark.readStream if stream else self.spark.read
        return reader.format("holdfast").options(url=self.url, **options).load(kind)

    def nowhere(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    # -- what is measured ----------------------------------------------------------------------------------

    def run(self, count: int, per_trigger: int) -> None:
        self.floor("floor-rate", per_trigger)
        self.sinks(count, per_trigger)
        self.batch("browse-batch", count, lambda: self.nowhere(self.source("browse", subscribe="sink")))
        there = self.stream("events-stream", self.source("events", True, maxEventsPerTrigger=per_trigger), per_trigger)
        self.batch("events-batch", there, lambda: self.nowhere(self.source("events")))
        self.fill(f"eat{count}", count)
        jobs = self.source("jobs", True, subscribe=f"eat{count}", maxJobsPerTrigger=per_trigger, numPartitions=2)
        self.stream("jobs-stream", jobs, per_trigger)
        self.floor("trigger-rate", 1)
        self.fill(f"one{count}", FLOOR_TRIGGERS)
        ones = self.source("jobs", True, subscribe=f"one{count}", maxJobsPerTrigger=1, numPartitions=1)
        self.stream("trigger-jobs", ones, 1)
        for name in ("trigger-rate", "trigger-jobs"):
            self.note(name, 1000 / self.figures[name], "ms")

    def floor(self, name: str, count: int) -> None:
        """Spark's own source, to nowhere. It has no end, so it is stopped after some triggers."""
        rate = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count).load()
        query = rate.writeStream.format("noop").option(
            "checkpointLocation", str(self.folder / f"{name}-{time.monotonic_ns()}")).start()
        while len(query.recentProgress) < FLOOR_TRIGGERS and query.isActive:
            time.sleep(0.05)
        times = [each["durationMs"]["triggerExecution"] for each in query.recentProgress[1:]]
        query.stop()
        self.note(name, 1000 * count / statistics.median(times))

    def sinks(self, count: int, per_trigger: int) -> None:
        table = self.spark.range(0, count, 1, 2).selectExpr("'sink' AS queue", f"'{BODY}' AS body")
        self.batch("sink-batch", count, lambda: (
            table.write.format("holdfast").options(url=self.url).mode("append").save()))
        rows = self.folder / f"rows-{count}"
        files = max(1, count // per_trigger)
        self.spark.range(0, count, 1, files).selectExpr("'streamed' AS queue", f"'{BODY}' AS body").write.parquet(
            str(rows))
        frame = self.spark.readStream.schema("queue string, body string").option("maxFilesPerTrigger", 1).parquet(
            str(rows))
        self.stream("sink-stream", frame, min(per_trigger, count // files), "holdfast", url=self.url)

    def backfill(self, count: int) -> None:
        from holdfast.pipeline.backfill import Backfill, Run

        path = self.folder / f"rows{count}.parquet"
        self.spark.range(count).selectExpr("id", "concat('user ', id) AS name").write.parquet(str(path))
        run = Run(self.spark, Backfill(str(path), self.url, f"fill{count}", state=self.folder / "state",
                                       form="parquet"))
        begun = time.perf_counter()
        run.prepare()
        for _ in run.steps():
            pass
        seconds = time.perf_counter() - begun
        assert run.progress().done == count
        self.note("backfill", count / seconds, words=f"{seconds:8.2f} s for {count:,}")
        self.figures["backfill-seconds"] = seconds * 1_000_000 / count

    def gold(self, count: int) -> None:
        from holdfast.pipeline import run as runner
        from holdfast.pipeline.lake import Lake

        begun = time.perf_counter()
        rows = runner.run(self.spark, Lake(self.folder / f"lake{count}"), runner.Plan(self.url, once=True),
                          lambda words: None)
        seconds = time.perf_counter() - begun
        self.note("history-to-gold", rows / seconds, "events/s", f"{seconds:8.2f} s for {rows:,}")


def beside_redis(count: int) -> float:
    """Rows a second that one Python process reads from a Redis list into Arrow."""
    import pyarrow as pa
    from redis import Redis

    with common.running("redis", common.redis_command()) as server:
        redis = Redis(port=server.port)
        for start in range(0, count, 1000):
            redis.rpush("q", *[BODY] * min(1000, count - start))
        begun = time.perf_counter()
        rows = 0
        while rows < count:
            rows += len(pa.array(redis.lrange("q", rows, rows + 9999), pa.binary()))
        return count / (time.perf_counter() - begun)


def measure(rows: int, filled: int, per_trigger: int) -> dict[str, float]:
    from holdfast.pipeline.session import open_session

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        settings = ["--set", "history=yes", "--set", "maxmemory=4gb"]
        command = [*common.NODE_COMMAND, "--dir", str(folder / "node"), *settings]
        with common.running("node", command, os.sched_getaffinity(0)) as node:
            spark = open_session("local[2]", "bench", {"spark.sql.shuffle.partitions": "2"})
            try:
                bench = Bench(spark, node.port, folder)
                print("warming up", flush=True)
                bench.run(2_000, 1_000)
                print(f"\nload {os.getloadavg()[0]:.1f}", flush=True)
                bench.run(rows, per_trigger)
                bench.gold(rows)
                bench.backfill(filled)
            finally:
                spark.stop()
    bench.note("redis-python", beside_redis(rows))
    return bench.figures


def document(figures: dict[str, float], judged: list[Judged], settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": common.machine(), "settings": {**settings, "load": round(os.getloadavg()[0], 1)},
        "figures": {
            each.goal.key: {
                "title": each.goal.title, "value": None if each.value is None else round(each.value, 1),
                "unit": each.goal.unit.strip(), "goal": each.goal.text(), "verdict": each.verdict,
            } for each in judged
        },
        "all": {name: round(value, 1) for name, value in figures.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--backfill", type=int, default=1_000_000)
    parser.add_argument("--per-trigger", type=int, default=PER_TRIGGER)
    parser.add_argument("--quick", action="store_true", help="few rows, and no judgement")
    parser.add_argument("--out", type=Path, help="folder for pipeline.json (bench/results)")
    given = parser.parse_args()
    if given.quick:
        given.rows, given.backfill, given.per_trigger = 5_000, 5_000, 2_500
    common.end_on_sigterm()
    try:
        figures = measure(given.rows, given.backfill, given.per_trigger)
    except common.Missing as error:
        print(f"missing: {error}", file=sys.stderr)
        return common.EXIT_SKIPPED
    judged = judge(GOALS, figures.get)
    folder = given.out or (common.BUILD / "quick" if given.quick else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"rows": given.rows, "backfill": given.backfill, "per_trigger": given.per_trigger}
    made = document(figures, judged, settings)
    (folder / "pipeline.json").write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n")
    missed = [each for each in judged if each.verdict != "pass"]
    for each in missed if not given.quick else ():
        print(each.sentence())
    return common.EXIT_FALLS_SHORT if missed and not given.quick else common.EXIT_PASS


if __name__ == "__main__":
    sys.exit(main())
