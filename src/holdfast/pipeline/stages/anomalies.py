"""Hours that are unlike others: robust z-scores of what a queue does, against the same hour of other weeks.

The middle is the median, the width the median distance from it (MAD): one bad night does not make the next look normal.
Where a queue has fewer than SAMPLES weeks, all its hours are the measure.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .schema import schema

ANOMALIES: Final = schema("queue string, hour timestamp, what string, value double, usual double, score double")
SAMPLES: Final = 4
MEASURES: Final = ("added", "done", "failed", "backlog", "wait_ms_p95")
PER_SIGMA: Final = 0.6745
"""By which a distance in MADs becomes one in standard deviations, for what is normally distributed."""


def anomalies(minutes: DataFrame, least: float = 5.0) -> DataFrame:
    """From gold queue minutes: hours at least `least` sigmas from the usual, the strangest first."""
    hours = minutes.groupBy("queue", F.date_trunc("hour", "minute").alias("hour")).agg(
        F.sum("added").cast("double").alias("added"), F.sum("done").cast("double").alias("done"),
        (F.sum("nacked") + F.sum("lost") + F.sum("dead")).cast("double").alias("failed"),
        F.max("backlog").cast("double").alias("backlog"), F.max("wait_ms_p95").alias("wait_ms_p95"),
    )
    rows = hours.select("queue", "hour", F.explode(F.create_map(*[
        each for name in MEASURES for each in (F.lit(name), F.col(name))
    ])).alias("what", "value")).where(F.col("value").isNotNull())
    slot = F.dayofweek("hour") * 24 + F.hour("hour")
    same_hour = Window.partitionBy("queue", "what", slot)
    any_hour = Window.partitionBy("queue", "what")
    enough = F.count("*").over(same_hour) >= SAMPLES

    def median(column: Column) -> Column:
        return F.when(enough, F.median(column).over(same_hour)).otherwise(F.median(column).over(any_hour))

    judged = rows.withColumn("usual", median(F.col("value"))).withColumn("off", F.abs(F.col("value") - F.col("usual")))
    # A queue that always does the same has no width: a unit, or a tenth, is then what counts as one.
    width = F.greatest(median(F.col("off")), F.lit(1.0), F.col("usual") * 0.1)
    return (
        judged.withColumn("score", PER_SIGMA * (F.col("value") - F.col("usual")) / width)
        .where(F.abs("score") >= least).orderBy(F.desc(F.abs("score"))).to(ANOMALIES)
    )
