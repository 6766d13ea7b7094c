"""I1, no accepted job is lost; I7, no job is stuck."""
from __future__ import annotations

from holdfast.testing.checkers.facts import Facts, JobFacts, Violation

WILLQUEUE_MS = 500
WAITS = ("working", "dequeue", "nack", "release", "keepalive", "retry")  # after which its time begins anew


def must_arrive(facts: Facts, job: JobFacts) -> bool:
    """Whether the promise covers this job: accepted, at least once, and more copies than were lost."""
    return (
        job.outcome == "ok" and job.retry_ms > 0 and job.ending() is None and not job.flushed
        and facts.lost_at_once(job.invoked) < job.copies and not facts.was_replaced(job)
        and "final_of" not in job.add
    )


def lives_until(facts: Facts, job: JobFacts) -> int:
    """The earliest moment at which a node may think that the job's life is over."""
    return job.invoked + job.ttl_ms - facts.drift_ms(job.ttl_ms, job.invoked)


def no_job_lost(facts: Facts) -> list[Violation]:
    """I1: with fewer losses than copies, each accepted job is delivered or outlives the history."""
    found: list[Violation] = []
    if facts.heal is None:
        return found
    for job in facts.jobs.values():
        patience = facts.heal + due_within(facts, job)
        if any(id in facts.dead for id in job.ids):
            continue  # handed out to somebody who never saw the reply
        if must_arrive(facts, job) and not job.deliveries and patience < min(facts.end, lives_until(facts, job)):
            text = f"added at {job.node}, {job.add}, never delivered"
            found.append(Violation("I1", "lost", job.name, facts.end, text))
    return found


def due_within(facts: Facts, job: JobFacts) -> int:
    """How long it may take, once the cluster is healed; of a group all others may come before it."""
    spans = [told.ms for told in job.told] + [d.lease_ms for d in job.deliveries]
    longest = max([job.retry_ms, *spans]) + int(job.add.get("backoff", 0)) * 1_000
    ms = job.retry_ms + longest + 2 * WILLQUEUE_MS + facts.number("slack_ms", 10_000)
    if job.group is not None:
        ms += sum(other.retry_ms + WILLQUEUE_MS for other in facts.by_group[job.group])
    return ms


def no_job_stuck(facts: Facts) -> list[Violation]:
    """I7: once healed, a job that nobody acknowledged comes (again) within its retry time and some slack."""
    found: list[Violation] = []
    if facts.heal is None:
        return found
    for job in facts.jobs.values():
        if not must_arrive(facts, job) or not job.deliveries or any(id in facts.dead for id in job.ids):
            continue  # never delivered at all is the one above; and a dead job is listed, not stuck
        before = [d.t for d in job.deliveries if d.t <= facts.heal]
        asked = [told.done or told.invoked for told in job.told if told.f in WAITS]
        since = max([facts.heal, (job.done or 0) + job.delay_ms, *before, *asked])
        until = since + due_within(facts, job)
        if until >= min(facts.end, lives_until(facts, job)):
            continue
        if not any(since < d.t <= until for d in job.deliveries) and not any(d.t > facts.heal for d in job.deliveries):
            found.append(Violation("I7", "stuck", job.name, until, f"not delivered between {since} and {until} ms"))
    return found
