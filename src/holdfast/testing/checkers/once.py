"""I2, at most once means it; I3, nothing comes from nowhere."""
from __future__ import annotations

from holdfast.testing.checkers.facts import PUSHES, Facts, Violation


def at_most_once(facts: Facts) -> list[Violation]:
    """I2: a job with retry 0 that nobody put back by hand is never delivered twice, whatever happened."""
    found: list[Violation] = []
    for job in facts.jobs.values():
        if job.retry_ms == 0 and len(job.deliveries) > 1 and not any(told.f in PUSHES for told in job.told):
            where = ", ".join(f"{d.t} ms at {d.node}" for d in job.deliveries)
            found.append(Violation("I2", "twice", job.name, job.deliveries[1].t, f"retry 0, delivered: {where}"))
    return found


def nothing_from_nowhere(facts: Facts) -> list[Violation]:
    """I3: every delivery is of something somebody added, under one id, in its queue."""
    found = [
        Violation("I3", "from-nowhere", d.id, d.t, f"delivered at {d.node}, but nobody ever added it")
        for d in facts.strays
    ]
    owner: dict[str, str] = {}
    for job in facts.jobs.values():
        if len(job.ids) > 1:
            found.append(Violation("I3", "two-ids", job.name, facts.end, f"one job under {job.ids}"))
        for id in job.ids:
            if owner.setdefault(id, job.body) != job.body:
                found.append(Violation("I3", "id-reused", id, facts.end, f"two jobs, {owner[id]} and {job.body}"))
        for d in job.deliveries:
            if d.queue != job.add["queue"]:
                found.append(Violation("I3", "wrong-queue", d.id, d.t, f"came from {d.queue}, not {job.add['queue']}"))
            if d.t < job.invoked:
                found.append(Violation("I3", "too-soon", d.id, d.t, f"delivered before it was added, {job.invoked}"))
    return found
