"""Silver jobs: one row per job, folded from all of its events, at whatever nodes they happened.

Clocks of nodes differ by a little, so a job may seem handed out before it was added: durations never go below zero.
Events may be missing (the history was switched on late, a node died with its disk): a job is then what its other events
say, and columns nobody told are null.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .names import ACKED, ADDED, HANDED, LOST, NACKED, OUTCOMES, QUEUED, REFUSED
from .schema import schema

JOBS: Final = schema("""
    job_id string, queue string, tenant string, domain string, parent_id string, priority int, body_bytes long,
    first_at timestamp, last_at timestamp, added_at timestamp, ready_at timestamp, first_handed_at timestamp,
    last_handed_at timestamp, ended_at timestamp, outcome string, attempts int, nacks int, losses int, worker string,
    error string, nodes int, wait_ms double, run_ms double
""")
"""`wait_ms` is from when it could be handed out to when it first was; `run_ms` from the last hand-out to the ack."""


def fold(events: DataFrame) -> DataFrame:
    """One row per job id."""
    at = F.col("at")

    def of(*types: str) -> Column:
        return F.when(F.col("type").isin(*types), at)

    def times(kind: str) -> Column:
        return F.count_if(F.col("type") == kind).cast("int")

    def last(column: str, *types: str) -> Column:
        """Of the last event that says it."""
        told = F.col(column).isNotNull() & (F.col("type").isin(*types) if types else F.lit(True))
        return F.max_by(column, F.when(told, F.struct("at", "event_id")))

    ends = [F.min(of(kind)).alias(f"{kind}_at") for kind in OUTCOMES]
    jobs = events.where(F.col("job_id").isNotNull() & (F.col("type") != REFUSED)).groupBy("job_id").agg(
        last("queue").alias("queue"),
        *[F.min(name).alias(name) for name in ("tenant", "domain", "parent_id", "body_bytes")],
        last("priority").alias("priority"),
        F.min("at").alias("first_at"), F.max("at").alias("last_at"),
        F.min(of(ADDED)).alias("added_at"), F.min(of(QUEUED)).alias("queued_at"),
        F.min(of(HANDED)).alias("first_handed_at"), F.max(of(HANDED)).alias("last_handed_at"),
        times(HANDED).alias("attempts"), times(NACKED).alias("nacks"), times(LOST).alias("losses"),
        last("worker", HANDED).alias("worker"), last("error").alias("error"),
        F.count_distinct("node").cast("int").alias("nodes"), *ends,
    )
    outcome = F.coalesce(*[F.when(F.col(f"{kind}_at").isNotNull(), word) for kind, word in OUTCOMES.items()])
    ended = F.coalesce(*[F.col(f"{kind}_at") for kind in OUTCOMES])
    ready = F.coalesce("queued_at", "added_at")
    return (
        jobs.withColumn("outcome", outcome).withColumn("ended_at", ended).withColumn("ready_at", ready)
        .withColumn("wait_ms", ms(F.col("ready_at"), F.col("first_handed_at")))
        .withColumn("run_ms", ms(F.col("last_handed_at"), F.col(f"{ACKED}_at")))
        .to(JOBS)
    )


def ms(begin: Column, end: Column) -> Column:
    """Milliseconds between two times, not below zero; null if one of them is."""
    both = begin.isNotNull() & end.isNotNull()  # greatest() passes nulls over
    return F.when(both, F.greatest(F.lit(0.0), (F.unix_micros(end) - F.unix_micros(begin)) / 1000))
