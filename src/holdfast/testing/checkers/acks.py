"""I4, an acknowledgement holds when connected; and what it adds up to when nothing is wrong at all."""
from __future__ import annotations

from holdfast.testing.checkers.facts import PUSHES, Facts, JobFacts, Told, Violation
from holdfast.testing.checkers.leases import giver

CALM_SLACK_MS = 1_000
"""In calm times an ack needs a round trip or two to reach everybody; lease and ack may cross by this much."""


def kept(facts: Facts, job: JobFacts) -> list[Told]:
    """Acks that were taken by a node whose disk lived on, at least until all had heard of them: the others are not
    promised to anybody."""
    return [
        told for told in job.told
        if told.f == "ack" and told.is_ok and told.done is not None
        and not any(
            facts.was_lost(node, told.invoked, facts.restored_after(told.done)) for node in takers(facts, job, told)
        )
    ]


def takers(facts: Facts, job: JobFacts, told: Told) -> set[str]:
    """The nodes of which one took an ack. Under the token of another node that one is asked first, and takes it if it
    can be heard; from outside nobody can tell."""
    return {told.node, *(giver(facts, job, one) for one in job.deliveries if told.token and one.token == told.token)}


def acks_hold(facts: Facts) -> list[Violation]:
    """I4: no delivery of an acknowledged job once the cluster has been connected for long enough."""
    found: list[Violation] = []
    for job in facts.jobs.values():
        acks = kept(facts, job) if job.retry_ms > 0 else []  # at most once: an ack elsewhere is not kept
        if not acks or any(told.f == "fastack" for told in job.told):
            continue
        acked = min(told.done for told in acks if told.done is not None)
        for d in job.deliveries:
            if d.t - facts.settle_ms > acked and facts.is_calm(d.t):
                text = f"acked at {acked} ms, delivered at {d.node}"
                found.append(Violation("I4", "ack-forgotten", job.name, d.t, text))
    return found


def calm_is_once(facts: Facts) -> list[Violation]:
    """I4 where nothing ever was wrong: a job acknowledged within its lease is delivered once."""
    found: list[Violation] = []
    for job in facts.jobs.values():
        ack = job.acked()
        if ack is None or ack.done is None or job.retry_ms == 0 or len(job.deliveries) < 2:
            continue
        if any(told.f in PUSHES for told in job.told):
            continue
        for d in job.deliveries[1:]:
            since = facts.calm_since(d.t)
            if since is None or since > job.invoked or facts.number("flight_ms", 0) > CALM_SLACK_MS:
                continue
            if d.t > ack.done + CALM_SLACK_MS:
                found.append(Violation(
                    "I4", "calm-duplicate", job.name, d.t,
                    f"calm since {since} ms, acked at {ack.done} ms, delivered at {d.node}",
                ))
    return found
