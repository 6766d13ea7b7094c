"""Twins: a job that one node is still adding, and another has already.

Whoever adds a job queues it, once it has its copies, without asking anybody: it is new. There are two ways in which it
is not. Two owners of a schedule make the same job (cron.py); and a holder of a copy that could not hear the adder for a
retry time has queued it. What such a node says of the job comes while ours still waits for copies, or for the end of
its delay, and then there is nothing yet to compare. So it is kept in mind (TWIN), and before ours is queued for the
first time the other holders are asked (requeue.due), as of any other that is queued again: where it is queued, or out
with a consumer, that is said, and ours is a copy from then on. To tell them afterwards would not do: with somebody
waiting here, ours is out before they can answer.

Until then both would count it. So who waits for the end of a delay says so to the other (IS_DELAYED): the first in the
job's order of nodes goes on, and the other leaves the job to it. The same holds for jobs that were adopted (orphans.py)
on both sides of a cut.

A node that makes the same job counts on our copy as soon as it has asked for one. So ours is recorded from then on, and
stays one when it cannot be accepted itself: its end would be that of theirs, too.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import gates, home, records, requeue
from holdfast.core.job import (
    ACTIVE,
    ASKING,
    BACKING_OFF,
    HANDED_OUT,
    MOVING,
    QUEUED,
    QUEUED_BEFORE,
    TWIN,
    UNSURE,
    WAIT_REPL,
    Job,
)
from holdfast.core.peers import ME, MY_BIT, Peer

if TYPE_CHECKING:
    from holdfast.core.node import Node


def meet(node: Node, peer: Peer, job: Job) -> None:
    """A peer sends a copy of a job that we have. If both of us made it, it would queue its own, too."""
    if node.broken("cron-twins-unmet"):
        return
    if job.state == QUEUED:
        requeue.write_queued(node, peer, job)
    elif requeue.is_leased(node, job):
        requeue.write_state(node, peer, node.id_text(job), requeue.IS_LEASED, job.qtime - node.now, job.holders)
    else:
        note(node, job)
        tell(node, job, peer.bit)


def waits_here(node: Node, job: Job) -> bool:
    """Whether it waits here for its time, and another node may see to it, too. Of jobs with keys the home decides."""
    is_waiting = job.state == ACTIVE and job.responsible == ME and job.flags & TWIN != 0 and job.qtime > node.now
    return is_waiting and not job.flags & (ASKING | MOVING | BACKING_OFF | HANDED_OUT) and not home.is_keyed(job)


def tell(node: Node, job: Job, mask: i64) -> None:
    """Others that see to the job hear that we do."""
    if not waits_here(node, job) or node.broken("twins-both-wait"):
        return
    for peer in node.peers:
        if peer.bit & mask & ~MY_BIT and peer.is_linked:
            requeue.write_state(node, peer, node.id_text(job), requeue.IS_DELAYED, job.qtime - node.now, job.holders)


def goes_on(node: Node, peer: Peer, job: Job) -> bool:
    """A peer waits to queue a job, as we do: whether it is for us. Then the peer leaves it to us."""
    if not waits_here(node, job) or requeue.order_key(job, node.node_id) > requeue.order_key(job, peer.node_id()):
        return False
    tell(node, job, peer.bit)
    return True


def note(node: Node, job: Job) -> None:
    """A peer has a job that may still be new here."""
    if not is_new(job) or job.flags & TWIN or node.broken("twin-forgotten"):
        return
    job.flags |= TWIN
    if job.state == WAIT_REPL and not node.broken("twin-not-kept"):
        records.job(node, job)


def stays(node: Node, job: Job) -> bool:
    """Whether a job that could not be accepted here goes on as a copy of one that another node has made."""
    if not job.flags & TWIN or not job.flags & UNSURE or node.broken("twin-not-kept"):
        return False
    job.state = ACTIVE
    job.flags |= QUEUED_BEFORE  # the others are asked before it is queued
    node.wake_at(job, node.now + i64(job.retry) * 1000 + node.jitter())
    gates.accepted(node, job)
    return True


def is_new(job: Job) -> bool:
    """Whether it waits here for its copies, or for the end of its delay, to be queued for the first time."""
    is_waiting = job.state == WAIT_REPL or job.state == ACTIVE
    return is_waiting and job.responsible == ME and not job.flags & QUEUED_BEFORE


def must_ask(node: Node, job: Job) -> bool:
    """Its time has come here for the first time, and another node has it: whether the others are asked before."""
    return job.flags & TWIN != 0 and not node.broken("twin-not-asked")
