"""How long a client waits for the answer to ADDJOB, and when it must not be refused at once.

    add-late     with the default copies, at a node that hears another: answered within 250 ms, whatever a third does
    add-refused  the same, and it got NOREPL, which is for those who ask for a number of copies
    too-soon     with REPLICATE n: NOREPL before its timeout, though so many nodes were heard within node-timeout

Which nodes a node hears is a mark of whoever did the faults (`hears`), with the time that a message may take. Commands
of one connection are answered in their order, so the time of each begins when the one before it was answered. Times of
jobs are judged by reach.py, with a look inside the nodes.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.testing.checkers.facts import Facts, JobFacts, Violation
from holdfast.testing.history import FAIL, INVOKE, Op

ADD_MS: Final = 250
MESSAGES: Final = 4
"""A copy and its answer, and a second time for a node that was asked later."""

MARGIN_MS: Final = 2_000
"""A node counts from its last beat, and the link from when it was up: two beats lie between."""

SOON_MS: Final = 50
"""Timers of nodes end so much sooner than those of clients."""

KEYED: Final = ("group", "unique", "batch", "final_of", "domain")
SETS: Final = ("rule", "admin")
"""What an operator says: in the course of a plan, or in a scenario."""


class Hearing(NamedTuple):
    t: int
    who: str  # names of nodes; `-` while the node itself is down
    lag: int


class Asked(NamedTuple):
    job: JobFacts
    op: Op  # its end
    begin: int


def hearing(facts: Facts) -> dict[str, list[Hearing]]:
    found: dict[str, list[Hearing]] = {}
    for op in facts.history.ops:
        if op.f == "hears":
            found.setdefault(op.node, []).append(Hearing(op.t, op.value["who"], op.value["lag"]))
    return found


def heard_between(changes: list[Hearing], since: int, until: int) -> list[Hearing]:
    """What a node heard, from the first time on to the second."""
    begin = max(0, bisect_right([each.t for each in changes], since) - 1)
    return [each for each in changes[begin:] if each.t <= until]


def asked(facts: Facts) -> Iterator[Asked]:
    """ADDJOBs that ended, of queues that were never paused, and that no home decides about, not even whether there is
    room for them."""
    rules = [op.value["words"] for op in facts.history.ops if op.f in SETS and op.type == INVOKE]
    bounded = {words[2] for words in rules if words[:2] == ["QUEUE", "SET"] and "totalmaxlen" in words}
    pauses = [op.value for op in facts.history.ops if op.f == "pause" and op.type == INVOKE]
    bounded |= {value["queue"] for value in pauses if "none" not in value["words"]}
    answered: dict[str, int] = {}
    began: dict[int, Op] = {}
    for op in facts.history.ops:
        if op.type == INVOKE:
            began[op.number] = op
        elif op.number:
            before, answered[op.process] = answered.get(op.process, 0), op.t
            if op.f == "add":
                job = facts.jobs[began[op.number].value["body"]]
                if job.add["queue"] not in bounded and not any(job.add.get(name) for name in KEYED):
                    yield Asked(job, op, max(job.invoked, before))


def leaves(facts: Facts, since: int, until: int) -> bool:
    """Whether a node said that it leaves: it takes no copies."""
    return any(kind == "leaving" and begin <= until and end >= since for begin, end, kind in facts.faults)


def adds_are_answered(facts: Facts) -> list[Violation]:
    changes = hearing(facts)
    found: list[Violation] = []
    for job, op, begin in asked(facts):
        if job.add["replicate"] or job.add["async"] or op.node not in changes or facts.number("maxmemory", 0):
            continue  # those that it hears may have no room for a copy
        heard = heard_between(changes[op.node], begin, op.t)
        latest = begin + ADD_MS + MESSAGES * max(each.lag for each in heard)
        if job.invoked + int(job.add["timeout"]) < latest:
            continue  # its client did not want to wait so long
        is_refused = op.type == FAIL and job.error.startswith("NOREPL")
        if op.t <= latest and not is_refused:
            continue
        through = heard_between(heard, begin, min(op.t, latest))
        if leaves(facts, begin, op.t) or not set.intersection(*(set(each.who) - {"-"} for each in through)):
            continue
        what, said = ("add-refused", job.error) if is_refused else ("add-late", op.type)
        text = f"at {op.node}, which heard {through[-1].who}, asked at {begin} ms, {said} after {op.t - begin} ms"
        found.append(Violation("time", what, job.name, op.t, text))
    return found


def copies_are_waited_for(facts: Facts) -> list[Violation]:
    changes = hearing(facts)
    found: list[Violation] = []
    if facts.number("maxmemory", 0):
        return found  # who has no room for a copy says so
    for job, op, begin in asked(facts):
        copies, timeout = int(job.add["replicate"]), int(job.add["timeout"])
        is_refused = op.type == FAIL and job.error.startswith("NOREPL")
        if not is_refused or copies < 2 or op.node not in changes or leaves(facts, begin, op.t):
            continue
        if begin > job.invoked:
            continue  # when it was refused, behind others on its connection, nobody can say
        if op.t - begin >= timeout - SOON_MS - facts.drift_ms(timeout, facts.end):
            continue
        since = op.t - facts.number("node_timeout", 0) + MARGIN_MS
        lately = heard_between(changes[op.node], since, op.t)
        started = max([i + 1 for i, each in enumerate(lately) if each.who == "-"], default=0)
        heard = {name for each in lately[started:] for name in each.who}
        if since < op.t and 1 + len(heard) >= copies:
            text = f"REPLICATE {copies} at {op.node}, which heard {sorted(heard)}, NOREPL after {op.t - begin} ms"
            found.append(Violation("time", "too-soon", job.name, op.t, text))
    return found
