"""Gold: each queue, minute by minute.

Hand-outs, nacks, lost leases and refusals are counted as events. Comings and endings are counted as jobs, since every
node that holds a copy may tell of them, and a job comes and ends once. Waits belong to the minute in which a job was
first handed out, runs to the one in which it was acknowledged. The backlog is how many jobs were there and not ended at
the end of the minute; a minute in which nothing happened has no row, and the backlog of the one before it.
"""
from __future__ import annotations

from functools import reduce
from operator import add
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from . import sketches
from .names import HANDED, LOST, NACKED, OUTCOMES, REFUSED, SILENT
from .schema import schema
from .tallies import fact, happened, lasted, number_of, tallied

OF_EVENTS: Final = {HANDED: "handed", NACKED: "nacked", LOST: "lost", REFUSED: "refused"}
COUNTS: Final = ("added", *OF_EVENTS.values(), *OUTCOMES.values())
QUEUE_MINUTE: Final = schema(
    "queue string, minute timestamp, " + ", ".join(f"{name} long" for name in COUNTS)
    + ", retry_rate double, duplicate_rate double, backlog long, "
    + sketches.columns("wait_ms") + ", " + sketches.columns("run_ms")
)
"""`retry_rate`: hand-outs that were not the job's first. `duplicate_rate`: leases that ended without an answer, each of
which may mean that the job runs twice. Both as a share of the minute's hand-outs."""
AGAIN: Final = "handed again"
"""The fact that a job was handed out and it was not its first time."""


def per_minute(events: DataFrame, jobs: DataFrame) -> DataFrame:
    """From events and jobs. Minutes are complete from the day on of which all events are here, and all jobs that were
    not ended before it."""
    is_again = (F.col("type") == HANDED) & (F.col("attempt") > 1)
    word = F.create_map(*[F.lit(each) for pair in OF_EVENTS.items() for each in pair])[F.col("type")]
    # Whether a worker had a job whose node fell silent is known from all of its events, so from its row.
    is_told = ~((F.col("type") == LOST) & F.coalesce(F.col("cause") == SILENT, F.lit(False)))
    of_events = happened(events.where(F.col("type").isin(*OF_EVENTS) & is_told), ["queue"], fact(
        F.when(is_again, AGAIN).otherwise(word), F.col("at"),
        n=F.when(F.col("type") == REFUSED, F.col("count")).otherwise(1),
    ))
    of_jobs = happened(
        jobs, ["queue"], fact("added", F.col("added_at")), fact(F.col("outcome"), F.col("ended_at")),
        fact("begun", F.coalesce("added_at", "first_at")),
        fact(F.when(F.col("silent_losses") > 0, "lost"), F.col("silent_at"), n=F.col("silent_losses")),
        lasted("wait_ms", F.col("first_handed_at"), F.col("wait_ms")),
        lasted("run_ms", F.col("ended_at"), F.col("run_ms")),
    )
    minutes = tallied(
        of_events.union(of_jobs).where(F.col("queue").isNotNull()), ["queue"], "minute",
        [name for name in COUNTS if name != "handed"], ["wait_ms", "run_ms"],
        number_of("handed", AGAIN).alias("handed"), number_of(AGAIN).alias("again"), number_of("begun").alias("begun"),
        number_of(*OUTCOMES.values()).alias("ended"),
    )
    so_far = Window.partitionBy("queue").orderBy("minute")
    # A minute in which jobs only began to be known, or of which only a duration is told, is no row of its own.
    is_row = reduce(add, [F.col(name) for name in COUNTS]) > 0
    return (
        minutes.withColumn("backlog", F.sum(F.col("begun") - F.col("ended")).over(so_far)).where(is_row)
        .withColumns({
            "retry_rate": F.when(F.col("handed") > 0, F.col("again") / F.col("handed")),
            "duplicate_rate": F.when(F.col("handed") > 0, F.col("lost") / F.col("handed")),
        })
        .to(QUEUE_MINUTE)
    )
