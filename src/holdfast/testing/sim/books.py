"""What a node keeps of its queues, against its jobs one by one: a look inside that no client could have.

    rotation   a tenant with jobs that need nobody's leave has a turn, no later than a round from now
    sizes      a queue is as long as its lines, a line as its lanes and bins
    maxlen     a node that knows a bound accepts nothing beyond it

Taken at any moment between two turns of a node. The promises these keep are judged from outside as well
(checkers/fairness.py); here they fail where they are broken, not where it shows.
"""
from __future__ import annotations

from typing import Any, TypeAlias

from holdfast.core import registers, settings
from holdfast.core.job import ACKED
from holdfast.core.ranks import NOWHERE
from holdfast.core.rules import STRIDE
from holdfast.testing.sim.store import every_job

Bounds: TypeAlias = dict[bytes, tuple[int, frozenset[bytes]]]
"""What earlier looks at a node saw: by queue the bound known there, and the jobs it held when that was first seen."""


def wrong(node: Any, bounds: Bounds, is_whole: bool) -> list[tuple[str, str]]:
    """What is wrong, by its class. `is_whole`: this node has never lost what it had on disk."""
    found: list[tuple[str, str]] = []
    for queue in node.queues.values():
        if queue.rules is not None:
            found += wrong_rules(queue)
    if is_whole:
        found += too_long(node, bounds)
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


def too_long(node: Any, bounds: Bounds) -> list[tuple[str, str]]:
    """A queue that was longer than its bound when the node heard of it may stay so, but takes nothing more.

    Jobs with a group or a unique key are counted at their home, whoever was asked: not here. Nor is an at-most-once
    job that was given away and came back: nobody refuses that.
    """
    names = registers.names(node, settings.KIND)
    most = {name: int(settings.queue_setting(node, name, b"maxlen") or b"0") for name in names}
    held: dict[bytes, set[bytes]] = {name: set() for name in names if most[name] > 0}
    for job in every_job(node) if held else ():
        is_keyed = job.more is not None and (job.more.group or job.more.unique)
        is_back = job.retry == 0 and job.hops > 0
        if job.queue.name in held and job.origin is node.own and job.state != ACKED and not is_keyed and not is_back:
            held[job.queue.name].add(node.id_text(job))
    found: list[tuple[str, str]] = []
    for name in [name for name in bounds if name not in held]:
        del bounds[name]
    for name, jobs in held.items():
        if name not in bounds or bounds[name][0] != most[name]:
            bounds[name] = most[name], frozenset(jobs)
        later = jobs - bounds[name][1]
        if later and len(jobs) > most[name]:
            text = f"{len(jobs)} accepted here, {len(later)} of them although {most[name]} are allowed"
            found.append(("maxlen-passed", f"{name.decode('latin-1')}: {text}"))
    return found
