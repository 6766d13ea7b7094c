"""A hand-out that did not end with an acknowledgement: what is noted of it, and what comes next.

A consumer gives a job back (NACK, RELEASE), or nothing is heard of it until its lease ends. Then the job is queued
again: at once, after the time the consumer asked for, or after a wait that doubles with each failure up to a bound
(BACKOFF), of which chance takes up to half, so that jobs that failed together do not come back together. Where there is
a bound on failures (ATTEMPTS) or on workers that were not heard of again (poison-after) the job dies at it
(fate.py). How its last hand-outs ended stays with the job, and so does what the workers said.

A plain job that nobody says anything about has none of this, and pays nothing for it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import acks, expiry, fate, gates, grants, history, leases, records, requeue
from holdfast.core import rules as throttles
from holdfast.core.job import ACTIVE, BACKING_OFF, QUEUED_BEFORE, SPECIAL, Job
from holdfast.core.more import LEASE_ENDED, NACKED, RELEASED, WORKER_GONE, More, Try, cut
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node
    from holdfast.core.queue import Queue

# Why a job is dead.
OUT_OF_ATTEMPTS: Final = b"attempts"
POISON: Final = b"poison"
REJECTED: Final = b"rejected"
EXPIRED: Final = b"expired"

BY_RULE: Final = -1  # in place of a wait: as the job or its queue says


class Rules:
    """What holds for a job when it fails; 0: no bound, no wait."""

    def __init__(self, attempts: i64, backoff: i64, backoff_most: i64, poison: i64, retention: i64) -> None:
        self.attempts: i64 = attempts
        self.backoff: i64 = backoff  # ms
        self.backoff_most: i64 = backoff_most
        self.poison: i64 = poison
        self.retention: i64 = retention  # ms that it is kept when it is dead


def failure_rules(node: Node, job: Job) -> Rules:
    """The job's own rules, then those of its queue, then the node's."""
    queue = job.queue
    more = job.more
    attempts = queue.attempts
    backoff, backoff_most = queue.backoff, queue.backoff_most
    if more is not None and more.attempts > 0:
        attempts = i64(more.attempts)
    if more is not None and more.backoff > 0:
        backoff, backoff_most = more.backoff, more.backoff_most
    poison = node.config.number("poison-after")
    return Rules(attempts, backoff, max(backoff, backoff_most), poison, retention_ms(node, queue))


def retention_ms(node: Node, queue: Queue) -> i64:
    """How long a dead job is kept."""
    return (queue.retention or node.config.number("dead-retention")) * 1000


def fail(node: Node, job: Job, how: i64, error: bytes, wait_ms: i64, least_ms: i64, is_final: bool) -> None:
    """A hand-out of the job has ended like that: queue it again, now or later, or let it die."""
    lease = job.lease
    if lease is not None and lease.is_cancelled and not node.broken("cancel-forgotten"):
        history.cancelled(node, job, None)
        node.end(job, acks.CANCELLED)
        return
    rules = failure_rules(node, job)
    if how == NACKED:
        job.nacks += 1
        job.queue.nacked += 1
    elif how != RELEASED:
        job.deliveries += 1
    is_plain = job.more is None and lease is None and not error and not is_final
    if not is_plain or rules.attempts > 0 or rules.backoff > 0 or rules.poison > 0:
        note(node, job, how, error)
    cause = cause_of_death(node, job, rules, is_final)
    leases.forget(node, job)
    if cause and how != RELEASED:
        fate.die(node, job, cause, rules.retention)
        return
    if wait_ms == BY_RULE:
        wait_ms = 0 if how == RELEASED else backoff(node, job, rules)
    wait_ms = max(wait_ms, least_ms)
    if wait_ms > 0:
        wait(node, job, wait_ms)
    else:
        node.queue_again(job)


def slow_down(node: Node, job: Job, ms: i64) -> None:
    """A worker was told by whoever it called to come back later (NACK … RETRYAFTERMS): its whole domain should."""
    node.count("retry-after")
    for throttle in throttles.throttles(node, job):
        grants.slow_down(node, throttle, ms)


def note(node: Node, job: Job, how: i64, error: bytes) -> None:
    """Keep how this hand-out ended."""
    more = own_more(node, job)
    before = more.cost()
    lease = job.lease
    if lease is None:
        new = Try(b"", b"", node.wall, node.wall, how, cut(error))
    else:
        began = node.wall - (node.now - lease.since)
        new = Try(leases.token(node, lease), lease.worker, began, node.wall, how, cut(error))
    more.note_try(new)
    if how != RELEASED or node.broken("release-counts"):
        more.failures += 1
        if how != NACKED:
            more.lost += 1
    node.account(more.cost() - before)


def own_more(node: Node, job: Job) -> More:
    """What a plain job gets when there is something to remember of it."""
    more = job.more
    if more is None:
        more = More()
        job.more = more
        job.flags |= SPECIAL
        node.account(more.cost())
    return more


def cause_of_death(node: Node, job: Job, rules: Rules, is_final: bool) -> bytes:
    """Empty if it may live."""
    more = job.more
    if is_final:
        return REJECTED
    if expiry.is_over(node, job):
        return EXPIRED
    if more is None:
        return b""
    if rules.attempts > 0 and i64(more.failures) >= rules.attempts:
        return OUT_OF_ATTEMPTS
    if rules.poison > 0 and i64(more.lost) >= rules.poison:
        return POISON
    return b""


def backoff(node: Node, job: Job, rules: Rules) -> i64:
    """How long it waits after so many failures: between half of the time and all of it."""
    more = job.more
    if rules.backoff == 0 or more is None:
        return 0
    doublings = min(30, max(0, i64(more.failures) - 1))
    most: i64 = min(rules.backoff_most, rules.backoff << doublings)
    return most - node.random_below(max(1, int(most // 2)))


def wait(node: Node, job: Job, ms: i64) -> None:
    """It is queued again here, but not yet."""
    requeue.stop_asking(node, job)
    throttles.let_go(node, job)
    job.state = ACTIVE
    job.responsible = ME
    job.flags |= BACKING_OFF | QUEUED_BEFORE
    node.wake_at(job, node.now + ms)
    gates.waits(node, job)
    records.fate(node, job)
    fate.tell(node, job, fate.WAITS)


def lease_ended(node: Node, job: Job) -> bool:
    """Nothing was heard of the consumer in its time, and nobody else has the job. False: it may be queued now."""
    lease = job.lease
    rules = failure_rules(node, job)
    if job.more is None and lease is None and rules.attempts == 0 and rules.backoff == 0 and rules.poison == 0:
        return False
    if job.more is not None and lease is None and not node.broken("queued-counts-as-failed"):
        return False  # it waited in its queue when this node was stopped, or slept: nobody had it
    is_gone = lease is not None and lease.start == node.start and int(job.taker) not in node.sessions
    fail(node, job, WORKER_GONE if is_gone else LEASE_ENDED, b"", BY_RULE, 0, False)
    return True


def dies(node: Node, job: Job) -> bool:
    """Whether what others told of its failures is enough, where a job is about to be queued again."""
    rules = failure_rules(node, job)
    cause = cause_of_death(node, job, rules, False)
    if cause:
        fate.die(node, job, cause, rules.retention)
    return cause != b""


def yielded(node: Node, job: Job) -> None:
    """Another node has the job now. If we had it out, that ended without a word, and all should know."""
    job.flags &= ~BACKING_OFF
    if job.lease is not None and job.responsible == ME:
        note(node, job, LEASE_ENDED, b"")
        leases.forget(node, job)
        records.fate(node, job)
        records.counts(node, job)
        fate.tell(node, job, fate.TRIES)  # whoever of them comes to queue it must know
    else:
        leases.forget(node, job)
