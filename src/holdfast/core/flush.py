"""Deleting many jobs at once: those of a queue everywhere, or all that this node has."""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import (
    absence,
    acks,
    batches,
    claims,
    errors,
    history,
    inquire,
    peers,
    queues,
    records,
    replicate,
    results,
    stages,
    unique,
    waiting,
)
from holdfast.core.inquire import Question
from holdfast.core.job import ACKED, ACTIVE, DEAD, QUEUED, WAIT_REPL, Job, Run
from holdfast.core.peers import Peer
from holdfast.core.queue import Queue
from holdfast.core.reply import write_int
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


def flush_queue(node: Node, queue: Queue) -> i64:
    """Delete every job of a queue, in whatever state; returns how many."""
    count: i64 = 0
    for run in runs_of(queue):
        for job in opened(node, run):
            history.deleted(node, job, b"flushed")
            node.end(job, acks.FLUSHED)
            count += 1
    for job in jobs_of(node, queue):
        count += 0 if job.state == ACKED else 1
        if job.state == WAIT_REPL:
            replicate.abort(node, job, errors.NO_REPL_REMOVED)
        elif job.state == ACTIVE or job.state == QUEUED or job.state == DEAD:
            history.deleted(node, job, b"flushed")
            node.end(job, acks.FLUSHED)
    return count


class Flushing(Question):
    """A queue is flushed at all nodes, after all have counted.

    A job that ends at one node ends at its other holders, and some hear of that before they are asked: who deletes and
    counts at once counts a job twice, or not at all.
    """

    def __init__(self, session: Session, name: bytes, count: i64) -> None:
        super().__init__(session)
        self.name: bytes = name
        self.count: i64 = count
        self.is_counted: bool = False

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        if not self.is_counted:
            self.count += reader.long()

    def goes_on(self, node: Node) -> bool:
        if self.is_counted:
            return False
        self.is_counted = True
        queue = node.queues.get(self.name)
        if queue is not None:
            flush_queue(node, queue)
        return inquire.send(node, self, inquire.FLUSHED, self.name, -1)

    def reply(self, node: Node, out: BytesWriter) -> None:
        write_int(out, self.count)


def flush_everywhere(node: Node, session: Session, name: bytes) -> None:
    """QFLUSH. What this node holds ends at all holders by itself; the others are asked to do the same with the rest."""
    queue = node.queues.get(name)
    if not peers.linked(node):
        write_int(node.out, 0 if queue is None else flush_queue(node, queue))
        return
    count: i64 = 0
    if queue is not None:
        count = count_jobs(node, queue)
        for job in jobs_of(node, queue):
            if job.state == WAIT_REPL:
                replicate.abort(node, job, errors.NO_REPL_REMOVED)  # not accepted, so there is nothing to count
    inquire.ask(node, Flushing(session, name, count), inquire.COUNTED, name, -1)


def tell_count(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    """A peer is about to flush a queue."""
    queue = node.queues.get(reader.data)
    bus.write_i64(out, 0 if queue is None else count_jobs(node, queue))


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    """A peer flushes a queue."""
    queue = node.queues.get(reader.data)
    if queue is not None:
        flush_queue(node, queue)


def count_jobs(node: Node, queue: Queue) -> i64:
    """Of a queue's jobs those that are for this node to count."""
    count: i64 = sum([run.count for run in runs_of(queue)])
    for job in jobs_of(node, queue):
        if (job.state == ACTIVE or job.state == QUEUED or job.state == DEAD) and absence.is_counted_here(node, job):
            count += 1
    return count


def runs_of(queue: Queue) -> list[Run]:
    """Runs of jobs that are on disk."""
    found: list[Run] = []
    for lane in queue.lanes:
        for block in lane.blocks:
            if block.run is not None:
                found.append(block.run)
    return found


def opened(node: Node, run: Run) -> list[Job]:
    """The jobs of a run, in memory; the caller ends them, before the next is opened. Raises Unreadable."""
    places = [(job.origin, int(job.seq)) for job in node.overflow.read(run)]
    node.overflow.open(run)
    found: list[Job] = []
    for origin, seq in places:
        job = origin.get(seq)
        if job is not None:
            found.append(job)
    return found


def jobs_of(node: Node, queue: Queue) -> list[Job]:
    return [job for job in node.all_jobs() if job.queue is queue]


def flush_all(node: Node) -> None:
    """Delete every job, every result and every queue of this node; sessions that wait get nothing and may go on."""
    for job in node.all_jobs():
        if job.state == WAIT_REPL:
            replicate.abort(node, job, errors.NO_REPL_REMOVED)
    for queue in node.queues.values():
        for run in runs_of(queue):
            for job in opened(node, run):
                history.deleted(node, job, b"flushed")
                node.forget(job)
    for job in node.all_jobs():
        history.deleted(node, job, b"flushed")
        node.forget(job)
    for jid in list(node.results.kept):
        results.drop(node, jid)
    records.flush(node)
    node.endings.clear()
    unique.forget_all(node)
    batches.forget_all(node)
    claims.drop_all(node)
    stages.drop_all(node)
    for queue in list(node.queues.values()):
        for session in list(queue.waiting.values()):
            waiting.give_up(node, session)
        queues.forget_queue(node, queue)
