"""What a worker has done, per task: for its metrics, in the text format of Prometheus.

    holdfast_worker_jobs_total{task,queue,outcome}     done, failed, dead, released, lost
    holdfast_worker_job_seconds{task,queue}            how long their handlers ran, as a histogram
    holdfast_worker_running, _in_hand, _concurrency    now

Counted where outcomes are told, so that a figure and what the node knows agree. Several processes of one worker write
theirs beside their health files, and the parent adds them up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
"""Bounds of the histogram: the usual ones of Prometheus, and beyond them up to an hour."""
TASKS_MAX: Final = 500
"""Tasks with figures of their own. An app has a few dozen; names come from jobs only where the app knows them."""


class OfTask(msgspec.Struct):
    """The figures of one task in one queue."""

    task: str
    queue: str
    outcomes: dict[str, int] = {}
    seconds: float = 0.0
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))

    def note(self, outcome: str, seconds: float) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.seconds += seconds
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1

    def add(self, other: OfTask) -> None:
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.seconds += other.seconds
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]


class Figures(msgspec.Struct):
    """All that one worker has to tell; of several, their sum."""

    tasks: list[OfTask] = []
    now: dict[str, float] = {}

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)


def from_json(data: bytes) -> Figures:
    return msgspec.json.decode(data, type=Figures)


class Counts:
    """Counts as jobs end; by one thread."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], OfTask] = {}

    def note(self, task: str, queue: str, outcome: str, seconds: float) -> None:
        key = (task, queue)
        found = self._tasks.get(key)
        if found is None:
            if len(self._tasks) >= TASKS_MAX:
                return
            found = self._tasks[key] = OfTask(task, queue)
        found.note(outcome, seconds)

    def figures(self, now: Mapping[str, float]) -> Figures:
        return Figures(list(self._tasks.values()), dict(now))


def total(each: Iterable[Figures]) -> Figures:
    """Of several processes."""
    tasks: dict[tuple[str, str], OfTask] = {}
    now: defaultdict[str, float] = defaultdict(float)
    for one in each:
        for task in one.tasks:
            tasks.setdefault((task.task, task.queue), OfTask(task.task, task.queue)).add(task)
        for name, value in one.now.items():
            now[name] += value
    return Figures(list(tasks.values()), dict(now))


def exposition(figures: Figures) -> bytes:
    """For Prometheus."""
    lines = ["# TYPE holdfast_worker_jobs_total counter",
             "# HELP holdfast_worker_jobs_total Jobs that ended here, by task, queue and outcome"]
    for each in figures.tasks:
        for outcome, count in each.outcomes.items():
            lines.append(f"holdfast_worker_jobs_total{labels(each, outcome=outcome)} {count}")
    lines += ["# TYPE holdfast_worker_job_seconds histogram",
              "# HELP holdfast_worker_job_seconds How long handlers ran"]
    for each in figures.tasks:
        sum_so_far = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), each.counts, strict=True):
            sum_so_far += count
            lines.append(f"holdfast_worker_job_seconds_bucket{labels(each, le=bound)} {sum_so_far}")
        lines.append(f"holdfast_worker_job_seconds_sum{labels(each)} {each.seconds:.6f}")
        lines.append(f"holdfast_worker_job_seconds_count{labels(each)} {sum_so_far}")
    for name, value in figures.now.items():
        lines += [f"# TYPE holdfast_worker_{name} gauge", f"holdfast_worker_{name} {value:g}"]
    return ("\n".join(lines) + "\n").encode()


def labels(each: OfTask, **more: str) -> str:
    pairs = {"task": each.task, "queue": each.queue, **more}
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in pairs.items()) + "}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
