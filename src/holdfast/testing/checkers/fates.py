"""What becomes of jobs: stale tokens complete nothing, the dead stay dead, attempts are counted, results are true.

A token is stale once its job was handed out again. Where all nodes could hear each other in between, or the node
that gave both was asked itself, its word must not count. Across a cut an ack is taken although another may have the
job: work done is done, and the node cannot know.
"""
from __future__ import annotations

from holdfast.testing.checkers.facts import Delivery, Facts, JobFacts, Told, Violation
from holdfast.testing.checkers.leases import disturbed, giver

SLACK_MS = 1_000
"""A hand-out and a word about an earlier one may cross."""


def later(job: JobFacts, one: Delivery, before: int) -> list[Delivery]:
    """Hand-outs after that one, known to somebody by then."""
    return [two for two in job.deliveries if two.token != one.token and is_after(two, one) and two.t < before]


def is_after(two: Delivery, one: Delivery) -> bool:
    """Of two of one node the numbers say so: to a consumer at another node a job may be on its way for longer than its
    lease, and arrive after the next one."""
    giver, _, number = one.token.rpartition(".")
    giver_of_two, _, number_of_two = two.token.rpartition(".")
    return int(number_of_two, 16) > int(number, 16) if giver == giver_of_two else two.t > one.t


def stale_tokens_do_nothing(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    for job in facts.jobs.values():
        by_token = {d.token: d for d in job.deliveries if d.token}
        for told in job.told:
            one = by_token.get(told.token) if told.token else None
            if one is None or not told.is_ok or told.done is None or (told.f != "keepalive" and told.changed == 0):
                continue
            for two in later(job, one, told.invoked):
                if is_plain_to_see(facts, job, one, two, told):
                    found.append(Violation(
                        "lease", "stale-token", job.name, told.done,
                        f"{told.f} under {told.token} of {one.t} ms counted, though handed out again at {two.t} ms",
                    ))
                    break
    return found


def is_plain_to_see(facts: Facts, job: JobFacts, one: Delivery, two: Delivery, told: Told) -> bool:
    """Whether the node that was told could not but know of the second hand-out."""
    assert told.done is not None
    if giver(facts, job, one) == giver(facts, job, two) == told.node:
        return not any(one.t <= t <= told.done and node == told.node for t, node in facts.restarts)
    restarted = any(one.t <= t <= told.done for t, _ in facts.restarts)
    # Links end without a fault, too, where messages take longer than node-timeout: that may be what was answered upon.
    calm = facts.calm_since(told.done + 1)
    were_linked = calm is not None and calm <= one.t
    return two.t + SLACK_MS < told.invoked and were_linked and not restarted and not disturbed(
        facts, job.invoked - facts.settle_ms, told.done
    )


def dead_stay_dead(facts: Facts) -> list[Violation]:
    """A job that a list of the dead has is not handed out any more, unless somebody sends it back.

    Nobody who was cut off when it died may revive it, either, once he has had time to hear of it; until then he may.
    """
    hearing_ms = SLACK_MS + 2 * facts.number("flight_ms", 0)
    found: list[Violation] = []
    for job in facts.jobs.values():
        if any(told.f == "retry" for told in job.told) or facts.lost_at_once(job.invoked) >= job.copies:
            continue
        for id in job.ids:
            listed = facts.dead.get(id)
            if listed is None or listed[1] == "in doubt":
                continue
            for d in job.deliveries:
                if d.t > listed[0] and facts.was_calm_for(hearing_ms, listed[0], d.t):
                    found.append(Violation(
                        "dead", "revived", job.name, d.t, f"listed as dead at {listed[0]} ms, delivered at {d.node}"
                    ))
    return found


def attempts_are_kept(facts: Facts) -> list[Violation]:
    """Where nothing kept the nodes from counting: no more hand-outs than attempts; and none dies before it failed."""
    found: list[Violation] = []
    for job in facts.jobs.values():
        attempts = int(job.add.get("attempts", 0))
        if attempts == 0 or any(told.f in ("release", "retry", "enqueue") for told in job.told):
            continue
        is_quick = facts.number("flight_ms", 0) <= SLACK_MS and not any(t >= job.invoked for t, _ in facts.restarts)
        calm = is_quick and not disturbed(facts, job.invoked - facts.settle_ms, facts.end)
        if calm and len(job.deliveries) > attempts:
            d = job.deliveries[attempts]
            found.append(Violation(
                "attempts", "too-many", job.name, d.t, f"{len(job.deliveries)} hand-outs with ATTEMPTS {attempts}"
            ))
        for id in job.ids:
            listed = facts.dead.get(id)
            if listed is not None and listed[1] == "attempts" and listed[2] < attempts:
                found.append(Violation("attempts", "too-few", job.name, listed[0], f"dead after {listed[2]} failures"))
    return found


def results_are_true(facts: Facts) -> list[Violation]:
    """What WAITJOB says is what a worker said, or that nobody knows."""
    found: list[Violation] = []
    for op, id, word, result in facts.ends:
        job = facts.by_id.get(id)
        if job is None:
            continue
        acks = [told for told in job.told if told.f in ("ack", "fastack") and told.invoked <= op.t]
        if word == "done" and not acks:
            found.append(Violation("result", "done-by-nobody", job.name, op.t, "WAITJOB says done, and nobody acked"))
        elif word == "done" and result is not None and result not in [told.result for told in acks]:
            found.append(Violation("result", "untrue", job.name, op.t, f"{result!r} was said by nobody"))
        elif word == "done" and result is None and has_result(facts, job, op.t):
            found.append(Violation("result", "lost", job.name, op.t, "its one ack had a result, and it is gone"))
    return found


def has_result(facts: Facts, job: JobFacts, t: int) -> bool:
    """Whether the only ack there was brought a result, and nothing was lost since."""
    acks = [told for told in job.told if told.f in ("ack", "fastack") and told.invoked <= t]
    return len(acks) == 1 and acks[0].result is not None and acks[0].is_ok and not any(
        lost >= acks[0].invoked for lost, _ in facts.losses
    )
