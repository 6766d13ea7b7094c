"""Jobs that are stuck: a worker has them and says nothing, or nobody takes them though others are taken.

Held: a worker has it, its lease as last extended is over, and it has had it for longer than FACTOR times what jobs of
its queue take at most (the 99th percentile of its runs). Waiting: it could be handed out, after any delay, for longer
than FACTOR times what jobs of its queue wait at most. A minute is never too long. A job that was taken out of its queue
by a client waits for that client.
"""
from __future__ import annotations

import datetime as dt
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .jobs import ms
from .names import ASIDE, HELD, WAITING
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
    # Rows of an earlier version do not say what a job does.
    state = F.coalesce("state", F.when(F.col("last_handed_at").isNotNull(), HELD).otherwise(WAITING))
    is_held = F.col("why") == HELD
    usual_ms = F.coalesce(F.when(is_held, F.col("run_p99")).otherwise(F.col("wait_p99")), F.lit(0.0))
    waits_since = F.coalesce(F.greatest("due_at", "state_at"), "ready_at")
    since = F.when(is_held, F.col("last_handed_at")).otherwise(waits_since)
    lease_until = F.coalesce("lease_until", F.timestamp_micros(
        F.unix_micros("last_handed_at") + 1000 * F.coalesce("lease_ms", F.lit(0))))
    bound = F.greatest(usual_ms * FACTOR, F.lit(LEAST_MS))
    return (
        jobs.where(F.col("outcome").isNull()).withColumn("why", state).where(F.col("why") != ASIDE)
        .join(usual, "queue", "left")
        .withColumn("since", since).withColumn("for_ms", ms(F.col("since"), at)).withColumn("usual_ms", usual_ms)
        .where((F.col("for_ms") > bound) & (~is_held | (lease_until < at)))
        .orderBy(F.desc("for_ms")).to(STUCK)
    )
