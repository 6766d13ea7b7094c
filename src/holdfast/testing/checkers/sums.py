"""Every job is in some figure: what nodes say of a queue adds up to the jobs that the nodes hold.

A look is what each node that is there holds, and the sum of the figures that each gives for a queue. Figures are
counted by walks over all jobs, a moment old (core/census.py); so they are judged where nothing has changed for a while:
no copy of a job of that queue, at any node, and no link. A job that two workers have is two hand-outs, and is counted
as that: each node says what its own workers do. So is one that a worker has and that stands in line at the home of its
group, which was another node when the job was handed out. Plain data in, words out, like reach.py.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from holdfast.testing.checkers.reach import IN_LINE, OUT
from holdfast.testing.checkers.whitebox import ACKED, TOMBSTONE, Copy, View

QUIET_MS: Final = 5_000
"""Two walks, however few beats a node has in a second, and what clocks run apart."""


class Look(NamedTuple):
    t: int
    steady: int  # since when those that are there have links with each other, and with nobody else; -1: they have not
    jobs: Mapping[str, View]
    figures: Mapping[str, Mapping[str, int]]  # by node and queue: jobs in any state, as the node counts them
    given: Mapping[str, int]  # by queue, when a job of it was last handed out: it may have come and gone between looks


class Sums:
    def __init__(self) -> None:
        self.before: dict[str, frozenset[tuple[str, str, Copy]]] = {}  # by queue: node, job and what it is there
        self.since: dict[str, int] = {}
        self.judged = 0

    def look(self, look: Look) -> Iterator[tuple[str, str]]:
        """Queues whose figures are wrong, and words."""
        queues: dict[str, set[tuple[str, str, Copy]]] = {}
        for node, view in look.jobs.items():
            for job, copy in view.items():
                if copy.state != TOMBSTONE:
                    queues.setdefault(copy.queue, set()).add((node, job, copy._replace(left_ms=0)))
        for queue in {*queues, *self.before}:
            rows = frozenset(queues.get(queue, ()))
            if rows != self.before.get(queue):
                self.before[queue], self.since[queue] = rows, look.t
                continue
            quiet_t = max(look.steady, self.since[queue], look.given.get(queue, 0))
            if look.steady >= 0 and look.t - quiet_t >= QUIET_MS:
                yield from self.judge(queue, rows, look)

    def judge(self, queue: str, rows: frozenset[tuple[str, str, Copy]], look: Look) -> Iterator[tuple[str, str]]:
        jobs = {job for _, job, _ in rows}
        ending = {job for _, job, copy in rows if copy.state == ACKED}
        ending |= {job for view in look.jobs.values() for job in jobs if job in view and view[job].state == TOMBSTONE}
        told = {node: figures.get(queue, 0) for node, figures in look.figures.items() if queue in figures}
        if ending or not told:
            return  # they leave one node after the other; and a node of the tests tells nothing
        self.judged += 1
        # A hand-out is counted where it is: beside another one, and beside a place in line at another home.
        seen_to = [job for _, job, copy in rows if copy.stands in (OUT, IN_LINE)]
        again = len(seen_to) - len(set(seen_to))
        if sum(told.values()) != len(jobs) + again:
            where = {node: sorted(f"{copy.state} {copy.stands}" for each, _, copy in rows if each == node)
                     for node in look.jobs}
            yield queue, f"{len(jobs)} jobs of {queue}, and the nodes say {told}; they hold {where}"
