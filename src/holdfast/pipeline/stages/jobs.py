"""Silver jobs: one row per job, folded from all of its events, at whatever nodes they happened.

Clocks of nodes differ by a little, so a job may seem handed out before it was added: durations never go below zero.
Events may be missing (the history was switched on late, a node died with its disk): a job is then what its other events
say, and columns nobody told are null.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .names import (
    ACKED,
    ADDED,
    DEAD,
    HANDED,
    HELD,
    LOST,
    NACKED,
    OUTCOMES,
    QUEUED,
    RELEASED,
    REVIVED,
    SILENT,
    STATES,
    WAITING,
)
from .schema import schema

JOBS: Final = schema("""
    job_id string, queue string, tenant string, domain string, `group` string, parent_id string, priority int,
    body_bytes long, first_at timestamp, last_at timestamp, added_at timestamp, ready_at timestamp,
    first_handed_at timestamp, last_handed_at timestamp, ended_at timestamp, outcome string, attempts int, nacks int,
    losses int, worker string, lease_ms long, error string, cause string, nodes int, wait_ms double, run_ms double,
    state string, state_at timestamp, lease_until timestamp, due_at timestamp, silent_losses int, silent_at timestamp
""")
"""`wait_ms` is from when it could be handed out to when it first was; `run_ms` from the last hand-out to the ack.

Of a job that has not ended, `state` is what it does since `state_at`: held by a worker until `lease_until`, or waiting,
until `due_at` if it has a delay. `silent_losses` are leases that ended with their node."""


def fold(events: DataFrame) -> DataFrame:
    """One row per job id."""
    def of(kind: str) -> Column:
        return F.when(F.col("type") == kind, F.col("at"))

    def times(kind: str) -> Column:
        return F.count_if(F.col("type") == kind).cast("int")

    def last(column: str, *types: str) -> Column:
        """Of the last event that says it."""
        told = F.col(column).isNotNull() & (F.col("type").isin(*types) if types else F.lit(True))
        return F.max_by(column, F.when(told, F.struct("at", "event_id"))).alias(column)

    order = F.struct("at", "attempt", F.array_position(F.array(*map(F.lit, STATES)), F.col("type")), "event_id")
    acts = F.col("type").isin(*STATES)
    last_act = F.max_by(F.struct("type", "at", "lease_ms", "delay_ms"), F.when(acts, order))
    silent = (F.col("type") == LOST) & F.coalesce(F.col("cause") == SILENT, F.lit(False))

    # A copy's end is told by each node that held one, the first counts; one that was revived may die again.
    ends = [(F.max if kind == DEAD else F.min)(of(kind)).alias(f"{kind}_at") for kind in OUTCOMES]
    jobs = events.where(F.col("job_id").isNotNull()).groupBy("job_id").agg(
        last("queue"), last("priority"), last("error"), last("cause"), last("worker", HANDED), last("lease_ms", HANDED),
        *[F.min(name).alias(name) for name in ("tenant", "domain", "group", "parent_id", "body_bytes")],
        F.min("at").alias("first_at"), F.max("at").alias("last_at"),
        F.min(of(ADDED)).alias("added_at"), F.min(of(QUEUED)).alias("queued_at"),
        F.max(of(REVIVED)).alias("revived_at"),
        F.max(F.when(F.col("type") == ADDED, F.col("delay_ms"))).alias("delay_ms"),
        F.min(of(HANDED)).alias("first_handed_at"), F.max(of(HANDED)).alias("last_handed_at"),
        times(HANDED).alias("attempts"), times(NACKED).alias("nacks"),
        F.count_if((F.col("type") == LOST) & ~silent).cast("int").alias("told_losses"),
        F.count_if(silent).cast("int").alias("silences"), F.max(F.when(silent, F.col("at"))).alias("silent_at"),
        times(RELEASED).alias("releases"), last_act.alias("act"),
        F.count_distinct("node").cast("int").alias("nodes"), *ends,
    )
    is_back = F.col("revived_at") >= F.col(f"{DEAD}_at")
    jobs = jobs.withColumn(f"{DEAD}_at", F.when(F.coalesce(is_back, F.lit(False)), None).otherwise(F.col(f"{DEAD}_at")))
    outcome = F.coalesce(*[F.when(F.col(f"{kind}_at").isNotNull(), word) for kind, word in OUTCOMES.items()])
    ended = F.coalesce(*[F.col(f"{kind}_at") for kind in OUTCOMES])
    # Without a delay a job is queued when it is added, and only a later queueing is told.
    ready = F.when(F.col("delay_ms") > 0, F.col("queued_at")).otherwise(F.coalesce("added_at", "queued_at"))
    jobs = jobs.withColumns({"outcome": outcome, "ended_at": ended})
    is_open = F.col("outcome").isNull()
    state = F.create_map(*[F.lit(word) for pair in STATES.items() for word in pair])[F.col("act.type")]
    later = F.timestamp_micros(F.unix_micros("act.at") + 1000 * F.coalesce("act.lease_ms", "act.delay_ms", F.lit(0)))
    jobs = jobs.withColumns({
        "state": F.when(is_open, state), "state_at": F.when(is_open, F.col("act.at")),
    }).withColumns({
        "lease_until": F.when(F.col("state") == HELD, later), "due_at": F.when(F.col("state") == WAITING, later),
    })
    # Each hand-out ends once: with an answer, with a loss that its own node told, or in silence.
    answered = (F.col("nacks") + F.col("releases") + F.col("told_losses")
                + F.when(F.col(f"{ACKED}_at").isNotNull() | (F.col("state") == HELD), 1).otherwise(0))
    silent_losses = F.greatest(F.lit(0), F.least(F.col("silences"), F.col("attempts") - answered)).cast("int")
    jobs = jobs.withColumn("silent_losses", silent_losses)
    return (
        jobs.withColumn("losses", F.col("told_losses") + F.col("silent_losses"))
        .withColumn("ready_at", ready)
        .withColumn("wait_ms", ms(F.col("ready_at"), F.col("first_handed_at")))
        .withColumn("run_ms", ms(F.col("last_handed_at"), F.col(f"{ACKED}_at")))
        .to(JOBS)
    )


def ms(begin: Column, end: Column) -> Column:
    """Milliseconds between two times, not below zero; null if one of them is."""
    both = begin.isNotNull() & end.isNotNull()  # greatest() passes nulls over
    return F.when(both, F.greatest(F.lit(0.0), (F.unix_micros(end) - F.unix_micros(begin)) / 1000))
