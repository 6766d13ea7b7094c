"""SHOW: everything this node knows of one job."""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import absence, groups, leases, states, status
from holdfast.core.commands.jobs import write_job_id, write_named, write_nodes
from holdfast.core.job import (
    HANDED_OUT,
    SPECIAL,
    STATE_NAMES,
    Job,
)
from holdfast.core.limits import PRIORITY_DEFAULT
from holdfast.core.more import TO_DEAD, TRY_NAMES, UNTIL_STARTED, More
from holdfast.core.parse import check_ids
from holdfast.core.reply import write_array, write_bulk, write_bulks, write_int, write_null
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Extra:
    """Names and values beyond Disque's, written before they are counted."""

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self.out: BytesWriter = BytesWriter()
        self.count: i64 = 0

    def name(self, name: bytes) -> BytesWriter:
        self.count += 1
        write_bulk(self.out, name)
        return self.out

    def number(self, name: bytes, value: i64) -> None:
        write_int(self.name(name), value)

    def text(self, name: bytes, value: bytes) -> None:
        write_bulk(self.name(name), value)


def show(node: Node, session: Session, argv: list[bytes]) -> None:
    """Describe a job as names and values; null if it is not known here.

    `state` is Disque's word, `status` says in one of more words what the job is doing (see job-states.md).

    Of a job that has more than a plain one it tells that as well: its keys (with `onfail skip` of a group, `until
    started` of a unique key, `index` in a batch) and headers, the rules for its failure, how its last hand-outs ended,
    why it is dead, and under which lease it is: token, worker, address, since when, and how far the worker says it is.
    One that was taken without a token is `leased` 1. Where the node of a job is away, `waits-for` names it, and
    `away-ms` says since when.
    """
    check_ids(argv)
    job = node.find(node.merged.get(argv[1], argv[1]))
    if job is None:
        write_null(node.out, session)
    else:
        write_job(node, session, job)


def write_job(node: Node, session: Session, job: Job) -> None:
    """What SHOW says: Disque's thirty elements, then the status, and what options of ours the job uses."""
    out = node.out
    extra = Extra(session)
    word = status.of(node, job)
    extra.text(b"status", word)
    if job.priority != PRIORITY_DEFAULT:
        extra.number(b"priority", i64(job.priority))
    if job.flags & SPECIAL:
        write_special(node, job, extra)
    if word == states.NODE_AWAY:
        peer = node.peers[job.responsible]
        extra.text(b"waits-for", peer.node_id())
        extra.number(b"away-ms", absence.away_ms(node, peer))
    if job.lease is None and word == states.LEASED:
        extra.number(b"leased", 1)  # by a plain GETJOB: nobody asked for a token, and there is nothing else to tell
    write_array(out, 30 + 2 * extra.count)
    write_bulk(out, b"id")
    write_job_id(out, job)
    write_bulk(out, b"queue")
    write_bulk(out, job.queue.name)
    write_bulk(out, b"state")
    write_bulk(out, STATE_NAMES[groups.state_of(job)])
    write_named(out, b"repl", i64(job.replicate))
    write_named(out, b"ttl", max(0, (job.expire - node.now + 999) // 1000))
    write_named(out, b"ctime", job.ctime)
    write_named(out, b"delay", i64(job.delay))
    write_named(out, b"retry", i64(job.retry))
    write_named(out, b"nacks", i64(job.nacks))
    write_named(out, b"additional-deliveries", i64(job.deliveries))
    write_bulk(out, b"nodes-delivered")
    write_nodes(node, job.holders)
    write_bulk(out, b"nodes-confirmed")
    write_nodes(node, 0 if job.task is None else job.task.confirmed)
    write_bulk(out, b"next-requeue-within")
    write_ms_until(out, session, job.qtime, node.now)
    write_bulk(out, b"next-awake-within")
    write_ms_until(out, session, job.expire if job.qtime == 0 else min(job.qtime, job.expire), node.now)
    write_bulk(out, b"body")
    if job.retry == 0 and job.flags & HANDED_OUT:
        write_null(out, session)  # freed at hand-out: nobody will get it again
    else:
        write_bulk(out, job.body)
    out.write(extra.out.getvalue())


def write_special(node: Node, job: Job, extra: Extra) -> None:
    more = job.more
    if more is not None:
        keys = leases.keys(job)
        for i in range(0, len(keys), 2):
            extra.text(keys[i], keys[i + 1])
        if groups.is_in_line(job):
            extra.number(b"in-line", 1)
        if more.skips:
            extra.text(b"onfail", b"skip")
        if more.until == UNTIL_STARTED:
            extra.text(b"until", b"started")
        if more.batch:
            extra.number(b"index", more.index - 1)
        if more.headers:
            write_bulks(extra.name(b"headers"), more.headers)
        write_failure(more, extra)
    lease = job.lease
    if lease is not None:
        extra.text(b"token", leases.token(node, lease) if lease.number > 0 else b"")
        extra.text(b"worker", lease.worker)
        extra.text(b"address", lease.address)
        extra.number(b"leased-ms", node.now - lease.since)
        if lease.fraction >= 0:
            extra.text(b"progress", b"%d.%03d" % (int(lease.fraction // 1000), int(lease.fraction % 1000)))
            extra.text(b"progress-text", lease.progress)
        if lease.is_cancelled:
            extra.number(b"cancelled", 1)


def write_failure(more: More, extra: Extra) -> None:
    """Rules for its failure, and what became of its tries."""
    if more.attempts > 0:
        extra.number(b"attempts", i64(more.attempts))
    if more.backoff > 0:
        extra.number(b"backoff-ms", more.backoff)
        extra.number(b"backoff-most-ms", more.backoff_most)
    if more.failures > 0:
        extra.number(b"failures", i64(more.failures))
    if more.round > 0:
        extra.number(b"round", i64(more.round))
    if more.onexpire != 0:
        extra.text(b"onexpire", b"dead" if more.onexpire == TO_DEAD else b"drop")
    if more.cause:
        extra.text(b"cause", more.cause)
        extra.number(b"died", more.died)
    if more.tries:
        out = extra.name(b"tries")
        write_array(out, len(more.tries))
        for each in more.tries:
            write_array(out, 6)
            write_bulk(out, TRY_NAMES[each.how])
            write_bulk(out, each.token)
            write_bulk(out, each.worker)
            write_int(out, each.began)
            write_int(out, each.ended)
            write_bulk(out, each.error)
        trace = more.trace()
        if trace:
            extra.text(b"trace", trace)


def write_ms_until(out: BytesWriter, session: Session, when: i64, now: i64) -> None:
    """Milliseconds until `when`; null if it is 0, that is never."""
    if when == 0:
        write_null(out, session)
    else:
        write_int(out, max(0, when - now))
