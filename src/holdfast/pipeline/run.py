"""`holdfast pipeline run`: the stream that keeps the lake up to date, once or for as long as it is let.

A micro-batch of the events source becomes a part of bronze, named after the stream and the batch, so that a batch Spark
replays after a crash replaces itself. Silver and gold follow at the end (`once`), or every so often: they are made from
what bronze has, whatever happened before.

The place of the stream is in `checkpoints/events` of the lake. Without it the stream begins anew, under another name:
events that come twice are one in silver.
"""
from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .delta import follow
from .lake import Lake, LakeError
from .refresh import Refreshed, ingest, refresh, retain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT: Final = "checkpoints/events"


@dataclass(frozen=True)
class Plan:
    """How to run."""

    url: str
    once: bool = False
    every_s: float = 10.0
    refresh_s: float = 60.0
    max_events: int = 2_000_000
    starting: str = "earliest"
    fail_on_loss: bool = True
    bronze_days: int = 7
    silver_days: int = 400
    gold_days: int = 4000
    delta: Path | None = None
    """Where to keep the tables as Delta tables, too."""


@contextlib.contextmanager
def alone(lake: Lake) -> Iterator[None]:
    """Nobody else runs a pipeline on this lake."""
    with (lake.folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeError(f"a pipeline is running on {lake.folder} already") from None
        yield


def stream_name(lake: Lake) -> str:
    """The id that Spark gave the stream and keeps with its checkpoint."""
    path = lake.folder / CHECKPOINT / "metadata"
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise LakeError(
            f"the checkpoint in {path.parent} is damaged ({error}): move it away to read the history from its "
            "beginning again; events that are in the lake already are not counted twice"
        ) from error


def run(
    spark: SparkSession, lake: Lake, plan: Plan, tell: Callable[[str], None], done: threading.Event | None = None
) -> int:
    """Read events into the lake; how many. With `once` up to where the histories are now, else until interrupted.

    When `done` is set it ends soon, and leaves it to the next run to bring silver and gold up to what was read.
    """
    lake.create()
    with alone(lake):
        checkpoint = lake.folder / CHECKPOINT
        if checkpoint.exists() and any(checkpoint.iterdir()):
            stream_name(lake)  # says so if it is damaged
        count = 0
        refreshed = time.monotonic()
        guard = threading.Lock()  # batches come in a thread of Spark's

        def batch(rows: DataFrame, number: int) -> None:
            nonlocal count
            with guard:
                got = ingest(lake, rows, f"{stream_name(lake)}-{number:08d}")
            count += got
            tell(f"batch {number}: {got} events")

        events = (
            spark.readStream.format("holdfast").option("url", plan.url).option("startingOffsets", plan.starting)
            .option("maxEventsPerTrigger", plan.max_events).option("failOnDataLoss", str(plan.fail_on_loss).lower())
            .load("events")
        )
        writer = events.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
        if plan.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{plan.every_s:g} seconds")
        query = writer.start()
        if done is not None:
            threading.Thread(target=cancel_when, args=(spark, done), name="canceller", daemon=True).start()
        try:
            while not query.awaitTermination(1) and not is_done(done):
                if not plan.once and time.monotonic() - refreshed >= plan.refresh_s:
                    with guard:
                        bring_up(spark, lake, plan, tell)
                    refreshed = time.monotonic()
        except Exception:
            if not is_done(done):  # else it is what was cancelled in the middle of its work
                raise
        finally:
            if query.isActive:
                query.stop()
            if not is_done(done):
                bring_up(spark, lake, plan, tell)
        return count


def cancel_when(spark: SparkSession, done: threading.Event) -> None:
    """Ends what Spark is at as soon as `done` is set: a refresh may take minutes, and the next run makes it anew."""
    done.wait()
    spark.sparkContext.cancelAllJobs()


def is_done(done: threading.Event | None) -> bool:
    return done is not None and done.is_set()


def bring_up(spark: SparkSession, lake: Lake, plan: Plan, tell: Callable[[str], None]) -> Refreshed:
    """Silver and gold as bronze is, and what is too old taken out."""
    done = refresh(spark, lake, tell)
    retain(
        lake, bronze_days=plan.bronze_days, silver_days=plan.silver_days, gold_days=plan.gold_days,
        today=dt.datetime.now(dt.UTC).date(),
    )
    if plan.delta is not None and (count := follow(lake, plan.delta)):
        tell(f"delta: {count} tables")
    return done


def lake_at(folder: str | Path) -> Lake:
    """A lake that is there and can be read."""
    return Lake(folder).check()
