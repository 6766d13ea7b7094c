"""What a node keeps of its queues, against its jobs one by one: a look inside that no client could have.

    rotation   a tenant with jobs that need nobody's leave has a turn, no later than a round from now
    sizes      a queue is as long as its lines, a line as its lanes and bins
    maxlen     of the jobs that a node accepted for a queue it holds no more than the bound

Taken at any moment between two turns of a node. The promises these keep are judged from outside as well
(checkers/fairness.py); here they fail where they are broken, not where it shows.
"""
from __future__ import annotations

from typing import Any

from holdfast.core.job import ACKED
from holdfast.core.ranks import NOWHERE
from holdfast.core.rules import STRIDE
from holdfast.testing.sim.store import every_job


def wrong(node: Any, is_whole: bool) -> list[tuple[str, str]]:
    """What is wrong, by its class. `is_whole`: this node has never lost what it had on disk."""
    found: list[tuple[str, str]] = []
    for queue in node.queues.values():
        if queue.rules is not None:
            found += wrong_rules(queue)
    bounded = [queue for queue in node.queues.values() if queue.maxlen > 0]
    if bounded and is_whole:
        found += too_long(node, bounded)
    return found


def wrong_rules(queue: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    rules, name = queue.rules, queue.name.decode("latin-1")
    size = 0
    for line in rules.lines.values():
        in_lanes = sum(lane.size for lane in line.lanes)
        in_bins = sum(lane.size for bin in line.bins.values() for lane in bin.lanes)
        size += line.size
        if line.size != in_lanes + in_bins or any(bin.size == 0 for bin in line.bins.values()):
            found.append(("books-wrong", f"{name}: tenant {line.tenant!r} has {in_lanes} + {in_bins}, not {line.size}"))
        if len(rules.lines) == 1:
            continue
        if in_lanes and line.place == NOWHERE:
            found.append(("tenant-left-out", f"{name}: tenant {line.tenant!r} has {in_lanes} jobs, and no turn"))
        if line.place != NOWHERE and line.rank > rules.virtual + STRIDE:
            found.append(("tenant-put-off", f"{name}: tenant {line.tenant!r} has its turn in more than a round"))
    if size != queue.size:
        found.append(("books-wrong", f"{name}: {queue.size} queued, {size} in its lines"))
    return found


def too_long(node: Any, bounded: list[Any]) -> list[tuple[str, str]]:
    """Jobs with a group or a unique key are counted at their home, whoever was asked: not here."""
    held = dict.fromkeys([queue.name for queue in bounded], 0)
    for job in every_job(node):
        is_keyed = job.more is not None and (job.more.group or job.more.unique)
        if job.queue.name in held and job.origin is node.own and job.state != ACKED and not is_keyed:
            held[job.queue.name] += 1
    return [
        ("maxlen-passed", f"{queue.name.decode('latin-1')}: {held[queue.name]} accepted here, {queue.maxlen} allowed")
        for queue in bounded if held[queue.name] > queue.maxlen
    ]
