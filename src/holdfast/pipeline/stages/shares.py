"""Gold: who uses the queues: tenants and domains, hour by hour.

One table for both: `kind` says which, and `name` who. A job counts as added in the hour it was added, as ended in the
hour it ended, and its wait belongs to the hour it was first handed out: what is known of an hour when it is over stays.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from . import sketches
from .names import OUTCOMES
from .schema import schema

KINDS: Final = ("tenant", "domain")
COUNTS: Final = ("added", *OUTCOMES.values())
SHARE_HOUR: Final = schema(
    "kind string, name string, queue string, hour timestamp, " + ", ".join(f"{name} long" for name in COUNTS)
    + ", busy_ms double, " + sketches.columns("wait_ms")
)
KEY: Final = ["kind", "name", "queue", "hour"]


def per_hour(jobs: DataFrame) -> DataFrame:
    """From all jobs that were added, handed out or ended in some days."""
    who = F.explode(F.array(*[F.struct(F.lit(kind).alias("kind"), F.col(kind).alias("name")) for kind in KINDS]))
    named = jobs.select("*", who.alias("who")).select("*", "who.kind", "who.name").where(F.col("name").isNotNull())
    happened = named.select("kind", "name", "queue", F.explode(F.array(
        F.struct(F.col("added_at").alias("at"), F.lit("added").alias("what"), F.lit(0.0).alias("busy")),
        F.struct(F.col("ended_at").alias("at"), F.col("outcome").alias("what"), F.col("run_ms").alias("busy")),
    )).alias("e")).where(F.col("e.at").isNotNull())
    counts = happened.groupBy("kind", "name", "queue", F.date_trunc("hour", "e.at").alias("hour")).agg(
        *[F.count_if(F.col("e.what") == name).alias(name) for name in COUNTS], F.sum("e.busy").alias("busy_ms"),
    )
    first = named.withColumn("hour", F.date_trunc("hour", "first_handed_at")).where(F.col("hour").isNotNull())
    return (
        counts.join(sketches.sketched(first, KEY, "wait_ms", "wait_ms"), KEY, "full")
        .fillna(0, [*COUNTS, "busy_ms", "wait_ms_n"]).to(SHARE_HOUR)
    )
