"""How a node comes back: the records of its last life, replayed (records.py says what they are)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import read_i16_le, read_i32_le, read_i64_le
from mypy_extensions import i16, i32, i64

from holdfast.core import (
    acks,
    batches,
    bounds,
    claims,
    cron,
    doubt,
    early,
    fate,
    flush,
    home,
    leases,
    loaded_leases,
    placement,
    queues,
    refill,
    registers,
    requeue,
    results,
    salvage,
    settings,
    takeover,
    tombs,
    unique,
)
from holdfast.core.job import (
    ACK_ONLY,
    ACKED,
    ACTIVE,
    BACKING_OFF,
    CLAIMED,
    DEAD,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED_BEFORE,
    SPECIAL,
    Job,
    Lease,
    Origin,
    special_cost,
)
from holdfast.core.limits import NEVER, SEQ_LEAP
from holdfast.core.more import read
from holdfast.core.numbering import Numbers
from holdfast.core.peers import ME, MY_BIT, Peer, open_move
from holdfast.core.queue import Queue
from holdfast.core.records import (
    ADD,
    ADD_FIXED,
    BACK,
    BATCH,
    BATCH_BIT,
    CLAIM_EPOCH,
    CLOCK,
    COUNTS,
    CUT,
    DOUBT,
    EMPTIED,
    ENDING,
    FATE,
    FLUSH,
    GAVE,
    GONE,
    HAD,
    HANDOUT,
    HOLDERS,
    ID_BYTES,
    JOB,
    JOB_FIXED,
    KEY,
    LEASE,
    MERGED,
    NODE,
    OWN,
    QUEUE,
    RAN,
    REFUSED,
    REGISTER,
    RESULT,
    SALVAGE,
    SHARED,
    SLOTS,
    TAKEN,
    THROTTLE,
    TOMB,
    TOOK,
)
from holdfast.wire import bus
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

class Loading:
    """A replay: the numbering of the node that wrote the records against ours."""

    def __init__(self, node: Node) -> None:
        self.node: Node = node
        self.numbers: Numbers = Numbers(node)
        self.moves: dict[Job, tuple[Peer, int]] = {}
        self.leases: dict[Job, tuple[int, int]] = {}  # what is left of them, and what was when they were written down
        self.requeues: bool = node.config.is_on("requeue-on-load")
        self.origins: dict[int, Origin] = {}  # by the number that stands for one
        self.overflows: bool = node.overflow.begin_at < NEVER
        self.fresh: list[Job] = []  # read since jobs were last queued early
        self.book: bytes | None = None  # the queue whose own journal is being read
        self.owned: dict[bytes, int] = {}  # queues that have one: its number
        self.strays: list[tuple[bytes, Job]] = []  # jobs of which such a journal tells, and that are elsewhere
        self.passed: i64 = 0  # ms since what is being read was written
        self.is_cut: bool = False  # records are missing, and nobody was asked since
        self.is_unasked: bool = False  # so it was in an earlier life, and not all have been asked since
        self.shift: i64 = 0  # ms from the clock of the life that wrote the records to ours

    def mask(self, theirs: i64) -> i64:
        return self.numbers.mask(theirs)

    def batch(self, data: bytes) -> None:
        """The records of a turn, as `node.log` had them."""
        at: i64 = 0
        end: i64 = len(data)
        while at < end:
            size = i64(read_i32_le(data, at))
            self.one(data[at + 4:at + 4 + size])
            at += 4 + size

    def one(self, data: bytes) -> None:
        reader = Reader(data)
        kind = reader.u8()
        passed = self.passed
        if kind == CLOCK:
            self.passed = max(0, self.node.wall - reader.long())
        elif kind == ADD:
            self.load_add(reader)
        elif kind == JOB:
            self.load_job(reader, passed)
        elif kind == NODE:
            self.numbers.learn(reader)
        elif kind == TOMB:
            jid = reader.text(bus.ID)
            why = reader.u8()
            holders = self.mask(reader.long())
            tombs.place(self.node, jid, why, holders, self.node.now + reader.long() - passed)
        elif kind == REFUSED:
            peer = self.numbers.peer(reader.u8())
            peer.refused[int(reader.long())] = int(self.node.now) + 86_400_000
        elif kind == HAD:
            peer = self.numbers.peer(reader.u8())
            number = int(reader.long())
            peer.taken[number] = int(self.node.now + reader.long() - passed)
        elif kind == QUEUE:
            queue = self.queue(reader.name())
            paused = reader.u8()
            queue.maxlen = reader.long()
            settings.pause_loaded(self.node, queue, paused, reader.long() if reader.more() else -1)
        elif kind == SLOTS:
            self.load_slots(reader)
        elif kind == MERGED:
            jid = reader.text(bus.ID)
            self.node.merged[jid] = reader.text(bus.ID)
        elif kind == RESULT:
            jid = reader.text(bus.ID)
            reader.u8()
            left = reader.long() - passed
            if doubt.is_possible(self.node):
                left = max(left, doubt.RESULT_MS)
            if left > 0:
                results.keep(self.node, jid, reader.name(), left)
        elif kind == REGISTER:
            registers.load(self.node, reader)
        elif kind == RAN:
            cron.load_ran(self.node, reader)
        elif kind == THROTTLE:
            refill.load_throttle(self.node, reader, passed)
        elif kind == BATCH:
            self.load_batch(reader, passed)
        elif kind == BATCH_BIT:
            index = reader.u32()
            cause = reader.u8()
            batches.set_bit(self.node, reader.name(), index, cause)
        elif kind == CLAIM_EPOCH:
            epoch = reader.long()
            claims.load_epoch(self.node, reader.name(), epoch)
        elif kind == KEY:
            jid = reader.text(bus.ID)
            ms = reader.long() - passed
            unique.load_key(self.node, reader.name(), jid, ms)
        elif kind == FLUSH:
            self.moves.clear()
            flush.flush_all(self.node)
        elif kind == CUT:
            salvage.cut(self)
        elif kind == SALVAGE:
            self.is_unasked = reader.u8() != 0
            self.is_cut = self.is_cut and self.is_unasked
        elif kind == OWN:
            name = reader.name()
            self.drop_jobs(name)
            self.owned[name] = int(reader.long())
        elif kind == SHARED:
            self.owned.pop(reader.name(), None)
        elif kind == EMPTIED:
            self.drop_jobs(self.book or b"")
        else:
            self.load_change(kind, reader, passed)

    def end_shared(self) -> None:
        """Before other journals are read: what that of the node has of their jobs is left of a move cut short."""
        for name in self.owned:
            self.drop_jobs(name)

    def begin_book(self, name: bytes) -> None:
        """What follows is from the journal that a queue has for itself."""
        self.book = name
        self.numbers.begin()
        self.passed = 0

    def drop_jobs(self, name: bytes) -> None:
        node = self.node
        queue = node.queues.get(name)
        if queue is None:
            return
        for run in flush.runs_of(queue):
            for job in flush.opened(node, run):
                node.forget(job)
        for job in flush.jobs_of(node, queue):
            self.forget(job)

    def forget(self, job: Job) -> None:
        self.node.endings.pop(job, None)
        self.moves.pop(job, None)
        job.task = None
        self.node.forget(job)

    def arrived(self, job: Job) -> None:
        """It is not on its way to another node any more."""
        self.moves.pop(job, None)
        job.flags &= ~MOVING

    def is_of_book(self, job: Job) -> bool:
        """Whether a record may be about this job: one that has gone to another queue has left this journal."""
        return self.book is None or job.queue.name == self.book or job.queue is self.node.nowhere

    def load_add(self, reader: Reader) -> None:
        """A job about which nothing is special."""
        data = reader.data
        at = reader.skip(ADD_FIXED - 1)
        times = read_i64_le(data, at + 30)
        life = (times & 0xFFFFFFFF) - self.passed
        job = self.new_job(
            data, at, reader.text(i64(read_i32_le(data, at + 39))), data[reader.pos:], read_i64_le(data, at + 22),
            self.passed, life, 1,
        )
        if job is not None:
            job.retry = i32(times >> 32)
            job.priority = i16(data[at + 38])
            early.keep(self, job)

    def load_job(self, reader: Reader, passed: i64) -> None:
        node = self.node
        data = reader.data
        at = reader.skip(JOB_FIXED)
        more = at + ID_BYTES
        queue = reader.name()
        body = reader.name()
        job = self.new_job(
            data, at, queue, body, read_i64_le(data, more), read_i64_le(data, more + 8) + passed,
            read_i64_le(data, more + 16) - passed, self.mask(read_i64_le(data, more + 56)) | MY_BIT,
        )
        if job is None:
            return
        wait = read_i64_le(data, more + 24) - passed
        times = read_i64_le(data, more + 32)
        counts = read_i64_le(data, more + 40)
        rest = read_i64_le(data, more + 48)
        job.retry = i32(times >> 32)
        job.delay = i32(times & 0xFFFFFFFF)
        job.nacks = i32(counts >> 32)
        job.deliveries = i32(counts & 0xFFFFFFFF)
        job.replicate = i32(rest >> 32)
        job.flags = i32(rest >> 24 & 255)
        if job.flags & SPECIAL:
            job.more = read(reader.name())
        job.priority = i16(rest >> 16 & 255)
        job.hops = int(rest >> 8 & 255)
        job.responsible = max(0, self.numbers.of(rest & 255))
        job.qtime = node.now + wait if wait > 0 else 0
        early.keep(self, job)
        if job.more is not None and job.more.cause:
            fate.arrive(node, job)

    def new_job(
        self, data: bytes, at: i64, queue: bytes, body: bytes, ctime: i64, age: i64, life: i64, holders: i64
    ) -> Job | None:
        """The job whose id begins there, for the caller to complete and keep; None if it is known. One whose first life
        is over may have got another one since, or goes to the dead letters (expiry.py)."""
        node = self.node
        if life <= 0 and node.broken("expired-not-loaded"):
            return None
        origin = self.origin(i64(read_i32_le(data, at)))
        seq = read_i64_le(data, at + 4)
        known = origin.get(seq)
        if known is not None:
            if self.book is not None and known.queue.name != self.book:
                self.strays.append((self.book, early.take_out(node, origin, seq, known)))
            elif known.holders | holders != known.holders:
                early.take_out(node, origin, seq, known).holders |= holders
            return None
        job = Job(
            seq, read_i64_le(data, at + 12), origin, self.queue(queue), body, self.creation(ctime, age),
            node.now + life, i64(read_i16_le(data, at + 20)) & 0xFFFF,
        )
        job.holders = holders
        job.state = ACTIVE
        if origin is node.own:
            node.seq = max(node.seq, seq)  # numbers are never used twice, whatever became of the clock
            node.last_ctime = max(node.last_ctime, job.ctime)
        return job

    def origin(self, code: i64) -> Origin:
        found = self.origins.get(int(code))
        if found is None:
            found = self.node.origin(b"DI%08x" % (int(code) & 0xFFFFFFFF))
            self.origins[int(code)] = found
        return found

    def job_named(self, reader: Reader) -> Job | None:
        at = reader.skip(12)
        origin = self.origin(i64(read_i32_le(reader.data, at)))
        seq = read_i64_le(reader.data, at + 4)
        job = origin.get(seq)
        if job is not None and not self.is_of_book(job):
            return None
        return job if job is None or job.state == ACTIVE else early.take_out(self.node, origin, seq, job)

    def queue(self, name: bytes) -> Queue:
        """The queue of that name: made if need be, however full the node is."""
        found = self.node.queues.get(name)
        return queues.make_queue(self.node, name) if found is None else found

    def creation(self, ctime: i64, age: i64) -> i64:
        """When a job was created, on the clock of this life, in the order that jobs had in theirs.

        Two clocks cut into milliseconds differ by one from one record to the next, so all are moved by the same
        amount, as long as that is right to a second.
        """
        ms: i64 = self.node.now - age
        off: i64 = ms - (ctime // 1_000_000 + self.shift)
        if off > 1000 or off < -1000:
            self.shift += off
        return ctime + self.shift * 1_000_000

    def load_change(self, kind: i64, reader: Reader, passed: i64) -> None:
        node = self.node
        if kind == ENDING:
            jid = reader.text(bus.ID)
            job = node.find(jid)
            why = reader.u8()
            is_ack_only = reader.u8() != 0
            holders = self.mask(reader.long())
            if job is not None and not self.is_of_book(job):
                return
            if job is None:  # an ack of a job never seen here, or the end of one that was never accepted
                job = acks.make_ended(node, jid, is_ack_only)
            if job is not None and job.state != ACKED:
                job.holders |= holders
                acks.mark(node, job, why)
            return
        if kind == TOOK:
            jid = reader.text(bus.ID)
            job = node.find(jid)
            peer = self.numbers.peer(reader.u8())
            number = int(reader.long())
            peer.taken[number] = int(node.now + reader.long() - passed)
            if reader.u8() == 1:
                self.load_job(reader, passed)
                job = node.find(jid)
            if job is not None:
                self.arrived(job)
                job.responsible = ME
            return
        job = self.job_named(reader)
        if job is None:
            return
        if kind == HOLDERS:
            job.holders = self.mask(reader.long())
        elif kind == COUNTS:
            self.load_counts(job, reader)
            leases.forget(node, job)
        elif kind == FATE:
            self.load_fate(job, reader, passed)
        elif kind == LEASE:
            self.load_lease(job, reader, passed)
        elif kind == GONE:
            self.forget(job)
        elif kind == HANDOUT:
            self.went_out(job, reader.long() - passed, passed)
        elif kind == GAVE:
            peer = self.numbers.peer(reader.u8())
            self.moves[job] = (peer, int(reader.long()))
            job.flags |= MOVING | QUEUED_BEFORE
            job.responsible = int(peer.index)
            job.holders |= peer.bit
            job.qtime = node.now + max(0, i64(job.retry) * 1000 - passed) if job.retry > 0 else 0
        elif kind == DOUBT:
            self.arrived(job)
            job.flags |= IN_DOUBT | HANDED_OUT
            job.qtime = 0
            node.dead[job] = None
        elif kind == TAKEN:
            self.arrived(job)
        elif kind == BACK:
            self.arrived(job)
            if job.flags & IN_DOUBT:
                job.flags &= ~(IN_DOUBT | HANDED_OUT)
                node.dead.pop(job, None)
            job.flags = (job.flags & ~BACKING_OFF) | QUEUED_BEFORE
            if job.retry == 0 and not node.broken("once-returned-forgotten"):
                job.flags &= ~HANDED_OUT  # to be queued, so it was not; else it would never be again
            job.responsible = ME
            job.qtime = 0
            leases.forget(node, job)

    def load_fate(self, job: Job, reader: Reader, passed: i64) -> None:
        """What became of a job: it may be dead by then, or waiting, or in another queue."""
        node = self.node
        life = reader.long() - passed
        wait = reader.long()
        self.load_counts(job, reader)
        priority = reader.u8()
        queue = reader.name()
        data = reader.name()
        if job.flags & SPECIAL:
            node.account(-special_cost(job))
        job.more = read(data) if data else None
        job.flags &= ~(SPECIAL | BACKING_OFF)
        if job.more is not None or job.lease is not None:
            job.flags |= SPECIAL
            node.account(special_cost(job))
        fate.put_elsewhere(node, job, priority, self.queue(queue))
        job.expire = node.now + (max(1, life) if node.broken("life-begins-by-bad-clock") else life)
        page = job.origin.find_page(job.seq)
        assert page is not None
        node.alarms.at_latest(page, job.expire)
        if job.more is not None and job.more.cause:
            leases.forget(node, job)
            fate.arrive(node, job)
            return
        node.dead.pop(job, None)
        job.state = ACTIVE
        if wait > 0:
            leases.forget(node, job)
            job.flags |= BACKING_OFF | QUEUED_BEFORE
            job.responsible = ME
            job.qtime = node.now + max(1, wait - passed)

    def load_counts(self, job: Job, reader: Reader) -> None:
        """Given back once more it is not out any more, at whatever node that was said."""
        before = i64(job.nacks)
        job.nacks, job.deliveries = i32(reader.u32()), i32(reader.u32())
        if i64(job.nacks) > before and job.retry > 0 and not self.node.broken("nack-elsewhere-unread"):
            job.flags &= ~HANDED_OUT
            job.qtime = 0

    def load_lease(self, job: Job, reader: Reader, passed: i64) -> None:
        """It was handed out, and more is known of that than when its time ends."""
        node = self.node
        left = reader.long() - passed
        start, number = reader.long(), reader.long()
        since = node.now - passed - reader.long()
        is_cancelled = reader.u8() != 0
        lease = Lease(start, number, reader.name(), reader.name(), since, max(0, left))
        lease.is_cancelled = is_cancelled
        leases.forget(node, job)
        if not node.broken("lease-token-forgotten"):
            leases.give(node, job, lease)
        self.went_out(job, left, passed)
        if lease.worker.startswith(CLAIMED) and not node.broken("claim-expires-with-restart"):
            claims.outlive(node, job, node.now + left)

    def went_out(self, job: Job, left: i64, passed: i64) -> None:
        """Here, to a consumer: if it was on its way to another node, it was not taken there in time."""
        node = self.node
        if not node.broken("old-moves-kept"):
            self.arrived(job)
        job.flags = (job.flags & ~BACKING_OFF) | HANDED_OUT | QUEUED_BEFORE
        job.responsible = ME
        refill.went_out(node, job, passed)
        job.qtime = node.now + max(0, left) if job.retry > 0 else 0
        self.leases[job] = (int(left), int(left + passed))

    def load_batch(self, reader: Reader, passed: i64) -> None:
        is_gone = reader.u8() != 0
        data = reader.name()
        known = self.node.batches.by_name.get(data) if is_gone else None
        if known is not None:
            batches.drop(self.node, known)
        elif not is_gone:
            batches.unite(self.node, data, passed)

    def load_slots(self, reader: Reader) -> None:
        """Who was the home of which slot. Our own are opened when the others have been asked (takeover.py)."""
        homes = self.node.homes
        while reader.more():
            slot = int(reader.u16())
            epoch = int(reader.u32())
            owner = self.numbers.of(reader.u8())
            if owner >= 0:
                homes.epochs[slot] = epoch
                homes.owners[slot] = owner

    def distrust(self, jobs: list[Job]) -> None:
        """What was not on the disk before it was said may be missing: to whom a copy was given, among others."""
        node = self.node
        if len(node.peers) == 1 or node.config.text("appendfsync") == "always" or node.broken("lost-tail-trusted"):
            return
        for job in jobs:
            if job.retry > 0 and not job.flags & ACK_ONLY:
                acks.distrust(node, job)

    def finish(self) -> None:
        """Everything is read: what was queued is queued again, what was out keeps its time."""
        node = self.node
        if node.seq > node.start * 1000:
            node.seq += SEQ_LEAP  # the clock was set back, and not all that was given out is in the journal
        for job in tombs.beneath(node):
            self.forget(job)
        placement.regard_hosts(node)
        if len(node.peers) > 1:
            node.alarms.set(node.beat, node.now + 1)
        doubt.begin(node)
        if not node.broken("forgotten-joins-at-once"):
            node.reach.alone_until = node.now + requeue.QUARANTINE_MS
        for job, (peer, number) in self.moves.items():
            open_move(node, peer, number, job)
        refill.count_all(node)
        if home.is_alone(node):
            takeover.claim_all(node)
        batches.recount(node)
        jobs = node.all_jobs()
        waiting: list[Job] = []
        self.distrust(jobs)
        if (self.is_cut or self.is_unasked) and salvage.begin(node, jobs):
            return
        for job in jobs:
            if job.state == ACKED:
                node.wake_at(job, node.now + acks.RETRY_MS)
                continue
            if job.queue.total_most > 0 and not node.broken("bounded-uncounted"):
                bounds.count_own(node, job)
            if job.state == DEAD or fate.is_to_be_told(job):
                fate.spread(node, job)
            if job.flags & BACKING_OFF:
                node.wake_at(job, max(node.now + 1, job.qtime))
            elif job.state != ACTIVE or job.flags & IN_DOUBT:
                continue
            elif job.flags & (HANDED_OUT | MOVING) and job.retry == 0:
                job.qtime = 0
                if node.broken("once-requeued-at-start"):
                    node.enqueue(job)
            elif job.responsible == ME and job.flags & HANDED_OUT and job.qtime != 0:
                node.wake_at(job, job.qtime)
                loaded_leases.begin(node, job, *self.leases.get(job, (0, 0)))
            elif job.responsible == ME:
                if job.qtime > node.now:
                    node.wake_at(job, job.qtime)
                elif not self.requeues:
                    node.lease(job, i64(job.retry) * 1000)
                elif node.doubted.get(job, False) or (
                    job.holders & ~MY_BIT and not node.broken("missed-acks-not-read")
                ):
                    # Others may have queued it, or know how it ended, or what time it is: when there are links.
                    job.flags |= QUEUED_BEFORE
                    waiting.append(job)
                else:
                    node.enqueue(job)
            else:
                node.wake_at(job, max(job.qtime, node.now + i64(job.retry) * 1000) + node.jitter())
        node.reach.comeback.begin(node, waiting)


def load(node: Node, kept: list[bytes]) -> None:
    """Bring a node back to what its journal kept. Nothing is recorded meanwhile."""
    was_recording = node.is_recording
    node.is_recording = False
    loading = Loading(node)
    for data in kept:
        loading.one(data)
        early.make_room(loading)
    loading.finish()
    node.is_recording = was_recording
    node.take_log()
