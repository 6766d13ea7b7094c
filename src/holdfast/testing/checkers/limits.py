"""I13, a domain is not handed out faster than its rate; and schedules make each of their jobs once.

A rate holds for each node that believes itself the home of a domain, and in calm times there is one. Hand-outs are seen
where their consumer is, a little after the token was taken, so windows are taken a little longer than they are.
"""
from __future__ import annotations

from typing import Final

from holdfast.testing.checkers.facts import Facts, Violation
from holdfast.testing.history import OK

LATE_MS: Final = 400
"""From the node that has the job to a consumer at another one, at most, in calm times."""

LOAN_SLACK_MS: Final = 1_000
"""So much later than its time is over the home of a domain takes a token for spent of which it has heard nothing
(core/grants.py). Where messages take longer the token may still be used, as its taker cannot know how old it is."""

EVERY_MS: Final = 5_000
"""Between two runs of the schedule that a plan may have (sim/plan.py)."""


def rates(facts: Facts) -> dict[str, tuple[float, int, int]]:
    """By domain: rate per second, burst, and since when. Only what was set once."""
    asked = {op.number: op for op in facts.history.ops if op.f == "rule" and op.type == "invoke"}
    found: dict[str, tuple[float, int, int]] = {}
    for op in facts.history.ops:
        if op.f != "rule" or op.type != OK:
            continue
        words = asked[op.number].value["words"]
        if words[:2] == ["DOMAIN", "SET"] and "RATE" in words:
            rate = int(words[words.index("RATE") + 1].removesuffix("/s"))
            found[words[2]] = (rate, int(words[words.index("BURST") + 1]), op.t)
    return found


def rates_hold(facts: Facts) -> list[Violation]:
    """I13: in no window more than rate times its length and the burst; with faults so much for each node."""
    found: list[Violation] = []
    nodes = len(facts.settings.get("nodes", "A"))
    late_ms = LATE_MS + max(0, facts.number("flight_ms", 0) - LOAN_SLACK_MS)
    for domain, (rate, burst, since) in rates(facts).items():
        times = sorted(
            (d.t, d.id) for job in facts.jobs.values() if job.add.get("domain") == domain
            for d in job.deliveries if d.t > since + late_ms
        )
        for i, (first, _) in enumerate(times):
            for n, (last, id) in enumerate(times[i:], 1):
                allowed = burst + rate * (last - first + late_ms) / 1000
                began = facts.calm_since(last)
                if began is None or began > first - facts.settle_ms:
                    allowed *= nodes
                if n > allowed:
                    text = f"{n} of {domain} in {last - first} ms; {rate} per second, burst {burst}"
                    found.append(Violation("I13", "rate-exceeded", id, last, text))
                    return found
    return found


def schedules_are_kept(facts: Facts) -> list[Violation]:
    """No more jobs than times; and where nothing was ever wrong, no fewer.

    A run that comes up to a minute late is none that was missed (cron.py), and while links come and go, each may need
    many seconds for its copies. So the second is demanded where all nodes could hear each other all the time; and where
    the queue has no bound, since a full one misses its runs, and the jobs no unique key, by which two are one. A run is
    made when the last one has its copies, which takes as long as messages do.
    """
    asked = {op.number: op.value["words"] for op in facts.history.ops if op.f == "rule" and op.type == "invoke"}
    begin = [op.t for op in facts.history.ops if op.f == "rule" and op.type == OK and asked[op.number][1] == "SET"
             and asked[op.number][0] == "CRON"]
    if not begin:
        return []
    end = max((op.t for op in facts.history.ops if op.f == "rule" and op.type == OK and asked[op.number][1] == "DEL"),
              default=facts.end)
    ids = {delivery.id for delivery in facts.scheduled}
    skew = facts.number("skew_ms", 0)
    most = (end - begin[0] + 2 * skew) // EVERY_MS + 2
    if len(ids) > most:
        return [Violation("cron", "run-twice", max(ids), end, f"{len(ids)} jobs for at most {most} times")]
    there_and_back = 2 * facts.number("flight_ms", 0)  # first for its owner to be found, then for the copies of each
    least = (end - begin[0] - 2 * there_and_back) // max(EVERY_MS, there_and_back) - 2
    was_calm = bool(facts.calm_from) and facts.calm_since(end) == facts.calm_from[0]
    queues = {words[4] for words in asked.values() if words[:2] == ["CRON", "SET"]}
    is_bounded = any(words[:2] == ["QUEUE", "SET"] and words[2] in queues and words[3] in ("maxlen", "totalmaxlen")
                     for words in asked.values())
    is_one = any(words[0] == "CRON" and "UNIQUE" in words for words in asked.values())
    if len(ids) < least and was_calm and not is_bounded and not is_one and not facts.faults and not skew:
        return [Violation("cron", "run-missed", "", end, f"{len(ids)} jobs for at least {least} times")]
    return []
