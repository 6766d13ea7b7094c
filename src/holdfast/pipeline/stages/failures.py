"""Gold: failures by signature, day by day.

Two failures are of one kind if their texts differ only in numbers, ids, addresses and quoted words. `signature` takes
those out; what is left groups what a person would group.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .names import DEAD, NACKED
from .schema import schema

FAILURE_DAY: Final = schema("""
    queue string, day date, signature string, failures long, dead long, jobs long, workers long, first_at timestamp,
    last_at timestamp, sample_error string, sample_job string
""")
SIGNATURE_MAX: Final = 160
"""Characters of a signature: a line on a screen and a bit."""
NO_WORDS: Final = "(no error given)"
STEPS: Final = [
    (r"(?s)\n.*", ""),                                   # the first line says it
    (r"DI[0-9a-f]{44}SQ", "<job>"),
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{9,}", "<id>"),
    (r"0x[0-9a-fA-F]+", "<n>"),
    (r"'[^']*'|\"[^\"]*\"", "<…>"),
    (r"\b[0-9a-fA-F]{12,}\b", "<id>"),
    (r"\d+", "<n>"),
    (r"(<n>[.:,])+<n>", "<n>"),                          # addresses, times, versions
    (r"\s+", " "),
]


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
