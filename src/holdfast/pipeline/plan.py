"""`holdfast pipeline plan`: a day's jobs again, with other workers and other rates. No Spark.

The trace is what happened: when each job could be handed out, and how long its run took. Workers take jobs in that
order, each for as long as it took then. What comes out is how long jobs would have waited, and when the last was done.
"""
from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from . import sketch


@dataclass(frozen=True)
class Outcome:
    """What would have been."""

    workers: int
    rate: float
    jobs: int
    wait_p50_ms: float
    wait_p95_ms: float
    wait_p99_ms: float
    wait_max_ms: float
    busy: float
    """Share of the workers' time, from the first job to the end of the last."""
    drain_ms: float
    """From the last arrival to the end of the last job."""


def replay(trace: Sequence[tuple[float, float]], workers: int, rate: float = 1.0) -> Outcome:
    """`trace`: (ready, run) in milliseconds. `rate` 2.0: jobs come twice as fast."""
    if workers < 1 or rate <= 0:
        raise ValueError("at least one worker, and a rate above 0")
    if not trace:
        return Outcome(workers, rate, 0, 0, 0, 0, 0, 0, 0)
    jobs = sorted(trace)
    first = jobs[0][0]
    free = [0.0] * workers  # when each worker is free, the earliest first
    waits: list[float] = []
    busy = end = ready = 0.0
    for at, run in jobs:
        ready = (at - first) / rate
        start = max(ready, free[0])
        heapq.heapreplace(free, start + run)
        waits.append(start - ready)
        busy += run
        end = max(end, start + run)
    told = sketch.of(waits)
    p50, p95, p99 = (sketch.quantile(told, share) or 0.0 for share in (0.50, 0.95, 0.99))
    return Outcome(
        workers, rate, len(jobs), p50, p95, p99, max(waits), busy / (workers * end) if end else 0.0,
        max(0.0, end - ready),
    )
