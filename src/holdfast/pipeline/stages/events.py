"""Silver events: bronze without what came twice, in columns that other stages may rely on.

An event is told apart by where it lies in its node's history, so the same event read twice (a stream that began anew, a
batch that was replayed) is the same row.
"""
from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.pipeline.lake import SCHEMA as SCHEMA_VERSION

from .schema import schema

EVENTS: Final = schema("""
    event_id string, type string, at timestamp, node string, offset string, job_id string, queue string, attempt int,
    worker string, error string, tenant string, domain string, parent_id string, priority int, body_bytes long,
    schema_version int, extra map<string, string>
""")
"""Columns of bronze and silver events. `extra` has what a newer node says and this version does not know."""


def bronze(read: DataFrame) -> DataFrame:
    """Rows of the `events` source as bronze keeps them: nothing is thrown away."""
    return read.select(
        F.concat_ws("/", "node", "offset").alias("event_id"), "type", F.col("timestamp").alias("at"), "node", "offset",
        F.col("key").alias("job_id"), "queue", "attempt", "worker", "error", "tenant", "domain",
        F.col("parent").alias("parent_id"), "priority", "body_bytes",
        F.lit(SCHEMA_VERSION).alias("schema_version"), "extra",
    ).to(EVENTS)


def clean(bronze: DataFrame) -> DataFrame:
    """One row per event. Of the same event in two schema versions the newer stays: it may know more."""
    newest = F.max_by(F.struct(*EVENTS.names), "schema_version")
    return bronze.groupBy("event_id").agg(newest.alias("e")).select("e.*").to(EVENTS)


def day(rows: DataFrame, column: str) -> DataFrame:
    """The same with `part`, the day a row is kept under."""
    return rows.withColumn("part", F.date_format(column, "yyyy-MM-dd"))
