"""I11, a unique key has one job; I12, jobs of a group come one at a time, in order. Both where nothing was wrong.

While nodes disagree about who is there, a key may have more than one home, and each keeps the promise for itself. So
both are demanded where the cluster was calm for the whole time between the two jobs: from its beginning on, or after
it had settled.
"""
from __future__ import annotations

from typing import Final

from holdfast.testing.checkers.facts import ENDINGS, Delivery, Facts, JobFacts, Violation

SLACK_MS: Final = 50
"""Clocks of nodes differ by this much in how long they think a lease of some seconds is, beside what is drawn."""


def was_calm(facts: Facts, since: int, until: int) -> bool:
    """Whether nothing was wrong between two times, nor shortly before."""
    began = facts.calm_since(until)
    if began is None or began > since:
        return False
    return began == facts.calm_from[0] or began <= since - facts.settle_ms


def may_have_died(job: JobFacts) -> bool:
    """When, no client can see: a dead job holds nothing up, and its key is free."""
    return job.add.get("attempts", 0) > 0 or any(told.f in ("reject", "bury", "call-off", "retry") for told in job.told)


def ended_by(facts: Facts, job: JobFacts, t: int) -> bool:
    """Whether the job may have been over at that time."""
    if job.flushed or facts.was_replaced(job) or may_have_died(job):
        return True
    if any(told.f in ENDINGS and told.invoked <= t for told in job.told):
        return True
    if int(job.add.get("attempts", 0)) > 0 or any(told.f == "reject" and told.invoked <= t for told in job.told):
        return True  # or dead, which frees its keys
    return t >= job.invoked + job.ttl_ms - facts.drift_ms(job.ttl_ms, job.invoked) - SLACK_MS


def unique_is_kept(facts: Facts) -> list[Violation]:
    """I11: no second job is accepted under a key whose job is known to be alive."""
    found: list[Violation] = []
    for jobs in facts.by_key.values():
        accepted = [job for job in jobs if job.outcome == "ok" and job.done is not None]
        for one in accepted:
            assert one.done is not None
            if one.add["until"] == "started":
                continue
            for two in accepted:
                if two is one or two.invoked <= one.done or two.done is None or two.add["ondup"] == "replace":
                    continue
                if was_calm(facts, one.invoked, two.done) and not ended_by(facts, one, two.done):
                    text = f"{one.name} of {one.done} ms has the key {two.add['unique']!r} still"
                    found.append(Violation("I11", "unique-twice", two.name, two.done, text))
    return found


def groups_are_kept(facts: Facts) -> list[Violation]:
    """I12: while a job of a group has not ended, none that was accepted later is handed out."""
    found: list[Violation] = []
    for jobs in facts.by_group.values():
        for one in jobs:
            if one.outcome != "ok" or one.done is None or one.delay_ms or one.add["skips"]:
                continue
            if any(told.f in ("dequeue", "enqueue") for told in one.told):
                continue
            if one.retry_ms == 0:
                continue  # handed out at most once, perhaps to somebody whose connection broke: then it is over
            for two in jobs:
                if two is one or two.invoked <= one.done:
                    continue
                for d in two.deliveries:
                    if was_calm(facts, one.invoked, d.t) and not ended_by(facts, one, d.t):
                        text = f"{one.name} was accepted at {one.done} ms, before it was added, and has not ended"
                        found.append(Violation("I12", "group-order", two.name, d.t, text))
                        break
    return found


def one_at_a_time(facts: Facts) -> list[Violation]:
    """I12: two jobs of a group are not out at once; but an at-most-once job lets the next one go when it is handed out,
    since nobody says when its consumer is gone (groups.py). Its own consumer, elsewhere, may get it after that."""
    flight_ms = facts.number("flight_ms", 0)
    found: list[Violation] = []
    for jobs in facts.by_group.values():
        for one in jobs:
            if one.retry_ms == 0 or any(told.f in ("dequeue", "enqueue") for told in one.told):
                continue
            for d in one.deliveries:
                until = lease_end(facts, one, d)
                for two in jobs:
                    for other in two.deliveries:
                        is_later = other.place > d.place if two.retry_ms > 0 else other.t - flight_ms > d.t
                        if two is not one and is_later and other.t < until and was_calm(facts, one.invoked, other.t):
                            text = f"{one.name} was handed out at {d.t} ms, and is out until {until} ms"
                            found.append(Violation("I12", "group-two-out", two.name, other.t, text))
    return found


def lease_end(facts: Facts, job: JobFacts, d: Delivery) -> int:
    """Until when a job that was handed out is surely out: nobody has said anything of it that may end that, nor while
    it was on its way to a consumer elsewhere."""
    flight_ms = facts.number("flight_ms", 0)
    t, span = d.t, d.lease_ms or job.retry_ms
    until = t + span - facts.drift_ms(span, t) - SLACK_MS
    until = min(until, job.invoked + job.ttl_ms - facts.drift_ms(job.ttl_ms, job.invoked) - SLACK_MS)
    for told in job.told:
        if told.f != "working" and (told.done is None or told.done >= t - flight_ms):
            until = min(until, max(t, told.invoked))
    return until if not job.flushed and not facts.was_replaced(job) else t
