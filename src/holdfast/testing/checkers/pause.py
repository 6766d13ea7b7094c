"""I18: after PAUSE out is answered by a node, that node hands out nothing from the queue."""
from __future__ import annotations

from typing import TypeAlias

from holdfast.testing.checkers.facts import Facts, Violation
from holdfast.testing.history import INVOKE, OK

Where: TypeAlias = tuple[str, str]  # node, queue


def pause_holds(facts: Facts) -> list[Violation]:
    found: list[Violation] = []
    paused: dict[Where, int] = {}
    asked: dict[int, Where] = {}  # pauses that are not answered: what they do may be done already, or not
    told: dict[str, int] = {}  # by queue: when somebody last told all nodes, which takes its time
    # The later word counts, by clocks that differ: one from a fast clock may come after one that was said later.
    flight_ms = facts.number("flight_ms", 0) + facts.number("skew_ms", 0) + 1_000
    for op in facts.history.ops:
        if op.f == "pause" and op.type == INVOKE:
            node, queue = asked[op.number] = (op.node, op.value["queue"])
            if "bcast" in op.value["words"]:
                told[queue] = op.t
            for where in list(paused):
                if where[1] == queue and (where[0] == node or "bcast" in op.value["words"]):
                    del paused[where]
        elif op.f == "pause" and op.type == OK:
            where = asked.pop(op.number)
            is_clear = where not in asked.values() and op.t - told.get(where[1], -flight_ms) >= flight_ms
            if op.value["state"] in ("out", "all") and is_clear:
                paused[where] = op.t
        elif op.f in ("restart", "loss"):
            paused = {where: t for where, t in paused.items() if where[0] != op.node}
        elif op.f == "get" and op.type == OK:
            for each in op.value["jobs"]:
                since = paused.get((op.node, each["queue"]))
                if since is not None and op.t > since:
                    text = f"{each['queue']} paused at {op.node} at {since} ms"
                    found.append(Violation("I18", "paused-but-out", each["id"], op.t, text))
    return found
