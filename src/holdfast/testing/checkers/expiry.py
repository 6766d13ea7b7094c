"""A job that is to go to the dead letters when its time is over (ONEXPIRE dead) never vanishes.

It may end by a word of somebody's, or be dead for another reason; where nothing of that happened, a list of the dead
has it after its time. Asked of jobs that may be delivered again: of an at-most-once job nobody can tell whether it was
handed out to somebody who never saw the reply.
"""
from __future__ import annotations

from holdfast.testing.checkers.facts import Facts, JobFacts, Violation
from holdfast.testing.checkers.loss import due_within, must_arrive


def expired_are_listed(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    listed = last_list(facts)
    if facts.heal is None or listed is None:
        return found
    for job in facts.jobs.values():
        if job.add.get("onexpire") != "dead" or not must_arrive(facts, job) or was_revived(job):
            continue
        over = (job.done or job.invoked) + job.ttl_ms + facts.drift_ms(job.ttl_ms, job.invoked)
        if max(over, facts.heal) + due_within(facts, job) > listed:
            continue
        if not any(id in facts.dead for id in job.ids):
            text = f"added at {job.node}, {job.add}, its time was over at {over} ms, and no list of the dead has it"
            found.append(Violation("expiry", "vanished", job.name, listed, text))
    return found


def was_revived(job: JobFacts) -> bool:
    return any(told.f in ("retry", "enqueue", "dequeue") for told in job.told)


def last_list(facts: Facts) -> int | None:
    """When the dead were last listed."""
    asked = [op.t for op in facts.history.ops if op.f == "dead" and op.type == "ok"]
    return max(asked, default=None)
