"""Gold: each worker, hour by hour: what it took, how it ended, and how long it was busy.

A run belongs to the hour in which it ended. Only runs that were acknowledged count as busy time: of a lease that was
lost nobody can say how long the worker lived.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from . import sketches
from .names import HANDED
from .schema import schema

WORKER_HOUR: Final = schema(
    "worker string, hour timestamp, handed long, done long, dead long, queues long, busy_ms double, "
    + sketches.columns("run_ms")
)
KEY: Final = ["worker", "hour"]


def per_hour(events: DataFrame, jobs: DataFrame) -> DataFrame:
    """From the events and the jobs of some days."""
    handed = events.where((F.col("type") == HANDED) & F.col("worker").isNotNull()).groupBy(
        "worker", F.date_trunc("hour", "at").alias("hour")
    ).agg(F.count("*").alias("handed"), F.count_distinct("queue").alias("queues"))
    ended = jobs.where(F.col("worker").isNotNull() & F.col("ended_at").isNotNull()).withColumn(
        "hour", F.date_trunc("hour", "ended_at")
    )
    ends = ended.groupBy(*KEY).agg(
        F.count_if(F.col("outcome") == "done").alias("done"), F.count_if(F.col("outcome") == "dead").alias("dead"),
        F.sum("run_ms").alias("busy_ms"),
    )
    return (
        handed.join(ends, KEY, "full").join(sketches.sketched(ended, KEY, "run_ms", "run_ms"), KEY, "left")
        .fillna(0, ["handed", "done", "dead", "queues", "busy_ms", "run_ms_n"]).to(WORKER_HOUR)
    )
