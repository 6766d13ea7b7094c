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
    event_id string, type string, at timestamp, node string, job_id string, queue string, attempt int, worker string,
    error string, cause string, tenant string, domain string, `group` string, parent_id string, peer string,
    body_bytes long, lease_ms long, delay_ms long, count long, copy boolean, retry_s int, ttl_s long, priority int,
    attempts_max int, headers map<string, string>, schema_version int
""")
"""Columns of bronze and silver events; docs/reference/history.md says what they mean."""


def bronze(read: DataFrame) -> DataFrame:
    """Rows of the `events` source as bronze keeps them: nothing is thrown away."""
    return read.select(
        F.concat_ws("/", "node", "segment", "offset").alias("event_id"), "type", F.col("timestamp").alias("at"), "node",
        F.col("key").alias("job_id"), "queue", "attempt", "worker", "error", "cause", "tenant", "domain", "group",
        F.col("parent").alias("parent_id"), "peer", "body_bytes", "lease_ms", "delay_ms", "count", "copy", "retry_s",
        "ttl_s", "priority", F.col("attempts").alias("attempts_max"), "headers",
        F.lit(SCHEMA_VERSION).alias("schema_version"),
    ).to(EVENTS)


def clean(bronze: DataFrame) -> DataFrame:
    """One row per event. Of the same event in two schema versions the newer stays: it may know more."""
    newest = F.max_by(F.struct(*EVENTS.names), "schema_version")
    return bronze.groupBy("event_id").agg(newest.alias("e")).select("e.*").to(EVENTS)


def day(rows: DataFrame, column: str) -> DataFrame:
    """The same with `part`, the day a row is kept under."""
    return rows.withColumn("part", F.date_format(column, "yyyy-MM-dd"))
