"""Gold: each queue, minute by minute.

Hand-outs, nacks, lost leases and refusals are counted as events. Comings and endings are counted as jobs, since every
node that holds a copy may tell of them, and a job comes and ends once. Waits belong to the minute in which a job was
first handed out, runs to the one in which it was acknowledged. The backlog is how many jobs were there and not ended at
the end of the minute; a minute in which nothing happened has no row, and the backlog of the one before it.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from . import sketches
from .names import HANDED, LOST, NACKED, OUTCOMES, REFUSED
from .schema import schema

OF_EVENTS: Final = {HANDED: "handed", NACKED: "nacked", LOST: "lost", REFUSED: "refused"}
COUNTS: Final = ("added", *OF_EVENTS.values(), *OUTCOMES.values())
QUEUE_MINUTE: Final = schema(
    "queue string, minute timestamp, " + ", ".join(f"{name} long" for name in COUNTS)
    + ", retry_rate double, duplicate_rate double, backlog long, "
    + sketches.columns("wait_ms") + ", " + sketches.columns("run_ms")
)
"""`retry_rate`: hand-outs that were not the job's first. `duplicate_rate`: leases that ended without an answer, each of
which may mean that the job runs twice. Both as a share of the minute's hand-outs."""
KEY: Final = ["queue", "minute"]


def per_minute(events: DataFrame, jobs: DataFrame) -> DataFrame:
    """From events and jobs. Minutes are complete from the day on of which all events are here, and all jobs that were
    not ended before it."""
    word = F.create_map(*[F.lit(each) for pair in OF_EVENTS.items() for each in pair])[F.col("type")]
    happened = (
        events.where(F.col("type").isin(*OF_EVENTS)).select(
            "queue", "at", word.alias("what"), (F.col("attempt") > 1).alias("is_again"),
            F.when(F.col("type") == REFUSED, F.col("count")).otherwise(1).alias("count"),
        )
        .union(jobs.select("queue", "added_at", F.lit("added"), F.lit(False), F.lit(1)))
        .union(jobs.select("queue", "ended_at", "outcome", F.lit(False), F.lit(1)))
        .where(F.col("queue").isNotNull() & F.col("at").isNotNull())
    )
    counts = happened.groupBy("queue", F.date_trunc("minute", "at").alias("minute")).agg(
        *[F.sum(F.when(F.col("what") == name, F.col("count")).otherwise(0)).alias(name) for name in COUNTS],
        F.count_if((F.col("what") == "handed") & F.col("is_again")).alias("again"),
    )
    first = jobs.withColumn("minute", F.date_trunc("minute", "first_handed_at"))
    ended = jobs.withColumn("minute", F.date_trunc("minute", "ended_at"))
    return (
        counts
        .join(backlogs(counts, jobs), KEY, "left")
        .join(sketches.sketched(first, KEY, "wait_ms", "wait_ms"), KEY, "left")
        .join(sketches.sketched(ended, KEY, "run_ms", "run_ms"), KEY, "left")
        .withColumn("retry_rate", F.when(F.col("handed") > 0, F.col("again") / F.col("handed")))
        .withColumn("duplicate_rate", F.when(F.col("handed") > 0, F.col("lost") / F.col("handed")))
        .fillna(0, ["backlog", "wait_ms_n", "run_ms_n"])
        .to(QUEUE_MINUTE)
    )


def backlogs(minutes: DataFrame, jobs: DataFrame) -> DataFrame:
    """How many jobs were there at the end of each of these minutes: comings less goings up to then."""
    begun = jobs.select("queue", F.date_trunc("minute", F.coalesce("added_at", "first_at")).alias("minute"),
                        F.lit(1).alias("step"))
    gone = jobs.where(F.col("ended_at").isNotNull()).select(
        "queue", F.date_trunc("minute", "ended_at").alias("minute"), F.lit(-1).alias("step"))
    asked = minutes.select("queue", "minute", F.lit(0).alias("step"))
    steps = begun.union(gone).union(asked).groupBy(*KEY).agg(F.sum("step").alias("step"))
    so_far = Window.partitionBy("queue").orderBy("minute")
    return steps.select(*KEY, F.sum("step").over(so_far).alias("backlog"))
