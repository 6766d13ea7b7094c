"""Bounds: how many jobs a queue may hold, and how many jobs may be out. A full queue refuses; nothing is ever dropped.

`maxlen` bounds what one node holds of a queue, in whatever state, jobs that still wait for their copies among them:
of a hundred ADDJOBs that are sent at once against a bound of ten, ten are accepted. `totalmaxlen` and concurrency are
for all nodes together; their home lends each node its part (quota.py). For `totalmaxlen` a job counts where it was
accepted, until it has ended.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import domains, errors, home, quota, registers, rules, settings
from holdfast.core.errors import Refused
from holdfast.core.job import ACKED, BOUNDED, Job
from holdfast.core.peers import ME, Peer
from holdfast.core.queue import Queue
from holdfast.core.quota import JOBS, NO, OUT_OF_DOMAIN, OUT_OF_QUEUE, WAIT, YES, Quota
from holdfast.core.throttle import Throttle

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Postponed(Refused):
    """Not refused, and not accepted: somebody was asked. Whoever can wait runs the command again."""

    def __init__(self, quota: Quota) -> None:
        super().__init__(errors.MAXLEN)
        self.quota: Quota = quota


def admit(node: Node, queue: Queue, count: i64) -> None:
    """Raises Refused if the queue would hold more than it may."""
    if queue.maxlen > 0 and queue.held + count > queue.maxlen and not node.broken("maxlen-not-asked"):
        raise Refused(errors.MAXLEN)
    if queue.total_most > 0:
        found = quota.find(node, JOBS, queue.name)
        answer = quota.room(node, found, count)
        if answer == WAIT:
            raise Postponed(found)
        if answer != YES:
            raise Refused(errors.MAXLEN if answer == NO else errors.NO_BOUND)


def set_total(node: Node, queue: Queue, most: i64) -> None:
    """What is set for a queue has changed, or the queue is new."""
    was = queue.total_most
    queue.total_most = most
    if most > 0 and was == 0:
        count_all(node, queue)


def count_all(node: Node, queue: Queue) -> None:
    """Jobs of a queue that were accepted here when nobody counted."""
    for job in node.all_jobs():
        if job.queue is queue:
            count_own(node, job)


def count_own(node: Node, job: Job) -> None:
    """The same of one, which may have been accepted elsewhere, or have ended. One with keys was accepted by its home,
    whoever drew its id."""
    is_ours = job.responsible == ME if home.is_keyed(job) else job.origin is node.own
    if is_ours and job.state != ACKED:
        count(node, job)


def count(node: Node, job: Job) -> None:
    """A job was accepted here for a queue with a bound for the whole cluster."""
    if not job.flags & BOUNDED:
        job.flags |= BOUNDED
        found = quota.find(node, JOBS, job.queue.name)
        quota.use(node, found, found.used + 1)


def ended(node: Node, job: Job) -> None:
    if not job.flags & BOUNDED:
        return
    job.flags &= ~BOUNDED
    found = quota.find(node, JOBS, job.queue.name)
    found.used -= 1
    quota.freed(node, found)


def copies_from(node: Node, name: bytes, peer: Peer) -> i64:
    """Jobs of a queue that a node which is away has accepted, as far as we have copies."""
    queue = node.queues.get(name)
    origin = node.origins.get(b"DI" + peer.node_id()[:8])
    if queue is None or origin is None:
        return 0
    found: i64 = 0
    for page in origin.pages.values():
        for job in page.slots:
            if job is not None and job.queue is queue and job.state != ACKED:
                found += 1
    return found


# -- places of jobs that are out -----------------------------------------------------------------------------------


def quota_of(node: Node, throttle: Throttle) -> Quota:
    found = quota.find(node, OUT_OF_DOMAIN if throttle.queue is None else OUT_OF_QUEUE, throttle.name)
    quota.use(node, found, throttle.out)
    return found


def recount(node: Node, found: Quota) -> None:
    """As long as there is no bound that we know of, what is used is not kept up to date."""
    if node.broken("places-not-recounted"):
        return
    queue = node.queues.get(found.name)
    throttle = node.domains.table.get(found.name) if found.kind == OUT_OF_DOMAIN else None
    if found.kind == OUT_OF_QUEUE and queue is not None:
        throttle = rules.make_throttle(node, queue)
    if found.kind != JOBS:
        quota.use(node, found, 0 if throttle is None else throttle.out)
    elif queue is not None and queue.total_most == 0:
        count_all(node, queue)


def has_room(node: Node, throttle: Throttle) -> bool:
    """Whether one more may be out."""
    if len(node.peers) == 1:
        return throttle.has_room()
    return quota.room(node, quota_of(node, throttle), 1) == YES


def place_taken(node: Node, throttle: Throttle) -> None:
    if len(node.peers) > 1:
        quota_of(node, throttle)


def place_free(node: Node, throttle: Throttle) -> None:
    if len(node.peers) > 1:
        quota.freed(node, quota_of(node, throttle))


def most_of(node: Node, kind: i64, name: bytes) -> i64:
    """What is set, as far as this node knows."""
    if kind == OUT_OF_DOMAIN:
        return int(registers.value(node, domains.KIND, domains.pattern_for(node, name), b"concurrency") or b"0")
    return int(settings.queue_setting(node, name, b"totalmaxlen" if kind == JOBS else b"concurrency") or b"0")


def changed(node: Node, kind: bytes, name: bytes) -> None:
    """Something was set for a queue, a domain or a pattern of domains: its bounds, whether or not it has jobs here."""
    if kind == settings.KIND:
        keys = [(int(JOBS), name), (int(OUT_OF_QUEUE), name)]
    elif kind == domains.KIND and name.startswith(b"*"):
        keys = [key for key in node.quotas if key[0] == OUT_OF_DOMAIN and key[1].endswith(name[1:])]
    else:
        keys = [(int(OUT_OF_DOMAIN), name)] if kind == domains.KIND else []
    for key in keys:
        found = node.quotas.get(key)
        if found is not None and not node.broken("first-bound-stays"):
            quota.set_most(node, found, most_of(node, found.kind, found.name))
