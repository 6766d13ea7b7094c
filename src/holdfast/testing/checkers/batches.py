"""The last job of a batch: not before all others are over, and once they are it comes."""
from __future__ import annotations

from holdfast.testing.checkers.acks import kept
from holdfast.testing.checkers.facts import ENDINGS, Facts, JobFacts, Violation
from holdfast.testing.checkers.keys import may_have_died


def members(facts: Facts, final: JobFacts) -> dict[int, list[JobFacts]]:
    found: dict[int, list[JobFacts]] = {}
    for job in facts.jobs.values():
        if job.add.get("batch") == final.add["final_of"]:
            found.setdefault(job.add["index"], []).append(job)
    return found


def may_have_ended(facts: Facts, job: JobFacts, t: int) -> bool:
    if job.flushed or may_have_died(job) or any(told.f in ENDINGS and told.invoked <= t for told in job.told):
        return True
    return t >= job.invoked + job.ttl_ms - facts.drift_ms(job.ttl_ms, job.invoked)


def batches_are_kept(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for final in facts.jobs.values():
        if "final_of" not in final.add:
            continue
        by_index = members(facts, final)
        for d in final.deliveries:
            missing = [
                index for index in range(final.add["count"])
                if not any(may_have_ended(facts, job, d.t) for job in by_index.get(index, []))
            ]
            if missing:
                text = f"delivered at {d.node}, and {missing} of the batch have not ended"
                found.append(Violation("batch", "batch-early", final.name, d.t, text))
                break
        if must_come(facts, final, by_index) and not final.deliveries:
            text = f"closed at {final.done} ms, all of the batch have ended, and it never came"
            found.append(Violation("batch", "batch-stuck", final.name, facts.end, text))
    return found


def must_come(facts: Facts, final: JobFacts, by_index: dict[int, list[JobFacts]]) -> bool:
    """Whether every one of the batch is known to be over for long, and nothing was lost."""
    if final.outcome != "ok" or facts.heal is None or facts.losses or final.ending() is not None:
        return False
    for index in range(final.add["count"]):
        jobs = by_index.get(index, [])
        if len(jobs) != 1 or jobs[0].outcome != "ok" or any(told.f != "ack" for told in jobs[0].told):
            return False
        acks = [told.done for told in kept(facts, jobs[0]) if told.done is not None]
        if not acks or max(min(acks), facts.heal) + facts.settle_ms > facts.end:
            return False
    return True
