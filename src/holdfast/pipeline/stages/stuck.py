"""Jobs that are stuck: a worker has them and says nothing, or nobody takes them though others are taken.

Held: handed out, not ended, and for longer than FACTOR times what jobs of its queue take at most (the 99th percentile
of its runs), and longer than its lease. Waiting: could be handed out for longer than FACTOR times what jobs of its
queue wait at most. A minute is never too long.
"""
from __future__ import annotations

import datetime as dt
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .jobs import ms
from .schema import schema

STUCK: Final = schema("""
    job_id string, queue string, why string, since timestamp, for_ms double, usual_ms double, worker string,
    attempts int, error string
""")
FACTOR: Final = 3.0
LEAST_MS: Final = 60_000.0


def stuck(jobs: DataFrame, now: dt.datetime) -> DataFrame:
    """From all jobs: those that are open and should not be, the longest first."""
    usual = jobs.groupBy("queue").agg(
        F.percentile_approx("run_ms", 0.99).alias("run_p99"), F.percentile_approx("wait_ms", 0.99).alias("wait_p99")
    )
    at = F.lit(now)
    is_held = F.col("last_handed_at").isNotNull()
    usual_ms = F.coalesce(F.when(is_held, F.col("run_p99")).otherwise(F.col("wait_p99")), F.lit(0.0))
    since = F.when(is_held, F.col("last_handed_at")).otherwise(F.col("ready_at"))
    bound = F.greatest(usual_ms * FACTOR, F.lit(LEAST_MS), F.when(is_held, F.col("lease_ms")).cast("double"))
    return (
        jobs.where(F.col("outcome").isNull()).join(usual, "queue", "left")
        .withColumn("since", since).withColumn("for_ms", ms(F.col("since"), at)).withColumn("usual_ms", usual_ms)
        .withColumn("why", F.when(is_held, "held").otherwise("waiting"))
        .where(F.col("for_ms") > bound)
        .orderBy(F.desc("for_ms")).to(STUCK)
    )
