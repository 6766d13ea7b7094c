"""A start with a wrong clock.

Lives run on a clock that begins anew with each start; how much of them passed while a node was down only the
wall clock can say. If that is an hour ahead, an hour's jobs would be gone at once. So what the journal kept is in
doubt until peers have said what time they have (PING): until then none of it expires, and what seems to have
expired is not handed out either. If this node's clock is ahead of theirs by more than clocks may differ, what was
loaded gets back the time that was taken from it. Nothing is ever shortened: it may be the peers' clocks that are
wrong. A node that knows of no peers has nobody to ask, and believes its clock.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import tombs
from holdfast.core.job import ACTIVE, Job
from holdfast.core.limits import NEVER

if TYPE_CHECKING:
    from holdfast.core.node import Node

SKEW_MS: Final = 15_000
"""Clocks of nodes may differ by this much without anybody being called wrong."""


def is_possible(node: Node) -> bool:
    return len(node.peers) > 1 and not node.broken("expire-by-bad-clock")


def begin(node: Node) -> None:
    """All that was loaded is in doubt."""
    if is_possible(node):
        for job in node.all_jobs():
            node.doubted[job] = None


def hold(node: Node, job: Job) -> None:
    """Its life seems to be over: neither end it nor hand it out, for now."""
    if job.state == ACTIVE and job.qtime == 0:
        job.qtime = node.now


def settle(node: Node) -> None:
    """Once a second: if peers have said what time they have, there is no doubt any more."""
    known = sorted([int(peer.ahead) for peer in node.peers if peer.is_linked and peer.ahead != NEVER])
    if not known:
        return
    ahead: i64 = known[len(known) // 2]
    if ahead > SKEW_MS:
        node.count("clock-was-ahead")
        tombs.lengthen(node, ahead)
        for peer in node.peers:
            for move in peer.taken:
                peer.taken[move] += int(ahead)
    for job in node.doubted:
        if node.is_here(job):
            if ahead > SKEW_MS:
                job.expire += ahead
            page = job.origin.find_page(job.seq)
            assert page is not None
            node.alarms.at_latest(page, node.now)
    node.doubted.clear()
