"""I8, nothing is delivered after its life; I9, nor before its delay is over."""
from __future__ import annotations

from holdfast.testing.checkers.facts import Facts, Violation

GRAIN_MS = 1_100
"""A node looks at lives by the second, as Disque does."""


def ttl_ends_it(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for job in facts.jobs.values():
        if job.done is None or any(told.f == "retry" for told in job.told) or "final_of" in job.add:
            continue  # sent back from the dead it lives once more; at the end of a batch it lives from then on
        until = job.done + job.ttl_ms + facts.drift_ms(job.ttl_ms, job.invoked) + GRAIN_MS
        for d in job.deliveries:
            if d.t > until:
                text = f"ttl {job.ttl_ms} ms, added at {job.done} ms"
                found.append(Violation("I8", "after-ttl", job.name, d.t, text))
    return found


def delay_is_kept(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for job in facts.jobs.values():
        if job.delay_ms == 0 or any(told.f == "enqueue" for told in job.told):
            continue
        since = job.invoked + job.delay_ms - facts.drift_ms(job.delay_ms, job.invoked) - 1
        for d in job.deliveries:
            if d.t < since:
                found.append(Violation(
                    "I9", "before-delay", job.name, d.t, f"delay {job.delay_ms} ms, added at {job.invoked} ms"
                ))
    return found
