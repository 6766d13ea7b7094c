"""Leases that a journal kept: when they end is judged by the others' clocks, as lives and delays are (doubt.py).

How much of a lease has passed while a node was down only the wall clock can say. If that is an hour ahead every lease
seems to be over, and jobs would be handed out a second time while their workers have minutes left. So until peers have
said what time it is, a lease that seems over goes on, but never for longer than it had when it was written down.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core.job import ACTIVE, Job
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node


class LoadedLease:
    """Of a hand-out that the journal knows: when it ends by the clock that was read, and at the latest."""

    def __init__(self, end: i64, shown: i64, latest: i64) -> None:
        self.end: i64 = end  # may be long past
        self.shown: i64 = shown  # the time of the job as long as nothing else has become of it
        self.latest: i64 = latest


def begin(node: Node, job: Job, left: i64, ms: i64) -> None:
    """It had `ms` when that was written down, and has `left` as far as our clock can tell."""
    if len(node.peers) > 1 and not node.broken("lease-ends-by-bad-clock"):
        node.reach.loaded_leases[job] = LoadedLease(node.now + left, job.qtime, node.now + ms)


def is_open(node: Node, job: Job) -> bool:
    """Its time has come, and nobody has said yet what time it is: its worker may have all of its time."""
    if not node.reach.loaded_leases:
        return False
    lease = node.reach.loaded_leases.get(job)
    if lease is None or job.responsible != ME or lease.shown > node.now or lease.latest <= node.now:
        return False
    lease.shown = lease.latest
    node.wake_at(job, lease.latest)
    return True


def settle(node: Node, ahead: i64) -> None:
    """They end when they would have ended by the others' clocks; never later than they could."""
    for job, lease in node.reach.loaded_leases.items():
        if job.state == ACTIVE and job.responsible == ME and job.qtime == lease.shown:
            node.wake_at(job, max(node.now, min(lease.latest, lease.end + ahead)))
    node.reach.loaded_leases.clear()
