"""Gold: failures by signature, day by day.

Two failures are of one kind if their texts differ only in numbers, ids, addresses and quoted words: what is left
(`pipeline/signatures.py`) groups what a person would group.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.pipeline.signatures import NO_WORDS, SIGNATURE_MAX, STEPS

from .names import DEAD, NACKED
from .schema import schema

FAILURE_DAY: Final = schema("""
    queue string, day date, signature string, failures long, dead long, jobs long, workers long, first_at timestamp,
    last_at timestamp, sample_error string, sample_job string
""")


def signature(error: Column) -> Column:
    """What is the same in failures of one kind."""
    for pattern, by in STEPS:
        error = F.regexp_replace(error, pattern, by)
    return F.coalesce(F.nullif(F.substring(F.trim(error), 1, SIGNATURE_MAX), F.lit("")), F.lit(NO_WORDS))


def per_day(events: DataFrame) -> DataFrame:
    """From the events of some days."""
    failed = events.where(F.col("type").isin(NACKED, DEAD))
    sample = F.struct("at", "event_id")
    return failed.groupBy("queue", F.to_date("at").alias("day"), signature(F.col("error")).alias("signature")).agg(
        F.count_if(F.col("type") == NACKED).alias("failures"), F.count_if(F.col("type") == DEAD).alias("dead"),
        F.count_distinct("job_id").alias("jobs"), F.count_distinct("worker").alias("workers"),
        F.min("at").alias("first_at"), F.max("at").alias("last_at"),
        F.max_by("error", sample).alias("sample_error"), F.max_by("job_id", sample).alias("sample_job"),
    ).to(FAILURE_DAY)
