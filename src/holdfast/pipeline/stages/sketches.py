"""Percentiles that add up, in Spark: the buckets of `pipeline.sketch`, as an aggregate of two steps.

First rows are counted per bucket, then buckets are collected per group and percentiles read from them. Both steps are
plain SQL, so nothing leaves the JVM.
"""
from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.pipeline import sketch

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def columns(prefix: str) -> str:
    """The schema of what `sketched` adds for `prefix`."""
    shares = ", ".join(f"{prefix}_{name} double" for name in PERCENTILES)
    return f"{prefix}_n long, {shares}, {prefix}_sketch map<int, long>"


def bucket(value: Column) -> Column:
    # Rounded up with the same slack as in sketch.bucket, so that both programs agree on the borders.
    return F.when(value < 1, 0).otherwise(F.ceil(F.ln(value) / sketch.LN_GAMMA - 1e-9) + 1).cast("int")


def sketched(rows: DataFrame, keys: Sequence[str], value: str, prefix: str) -> DataFrame:
    """Per group of `keys`: how many rows have `value`, its percentiles, and the sketch they were read from."""
    counts = (
        rows.where(F.col(value).isNotNull())
        .groupBy(*keys, bucket(F.col(value)).alias("bucket"))
        .agg(F.count("*").alias("count"))
    )
    groups = counts.groupBy(*keys).agg(
        F.sum("count").alias(f"{prefix}_n"),
        F.array_sort(F.collect_list(F.struct("bucket", "count"))).alias("buckets"),
    )
    for name, share in PERCENTILES.items():
        groups = groups.withColumn(f"{prefix}_{name}", read(share, f"{prefix}_n"))
    return groups.withColumn(f"{prefix}_sketch", F.map_from_entries("buckets")).drop("buckets")


def read(share: float, count: str) -> Column:
    """A percentile of the sorted `buckets`: the middle of the first bucket at which the rank is reached."""
    rank = f"greatest(1, ceil({share}D * {count}))"
    found = f"""aggregate(buckets, struct(0L AS seen, -1 AS at),
        (a, b) -> struct(a.seen + b.count AS seen,
                         if(a.at < 0 AND a.seen + b.count >= {rank}, b.bucket, a.at) AS at)).at"""
    return F.expr(f"if({found} <= 0, 0D, 2 * pow({sketch.GAMMA!r}D, {found} - 1) / ({sketch.GAMMA!r}D + 1))")
