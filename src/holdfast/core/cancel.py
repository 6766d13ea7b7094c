"""CANCEL: a job is called off, wherever it is.

One that waits is ended at once, like an ack. One that a worker has cannot be taken away from it: the worker is told
at its next word (KEEPALIVE, PROGRESS), and if the job comes back without an ack it is ended then, not queued again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import acks, history, inquire, leases, records, requeue
from holdfast.core.inquire import Question
from holdfast.core.job import ACKED, ACTIVE, HANDED_OUT, MOVING, WAIT_REPL, Job, Lease
from holdfast.core.peers import ME, Peer
from holdfast.core.reply import write_simple
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

# From the weakest to the strongest.
UNKNOWN: Final = 0
ELSEWHERE: Final = 1  # a copy is here, but another node sees to it
ASKED: Final = 2
CANCELLED: Final = 3
WORDS: Final = [b"unknown", b"unknown", b"asked", b"cancelled"]


class Cancelling(Question):
    def __init__(self, session: Session, jid: bytes, outcome: i64) -> None:
        super().__init__(session)
        self.jid: bytes = jid
        self.outcome: i64 = outcome

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        self.outcome = max(self.outcome, min(reader.u8(), CANCELLED))

    def reply(self, node: Node, out: BytesWriter) -> None:
        job = node.find(self.jid)
        if self.outcome == ELSEWHERE and job is not None and job.state != ACKED:
            history.cancelled(node, job, self.session)
            node.end(job, acks.CANCELLED)  # who sees to it cannot be reached, and hears of it later
            self.outcome = CANCELLED
        write_simple(out, WORDS[self.outcome])


def cancel(node: Node, session: Session, jid: bytes) -> None:
    outcome = cancel_here(node, jid, session)
    if outcome <= ELSEWHERE:
        inquire.ask(node, Cancelling(session, jid, outcome), inquire.CANCELLED, jid, -1)
    else:
        write_simple(node.out, WORDS[outcome])


def cancel_here(node: Node, jid: bytes, session: Session | None) -> i64:
    job = node.find(jid)
    if job is None or job.state == ACKED or job.state == WAIT_REPL:
        return UNKNOWN
    if job.state == ACTIVE and (job.responsible != ME or job.flags & MOVING):
        return ELSEWHERE
    if requeue.is_leased(node, job) or (job.state == ACTIVE and job.retry == 0 and job.flags & HANDED_OUT):
        call_off(node, job)
        return ASKED
    history.cancelled(node, job, session)
    node.end(job, acks.CANCELLED)
    return CANCELLED


def call_off(node: Node, job: Job) -> None:
    """A worker has it: it hears of it, and nobody gets the job after it."""
    lease = job.lease
    if lease is None:
        lease = Lease(0, 0, b"", b"", node.now, 0)  # a plain hand-out has none; this one has no token
        leases.give(node, job, lease)
    lease.is_cancelled = True
    records.lease(node, job, lease, max(0, job.qtime - node.now))


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    bus.write_i8(out, cancel_here(node, reader.job_id(), None))
