"""The state of a node as records, a slice at a time, while the node goes on.

A snapshot begins together with a new segment of the journal (journal/). From then on two things are written:
what happens, to the segment, as always; and what is there, page by page, to the snapshot. Loading reads the
snapshot and then the segment. A page was written some time after the segment began, so the segment tells
changes that the page knew already. That does no harm, since a record sets values and never adds to them: in
the end each has its last one. What is new since the beginning is in the segment alone and need not be walked.

Nothing is copied and nothing stands still, except for one slice at a time. Jobs and bodies that are on disk
(overflow.py) are read when their turn comes, and are in memory no longer than it takes to write them.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import books, cron, records, refill, registers, salvage
from holdfast.core.acks import Ending
from holdfast.core.books import Book
from holdfast.core.job import (
    ACK_ONLY,
    ACKED,
    ACTIVE,
    BACKING_OFF,
    DEAD,
    FOLDED,
    GONE,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    TWIN,
    WAIT_REPL,
    Job,
    Page,
    Run,
)
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node


class Walk:
    """One walk over everything a node must know after a restart, or over what one book has (books.py)."""

    def __init__(self, node: Node, book: Book | None = None) -> None:
        self.node: Node = node
        self.book: Book | None = book
        self.log: BytesWriter = BytesWriter()
        self.explained: i64 = 0
        self.wall: i64 = 0
        self.pages: list[Page] = []
        for origin in node.origins.values():
            self.pages += list(origin.pages.values())
        self.page: i64 = 0
        self.slot: i64 = 0
        self.run: Run | None = None  # that is being written, and what is in it
        self.run_jobs: list[Job] = []
        self.run_at: i64 = 0
        self.tombs: list[bytes] = list(node.tombs) if book is None else []
        self.tomb: i64 = 0
        node.overflow.walks += 1
        self.number: i64 = node.overflow.walks
        self.results: list[bytes] = list(node.results.kept) if book is None else []
        self.result: i64 = 0
        self.is_begun: bool = False
        self.is_done: bool = False

    def percent(self) -> i64:
        return 100 if self.is_done else 100 * self.page // max(1, i64(len(self.pages)))

    def slice(self, bytes_most: i64) -> bytes:
        """The next records, about so many bytes of them; none are left when `is_done`."""
        node = self.node
        log, explained, is_recording, must_sync = node.log, node.explained, node.is_recording, node.must_sync
        logs_handouts, wall = node.logs_handouts, node.log_wall
        node.log, node.explained, node.is_recording, node.logs_handouts = self.log, self.explained, True, True
        node.log_wall = self.wall
        node.books.is_walking = True
        try:
            self.write(bytes_most)
        finally:
            node.books.is_walking = False
            self.explained, self.wall = node.explained, node.log_wall
            node.log, node.explained, node.is_recording, node.must_sync = log, explained, is_recording, must_sync
            node.logs_handouts, node.log_wall = logs_handouts, wall
        data = self.log.getvalue()
        self.log.truncate(0)
        return data

    def take_records(self, bytes_most: i64) -> list[bytes]:
        """The same, record by record."""
        return records.split(self.slice(bytes_most))

    def write(self, bytes_most: i64) -> None:
        node = self.node
        if not self.is_begun:
            self.is_begun = True
            for peer in node.peers[1:]:
                records.member(node, peer)
            if self.book is None:
                self.write_settings()
        while self.page < len(self.pages):
            slots = self.pages[self.page].slots
            while self.slot < len(slots):
                if not self.write_run(bytes_most):
                    return
                job = slots[self.slot]
                self.slot += 1
                if job is None or job.queue.book is not self.book:
                    continue
                if isinstance(job, Run):
                    self.begin_run(job)
                else:
                    write_job(node, job)
            self.slot = 0
            self.page += 1
        if not self.write_run(bytes_most):
            return
        while self.tomb < len(self.tombs):
            if len(self.log) >= bytes_most:
                return
            jid = self.tombs[self.tomb]
            tomb = node.tombs.get(jid)
            if tomb is not None:
                records.tomb(node, jid, tomb)
            self.tomb += 1
        while self.result < len(self.results):
            if len(self.log) >= bytes_most:
                return
            jid = self.results[self.result]
            result = node.results.kept.get(jid)
            if result is not None and result.data is not None:
                records.result(node, jid, result.word, max(1, result.until - node.now), result.data)
            self.result += 1
        for key, taken in node.taken.items():
            if self.book is None and taken.job is None and taken.until > node.now:
                records.taken_key(node, key, taken.jid, taken.until - node.now)
        for peer in node.peers:
            for number, job in peer.moves.items():
                is_over = not job.flags & MOVING or node.moving.get(job) != number  # queued since, or given again
                if is_over and not node.broken("old-moves-kept"):
                    continue
                if job.state == ACTIVE and job.queue.book is self.book:
                    records.gave(node, job, peer, number)
            for number, until in peer.taken.items():
                records.had(node, peer, number, until)
            for number in peer.refused:
                records.refused(node, peer, number)
        if self.book is None:
            refill.write_throttles(node)
        self.pages = []
        self.tombs = []
        self.results = []
        self.page = self.tomb = self.result = 0
        self.is_done = True

    def write_settings(self) -> None:
        node = self.node
        if node.salvage.is_on:
            salvage.record(node)
        known = [slot for slot in range(len(node.homes.owners)) if node.homes.epochs[slot] > 0]
        if known:
            records.slots(node, known)
        for batch in node.batches.by_name.values():
            records.batch(node, batch, False)
        for jid, into in node.merged.items():
            records.merged(node, jid, into)
        registers.write_all(node)
        for group in node.claims.groups.values():
            records.claim_epoch(node, group.name, group.epoch)
        cron.write_all(node)
        for queue in node.queues.values():
            if queue.paused or queue.maxlen or queue.pause_stamp:
                records.queue(node, queue)
        for book in node.books.by_name.values():
            books.own(node, book)

    def begin_run(self, run: Run) -> None:
        """All jobs of a run are written when the first of their pages comes. Some may come twice."""
        if run.walk != self.number:
            run.walk = self.number
            self.run = run
            self.run_jobs = self.node.overflow.read(run)
            self.run_at = 0

    def write_run(self, bytes_most: i64) -> bool:
        """What is left of the run. False: the slice is full.

        A run that was opened meanwhile is none any more: its other jobs are in pages that are still to come.
        """
        run = self.run
        if run is not None and run.state == FOLDED:
            while self.run_at < len(self.run_jobs):
                if len(self.log) >= bytes_most:
                    return False
                write_job(self.node, self.run_jobs[self.run_at])
                self.run_at += 1
        self.run = None
        self.run_jobs = []
        return len(self.log) < bytes_most


def write_job(node: Node, job: Job) -> None:
    """A job as it stands. One that still waits for its copies is in the journal when it is accepted, or another node
    counts on it (twins.py)."""
    if (job.state == WAIT_REPL and not job.flags & TWIN) or job.state == GONE:
        return
    if not job.flags & ACK_ONLY:
        records.job(node, job)
    if job.state == ACKED:
        task = job.task
        if isinstance(task, Ending):
            records.ending(node, job, task.why)
    elif job.state == DEAD or job.flags & BACKING_OFF:
        records.fate(node, job)
    elif job.flags & IN_DOUBT:
        records.doubt(node, job)
    elif job.state == ACTIVE and job.flags & HANDED_OUT and (
        job.retry == 0 or (job.qtime != 0 and (job.responsible == ME or node.broken("copy-kept-as-lease")))
    ):
        ms = max(0, job.qtime - node.now)
        if job.lease is None:
            records.handout(node, job, ms)
        else:
            records.lease(node, job, job.lease, ms)
