"""How gold is made: facts, tallied in one pass.

A fact is that something happened (`what`) at a time (`at`), so many times (`n`), perhaps for so long (`ms`). An event
is one; a job is several: it was added, it waited, it ran, it ended. `tallied` counts facts per group and time, and
makes sketches of durations: first per bucket of the sketch, which leaves little, then per group. Nothing is joined and
every table is read once, however many figures there are.
"""
from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from . import sketches


def fact(what: str | Column, at: Column, ms: Column | None = None, n: Column | None = None) -> Column:
    """One thing that happened. A fact without a time, or of a duration nobody knows, is none: see `happened`."""
    return F.struct(
        (F.lit(what) if isinstance(what, str) else what).alias("what"), at.alias("at"),
        (F.lit(None) if ms is None else ms).cast("double").alias("ms"),
        (F.lit(1) if n is None else n).cast("long").alias("n"),
    )


def lasted(what: str, at: Column, ms: Column) -> Column:
    """A fact with a duration."""
    return fact(F.when(ms.isNotNull(), what), at, ms)


def happened(rows: DataFrame, keys: Sequence[str], *facts: Column) -> DataFrame:
    """The facts of each row, under its keys."""
    return (
        rows.select(*keys, F.explode(F.array(*facts)).alias("fact")).select(*keys, "fact.*")
        .where(F.col("at").isNotNull() & F.col("what").isNotNull())
    )


def tallied(
    facts: DataFrame, keys: Sequence[str], unit: str, counts: Sequence[str], durations: Sequence[str],
    *more: Column, first: Sequence[Column] = (),
) -> DataFrame:
    """Per group of `keys` and per `unit` of time: how often each of `counts` happened, and a sketch of each of
    `durations`. `more` are further aggregates, of rows of (`what`, bucket) with `n`, `ms` and those of `first`."""
    bucket = F.when(F.col("what").isin(*durations), sketches.bucket(F.col("ms")))
    fine = facts.groupBy(
        *keys, F.date_trunc(unit, "at").alias(unit), "what", bucket.alias("bucket")
    ).agg(F.sum("n").alias("n"), F.sum("ms").alias("ms"), *first)
    coarse = fine.groupBy(*keys, unit).agg(
        *[number_of(name).alias(name) for name in counts],
        *[number_of(name).alias(f"{name}_n") for name in durations],
        *[F.array_sort(F.collect_list(F.when(F.col("what") == name, F.struct("bucket", F.col("n").alias("count")))))
          .alias(f"{name}_buckets") for name in durations],
        *more,
    )
    for name in durations:
        coarse = sketches.told(coarse, name)
    return coarse


def number_of(*names: str) -> Column:
    return F.sum(F.when(F.col("what").isin(*names), F.col("n")).otherwise(0))
