"""`holdfast pipeline plan`: a day's jobs again, with other workers and other rates. No Spark.

The trace is what happened: when a job could be handed out, and how long its worker had it, for each of its runs: one
that failed, or whose lease was lost, has cost a worker as much as one that was done. Workers take runs in that order,
each for as long as it took then. What comes out is how long jobs would have waited, and when the last was done.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from . import sketch
from .stages.names import ACKED, ADDED, HANDED, LOST, NACKED, QUEUED, RELEASED

COLUMNS: Final = ["type", "at", "job_id", "attempt", "delay_ms"]
RANKS: Final = {ADDED: 0, HANDED: 1, RELEASED: 2, NACKED: 3, LOST: 4, ACKED: 5, QUEUED: 6}
"""Events that say when a worker had a job, in the order in which they happen to one attempt."""


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


def runs(events: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """All runs that `events` (rows of silver events) tell of from begin to end: (ready, run) in milliseconds."""
    def order(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["job_id"], row["at"], row["attempt"], RANKS[row["type"]]

    found: list[tuple[float, float]] = []
    for _, rows in groupby(sorted((row for row in events if row["type"] in RANKS), key=order), itemgetter("job_id")):
        ready = begun = None
        for row in rows:
            at = row["at"].timestamp() * 1000
            if row["type"] == HANDED:
                begun, ready = at, at if ready is None else ready
            elif row["type"] in (ADDED, QUEUED):
                ready = at + (row["delay_ms"] or 0)
            else:
                if begun is not None and ready is not None:
                    found.append((ready, max(0.0, at - begun)))
                # Without a later word that it was queued, it was queued again then.
                ready, begun = at + (row["delay_ms"] or 0), None
    return found


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
