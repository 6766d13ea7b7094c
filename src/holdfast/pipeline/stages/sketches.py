"""Percentiles that add up, in Spark: the buckets of `pipeline.sketch`, and how to read them.

`tallies.py` counts rows per bucket and collects the buckets of a group; here are the bucket of a value and the
percentiles of a group. Plain SQL, so nothing leaves the JVM.
"""
from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.pipeline import sketch

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def columns(prefix: str) -> str:
    """The schema of what `told` adds for `prefix`."""
    shares = ", ".join(f"{prefix}_{name} double" for name in PERCENTILES)
    return f"{prefix}_n long, {shares}, {prefix}_sketch map<int, long>"


def bucket(value: Column) -> Column:
    # Rounded up with the same slack as in sketch.bucket, so that both programs agree on the borders.
    return F.when(value < 1, 0).otherwise(F.ceil(F.ln(value) / sketch.LN_GAMMA - 1e-9) + 1).cast("int")


def told(groups: DataFrame, name: str) -> DataFrame:
    """`name_n` and `name_buckets` (sorted) become percentiles and the sketch; nulls where there is nothing to tell."""
    is_there = F.col(f"{name}_n") > 0
    made = {f"{name}_{word}": F.when(is_there, read(share, name)) for word, share in PERCENTILES.items()}
    made[f"{name}_sketch"] = F.when(is_there, F.map_from_entries(f"{name}_buckets"))
    return groups.withColumns(made).drop(f"{name}_buckets")


def read(share: float, name: str) -> Column:
    """A percentile of the sorted buckets: the middle of the first bucket at which the rank is reached."""
    rank = f"greatest(1, ceil({share}D * {name}_n))"
    found = f"""aggregate({name}_buckets, struct(0L AS seen, -1 AS at),
        (a, b) -> struct(a.seen + b.count AS seen,
                         if(a.at < 0 AND a.seen + b.count >= {rank}, b.bucket, a.at) AS at)).at"""
    return F.expr(f"if({found} <= 0, 0D, 2 * pow({sketch.GAMMA!r}D, {found} - 1) / ({sketch.GAMMA!r}D + 1))")
