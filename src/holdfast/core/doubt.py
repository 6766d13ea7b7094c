"""Clocks that are wrong: what time it is, and a start with a wrong one.

Every node says what its wall clock shows (PING). What is judged by that clock, such as the stamp of a setting, is
judged by the one in the middle of all that can be heard: a single clock that is wrong, ours or another's, is outvoted.

Lives run on a clock that begins anew with each start; how much of them passed while a node was down only the
wall clock can say. If that is an hour ahead, an hour's jobs would be gone at once. So what the journal kept is in
doubt until peers have said what time they have (PING): until then none of it expires, and what seems to have
expired is not handed out either. If this node's clock is ahead of theirs by more than clocks may differ, what was
loaded gets back the time that was taken from it. Nothing is ever shortened: it may be the peers' clocks that are
wrong. A node that knows of no peers has nobody to ask, and believes its clock.
Leases are in loaded_leases.py.

What counts is the clock that the journal was read by. It may have been set right since, before a peer was heard.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import delay, loaded_leases, results, tombs, unique
from holdfast.core.job import ACTIVE, HANDED_OUT, IN_LINE, QUEUED, QUEUED_BEFORE, Job
from holdfast.core.limits import NEVER
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node

SKEW_MS: Final = 15_000
"""Clocks of nodes may differ by this much without anybody being called wrong."""


RESULT_MS: Final = 60_000
"""A result that the journal kept is kept for so long after a start: by then peers have said what time it is."""


def clocks(node: Node) -> list[int]:
    """What the wall clocks of those that can be heard show now, the slowest first."""
    return sorted([int(peer.clock + node.now) for peer in node.peers if peer.is_linked and peer.clock != NEVER])


def common_wall(node: Node) -> i64:
    """What time it is, as most see it. Of two clocks the later one: what it stamps must not be refused for ever."""
    if node.broken("own-clock-believed"):
        return node.wall
    known = sorted([int(node.wall), *clocks(node)])
    return known[len(known) // 2]


def own_wall(node: Node) -> i64:
    """What time it is, to be written down: as our own clock shows it, unless that is wrong. What we know of the others'
    is older by as long as messages take, and two words of which one follows the other have to be told apart."""
    common = common_wall(node)
    return node.wall if -SKEW_MS // 2 <= node.wall - common <= SKEW_MS // 2 else common


def is_possible(node: Node) -> bool:
    return len(node.peers) > 1 and not node.broken("expire-by-bad-clock")


def begin(node: Node) -> None:
    """All that was loaded is in doubt."""
    if is_possible(node):
        node.loaded_by = node.wall - node.now
        for job in node.all_jobs():
            seems_due = job.delay > 0 and job.qtime == 0 and not job.flags & (QUEUED_BEFORE | HANDED_OUT | IN_LINE)
            node.doubted[job] = seems_due and not node.broken("delay-ends-by-bad-clock")


def hold(node: Node, job: Job) -> None:
    """Its life seems to be over: neither end it nor hand it out, for now."""
    if job.state == ACTIVE and job.qtime == 0:
        job.qtime = node.now


def settle(node: Node) -> bool:
    """Once a second: if peers have said what time they have, there is no doubt any more."""
    known = clocks(node)
    if not known:
        return False
    wall = node.wall if node.broken("start-judged-by-todays-clock") else node.loaded_by + node.now
    ahead: i64 = wall - known[(len(known) - 1) // 2]
    node.loaded_by = NEVER
    if ahead > SKEW_MS:
        node.count("clock-was-ahead")
        tombs.lengthen(node, ahead)
        results.lengthen(node, ahead)
        for peer in node.peers:
            for move in peer.taken:
                peer.taken[move] += int(ahead)
    unique.settle(node, ahead if ahead > SKEW_MS else 0)
    loaded_leases.settle(node, ahead if ahead > SKEW_MS else 0)
    for job, seemed_due in node.doubted.items():
        if node.is_here(job):
            if ahead > SKEW_MS:
                give_back(node, job, ahead, seemed_due)
            page = job.origin.find_page(job.seq)
            assert page is not None
            node.alarms.at_latest(page, node.now)
    node.doubted.clear()
    return True


def give_back(node: Node, job: Job, ms: i64, seemed_due: bool) -> None:
    """So much of its time a wrong clock has taken from a job: it is younger, and its delay may not be over."""
    is_queued = job.state == QUEUED
    if is_queued:
        job.queue.remove(job)  # its place is by its age
        job.queue.jobs_in -= 1
        job.state = ACTIVE
    job.expire += ms
    job.ctime += ms * 1_000_000
    if not node.broken("made-in-the-future"):
        job.ctime = min(job.ctime, node.now * 1_000_000)  # or theirs are wrong, not ours
    is_early = seemed_due and job.responsible == ME and not job.flags & HANDED_OUT and delay.end(job) > node.now
    if is_early and job.state == ACTIVE:
        job.flags &= ~QUEUED_BEFORE
        node.wake_at(job, delay.end(job))
    elif is_queued:
        node.enqueue(job)
