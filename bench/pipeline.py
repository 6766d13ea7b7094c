"""How fast the data pipeline is: `make bench-pipeline`. Beside it Spark's own source, and Redis read by plain Python.

    floor      Spark's own `rate` source to nowhere, and a stream of one row a trigger: what nobody can be faster than
    redis      the same number of bodies read from a Redis list by one Python process into Arrow, without Spark
    events     the history read as a batch, and as a stream
    browse     jobs that are there, read as a batch
    jobs       taken, read and acknowledged as a stream, so many per trigger
    sink       rows added as jobs, as a batch
    backfill   a Parquet file of rows to jobs, with unique keys
    gold       history to bronze, silver and gold

One node on this machine, bodies of 100 bytes, everything warmed up by a small run first. Rows per second are of the
whole action, Spark's planning included. The load of the machine is written beside the figures: on a busy one they
mean little.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import common
from holdfast.client.connection import Connection
from holdfast.client.target import Target

BODY = "x" * 100
GOALS = {"events, batch": 150_000, "sink, batch": 100_000, "jobs, stream": 80_000}
"""Rows per second."""
BACKFILL_S = 60.0
"""For a million jobs."""
RESULTS = common.ROOT / "bench" / "results" / "pipeline.json"


class Bench:
    def __init__(self, spark: Any, url: str, port: int, folder: Path, rows: int) -> None:
        self.spark = spark
        self.url = url
        self.node = Connection(Target(port=port))
        self.folder = folder
        self.rows = rows
        self.figures: dict[str, float] = {}

    def measure(self, name: str, rows: int, action: Callable[[], object]) -> None:
        begun = time.perf_counter()
        action()
        seconds = time.perf_counter() - begun
        self.figures[name] = rows / seconds
        print(f"{name:<28} {rows / seconds:>12,.0f} rows/s   {seconds:8.2f} s for {rows:,}", flush=True)

    def fill(self, queue: str, count: int) -> None:
        for start in range(0, count, 1000):
            size = min(1000, count - start)
            self.node.call(["ADDJOBS", queue, 0, size, *[BODY] * size, "RETRY", 300])

    def source(self, kind: str, stream: bool = False, **options: Any) -> Any:
        reader = self.spark.readStream if stream else self.spark.read
        return reader.format("holdfast").options(url=self.url, **options).load(kind)

    def nowhere(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def stream(self, frame: Any, name: str) -> Any:
        query = (
            frame.writeStream.format("noop").option("checkpointLocation", str(self.folder / f"check-{name}"))
            .trigger(availableNow=True).start()
        )
        query.awaitTermination()
        return query

    def run(self, count: int) -> None:
        self.floor(count)
        self.sink(count)
        self.measure("browse, batch", count, lambda: self.nowhere(self.source("browse", subscribe="sink")))
        self.measure("events, batch", count, lambda: self.nowhere(self.source("events")))
        self.measure("events, stream", count, lambda: self.stream(self.source("events", True), f"events{count}"))
        self.jobs(count)

    def floor(self, count: int) -> None:
        """Spark's own sources, to nowhere."""
        table = self.spark.range(count).selectExpr("id", "'x' AS v")
        self.measure("floor, range", count, lambda: self.nowhere(table))
        rate = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count).load()
        query = rate.writeStream.format("noop").option("checkpointLocation", str(self.folder / f"rate{count}")).start()
        while len(query.recentProgress) < 4 and query.isActive:
            time.sleep(0.05)
        ms = min(each["durationMs"]["triggerExecution"] for each in query.recentProgress[1:])
        query.stop()
        self.figures["floor, trigger ms"] = ms
        self.figures["floor, rate source"] = 1000 * count / ms
        print(f"{'floor, rate source':<28} {1000 * count / ms:>12,.0f} rows/s   {ms} ms per trigger", flush=True)

    def sink(self, count: int) -> None:
        table = self.spark.range(0, count, 1, 2).selectExpr("'sink' AS queue", f"'{BODY}' AS body")
        self.measure("sink, batch", count, lambda: (
            table.write.format("holdfast").options(url=self.url, retries=0).mode("append").save()))

    def jobs(self, count: int) -> None:
        name = f"eat{count}"
        self.fill(name, count)
        frame = self.source("jobs", True, subscribe=name, maxJobsPerTrigger=100_000, numPartitions=2)
        self.measure("jobs, stream", count, lambda: self.stream(frame, name))

    def backfill(self, count: int) -> None:
        from holdfast.pipeline.backfill import Backfill, Run

        path = self.folder / f"rows{count}.parquet"
        self.spark.range(count).selectExpr("id", "concat('user ', id) AS name").write.parquet(str(path))
        job = Backfill(str(path), self.url, f"fill{count}", state=self.folder / "state", form="parquet")
        run = Run(self.spark, job)

        def go() -> None:
            run.prepare()
            for _ in run.steps():
                pass

        self.measure("backfill", count, go)

    def gold(self, count: int) -> None:
        from holdfast.pipeline import run as runner
        from holdfast.pipeline.lake import Lake

        lake = Lake(self.folder / f"lake{count}")
        plan = runner.Plan(self.url, once=True)
        begun = time.perf_counter()
        rows = runner.run(self.spark, lake, plan, lambda words: None)
        seconds = time.perf_counter() - begun
        self.figures["history to gold"] = rows / seconds
        print(f"{'history to gold':<28} {rows / seconds:>12,.0f} rows/s   {seconds:8.2f} s for {rows:,}", flush=True)


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--backfill", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="few rows, and no judgement")
    wanted = parser.parse_args()
    rows, filled = (5_000, 5_000) if wanted.quick else (wanted.rows, wanted.backfill)
    from holdfast.pipeline.session import open_session

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        settings = ["--set", "history=yes", "--set", "maxmemory=4gb"]
        command = [*common.NODE_COMMAND, "--dir", str(folder / "node"), *settings]
        with common.running("node", command) as node:
            spark = open_session("local[2]", "bench", {"spark.sql.shuffle.partitions": "2"})
            bench = Bench(spark, f"holdfast://127.0.0.1:{node.port}", node.port, folder, rows)
            print("warming up", flush=True)
            bench.run(2_000)
            print(f"\nload {os.getloadavg()[0]:.1f}", flush=True)
            bench.run(rows)
            bench.backfill(filled)
            bench.gold(rows)
            spark.stop()
    figures = bench.figures
    figures["redis, plain Python"] = beside_redis(rows)
    print(f"{'redis, plain Python':<28} {figures['redis, plain Python']:>12,.0f} rows/s", flush=True)
    if wanted.quick:
        return 0
    RESULTS.write_text(json.dumps({"rows": rows, "load": os.getloadavg()[0], "figures": figures}, indent=1))
    short = [name for name, goal in GOALS.items() if figures[name] < goal]
    if filled / figures["backfill"] > BACKFILL_S * filled / 1_000_000:
        short.append("backfill")
    for each in short:
        print(f"falls short: {each}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
