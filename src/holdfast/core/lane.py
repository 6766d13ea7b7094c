"""A lane: the queued jobs of one queue and one priority, in the order of their creation.

Jobs nearly always come in that order and leave from the front, but a job that comes back (its lease ended,
a consumer refused it) belongs at its old place, mostly the head, and a job may be taken out of the middle
(acknowledged, deleted, dequeued). So a lane is a sorted list in blocks: adding at the end and taking from
the front touch one block and cost nanoseconds; anything else is a binary search over the blocks, one inside
the block, and a shift of at most a block's pointers. There are no leftovers to skip and nothing to compact:
what is in a lane is what is queued.

Where memory is short, blocks far from the front are folded (overflow.py): one Run stands in them for jobs that are on
disk. The first and the last block never are, since both are changed all the time; the last may be empty behind a
folded one. Any other is opened when somebody has to look into it.
"""
from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from holdfast.core.job import Job, Run

BLOCK_JOBS: Final = 256
AHEAD_BLOCKS: Final = 4
"""So many blocks before its turn a folded one is announced to the disk: a thousand jobs earlier."""


class Block:
    """Jobs in order. Those before `pos` have been taken; their slots are empty."""

    def __init__(self) -> None:
        self.items: list[Job | None] = []
        self.pos: i64 = 0
        self.run: Run | None = None  # it is folded: this is its only item
        self.is_stuck: bool = False  # somebody tried to fold it in vain

    def is_used_up(self) -> bool:
        return self.pos >= len(self.items)

    def at(self, i: i64) -> Job:
        job = self.items[i]
        assert job is not None
        return job

    def jobs(self) -> list[Job]:
        """All that are in it, to be looked at."""
        run = self.run
        if run is not None:
            return list(run.overflow.peek(run))
        found: list[Job] = []
        for i in range(self.pos, len(self.items)):
            found.append(self.at(i))
        return found

    def place(self, job: Job) -> i64:
        """The index of the first job in this block that does not come before `job`."""
        low = self.pos
        high: i64 = len(self.items)
        while low < high:
            middle = (low + high) // 2
            if precedes(self.at(middle), job):
                low = middle + 1
            else:
                high = middle
        return low


def precedes(a: Job, b: Job) -> bool:
    """The order inside a lane: creation time, then the id for jobs that two nodes created at the same time."""
    if a.ctime != b.ctime:
        return a.ctime < b.ctime
    if a.seq != b.seq:
        return a.seq < b.seq
    return a.rnd < b.rnd


class Lane:
    def __init__(self, priority: i64) -> None:
        self.priority: i64 = priority
        self.size: i64 = 0
        self.head: Block = Block()
        self.tail: Block = self.head
        self.blocks: list[Block] = [self.head]
        self.newest: i64 = 0  # no job in the lane was created later
        self.has_grown: bool = False  # there are blocks since somebody last looked for some to fold
        self.hand: i64 = 0  # where that was

    def push(self, job: Job) -> None:
        self.size += 1
        ctime = job.ctime
        if ctime <= self.newest:
            self.insert(job)
            return
        self.newest = ctime
        block = self.tail
        if len(block.items) >= BLOCK_JOBS:
            block = Block()
            self.tail = block
            self.blocks.append(block)
            self.has_grown = True
        block.items.append(job)

    def pop(self) -> Job | None:
        """Take the job at the front."""
        block = self.head
        pos = block.pos
        items = block.items
        if pos >= len(items):
            if not self.next_block():
                return None
            block = self.head
            pos = block.pos
            items = block.items
        job = items[pos]
        items[pos] = None
        block.pos = pos + 1
        self.size -= 1
        return job

    def first(self) -> Job | None:
        """The job at the front, which stays there."""
        block = self.head
        if block.pos >= len(block.items):
            if not self.next_block():
                return None
            block = self.head
        return block.items[block.pos]

    def next_block(self) -> bool:
        """The block at the front is used up: go on to the next. False if there is none, or it cannot be read."""
        blocks = self.blocks
        if self.head is not self.tail:
            if not self.open(blocks[1]):
                return False
            del blocks[0]
            self.head = blocks[0]
            if len(blocks) > AHEAD_BLOCKS:
                run = blocks[AHEAD_BLOCKS].run
                if run is not None:
                    run.overflow.store.ahead(int(run.place), int(run.size))
            if self.head is not self.tail or not self.head.is_used_up():
                return True
        self.head.items.clear()
        self.head.pos = 0
        self.newest = 0
        return False

    def insert(self, job: Job) -> None:
        """Put a job at its place among those that are here."""
        i = self.block_of(job)
        self.newest = max(self.newest, job.ctime)  # looking for the block may have found that all are used up
        block = self.blocks[i]
        if not self.open(block):  # a little too late is better than not at all
            block = Block()
            self.blocks.insert(i + 1, block)
        place = block.place(job)
        block.is_stuck = False
        if place == block.pos and place > 0:
            block.pos = place - 1  # back to the front: the slot it was taken from, or one like it
            block.items[place - 1] = job
            return
        block.items.insert(place, job)
        if len(block.items) > 2 * BLOCK_JOBS:
            self.split(i)

    def remove(self, job: Job) -> None:
        """Take out a job that is in this lane."""
        i = self.block_of(job)
        block = self.blocks[i]
        place = block.place(job)
        assert block.at(place) is job
        del block.items[place]
        block.is_stuck = False
        self.size -= 1
        blocks = self.blocks
        last: i64 = len(blocks) - 1
        if block.is_used_up() and last > 0:
            # Not where a folded block would become the first or the last.
            if (i == 0 and blocks[1].run is not None) or (i == last and blocks[last - 1].run is not None):
                return
            del blocks[i]
            self.head = blocks[0]
            self.tail = blocks[-1]

    def ahead(self, job: Job) -> i64:
        """How many jobs are before one that is in this lane."""
        at = self.block_of(job)
        count: i64 = 0
        for i in range(at):
            block = self.blocks[i]
            count += len(block.items) - block.pos
        return count + self.blocks[at].place(job) - self.blocks[at].pos

    def block_of(self, job: Job) -> i64:
        """The index of the last block whose first job does not come after `job`."""
        blocks = self.blocks
        if self.head.is_used_up() and len(blocks) > 1:
            self.next_block()  # every block now has a first job, unless the lane is empty
        low: i64 = 0
        high: i64 = len(blocks) - 1
        if high > 0 and self.tail.is_used_up():
            high -= 1  # it waits behind a folded one
        while low < high:
            middle = (low + high + 1) // 2
            block = blocks[middle]
            if precedes(job, block.at(block.pos)):
                high = middle - 1
            else:
                low = middle
        return low

    def split(self, i: i64) -> None:
        block = self.blocks[i]
        half = Block()
        middle = (block.pos + len(block.items)) // 2
        half.items = block.items[middle:]
        del block.items[middle:]
        self.blocks.insert(i + 1, half)
        self.tail = self.blocks[-1]

    def oldest(self, count: int, found: list[Job]) -> None:
        """Append up to `count` jobs to `found`, the oldest first."""
        for block in self.blocks:
            if count <= 0:
                return
            jobs = block.jobs()
            found += jobs[:count]
            count -= len(jobs)

    def latest(self, count: int, found: list[Job]) -> None:
        """Append up to `count` jobs to `found`, the newest first."""
        for block in reversed(self.blocks):
            if count <= 0:
                return
            jobs = block.jobs()
            jobs.reverse()
            found += jobs[:count]
            count -= len(jobs)

    # -- folding -------------------------------------------------------------------------------------------

    def find_open(self, near: i64, looks: i64) -> i64:
        """A whole block to fold, neither one of the first `near` nor the last; -1: there is none close by."""
        last: i64 = len(self.blocks) - 2
        i = self.hand
        if self.has_grown or i > last or i < near:
            self.has_grown = False
            i = last
        for _ in range(looks):
            if i < near:
                break
            block = self.blocks[i]
            i -= 1
            if block.run is None and not block.is_stuck:
                self.hand = i
                return i + 1
        self.hand = i
        return -1

    def cut_end(self, near: i64, least: i64) -> Block | None:
        """What can be folded although it is no whole block, but for the first `near` jobs and fewer than `least`."""
        head = self.head
        for block in (self.tail, self.blocks[1] if len(self.blocks) > 1 else head):
            if block is not head and block.run is None and not block.is_stuck and len(block.items) >= least:
                return block
        middle = head.pos + near
        if head.is_stuck or len(head.items) < middle + least:
            return None
        rest = Block()
        rest.items = head.items[middle:]
        del head.items[middle:]
        self.blocks.insert(1, rest)
        self.tail = self.blocks[-1]
        return rest

    def fold(self, block: Block, run: Run) -> None:
        """From now on the run stands for the jobs of the block."""
        block.items = [run]
        block.pos = 0
        block.run = run
        if block is self.tail:
            self.tail = Block()
            self.blocks.append(self.tail)

    def open(self, block: Block) -> bool:
        """Have the jobs of a block in memory. False: they cannot be read."""
        run = block.run
        if run is None:
            return True
        jobs = run.overflow.unfold(run)
        if jobs is None:
            return False
        items: list[Job | None] = []
        for job in jobs:
            items.append(job)
        block.items = items
        block.run = None
        return True

    def open_run(self, run: Run) -> None:
        """The same, if it is this run that the block is of."""
        block = self.blocks[self.block_of(run)]
        if block.run is run:
            self.open(block)


# -- lanes of several priorities ------------------------------------------------------------------------------


def lane_of(lanes: list[Lane], priority: i64) -> Lane:
    """The lane of a priority, made if need be; the highest priority comes first."""
    for lane in lanes:
        if lane.priority == priority:
            return lane
    lane = Lane(priority)
    lanes.append(lane)
    lanes.sort(key=lambda each: -each.priority)
    return lane


def ahead_of(lanes: list[Lane], job: Job) -> i64:
    """How many jobs come before one that is in one of these."""
    count: i64 = 0
    for lane in lanes:
        if lane.priority == i64(job.priority):
            return count + lane.ahead(job)
        count += lane.size
    return count


def next_of(lanes: list[Lane]) -> Job | None:
    """The next job, which stays where it is."""
    for lane in lanes:
        if lane.size > 0:
            return lane.first()
    return None


def pop_of(lanes: list[Lane]) -> Job | None:
    """Take the next job."""
    for lane in lanes:
        if lane.size > 0:
            return lane.pop()
    return None
