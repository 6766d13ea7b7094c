"""`holdfast pipeline backfill`: millions of rows become jobs, at a rate, and once.

First Spark reads the table, whatever it is, and writes it as rows of jobs in portions of PORTION rows each, into the
state folder of the run. Then portion after portion goes through the sink, staged and published as a batch with the
number of the portion (`sinks/staged.py`). A portion that is done is noted; a run that was interrupted goes on with
the first that is not, and if that had been published the node says so. Tables with unique keys of their own are added
directly.

The run's name is made of what is read and where it goes, so that the same command goes on where it stopped.
"""
from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .sinks.rows import COLUMNS, BadRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PORTION: Final = 50_000
"""Rows per portion: some seconds of work, and what the node that publishes it holds in memory meanwhile."""
BURST_S: Final = 2.0
"""With a rate a portion is what may come in so many seconds: it is published at once."""
WINDOW_S: Final = 7 * 86_400
"""How long a key is remembered after its job is done: longer than anybody lets an interrupted run lie."""
FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


@dataclass(frozen=True)
class Backfill:
    """What to do."""

    source: str
    url: str
    queue: str = ""
    rate: float = 0.0
    body: str = ""
    state: Path = Path("backfill")
    form: str = ""
    is_exact: bool = True
    """Otherwise an interrupted run may add some jobs twice."""

    def name(self) -> str:
        """The same for the same command and the same file."""
        path = Path(self.source)
        stamp = f"{path.stat().st_size}-{path.stat().st_mtime_ns}" if path.is_file() else ""
        words = json.dumps([self.source, stamp, self.queue, self.body, self.form])
        return hashlib.sha256(words.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    total: int
    done: int
    portions: int
    portions_done: int


def read(spark: SparkSession, job: Backfill) -> DataFrame:
    """The table: a file or folder of Parquet, CSV or JSON, or a table that Spark knows."""
    path = Path(job.source)
    form = job.form or FORMATS.get(path.suffix.lower(), "")
    if not path.exists() and "/" not in job.source and not path.suffix:
        return spark.table(job.source)
    if not path.exists():
        raise BadRows(f"there is no {job.source}")
    if path.is_dir() and not form:
        form = next((FORMATS[each.suffix] for each in path.iterdir() if each.suffix in FORMATS), "parquet")
    if form not in set(FORMATS.values()):
        raise BadRows(f"{job.source}: say what it is, --format parquet, csv or json")
    reader = spark.read.options(header="true", inferSchema="true") if form == "csv" else spark.read
    return reader.format(form).load(str(path.absolute()))


def as_jobs(rows: DataFrame, job: Backfill) -> DataFrame:
    """Columns of jobs. A table without a body becomes bodies of JSON, one object per row."""
    from pyspark.sql import functions as F

    from .sinks import rows as sink

    names = rows.columns
    if job.body:
        if job.body not in names:
            raise BadRows(f"there is no column {job.body!r} for the body; there are {', '.join(names)}")
        rows = rows.withColumnRenamed(job.body, "body") if job.body != "body" else rows
    elif "body" not in names:
        rows = rows.select(F.to_json(F.struct(*[F.col(f"`{name}`") for name in names])).alias("body"))
    if job.queue:
        rows = rows.withColumn("queue", F.lit(job.queue))
    known = [name for name in rows.columns if name in COLUMNS]
    dropped = [name for name in rows.columns if name not in COLUMNS]
    if dropped:
        raise BadRows(f"column {dropped[0]!r} is none of a job ({', '.join(COLUMNS)}): leave --body out to put "
                      "whole rows into the bodies, or drop it")
    rows = rows.select(*known)
    casts = {name: "double" for name in ("delay", "ttl", "retry") if name in known} | {
        name: "int" for name in ("priority", "attempts") if name in known}
    rows = rows.withColumns({name: F.col(name).cast(kind) for name, kind in casts.items()}) if casts else rows
    sink.check({field.name: field.dataType.simpleString() for field in rows.schema}, job.queue)
    return rows


class Run:
    """A backfill that may have begun earlier."""

    def __init__(self, spark: SparkSession, job: Backfill) -> None:
        self.spark = spark
        self.job = job
        self.folder = job.state / job.name()
        self.mark = self.folder / "done.json"

    def prepare(self) -> Progress:
        """Write the portions, unless they are there; how far it is."""
        rows = self.folder / "rows"
        if not (rows / "_SUCCESS").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            jobs = as_jobs(read(self.spark, self.job), self.job)
            size = max(100, min(PORTION, int(self.job.rate * BURST_S))) if self.job.rate else PORTION
            jobs.write.mode("overwrite").option("maxRecordsPerFile", size).parquet(str(rows.absolute()))
        return self.progress()

    def portions(self) -> list[tuple[str, int]]:
        """Files and how many rows each has."""
        import pyarrow.parquet as pq

        files = sorted((self.folder / "rows").glob("*.parquet"))
        return [(str(file.absolute()), count) for file in files if (count := pq.read_metadata(file).num_rows)]

    def done(self) -> set[str]:
        try:
            return set(json.loads(self.mark.read_text()))
        except FileNotFoundError:
            return set()

    def progress(self) -> Progress:
        portions, done = self.portions(), self.done()
        return Progress(
            sum(count for _, count in portions), sum(count for file, count in portions if Path(file).name in done),
            len(portions), sum(Path(file).name in done for file, _ in portions),
        )

    def steps(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[Progress]:
        """Portion after portion; how far it is after each. Slower than the rate, never faster."""
        done = self.done()
        begun, added = time.monotonic(), 0
        for number, (file, count) in enumerate(self.portions()):
            if Path(file).name in done:
                continue
            rows = self.spark.read.parquet(file).repartition(2)
            options: dict[str, Any] = {"url": self.job.url, "queue": self.job.queue}
            if "unique" in rows.columns:
                options["uniqueWindow"] = WINDOW_S
            elif self.job.is_exact:
                options |= {"writeMode": "staged", "sinkId": f"backfill-{self.job.name()}", "runId": self.job.name(),
                            "batchId": number}
            else:
                options["writeMode"] = "direct"
            rows.write.format("holdfast").options(**options).mode("append").save()
            added += count
            done.add(Path(file).name)
            self.note(done)
            yield self.progress()
            ahead = added / self.job.rate - (time.monotonic() - begun) if self.job.rate else 0.0
            if ahead > 0:
                sleep(ahead)

    def first(self, count: int) -> list[str]:
        """Some rows as they would be added."""
        rows = self.spark.read.parquet(str((self.folder / "rows").absolute())).limit(count).collect()
        return [", ".join(f"{name}={value!r:.60}" for name, value in row.asDict().items()) for row in rows]

    def note(self, done: set[str]) -> None:
        fresh = self.mark.with_suffix(".new")
        fresh.write_text(json.dumps(sorted(done)))
        fresh.replace(self.mark)
