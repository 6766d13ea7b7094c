"""Percentiles that can be added up: counts per logarithmic bucket.

The median of a day is not the median of its minutes' medians. So beside each percentile a table keeps the counts it
was made from: a value v ≥ 1 falls into bucket ceil(ln v / ln GAMMA) + 1, everything below 1 into bucket 0 as a zero.
Counts of two minutes add up bucket by bucket, exactly, in any order, in any program; and a percentile read from them is
at most ERROR off the true one, relative to its value (the idea of DDSketch). Unlike sketches that toss coins, the same
rows always give the same counts, which is what makes a replayed batch give the same bytes.

This file is the part without Spark; `stages/sketches.py` makes the same buckets in Spark.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

ERROR: Final = 0.01
GAMMA: Final = (1 + ERROR) / (1 - ERROR)
LN_GAMMA: Final = math.log(GAMMA)

Sketch = Mapping[int, int]


def bucket(value: float) -> int:
    return 0 if value < 1 else math.ceil(math.log(value) / LN_GAMMA - 1e-9) + 1


def middle(number: int) -> float:
    """The value that stands for a bucket: at most ERROR from each value in it."""
    return 0.0 if number <= 0 else 2 * GAMMA ** (number - 1) / (GAMMA + 1)


def of(values: Iterable[float]) -> Counter[int]:
    return Counter(map(bucket, values))


def merge(sketches: Iterable[Sketch]) -> Counter[int]:
    total: Counter[int] = Counter()
    for each in sketches:
        for number, count in each.items():
            total[number] += count
    return total


def quantile(sketch: Sketch, share: float) -> float | None:
    """The smallest value that at least `share` of all are not above; None without values."""
    count = sum(sketch.values())
    if count == 0:
        return None
    rank = max(1, math.ceil(share * count))
    for number in sorted(sketch):
        rank -= sketch[number]
        if rank <= 0:
            return middle(number)
    raise AssertionError("ranks and counts disagree")
