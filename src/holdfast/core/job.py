"""A job, and the table that finds it by the sequence number in its id.

A job is one small native object outside Python's cyclic collector: two million of them must not make the
collector pause. It refers to its queue and to its origin, and both refer to it, so whoever drops a job
unlinks it (Origin.remove, Node.forget); nothing else would.

Jobs of one creating node are its Origin: pages of slots indexed by the dense sequence number. Neighbours in
time are neighbours in memory, there is no key object, and a page carries one alarm for all of its jobs: the
earliest time at which any of them wants to be looked at. That one alarm replaces a timer per job, and with
it everything that has to be done about timers of jobs that have long been acknowledged.
"""
from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from holdfast.core.alarms import Alarm
from holdfast.core.limits import LEASE_BYTES, NEVER
from holdfast.core.more import More
from holdfast.core.store import NO_STORE, Store, read_place, size_at

if TYPE_CHECKING:
    from holdfast.core.overflow import Overflow
    from holdfast.core.queue import Queue

# States of a local copy. GONE is what a forgotten job says to those who still hold a reference to it.
WAIT_REPL: Final = 0
ACTIVE: Final = 1  # known here, not queued here: delayed, or handed out and not yet acknowledged
QUEUED: Final = 2
ACKED: Final = 3
GONE: Final = 4
DEAD: Final = 5  # has failed too often, or was given up: kept, and queued again only on somebody's word (fate.py)
FOLDED: Final = 6  # what stands for a run of queued jobs that are on disk (Run)

STATE_NAMES: Final = [b"wait-repl", b"active", b"queued", b"acked", b"gone", b"dead", b"queued"]

# Flags.
HANDED_OUT: Final = 1  # this node gave the job to a consumer at least once
QUEUED_BEFORE: Final = 2  # it has been queued here at least once
ASKING: Final = 4  # asked the other holders whether it may be queued; their time to answer is running
ACK_ONLY: Final = 8  # an ack for a job this node has never seen
MOVING: Final = 16  # given to another node, which has not yet said that it took it
IN_LINE: Final = 256  # has a place in its group (groups.py)
BINNED: Final = 512  # queued, and its domain must let it go out (rules.py)
COUNTED: Final = 1024  # out, and counted as such by its domain or the throttle of its queue
SPECIAL: Final = 128  # has more than a plain job: `more` or `lease` is not None, or somebody waits for its end
UNSURE: Final = 64  # a holder has lost what it knew, so others may hold the job of whom nobody knows any more
AWAY: Final = 16384  # its body is on disk, and `kept` says where (overflow.py)
IN_DOUBT: Final = 32  # at most once, and given to a node that can no longer say whether it took it
BACKING_OFF: Final = 2048  # it failed here, and waits here until it is queued again
TOLD_UNTIL: Final = 4096  # the responsible node said until when it is out, or waits: until then it is not asked for
BOUNDED: Final = 32768  # accepted here, and counted for the bound of its queue over all nodes (bounds.py)
GIVEN: Final = 65536  # given to another node since its time last came (requeue.is_with_taker)
TWIN: Final = 131072  # another node has it, too, and ours is still to be queued for the first time (twins.py)
WATCHED: Final = 8192  # somebody waits for its end (results.py)

PAGE_SLOTS: Final = 128
"""Jobs per page: large enough that neighbours rarely need a lookup and an alarm is shared by many, small
enough that one long-lived job among many short-lived ones pins a kilobyte and not more."""


@mypyc_attr(acyclic=True)
class Task:
    """What a job is in the middle of, where that takes more than a job itself remembers.

    Being added (replicate.py), or ended and not yet collected (acks.py).
    """

    def __init__(self) -> None:
        self.confirmed: i64 = 0  # nodes that have said what we wait for
        self.why: i64 = 0  # how the job has ended, if it has (acks.py)


CLAIMED: Final = b"claim:"
"""How the worker of a lease is called that is part of a claim (claims.py): this, group, seq, claim and count."""


@mypyc_attr(acyclic=True)
class Lease:
    """A hand-out whose consumer asked for a token or a time of its own (leases.py)."""

    def __init__(self, start: i64, number: i64, worker: bytes, address: bytes, since: i64, ms: i64) -> None:
        self.start: i64 = start  # when the node that handed it out had started: with the number, its token
        self.number: i64 = number
        self.worker: bytes = worker  # the name its connection had
        self.address: bytes = address
        self.since: i64 = since
        self.ms: i64 = ms  # how long it was given for
        self.fraction: i64 = -1  # how far the worker says it is, in thousandths; -1: it has not said
        self.progress: bytes = b""
        self.is_first: bool = False  # it was not handed out before
        self.is_cancelled: bool = False  # the worker is told at its next word


@mypyc_attr(acyclic=True)
class Job:
    def __init__(
        self, seq: i64, rnd: i64, origin: Origin, queue: Queue, body: bytes, ctime: i64, expire: i64, minutes: i64
    ) -> None:
        self.seq: i64 = seq
        self.rnd: i64 = rnd
        self.ctime: i64 = ctime  # creation, unix milliseconds * 1,000,000 + a counter: the order inside a queue
        self.expire: i64 = expire  # when its life ends, ms
        self.qtime: i64 = 0  # when it is to be queued, ms: end of its delay or of its lease; 0 if not at all
        self.origin: Origin = origin
        self.queue: Queue = queue
        self.kept: bytes = body  # its body, or with the flag AWAY the place of it
        self.retry: i32 = 0  # seconds a consumer has before the job is queued again; 0: at most once
        self.delay: i32 = 0
        self.minutes: i32 = i32(minutes)  # the TTL field of the id
        self.nacks: i32 = 0
        self.deliveries: i32 = 0  # additional ones, beyond the first
        self.replicate: i32 = 1
        self.holders: i64 = 1  # nodes that may hold a copy, as a mask (peers.py); bit 0 is this node
        self.task: Task | None = None
        self.more: More | None = None
        self.lease: Lease | None = None
        self.taker: i64 = 0  # number of the session it was last handed out to
        self.since: i32 = -1  # when it was last handed out here (times.py); -1: not in this life of the node
        self.flags: i32 = 0
        self.flying: i16 = 0  # copies on their way to others and not acknowledged
        self.priority: i16 = 0
        self.state: u8 = WAIT_REPL
        self.responsible: u8 = 0  # index of the node that last said it has the job queued or leased; 0: this one
        self.asks: u8 = 0  # how often that node said it is still queued there
        self.hops: u8 = 0  # moves since it was queued

    @property
    def body(self) -> bytes:
        """Read from disk if that is where it is. Raises Unreadable; who hands jobs out uses overflow.bring first."""
        return read_place(self.origin.store, self.kept) if self.flags & AWAY else self.kept

    def body_bytes(self) -> i64:
        """How long it is, wherever it is."""
        return size_at(self.kept) if self.flags & AWAY else len(self.kept)


@mypyc_attr(acyclic=True)
class Run(Job):
    """Stands for a run of queued jobs that are on disk: in their places in pages, and in their lane (overflow.py).

    Its number and times are those of the first job, so that it sorts where they do; its life ends when the first
    of theirs does.
    """

    def __init__(self, first: Job, overflow: Overflow, place: i64, size: i64, count: i64, expire: i64) -> None:
        super().__init__(first.seq, first.rnd, first.origin, first.queue, b"", first.ctime, expire, 0)
        self.priority = first.priority
        self.state = FOLDED
        self.overflow: Overflow = overflow
        self.place: i64 = place
        self.size: i64 = size
        self.count: i64 = count
        self.walk: i64 = 0  # the last snapshot that has it


def special_cost(job: Job) -> i64:
    """Bytes of memory that a job needs beyond what a plain one does."""
    cost: i64 = 0 if job.lease is None else LEASE_BYTES
    more = job.more
    return cost if more is None else cost + more.cost()


class Page(Alarm):
    """A run of jobs with neighbouring sequence numbers, and the alarm they share."""

    def __init__(self, origin: Origin, number: i64) -> None:
        super().__init__()
        self.origin: Origin = origin
        self.number: i64 = number
        self.live: i64 = 0
        self.slots: list[Job | None] = [None] * PAGE_SLOTS


def read_code(prefix: bytes) -> i64:
    """The digits of a prefix as a number of 32 bits with a sign, as a journal has them."""
    code = int(prefix[2:], 16)
    return code - 0x100000000 if code >= 0x80000000 else code


class Origin:
    """All jobs known here that one node created."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix: bytes = prefix  # DI + eight hex digits: how all its ids begin
        self.code: i64 = read_code(prefix)
        self.pages: dict[int, Page] = {}
        self.order: list[int] = []  # page numbers, some perhaps gone; sorted when `is_sorted`
        self.is_sorted: bool = True
        self.put_page: Page = Page(self, -1)  # the pages last used, so that neighbours need no lookup
        self.get_page: Page = self.put_page
        self.count: i64 = 0
        self.store: Store = NO_STORE  # where bodies are that are not in memory

    def find_page(self, seq: i64) -> Page | None:
        number: i64 = seq // PAGE_SLOTS
        page = self.get_page
        if page.number == number:
            return page
        found = self.pages.get(number)
        if found is not None:
            self.get_page = found
        return found

    def get(self, seq: i64) -> Job | None:
        page = self.find_page(seq)
        if page is None:
            return None
        return page.slots[seq % PAGE_SLOTS]

    def put(self, job: Job) -> Page:
        """Add a job that is not there yet; returns its page, so that the caller can set the alarm."""
        seq = job.seq
        number: i64 = seq // PAGE_SLOTS
        page = self.put_page
        if page.number != number:
            page = self.open_page(number)
        page.slots[seq % PAGE_SLOTS] = job
        page.live += 1
        self.count += 1
        return page

    def open_page(self, number: i64) -> Page:
        left = self.put_page
        found = self.pages.get(number)
        if found is None:
            found = Page(self, number)
            self.pages[number] = found
            if self.order and number <= self.order[-1]:  # equal: a page that was dropped comes again
                self.is_sorted = False
            self.order.append(number)
        self.put_page = found
        if left.live == 0:
            self.drop(left)  # kept only because it was the one being filled
        return found

    def remove(self, job: Job) -> None:
        page = self.find_page(job.seq)
        assert page is not None
        page.slots[job.seq % PAGE_SLOTS] = None
        page.live -= 1
        self.count -= 1
        if page.live == 0 and page is not self.put_page:
            self.drop(page)

    def replace(self, seq: i64, job: Job) -> None:
        """What is known of that number is another object from now on."""
        page = self.find_page(seq)
        assert page is not None
        page.slots[seq % PAGE_SLOTS] = job

    def drop(self, page: Page) -> None:
        page.wake = NEVER  # its entry in the alarms no longer counts
        self.pages.pop(page.number, None)
        if self.get_page is page:
            self.get_page = self.put_page
        if len(self.order) > 64 + 2 * len(self.pages):
            self.order = sorted(self.pages)
            self.is_sorted = True

    def pages_from(self, seq: i64, most: int) -> list[Page]:
        """Up to `most` pages in order, beginning with the one that holds (or would hold) `seq`."""
        if not self.is_sorted:
            self.order = sorted(self.pages)
            self.is_sorted = True
        found: list[Page] = []
        order = self.order
        for i in range(bisect_left(order, seq // PAGE_SLOTS), len(order)):
            page = self.pages.get(order[i])
            if page is not None:
                found.append(page)
                if len(found) >= most:
                    break
        return found
