"""Scans: QSCAN, JSCAN, and SCAN which is both.

Queues are in the order of their names, jobs in the order of their ids, and the cursor is the last item
returned with an equals sign before it: a scan needs no state here, sees every item that is there from its
beginning to its end exactly once, and can go on after a restart. `0` is the beginning, and the end.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import errors, groups, states, status
from holdfast.core.commands.jobs import write_added
from holdfast.core.commands.show import write_job
from holdfast.core.errors import BadRequest
from holdfast.core.ids import id_seq, is_id
from holdfast.core.job import (
    STATE_NAMES,
    Job,
    Run,
)
from holdfast.core.limits import NEVER, SCAN_COUNT_DEFAULT, SCAN_COUNT_MAX, SCAN_FULL_MAX, SCAN_STEPS_PER_ITEM
from holdfast.core.more import More
from holdfast.core.parse import at_least, integer, no_option, value_of
from holdfast.core.queue import Queue
from holdfast.core.reply import write_array, write_bulk
from holdfast.core.session import Session

if TYPE_CHECKING:
    from holdfast.core.node import Node

PAGES_AT_ONCE = 64
NO_LIMIT = 1 << 60


class Scan:
    """The options of a scan, read and checked."""

    def __init__(self) -> None:
        self.after: bytes | None = None  # the last item of the call before
        self.has_cursor: bool = False
        self.count: i64 = SCAN_COUNT_DEFAULT
        self.is_busyloop: bool = False
        # Filters of queues.
        self.minlen: i64 = -1
        self.maxlen: i64 = -1
        self.import_rate: i64 = -1
        self.maxidle: i64 = -1
        # Filters of jobs.
        self.queue: bytes | None = None
        self.states: list[int] = []
        self.statuses: list[bytes] = []
        self.tenant: bytes = b""
        self.domain: bytes = b""
        self.group: bytes = b""
        self.unique: bytes = b""
        self.batch: bytes = b""
        self.is_full: bool = False  # REPLY all

    def read(self, argv: list[bytes], i: int, of_jobs: bool) -> None:
        while i < len(argv):
            word = argv[i].upper()
            if word == b"COUNT":
                self.count = at_least(value_of(argv, i), 1, errors.NOT_AN_INTEGER)
            elif word == b"BUSYLOOP":
                self.is_busyloop = True
                i -= 1
            elif not (self.read_job_filter(argv, i, word) if of_jobs else self.read_queue_filter(argv, i, word)):
                self.read_cursor(argv[i], of_jobs)
                i -= 1
            i += 2

    def read_cursor(self, word: bytes, of_jobs: bool) -> None:
        if self.has_cursor:
            raise no_option(word)
        self.has_cursor = True
        if word == b"0":
            return
        if not word.startswith(b"=") or (of_jobs and not is_id(word[1:])):
            raise BadRequest(errors.BAD_CURSOR)
        self.after = word[1:]

    def read_queue_filter(self, argv: list[bytes], i: int, word: bytes) -> bool:
        if word == b"MINLEN":
            self.minlen = integer(value_of(argv, i), errors.NOT_AN_INTEGER)
        elif word == b"MAXLEN":
            self.maxlen = integer(value_of(argv, i), errors.NOT_AN_INTEGER)
        elif word == b"IMPORTRATE":
            self.import_rate = integer(value_of(argv, i), errors.NOT_AN_INTEGER)
        elif word == b"MAXIDLE":
            self.maxidle = at_least(value_of(argv, i), 0, errors.NOT_AN_INTEGER)
        else:
            return False
        return True

    def read_job_filter(self, argv: list[bytes], i: int, word: bytes) -> bool:
        if word == b"QUEUE":
            self.queue = value_of(argv, i)
        elif word == b"STATE":
            name = value_of(argv, i).lower()
            if name in STATE_NAMES and name != b"gone":
                self.states.append(STATE_NAMES.index(name))
            elif name in states.ABOUT:
                self.statuses.append(name)
            else:
                raise BadRequest(errors.BAD_STATE)
        elif word == b"TENANT":
            self.tenant = value_of(argv, i)
        elif word == b"DOMAIN":
            self.domain = value_of(argv, i)
        elif word == b"GROUP":
            self.group = value_of(argv, i)
        elif word == b"UNIQUE":
            self.unique = value_of(argv, i)
        elif word == b"BATCH":
            self.batch = value_of(argv, i)
        elif word == b"REPLY":
            form = value_of(argv, i).lower()
            if form != b"id" and form != b"all":
                raise BadRequest(errors.BAD_REPLY_TYPE)
            self.is_full = form == b"all"
        else:
            return False
        return True

    def items_most(self) -> int:
        return NO_LIMIT if self.is_busyloop else min(self.count, SCAN_FULL_MAX if self.is_full else SCAN_COUNT_MAX)

    def steps_most(self) -> int:
        return NO_LIMIT if self.is_busyloop else min(self.count, SCAN_COUNT_MAX) * SCAN_STEPS_PER_ITEM

    def takes_queue(self, node: Node, queue: Queue) -> bool:
        return not (
            (self.minlen >= 0 and queue.size + queue.lined < self.minlen)
            or (self.maxlen >= 0 and queue.size + queue.lined > self.maxlen)
            or (self.import_rate >= 0 and queue.import_rate(node.now) < self.import_rate)
            or (self.maxidle >= 0 and node.now - queue.used > self.maxidle * 1000)
        )

    def takes_job(self, node: Node, job: Job) -> bool:
        if self.queue is not None and job.queue.name != self.queue:
            return False
        if (self.tenant or self.domain or self.group or self.unique or self.batch) and not self.takes_keys(job.more):
            return False
        if not self.states and not self.statuses:
            return True
        if groups.state_of(job) in self.states:
            return True
        return len(self.statuses) > 0 and status.of(node, job) in self.statuses

    def takes_keys(self, more: More | None) -> bool:
        return more is not None and not (
            (self.tenant and more.tenant != self.tenant) or (self.domain and more.domain != self.domain)
            or (self.group and more.group != self.group) or (self.unique and more.unique != self.unique)
            or (self.batch and more.batch != self.batch)
        )


def qscan(node: Node, session: Session, argv: list[bytes]) -> None:
    """List queues of this node, in pages; filters by length, and for SCAN queue also by idle seconds."""
    scan = Scan()
    scan.read(argv, 1, of_jobs=False)
    scan_queues(node, scan)


def jscan(node: Node, session: Session, argv: list[bytes]) -> None:
    """List jobs of this node, in pages: their ids, or with REPLY all what SHOW says of each.

    STATE takes a state of Disque's, or a status (see job-states.md).
    """
    scan = Scan()
    scan.read(argv, 1, of_jobs=True)
    scan_jobs(node, session, scan)


def scan_command(node: Node, session: Session, argv: list[bytes]) -> None:
    """QSCAN and JSCAN under one name: SCAN queue cursor ..., SCAN job cursor ..."""
    what = argv[1].lower()
    scan = Scan()
    if what == b"queue":
        scan.read(argv, 2, of_jobs=False)
        scan_queues(node, scan)
    elif what == b"job":
        scan.read(argv, 2, of_jobs=True)
        scan_jobs(node, session, scan)
    else:
        raise BadRequest(b"ERR use SCAN job cursor ... or SCAN queue cursor ...")


def scan_queues(node: Node, scan: Scan) -> None:
    found: list[bytes] = []
    last = b""
    steps = 0
    names = node.names
    i = names.start(scan.after)
    order = names.order
    while i < len(order) and len(found) < scan.items_most() and steps < scan.steps_most():
        last = order[i]
        if scan.takes_queue(node, node.queues[last]):
            found.append(last)
        steps += 1
        i += 1
    write_cursor(node, last, i >= len(order))
    write_array(node.out, len(found))
    for name in found:
        write_bulk(node.out, name)


def write_cursor(node: Node, last: bytes, is_end: bool) -> None:
    """The outer array and its first element; the array of items follows."""
    write_array(node.out, 2)
    write_bulk(node.out, b"0" if is_end else b"=" + last)


def scan_jobs(node: Node, session: Session, scan: Scan) -> None:
    found: list[Job] = []
    last = walk_jobs(node, scan, found)
    write_cursor(node, b"" if last is None else node.id_text(last), last is None)
    write_array(node.out, len(found))
    for job in found:
        if scan.is_full:
            write_job(node, session, job)
        else:
            write_added(node.out, job)


def walk_jobs(node: Node, scan: Scan, found: list[Job]) -> Job | None:
    """Fill `found`; returns the job to go on after, None if the end was reached."""
    after = scan.after
    first_prefix = b"" if after is None else after[:10]
    steps = 0
    for prefix in sorted(node.origins):
        if prefix < first_prefix:
            continue
        origin = node.origins[prefix]
        seq: i64 = 0
        if after is not None and prefix == first_prefix:
            seq = id_seq(after) + 1
            if seq <= 0:  # an id no node has made: beyond every job
                seq = NEVER
        while True:
            pages = origin.pages_from(seq, PAGES_AT_ONCE)
            if not pages:
                break
            for page in pages:
                for i in range(len(page.slots)):
                    job = page.slots[i]
                    if job is None or page.number * len(page.slots) + i < seq:
                        continue
                    if isinstance(job, Run):
                        job = node.overflow.peek_at(job, origin, page.number * len(page.slots) + i)
                    if scan.takes_job(node, job):
                        found.append(job)
                    steps += 1
                    if len(found) >= scan.items_most() or steps >= scan.steps_most():
                        return job
                seq = (page.number + 1) * len(page.slots)
    return None
