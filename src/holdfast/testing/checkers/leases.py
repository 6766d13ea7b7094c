"""A lease is kept: while it runs nobody else gets the job, unless the network kept the nodes from knowing.

Not one of the numbered promises, but what "approximates single delivery" comes to: a consumer has its retry
time even if the node it got the job from dies, or restarts. Only cuts and the like may shorten it, and a node that
dies in the very moment in which it handed the job out, before any other has heard of that.
"""
from __future__ import annotations

from itertools import pairwise
from typing import Final

from holdfast.testing.checkers.facts import PUSHES, Delivery, Facts, JobFacts, Violation

PROCESS_FAULTS: Final = frozenset(
    ["kill", "power", "crash", "rolling", "blackout", "jump", "recrash", "reclock", "join"]
)
"""What does not keep nodes that are up from hearing each other."""

TOLD_MS: Final = 350
"""So long after a hand-out the other holders are told that it is still out, at the latest (core/whereabouts.py)."""

SLACK_MS: Final = 1_500
"""A node counts from when it last heard the one that gave the lease: a ping period, and jitter."""


def leases_are_kept(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for job in facts.jobs.values():
        if job.retry_ms == 0 or len(job.deliveries) < 2 or job.outcome != "ok":
            continue
        if any(told.f in PUSHES or told.f in ("dequeue", "reject") for told in job.told):
            continue
        ordered = sorted(job.deliveries)
        for one, two in pairwise(ordered):
            span = lease_of(facts, job, one)
            earliest = one.t + span - facts.drift_ms(span, one.t) - SLACK_MS
            is_told = not died_at_once(facts, one)
            if two.t < earliest and is_told and not disturbed(facts, job.invoked - facts.settle_ms, two.t):
                found.append(Violation(
                    "lease", "lease-broken", job.name, two.t,
                    f"handed out at {one.node} at {one.t} ms for {span} ms, and again at {two.node}",
                ))
    return found


def lease_of(facts: Facts, job: JobFacts, delivery: Delivery) -> int:
    """How long the consumer had the job for: as it asked, or was told when it said that it is at work.

    A longer time than the job's own counts only if the node lives to say so: others are told, but once. So does the
    node that lent the job, which cannot know what time somebody asks for elsewhere.
    """
    span = delivery.lease_ms or job.retry_ms
    heard_by = delivery.t + facts.number("flight_ms", 0)
    if giver(facts, job, delivery) != delivery.node and any(delivery.t <= t <= heard_by for t in facts.crashes):
        span = min(span, job.retry_ms)
    for told in job.told:
        if told.f == "keepalive" and told.token == delivery.token and told.done is not None and told.is_ok:
            span = told.invoked - delivery.t + min(told.ms, job.retry_ms)
    return span


def died_at_once(facts: Facts, one: Delivery) -> bool:
    """Whether a node died before it can have told the others that it had handed a job out."""
    heard_by = one.t + TOLD_MS + facts.number("flight_ms", 0)
    return any(one.t <= t <= heard_by for t in facts.crashes)


def giver(facts: Facts, job: JobFacts, one: Delivery) -> str:
    """The node that decided about a hand-out: for a job with keys its home, wherever its consumer is."""
    is_lent = job.group is not None or job.key is not None
    return facts.prefixes.get(one.token[:8], "") if is_lent else one.node


def disturbed(facts: Facts, since: int, until: int) -> bool:
    """Whether between the two times nodes may have been unable to hear each other, or forgot."""
    if any(since <= t <= until for t, _ in facts.losses):
        return True
    return any(begin <= until and end >= since and kind not in PROCESS_FAULTS for begin, end, kind in facts.faults)
