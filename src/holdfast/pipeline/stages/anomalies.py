"""Hours that are unlike others: robust z-scores of what a queue does, against the same hour of other weeks.

The middle is the median, the width the median distance from it (MAD): one bad night does not make the next look normal.
Where a queue has fewer than SAMPLES weeks, all its hours in which something happened are the measure, and its silence
is not judged: it may be silent each night. The hour that is not over yet is not judged either.
"""
from __future__ import annotations

import datetime as dt
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .schema import schema

ANOMALIES: Final = schema("queue string, hour timestamp, what string, value double, usual double, score double")
SAMPLES: Final = 4
MEASURES: Final = ("added", "done", "failed", "backlog", "wait_ms_p95")
PER_SIGMA: Final = 0.6745
"""By which a distance in MADs becomes one in standard deviations, for what is normally distributed."""


def anomalies(minutes: DataFrame, until: dt.datetime, least: float = 5.0) -> DataFrame:
    """From gold queue minutes that are complete up to `until`: hours at least `least` sigmas from the usual, the
    strangest first."""
    hours = whole_hours(minutes, until)
    rows = hours.select("queue", "hour", "has_rows", F.explode(F.create_map(*[
        each for name in MEASURES for each in (F.lit(name), F.col(name))
    ])).alias("what", "value")).where(F.col("value").isNotNull())
    slot = F.dayofweek("hour") * 24 + F.hour("hour")
    same_hour = Window.partitionBy("queue", "what", slot)
    any_hour = Window.partitionBy("queue", "what")
    enough = F.count("*").over(same_hour) >= SAMPLES

    def median(column: Column) -> Column:
        return F.when(enough, F.median(column).over(same_hour)).otherwise(
            F.median(F.when(F.col("has_rows"), column)).over(any_hour))

    judged = rows.withColumn("usual", median(F.col("value"))).withColumn("off", F.abs(F.col("value") - F.col("usual")))
    # A queue that always does the same has no width: a unit, or a tenth, is then what counts as one.
    width = F.greatest(median(F.col("off")), F.lit(1.0), F.col("usual") * 0.1)
    score = PER_SIGMA * (F.col("value") - F.col("usual")) / width
    judged = judged.withColumns({"score": score, "is_known": F.col("has_rows") | enough})
    return judged.where((F.abs("score") >= least) & F.col("is_known")).orderBy(F.desc(F.abs("score"))).to(ANOMALIES)


def whole_hours(minutes: DataFrame, until: dt.datetime) -> DataFrame:
    """Each hour of each queue from its first to the last that is over. An hour without a row is one in which nothing
    happened: it counts 0 of everything, and its backlog is that of the hour before."""
    told = minutes.groupBy("queue", F.date_trunc("hour", "minute").alias("hour")).agg(
        F.sum("added").cast("double").alias("added"), F.sum("done").cast("double").alias("done"),
        (F.sum("nacked") + F.sum("lost") + F.sum("dead")).cast("double").alias("failed"),
        F.max("backlog").cast("double").alias("backlog"), F.max_by("backlog", "minute").alias("left"),
        F.max("wait_ms_p95").alias("wait_ms_p95"),
    )
    last = until.replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=1)
    begun = told.groupBy("queue").agg(F.min("hour").alias("first")).where(F.col("first") <= F.lit(last))
    every = begun.select("queue", F.explode(
        F.sequence("first", F.lit(last), F.expr("INTERVAL 1 HOUR"))).alias("hour"))
    so_far = Window.partitionBy("queue").orderBy("hour")
    stays = F.last("left", ignorenulls=True).over(so_far).cast("double")
    return every.join(told, ["queue", "hour"], "left").select(
        "queue", "hour", *[F.coalesce(F.col(name), F.lit(0.0)).alias(name) for name in ("added", "done", "failed")],
        F.coalesce(F.col("backlog"), stays).alias("backlog"), "wait_ms_p95",
        F.col("left").isNotNull().alias("has_rows"),
    )
