"""A lane: the queued jobs of one queue and one priority, in the order of their creation.

Jobs nearly always come in that order and leave from the front, but a job that comes back (its lease ended,
a consumer refused it) belongs at its old place, mostly the head, and a job may be taken out of the middle
(acknowledged, deleted, dequeued). So a lane is a sorted list in blocks: adding at the end and taking from
the front touch one block and cost nanoseconds; anything else is a binary search over the blocks, one inside
the block, and a shift of at most a block's pointers. There are no leftovers to skip and nothing to compact:
what is in a lane is what is queued.
"""
from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from holdfast.core.job import Job

BLOCK_JOBS: Final = 256


class Block:
    """Jobs in order. Those before `pos` have been taken; their slots are empty."""

    def __init__(self) -> None:
        self.items: list[Job | None] = []
        self.pos: i64 = 0

    def at(self, i: i64) -> Job:
        job = self.items[i]
        assert job is not None
        return job

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
        """The block at the front is used up: go on to the next. False if there is none."""
        if self.head is self.tail:
            self.head.items.clear()
            self.head.pos = 0
            self.newest = 0
            return False
        del self.blocks[0]
        self.head = self.blocks[0]
        return True

    def insert(self, job: Job) -> None:
        """Put a job at its place among those that are here."""
        i = self.block_of(job)
        block = self.blocks[i]
        place = block.place(job)
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
        self.size -= 1
        if block.pos >= len(block.items) and len(self.blocks) > 1:
            del self.blocks[i]
            self.head = self.blocks[0]
            self.tail = self.blocks[-1]

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
        if self.head.pos >= len(self.head.items) and len(blocks) > 1:
            self.next_block()  # every block now has a first job, unless the lane is empty
        low: i64 = 0
        high: i64 = len(blocks) - 1
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
            for i in range(block.pos, len(block.items)):
                if count <= 0:
                    return
                found.append(block.at(i))
                count -= 1

    def latest(self, count: int, found: list[Job]) -> None:
        """Append up to `count` jobs to `found`, the newest first."""
        for block in reversed(self.blocks):
            for i in range(len(block.items) - 1, block.pos - 1, -1):
                if count <= 0:
                    return
                found.append(block.at(i))
                count -= 1


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
