"""More jobs than memory: what is not needed soon is on disk, and comes back before it is.

Above `overflow-from` percent of maxmemory a node with a journal moves jobs out of memory at the end of a turn, a few
megabytes at a time, until there is some room again:

    runs      the cold end of a queue: blocks of a lane (lane.py), jobs and all. In a page and in its lane a Run
              (job.py) stands for them; about a dozen bytes are left of each.
    bodies    of other jobs: copies for other nodes, delayed, leased, or queued with more than a plain job has. The
              job stays, `kept` says where its body is.
    ends      what is left of queues too short for a whole block, behind the first few jobs.

What was moved is in a store (store.py) and in the journal. The first is read while the node runs and is worth nothing
after it; the second is read after a restart. So the journal, its snapshots and its retention know nothing of this, a
crash has nothing to repair, and moving out is a plain write that nobody waits for the disk to keep.

Everybody else sees no difference. A lane opens a run when its turn comes, and tells the store of it some blocks
earlier; `Node.find` opens the run a job is in; `Job.body` reads a body. Those reads are made where they are needed:
from the memory of the system, mostly, since they were announced or lie one after the other. If a disk fails to give
back what was put there, jobs stay where they are, whoever asks is told, and the next one tries again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from holdfast.core.job import (
    ACTIVE,
    AWAY,
    DEAD,
    FOLDED,
    GONE,
    HANDED_OUT,
    QUEUED,
    QUEUED_BEFORE,
    Job,
    Origin,
    Page,
    Run,
)
from holdfast.core.lane import Block, Lane, lane_of
from holdfast.core.limits import (
    BODY_BYTES_EXTRA,
    FOLDED_JOB_BYTES,
    JOB_BYTES,
    NEVER,
    OVERFLOW_BARREN_MS,
    OVERFLOW_BODY_MIN,
    OVERFLOW_INLINE_MAX,
    OVERFLOW_LOOKS,
    OVERFLOW_RETRY_MS,
    OVERFLOW_ROOM_PERCENT,
    OVERFLOW_STEP_BYTES,
    OVERFLOW_STEPS_MAX,
)
from holdfast.core.peers import ME, MY_BIT
from holdfast.core.queue import Queue
from holdfast.core.store import (
    NO_STORE,
    PLACE_BYTES,
    Store,
    Unreadable,
    drop_place,
    read_place,
    write_place,
)

if TYPE_CHECKING:
    from holdfast.core.node import Node

# Where the search for something to move is.
RUNS: Final = 0
BODIES: Final = 1
ENDS: Final = 2

NEAR_BLOCKS: Final = 2  # of a lane, from its front: never folded whole
PLAIN_FLAGS: Final = QUEUED_BEFORE | HANDED_OUT | AWAY
FIXED: Final = 4 + 7 * 8  # of a job in a run, before what it keeps


class Overflow:
    def __init__(self, node: Node) -> None:
        self.node: Node = node
        self.store: Store = NO_STORE
        self.is_on: bool = False
        self.begin_at: i64 = NEVER  # `used` above which something is moved
        self.end_at: i64 = NEVER  # and down to which
        self.next_at: i64 = NEVER  # one or the other
        self.retry_at: i64 = 0  # not before that: the disk would not have it
        self.barren_until: i64 = 0  # until then no command looks again: there was nothing to move anywhere
        self.barren: i64 = 0  # walks that found so
        self.trouble: str = ""
        self.least: i64 = 16  # jobs in a run, where a queue has no more
        self.body_min: i64 = OVERFLOW_BODY_MIN
        self.near: i64 = 4  # jobs from the front of a lane that stay whatever happens
        self.folded: i64 = 0  # jobs in runs
        self.away: i64 = 0  # bodies
        self.moved: i64 = 0  # bytes put, since the start
        self.opened: i64 = 0  # runs read
        self.failed: i64 = 0  # reads that failed
        self.walks: i64 = 0
        self.phase: i64 = RUNS
        self.has_gained: bool = False  # in this phase
        self.hand: i64 = 0  # in the names of queues
        self.hand_origin: bytes = b""
        self.hand_seq: i64 = 0
        self.known: Run | None = None  # the run last read without being opened, and what is in it
        self.known_jobs: list[Job] = []

    def begin(self, store: Store) -> None:
        """From now on there is somewhere to move things to."""
        self.store = store
        self.is_on = True
        for origin in self.node.origins.values():
            origin.store = store
        self.apply_settings()

    def apply_settings(self) -> None:
        percent: i64 = self.node.config.number("overflow-from")
        full = self.node.full
        self.begin_at = self.end_at = NEVER
        if self.is_on and percent > 0:
            self.begin_at = full // 100 * percent
            self.end_at = self.begin_at - full // 100 * OVERFLOW_ROOM_PERCENT
        self.next_at = self.begin_at

    # -- moving out ----------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        return self.node.used >= self.next_at

    def step(self) -> bool:
        """Move some of it. False: there is nothing to move, or it cannot be."""
        node = self.node
        if node.now < self.retry_at or node.is_leaving:
            return False
        before = node.used
        self.next_at = self.end_at
        try:
            self.fold_blocks(node.last_queue)
            for _ in range(OVERFLOW_LOOKS):
                if node.used < self.end_at:
                    self.next_at = self.begin_at
                    break
                if before - node.used >= OVERFLOW_STEP_BYTES:
                    break
                if not self.look():
                    # Everything was looked at, and nothing found: not again before there is something new.
                    self.next_at = max(self.begin_at, node.used + node.full // 100)
                    self.barren_until = node.now + OVERFLOW_BARREN_MS
                    self.barren += 1
                    break
        except OSError as error:
            self.fail(error)
            return node.used < before
        self.trouble = ""
        return node.used < before or self.next_at == self.end_at

    def fail(self, error: OSError) -> None:
        self.trouble = error.strerror or str(error)
        self.retry_at = self.node.now + OVERFLOW_RETRY_MS
        self.node.notice(self.node.node_id, f"jobs cannot be moved to disk: {self.trouble}")

    def fold_first(self, queues: list[Queue]) -> None:
        """Before anything else is moved: whole blocks of queues that have just grown, as far as it takes."""
        if self.node.now < self.retry_at:
            return
        self.next_at = self.end_at
        try:
            for queue in queues:
                while self.is_due() and self.fold_blocks(queue):
                    pass
        except OSError as error:
            self.fail(error)

    def make_room(self, cost: i64) -> None:
        """A command needs memory now. Where a whole walk has just found nothing, the next is not for each that asks."""
        node = self.node
        if self.begin_at == NEVER or node.now < self.barren_until:
            return
        for _ in range(OVERFLOW_STEPS_MAX):
            if node.used + cost <= node.full or not self.step():
                return

    def look(self) -> bool:
        """Look at one more place. False: that was the last of them, and there was nothing in any."""
        if self.phase == BODIES:
            is_end = self.look_at_page()
        else:
            is_end = self.look_at_queue()
        if not is_end:
            return True
        if self.has_gained:
            self.has_gained = False  # once more: there may be more of it
            return True
        self.phase = RUNS if self.phase == ENDS else self.phase + 1
        return self.phase != RUNS

    def look_at_queue(self) -> bool:
        """Whether that was the last queue."""
        order = self.node.names.order
        if self.hand >= len(order):
            self.hand = 0
            return True
        queue = self.node.queues.get(order[self.hand])
        if queue is None or not (self.fold_blocks(queue) if self.phase == RUNS else self.fold_ends(queue)):
            self.hand += 1
        else:
            self.has_gained = True
        return False

    def fold_blocks(self, queue: Queue) -> bool:
        """Fold one block of a queue, the farther from its front the better. False: there is none."""
        for lane in reversed(queue.lanes):
            i: i64 = lane.find_open(NEAR_BLOCKS, OVERFLOW_LOOKS)
            if i >= 0 and self.fold(lane, lane.blocks[i]):
                return True
        return False

    def fold_ends(self, queue: Queue) -> bool:
        """Fold what a queue has behind its first few jobs, where that is no whole block."""
        for lane in reversed(queue.lanes):
            block = lane.cut_end(self.near, self.least)
            if block is not None and self.fold(lane, block):
                return True
        return False

    def look_at_page(self) -> bool:
        """Move the bodies of the next page. Whether that was the last page."""
        node = self.node
        for prefix in sorted(node.origins):
            if prefix < self.hand_origin:
                continue
            seq: i64 = self.hand_seq if prefix == self.hand_origin else 0
            for page in node.origins[prefix].pages_from(seq, 1):
                self.hand_origin = prefix
                self.hand_seq = (page.number + 1) * len(page.slots)
                jobs: list[Job] = []
                for job in page.slots:
                    if job is not None and (job.state == ACTIVE or job.state == QUEUED or job.state == DEAD):
                        jobs.append(job)
                if self.put_bodies(jobs, self.body_min):
                    self.has_gained = True
                return False
        self.hand_origin = b""
        self.hand_seq = 0
        return True

    def put_bodies(self, jobs: list[Job], least: i64) -> bool:
        """Move the bodies that are at least so long. Whether there was one. Raises OSError."""
        going: list[Job] = []
        for job in jobs:
            if len(job.kept) >= least and not job.flags & AWAY:
                going.append(job)
        if not going:
            return False
        places = self.store.put([job.kept for job in going])
        freed: i64 = 0
        for i in range(len(going)):
            job = going[i]
            size: i64 = len(job.kept)
            job.kept = write_place(places[i], size)
            job.flags |= AWAY
            freed += size - PLACE_BYTES
        self.away += len(going)
        self.node.count("moved-bodies")
        self.moved += freed
        self.node.account(-freed)
        return True

    def is_plain(self, job: Job) -> bool:
        """Whether nobody knows this job but its page and its lane, and it is told in a few numbers."""
        node = self.node
        if (
            job.state != QUEUED or job.holders != MY_BIT or job.replicate != 1 or job.task is not None
            or job.more is not None or job.lease is not None or job.flags & ~PLAIN_FLAGS or job.flying != 0
            or job.responsible != ME or (job.retry == 0 and job.flags & HANDED_OUT)
        ):
            return False
        return not (job in node.doubted or job in node.requeued)

    def fold(self, lane: Lane, block: Block) -> bool:
        """A run in place of the jobs of a block. Where one is not plain, their bodies go. Raises OSError."""
        node = self.node
        jobs: list[Job] = []
        is_plain = True
        for i in range(block.pos, len(block.items)):
            job = block.at(i)
            jobs.append(job)
            is_plain = is_plain and self.is_plain(job)
        if not is_plain:
            block.is_stuck = not self.put_bodies(jobs, self.body_min)
            return not block.is_stuck
        self.put_bodies(jobs, OVERFLOW_INLINE_MAX)
        expire: i64 = NEVER
        freed: i64 = 0
        out = BytesWriter()
        for job in jobs:
            write_job(out, job)
            expire = min(expire, job.expire)
            freed += JOB_BYTES + BODY_BYTES_EXTRA + len(job.kept) - FOLDED_JOB_BYTES
        data = out.getvalue()
        place = self.store.put([data])[0]
        run = Run(jobs[0], self, place, len(data), len(jobs), expire)
        for job in jobs:
            job.origin.replace(job.seq, run)
            job.state = GONE  # for whoever still refers to it
        lane.fold(block, run)
        self.folded += len(jobs)
        node.count("folded")
        self.moved += len(data)
        node.account(-freed)
        return True

    # -- coming back ---------------------------------------------------------------------------------------

    def unfold(self, run: Run) -> list[Job] | None:
        """The jobs of a run, in memory again; the caller puts them into their lane. None: they cannot be read."""
        try:
            jobs = self.read(run)
        except Unreadable:
            return None
        if self.known is run:
            self.known = None
            self.known_jobs = []
        size: i64 = 0
        for job in jobs:
            job.origin.replace(job.seq, job)
            size += JOB_BYTES + BODY_BYTES_EXTRA + len(job.kept) - FOLDED_JOB_BYTES
        run.state = GONE
        self.folded -= run.count
        self.opened += 1
        self.node.count("unfolded")
        self.store.drop(int(run.place), int(run.size))
        self.node.account(size)
        return jobs

    def read(self, run: Run) -> list[Job]:
        """The jobs of a run as they would be in memory. Raises Unreadable."""
        if self.known is run:
            return self.known_jobs
        try:
            data = read_place(self.store, write_place(run.place, run.size))
        except Unreadable:
            self.failed += 1
            raise
        jobs: list[Job] = []
        at: i64 = 0
        while at < len(data):
            job = read_job(self.node, run, data, at)
            at += FIXED + 4 + len(job.kept)
            jobs.append(job)
        return jobs

    def peek(self, run: Run) -> list[Job]:
        """The same, for those who only look, and often at the same run again."""
        jobs = self.read(run)
        self.known = run
        self.known_jobs = jobs
        return jobs

    def peek_at(self, run: Run, origin: Origin, seq: i64) -> Job:
        """The job of that number. Raises Unreadable."""
        for job in self.peek(run):
            if job.seq == seq and job.origin is origin:
                return job
        raise AssertionError("a run without one of its jobs")

    def open(self, run: Run) -> None:
        """Have the jobs of a run in memory again, wherever it is in its lane. Raises Unreadable."""
        if run.state == FOLDED:
            lane_of(run.queue.lanes, i64(run.priority)).open_run(run)
        if run.state == FOLDED:
            self.read(run)  # says why

    def find(self, run: Run, origin: Origin, seq: i64) -> Job:
        """The job of that number, in memory. Raises Unreadable."""
        self.open(run)
        job = origin.get(seq)
        assert job is not None
        return job

    def wake(self, page: Page, i: i64, run: Run) -> Job | None:
        """What a page has there when the life of something in it may be over."""
        if run.expire > self.node.now:
            return run
        lane_of(run.queue.lanes, i64(run.priority)).open_run(run)
        if run.state == FOLDED:
            run.expire = self.node.now + OVERFLOW_RETRY_MS  # it cannot be read now
        return page.slots[i]

    def bring(self, job: Job) -> Job | None:
        """A job just taken from its queue, with its body. None: that cannot be read, and the job is back."""
        if self.fetch(job):
            return job
        job.queue.push(job)
        job.queue.jobs_in -= 1
        return None

    def fetch(self, job: Job) -> bool:
        """Have the body of a job in memory."""
        if not job.flags & AWAY:
            return True
        try:
            body = job.body
        except Unreadable:
            self.failed += 1
            return False
        self.drop(job)
        job.kept = body
        self.node.account(len(body) - PLACE_BYTES)
        return True

    def drop(self, job: Job) -> None:
        """If its body is on disk it is not any more; the caller says what it is now."""
        if job.flags & AWAY:
            drop_place(self.store, job.kept)
            job.flags &= ~AWAY
            self.away -= 1

    def facts(self) -> list[tuple[str, object]]:
        fields: list[tuple[str, object]] = [
            ("overflow_jobs", self.folded), ("overflow_bodies", self.away), ("overflow_moved_bytes", self.moved),
            ("overflow_runs_opened", self.opened), ("overflow_reads_failed", self.failed),
            ("overflow_status", self.trouble or "ok"),
        ]
        for name, value in self.store.facts().items():
            fields.append((name, value))
        return fields


def write_job(out: BytesWriter, job: Job) -> None:
    """A plain job in a run. This is never read by another process, so there is no version."""
    write_i32_le(out, i32(job.origin.code))
    write_i64_le(out, job.seq)
    write_i64_le(out, job.rnd)
    write_i64_le(out, job.ctime)
    write_i64_le(out, job.expire)
    write_i64_le(out, i64(job.retry) << 32 | i64(job.delay))
    write_i64_le(out, i64(job.nacks) << 32 | i64(job.deliveries))
    write_i64_le(out, i64(job.minutes) << 32 | i64(job.flags) << 16 | i64(job.hops) << 8 | i64(job.asks))
    write_i32_le(out, i32(len(job.kept)))
    out.write(job.kept)


def read_job(node: Node, run: Run, data: bytes, at: i64) -> Job:
    code = i64(read_i32_le(data, at))
    origin = run.origin
    if code != origin.code:
        origin = node.origin(b"DI%08x" % (int(code) & 0xFFFFFFFF))
    size = i64(read_i32_le(data, at + FIXED))
    begin = at + FIXED + 4
    rest = read_i64_le(data, at + 52)
    times = read_i64_le(data, at + 36)
    counts = read_i64_le(data, at + 44)
    job = Job(
        read_i64_le(data, at + 4), read_i64_le(data, at + 12), origin, run.queue, data[begin:begin + size],
        read_i64_le(data, at + 20), read_i64_le(data, at + 28), rest >> 32,
    )
    job.retry = i32(times >> 32)
    job.delay = i32(times & 0xFFFFFFFF)
    job.nacks = i32(counts >> 32)
    job.deliveries = i32(counts & 0xFFFFFFFF)
    job.flags = i32(rest >> 16 & 0xFFFF)
    job.hops = int(rest >> 8 & 255)
    job.asks = int(rest & 255)
    job.priority = run.priority
    job.state = QUEUED
    return job
