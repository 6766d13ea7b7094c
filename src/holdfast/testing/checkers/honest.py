"""I16, replies are honest: refused means it never happened; I17, NOREPL leaves no ghost in calm times.

What is a refusal, and what says that nobody knows, is decided by what the client would raise.
"""
from __future__ import annotations

from holdfast.client.errors import Unknown, from_reply
from holdfast.testing.checkers.facts import Facts, JobFacts, Violation


def gave_up_waiting(job: JobFacts) -> bool:
    """NOREPL after a wait: copies were made and then taken back as well as could be. Any other refusal: none was."""
    return isinstance(from_reply(job.error), Unknown)


def refused_means_no(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for job in facts.jobs.values():
        if job.outcome == "fail" and job.deliveries and not gave_up_waiting(job):
            d = job.deliveries[0]
            found.append(Violation("I16", "refused-but-there", job.name, d.t, f"{job.error!r}, delivered at {d.node}"))
    return found


def no_ghosts(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for job in facts.jobs.values():
        if job.outcome != "fail" or not gave_up_waiting(job) or job.done is None:
            continue
        for d in job.deliveries:
            since = facts.calm_since(d.t)
            if since is not None and since <= job.invoked and d.t > job.done + facts.settle_ms:
                text = f"NOREPL at {job.done} ms, delivered at {d.node}"
                found.append(Violation("I17", "ghost", job.name, d.t, text))
    return found
