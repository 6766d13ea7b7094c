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
from .tallies import fact, happened, lasted, tallied

WORKER_HOUR: Final = schema(
    "worker string, hour timestamp, handed long, done long, dead long, queues long, busy_ms double, "
    + sketches.columns("run_ms")
)


def per_hour(events: DataFrame, jobs: DataFrame) -> DataFrame:
    """From the events and the jobs of some days."""
    keys = ["worker", "queue"]
    handed = happened(events.where(F.col("type") == HANDED), keys, fact("handed", F.col("at")))
    ended = happened(jobs, keys, fact(F.col("outcome"), F.col("ended_at")),
                     lasted("run_ms", F.col("ended_at"), F.col("run_ms")))
    queues = F.flatten(F.collect_list(F.when(F.col("what") == "handed", F.col("queues"))))
    return tallied(
        handed.union(ended).where(F.col("worker").isNotNull()), ["worker"], "hour", ["handed", "done", "dead"],
        ["run_ms"], F.size(F.array_distinct(queues)).alias("queues"),
        F.coalesce(F.sum(F.when(F.col("what") == "run_ms", F.col("ms"))), F.lit(0.0)).alias("busy_ms"),
        first=[F.collect_set("queue").alias("queues")],
    ).to(WORKER_HOUR)
