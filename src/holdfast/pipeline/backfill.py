"""`holdfast pipeline backfill`: millions of rows become jobs, at a rate, and once.

First Spark reads the table, whatever it is, and writes it as rows of jobs into files in the state folder of the run.
Then portion after portion goes through the sink, staged and published as a batch with the number of its last row
(`sinks/staged.py`). Before a portion is added it is noted how far it goes, and afterwards that it is done: a run that
was interrupted repeats the portion it had begun as it was, whatever the rate is now, and if that had been published
the node says so. Tables with unique keys of their own are added directly. When all is done the rows go, the note stays.

The run's name is made of what is read and where it goes, so that the same command goes on where it stopped.
"""
from __future__ import annotations

import hashlib
import json
import shutil
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


@dataclass(frozen=True)
class Note:
    """What is written down before and after each portion: rows that are added, and up to which row one was begun."""

    done: int = 0
    until: int = 0
    total: int | None = None
    """All rows, once all are added."""


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
    if "group" in known and "unique" not in known and job.is_exact:
        raise BadRows("rows with `group` are added one by one, so an interrupted run may add some twice: say "
                      "--at-least-once, or add a column `unique` by which a row is known")
    sink.check({field.name: field.dataType.simpleString() for field in rows.schema}, job.queue)
    return rows


class Run:
    """A backfill that may have begun earlier."""

    def __init__(self, spark: SparkSession, job: Backfill) -> None:
        self.spark = spark
        self.job = job
        self.folder = job.state / job.name()
        self.rows = self.folder / "rows"
        self.mark = self.folder / "done.json"

    def prepare(self) -> Progress:
        """Write the rows as files, unless they are there; how far it is."""
        if self.note().total is None and not (self.rows / "_SUCCESS").exists():
            from pyspark.sql import Observation
            from pyspark.sql import functions as F

            self.folder.mkdir(parents=True, exist_ok=True)
            seen = Observation()
            jobs = as_jobs(read(self.spark, self.job), self.job).observe(seen, F.count(F.lit(1)).alias("rows"))
            jobs.write.mode("overwrite").option("maxRecordsPerFile", PORTION).parquet(str(self.rows.absolute()))
            same_rows(self.rows, seen.get["rows"])
        return self.progress()

    def look(self, count: int) -> tuple[Progress, list[str]]:
        """What there is to do and some rows as they would be added; nothing is written."""
        note = self.note()
        jobs = as_jobs(read(self.spark, self.job), self.job)
        total = jobs.count() if note.total is None else note.total
        return Progress(total, note.done), [
            ", ".join(f"{name}={value!r:.60}" for name, value in row.asDict().items())
            for row in jobs.limit(count).collect()
        ]

    def files(self) -> list[tuple[Path, int]]:
        """Files and how many rows each has, always in the same order."""
        found = sorted(self.rows.glob("*.parquet"))
        return [(file.absolute(), count) for file in found if (count := rows_in(file))]

    def progress(self) -> Progress:
        note = self.note()
        if note.total is not None:
            return Progress(note.total, note.total)
        return Progress(sum(count for _, count in self.files()), note.done)

    def steps(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[Progress]:
        """Portion after portion; how far it is after each. Slower than the rate, never faster."""
        if self.note().total is not None:
            return
        size = max(1, min(PORTION, int(self.job.rate * BURST_S))) if self.job.rate else PORTION
        begun, added, first = time.monotonic(), 0, 0
        for file, count in self.files():
            while (at := max(first, self.note().done)) < first + count:
                # What was begun is repeated as it was: the node knows it by the number of its last row.
                planned = self.note().until
                until = planned if planned > at else min(first + count, at + size)
                self.put(Note(at, until))
                self.add(file, count, at - first, until - first, until)
                self.put(Note(until, until))
                added += until - at
                yield self.progress()
                ahead = added / self.job.rate - (time.monotonic() - begun) if self.job.rate else 0.0
                if ahead > 0:
                    sleep(ahead)
            first += count
        self.put(Note(first, first, first))
        shutil.rmtree(self.rows)

    def add(self, file: Path, count: int, begin: int, end: int, number: int) -> None:
        """Some rows of a file, under the number of the last of them within the run."""
        if (begin, end) == (0, count):
            rows = self.spark.read.parquet(str(file)).repartition(2)
        else:
            import pyarrow.parquet as pq

            rows = self.spark.createDataFrame(pq.read_table(file).slice(begin, end - begin)).coalesce(2)
        options: dict[str, Any] = {"url": self.job.url, "queue": self.job.queue}
        if "unique" in rows.columns:
            options["uniqueWindow"] = WINDOW_S
        elif self.job.is_exact:
            options |= {"writeMode": "staged", "sinkId": f"backfill-{self.job.name()}", "runId": self.job.name(),
                        "batchId": number}
        else:
            options["writeMode"] = "direct"
        rows.write.format("holdfast").options(**options).mode("append").save()

    def note(self) -> Note:
        """How far it was when that was last written down."""
        try:
            return Note(**json.loads(self.mark.read_text()))
        except FileNotFoundError:
            return Note()
        except (ValueError, TypeError):
            raise BadRows(
                f"{self.mark} is damaged or of an earlier version: finish that run with the version that began it, or "
                "remove the folder to add all rows from the beginning"
            ) from None

    def put(self, note: Note) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.mark.with_suffix(".new")
        fresh.write_text(json.dumps(vars(note)))
        fresh.replace(self.mark)


def rows_in(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def same_rows(folder: Path, rows: int) -> None:
    """`BadRows` unless there are as many rows in a folder as executors have written to it."""
    there = sum(map(rows_in, folder.rglob("*.parquet")))
    if there != rows:
        shutil.rmtree(folder, ignore_errors=True)
        raise BadRows(
            f"executors have written {rows} rows to {folder}, and {there} of them are there on this machine: nothing "
            "was added. --state must name a folder that the driver and all executors share"
        )
