"""Tenants of a queue take turns: the many jobs of one do not delay the one of another.

A tenant is fair to at each node: of the jobs that were queued there, each tenant's turn comes once in a round. So from
the time a job is accepted until it is handed out, the other tenants together get no more than one hand-out each for
every one that its own tenant gets, and for its own.
"""
from __future__ import annotations

from typing import Final

from holdfast.testing.checkers.facts import Facts, JobFacts, Violation
from holdfast.testing.checkers.keys import was_calm

LATE_MS: Final = 400
"""From a node that gives a job to the consumer at another that gets it, in calm times; as in limits.py."""

SLACK: Final = 2
"""Hand-outs that were on their way when the job was accepted."""


def is_simple(job: JobFacts) -> bool:
    """Nothing but its tenant's turn decides when it is handed out."""
    add = job.add
    return (
        job.outcome == "ok" and job.done is not None and not job.told and not job.delay_ms
        and not any(add.get(name) for name in ("domain", "group", "unique", "final_of"))
    )


def limited_queues(facts: Facts) -> set[str]:
    """Those in which a job may be passed by one that paid its way at another node."""
    words = [op.value["words"] for op in facts.history.ops if op.f == "rule" and op.type == "invoke"]
    return {each[2] for each in words if each[:2] == ["QUEUE", "SET"] and ("rate" in each or "concurrency" in each)}


def tenants_take_turns(facts: Facts) -> list[Violation]:
    by_queue: dict[str, list[JobFacts]] = {}
    for job in facts.jobs.values():
        by_queue.setdefault(job.add["queue"], []).append(job)
    limited = limited_queues(facts)
    found: list[Violation] = []
    for queue, jobs in by_queue.items():
        tenants = {job.add.get("tenant", "") for job in jobs}
        if len(tenants) < 2 or queue in limited:
            continue
        all_out = sorted((d.t, d.node, job.add.get("tenant", "")) for job in jobs for d in job.deliveries)
        for job in jobs:
            if job.deliveries and is_before_told(job) and was_calm(facts, job.invoked, job.deliveries[0].t):
                found += judge(job, all_out, len(tenants))
    return found


def is_before_told(job: JobFacts) -> bool:
    """Simple, as far as it counts: nobody said anything of it before it was handed out."""
    first = job.deliveries[0]
    told, job.told = job.told, [each for each in job.told if each.invoked < first.t]
    try:
        return is_simple(job) and first.node == job.node
    finally:
        job.told = told


def judge(job: JobFacts, all_out: list[tuple[int, str, str]], tenants: int) -> list[Violation]:
    assert job.done is not None
    first, mine = job.deliveries[0], job.add.get("tenant", "")
    others = sum(job.done < t < first.t and node == first.node and who != mine for t, node, who in all_out)
    own = sum(job.done <= t <= first.t + LATE_MS and who == mine for t, _, who in all_out)
    most = own * (tenants - 1) + SLACK
    if others <= most:
        return []
    text = f"{others} of other tenants were handed out at {first.node} before it, where {most} are fair"
    return [Violation("fairness", "tenant-waits", job.name, first.t, text)]
