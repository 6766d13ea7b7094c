"""Hand-outs: what a consumer is told with a job, and the lease under which it has it.

A plain GETJOB gets queue, id and body, and has the job for its RETRY time. A consumer that asks WITHMETA or for a
time of its own (LEASEMS) gets a lease that the node remembers (job.Lease): it has a token, by which the node
tells a consumer that still has the job from one that lost it and does not know. A token is

    <first eight digits of the node's id>.<when the node started, hex>.<how many hand-outs since, hex>

so no two hand-outs ever have the same one, whatever a crash may have taken from the journal. Jobs that have more
than a plain one (more.py) always get a lease, so that what becomes of their hand-outs is known one by one. What can
be done under a token is in tokens.py; what happens when a lease ends without an ack, in failure.py.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import expiry, gates, history, longer, records, requeue
from holdfast.core.job import SPECIAL, WATCHED, Job, Lease
from holdfast.core.limits import DURATION_S_MAX, LEASE_BYTES
from holdfast.core.peers import MY_BIT
from holdfast.core.reply import write_bulk, write_bulks, write_int

if TYPE_CHECKING:
    from holdfast.core.node import Node
    from holdfast.core.session import Session

# What a consumer wants to know of a job beside queue, id and body.
COUNTERS: Final = 1
META: Final = 2

LEASE_MS_MAX: Final = DURATION_S_MAX * 1000
LEASE_MS_SLACK: Final = 60_000
"""What a consumer of a lent job says of it is passed on this much longer than its lease lasts."""


def elements(form: i64) -> i64:
    """Of the array that is one job in the reply."""
    return 3 + (4 if form & COUNTERS else 0) + (10 if form & META else 0)


def begin(node: Node, out: BytesWriter, job: Job, session: Session, form: i64, lease_ms: i64) -> None:
    """The rest of a hand-out that is not a plain one."""
    ms = lease_ms if lease_ms > 0 and job.retry > 0 else i64(job.retry) * 1000
    lease = None
    if form & META or lease_ms != 0 or job.more is not None or job.lease is not None:
        forget(node, job)
        node.handouts += 1
        lease = Lease(node.start, node.handouts, session.name, session.where, node.now, ms)
        give(node, job, lease)
    if form != 0:
        write_rest(node, out, job, form, b"" if lease is None else token(node, lease))
    handed_out(node, job, session, lease, ms)


def handed_out(node: Node, job: Job, session: Session, lease: Lease | None, ms: i64) -> None:
    """Whoever must know is told, and its time begins."""
    gates.handed_out(node, job)
    if lease is None:
        records.handout(node, job, ms)
    else:
        records.lease(node, job, lease, ms)
    history.handed_out(node, job, session, ms)
    if job.retry > 0:
        node.lease(job, ms)
        tell_if_long(node, job, ms)
    else:
        node.spend(job)


def give(node: Node, job: Job, lease: Lease) -> None:
    job.lease = lease
    job.flags |= SPECIAL
    node.account(LEASE_BYTES)


def tell_if_long(node: Node, job: Job, ms: i64) -> None:
    """Holders count on a lease to be no longer than the retry time, unless they were told."""
    if ms > i64(job.retry) * 1000 and job.holders != MY_BIT and not node.broken("long-lease-untold"):
        longer.tell(node, job, ms)


def extend(node: Node, job: Job, ms: i64) -> None:
    """The consumer is at work: its lease ends in `ms` from now. Where the job is dropped at the end of its life, no
    later than that; where it goes to the dead letters, work that has begun may end."""
    lease = job.lease
    assert lease is not None
    if job.retry == 0:
        return  # it has the job for good
    if not expiry.stays(job):
        ms = min(ms, max(1, job.expire - node.now))
    lease.ms = ms
    node.lease(job, ms)
    records.lease(node, job, lease, ms)
    requeue.stop_asking(node, job)
    tell_if_long(node, job, ms)


def write_rest(node: Node, out: BytesWriter, job: Job, form: i64, token: bytes) -> None:
    """What a consumer asked for beside queue, id and body."""
    if form & COUNTERS:
        out.write(b"$5\r\nnacks\r\n")
        write_int(out, i64(job.nacks))
        out.write(b"$21\r\nadditional-deliveries\r\n")
        write_int(out, i64(job.deliveries))
    if form & META:
        write_meta(node, out, job, token)


def write_meta(node: Node, out: BytesWriter, job: Job, token: bytes) -> None:
    """Names and values, always the same names: token, attempt, priority, headers, keys."""
    more = job.more
    out.write(b"$5\r\ntoken\r\n")
    write_bulk(out, token)
    out.write(b"$7\r\nattempt\r\n")
    write_int(out, 1 + i64(job.nacks) + i64(job.deliveries))
    out.write(b"$8\r\npriority\r\n")
    write_int(out, i64(job.priority))
    if more is None:
        out.write(b"$7\r\nheaders\r\n*0\r\n$4\r\nkeys\r\n*0\r\n")
        return
    out.write(b"$7\r\nheaders\r\n")
    write_bulks(out, more.headers)
    out.write(b"$4\r\nkeys\r\n")
    write_bulks(out, keys(job))


def keys(job: Job) -> list[bytes]:
    """Names and values of what a job is known by, where it has them."""
    more = job.more
    assert more is not None
    found: list[bytes] = []
    for name, value in (
        (b"tenant", more.tenant), (b"domain", more.domain), (b"group", more.group), (b"unique", more.unique),
        (b"batch", more.batch), (b"parent", more.parent),
    ):
        if value:
            found.append(name)
            found.append(value)
    return found


def token(node: Node, lease: Lease) -> bytes:
    return b"%b.%x.%x" % (node.node_id[:8], int(lease.start), int(lease.number))


def forget(node: Node, job: Job) -> None:
    """The lease is over: its token is worth nothing from now on."""
    if job.lease is not None:
        job.lease = None
        node.account(-LEASE_BYTES)
        if job.more is None and not job.flags & WATCHED:
            job.flags &= ~SPECIAL
