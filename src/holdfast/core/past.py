"""The figures of the last hour, second by second, and of the last day, minute by minute: for charts that open full.

The shell calls `sample` once a second. Each queue in which something happens has two rings of fixed size, and so have
all queues together; queues past PAST_QUEUES are counted only in the figures of all (the ring of the queue that was
quiet the longest is given to the next). The rings are in memory and belong to this node alone: after a restart they
begin anew. Whoever wants the past of a cluster asks each node and adds up (client/past.py).

A row of a ring has COUNTS, which say how often something happened in its second or minute, and then LEVELS, the highest
value that was seen in it. A time at which nobody sampled (the node was down, stopped or frozen) has GAP in each column,
so that a chart shows nothing there and not a zero.
"""
from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import census, states
from holdfast.core.limits import (
    NEVER,
    PAST_LOOKED_AT,
    PAST_MINUTES,
    PAST_QUEUES,
    PAST_QUIET_S,
    PAST_SECONDS,
    PAST_SMEARED_S,
)
from holdfast.core.queue import Queue

if TYPE_CHECKING:
    from holdfast.core.node import Node

ALL: Final = b"*"
COUNTS: Final = (b"added", b"handed-out", b"acked", b"nacked", b"dead", b"expired")
LEVELS: Final = (b"len", b"out", b"delayed", b"oldest-age")
COLUMNS: Final = COUNTS + LEVELS
OLDEST: Final = len(COLUMNS) - 1
GAP: Final = -1
MOST: Final = 0x7FFFFFFF
"""What a column of four bytes can hold."""
SECOND: Final = 1
MINUTE: Final = 60


class Ring:
    """The last `size` rows, one for each step of so many seconds; `last` is the number of the newest."""

    def __init__(self, step: i64, size: i64) -> None:
        self.step: i64 = step
        self.size: i64 = size
        self.first: i64 = -1  # the number of the oldest row since it began; -1: there is none
        self.last: i64 = -1
        self.values: array[int] = array("i", [GAP]) * (int(size) * len(COLUMNS))

    def put(self, second: i64, row: list[int]) -> None:
        """What happened in a second: into its row, or added to what is there."""
        number = second // self.step
        if self.last < 0 or number > self.last + self.size or number < self.last - self.size:
            self.clear(number)
        elif number > self.last:
            for skipped in range(self.last + 1, number + 1):
                self.write(skipped, GAPS)
            self.last = number
        else:
            number = self.last  # the clock was put back a little: it comes back to where it was
        self.merge(number, row)

    def clear(self, number: i64) -> None:
        self.values = array("i", [GAP]) * (int(self.size) * len(COLUMNS))
        self.first = self.last = number

    def write(self, number: i64, row: list[int]) -> None:
        at = int(number % self.size) * len(COLUMNS)
        self.values[at:at + len(COLUMNS)] = array("i", row)

    def merge(self, number: i64, row: list[int]) -> None:
        old = self.row(number)
        if old[0] == GAP:
            self.write(number, row)
            return
        for i in range(len(COLUMNS)):
            old[i] = min(MOST, old[i] + row[i]) if i < len(COUNTS) else max(old[i], row[i])
        self.write(number, old)

    def row(self, number: i64) -> list[int]:
        at = int(number % self.size) * len(COLUMNS)
        return self.values[at:at + len(COLUMNS)].tolist()

    def columns(self, begin: i64, end: i64) -> list[list[int]]:
        """The same by columns, for at most `size` rows: an hour of them in a millisecond or two."""
        at = int(begin % self.size)
        count = int(end - begin)
        late = int(max(0, min(i64(count), end - 1 - self.last)))  # newer than the newest
        early = int(max(0, min(i64(count), max(self.first, self.last - self.size + 1) - begin)))
        found: list[list[int]] = []
        for i in range(len(COLUMNS)):
            column = self.values[i::len(COLUMNS)].tolist()
            column = (column + column)[at:at + count]
            column[:early] = [GAP] * early
            if late > 0:
                column[count - late:] = [GAP] * late
            found.append(column)
        return found

    def rows(self, begin: i64, end: i64) -> list[list[int]]:
        """From one number up to, and without, another; GAPS where there is nothing."""
        oldest = max(self.first, self.last - self.size + 1)
        return [self.row(number) if self.first >= 0 and oldest <= number <= self.last else GAPS
                for number in range(begin, end)]


GAPS: Final = [GAP] * len(COLUMNS)


class Rings:
    """The past of one queue, or of all."""

    def __init__(self) -> None:
        self.seconds: Ring = Ring(SECOND, PAST_SECONDS)
        self.minutes: Ring = Ring(MINUTE, PAST_MINUTES)
        self.active: i64 = 0  # the last second in which something happened or waited

    def put(self, second: i64, row: list[int]) -> None:
        self.seconds.put(second, row)
        self.minutes.put(second, row)

    def of(self, step: i64) -> Ring:
        return self.seconds if step == SECOND else self.minutes


class Past:
    """All rings of a node, and what the counters were when they were last looked at."""

    def __init__(self) -> None:
        self.rings: dict[bytes, Rings] = {}
        self.counts: dict[bytes, list[int]] = {}
        self.second: i64 = -NEVER  # of the last sample
        self.left_out: i64 = 0  # queues of it that have no ring
        self.crowded: i64 = -1  # the last second at which a queue that had something to tell had no ring, or lost it


def sample(node: Node) -> None:
    """Once a second, by the shell: what happened since the last time, and how things stand."""
    past = node.past
    second = node.wall // 1000
    every: i64 = 1 + len(node.queues) // PAST_LOOKED_AT
    skipped = second - past.second - 1
    if 0 <= skipped + 1 < every:
        return
    past.second = second
    sums = [0] * len(COLUMNS)
    seen: dict[bytes, list[int]] = {}
    busy: list[tuple[bytes, list[int]]] = []
    for queue in node.queues.values():
        before = past.counts.get(queue.name)
        if before is not None and is_idle(node, queue) and events(queue) == sum(before):
            seen[queue.name] = before
            continue
        counts = counts_of(queue)
        row = [max(0, now - then) for now, then in zip(counts, before)] if before is not None else list(counts)
        row += levels_of(node, queue)
        seen[queue.name] = counts
        if any(row):
            busy.append((queue.name, row))
            for i in range(len(COLUMNS)):
                sums[i] = max(sums[i], row[i]) if i == OLDEST else sums[i] + row[i]
    past.counts = seen
    rings_of(past, ALL)
    smear = skipped if 0 < skipped <= max(PAST_SMEARED_S, every) else 0
    past.left_out = 0
    is_full = False
    found: dict[bytes, list[int]] = {ALL: sums}
    for name, row in busy:
        if name == ALL:
            continue  # a queue may have that name: it is among all
        if name not in past.rings and not is_full:
            is_full = not make_room(past, second)
        if name in past.rings or not is_full:
            found[name] = row
            rings_of(past, name).active = second
        else:
            past.left_out += 1
            past.crowded = second
    for name, rings in past.rings.items():
        row = found.get(name, NOTHING)
        put(rings, second, [min(MOST, each) for each in row], smear)


NOTHING: Final = [0] * len(COLUMNS)


def put(rings: Rings, second: i64, row: list[int], smear: i64) -> None:
    """A row, after so many seconds that nobody looked at: a beat that was late, or a node with very many queues. They
    had as much of what was counted as this one."""
    parts = int(smear) + 1
    for i in range(parts):
        share = [value // parts + (1 if i < value % parts else 0) for value in row[:len(COUNTS)]]
        rings.put(second - smear + i, share + row[len(COUNTS):])


def rings_of(past: Past, name: bytes) -> Rings:
    rings = past.rings.get(name)
    if rings is None:
        rings = past.rings[name] = Rings()
    return rings


def make_room(past: Past, second: i64) -> bool:
    """Whether one more queue can have a ring: that of a queue that was quiet for a while is given up for it."""
    if len(past.rings) <= PAST_QUEUES:
        return True
    quietest = min([name for name in past.rings if name != ALL], key=lambda name: past.rings[name].active)
    if past.rings[quietest].active > second - PAST_QUIET_S:
        return False
    past.crowded = max(past.crowded, past.rings[quietest].active)
    del past.rings[quietest]
    return True


def columns(node: Node, name: bytes, step: i64, begin: i64, end: i64) -> list[list[int]]:
    """The rows of a queue, or of all, by columns. A queue has a ring only since something happened in it: before that
    it is known to have been quiet wherever the node sampled, unless there were too many queues for the rings."""
    everything = node.past.rings.get(ALL)
    own = node.past.rings.get(name)
    nothing = [[GAP] * int(end - begin) for _ in COLUMNS]
    if everything is None:
        return nothing
    if own is everything:
        return everything.of(step).columns(begin, end)
    found = nothing if own is None else own.of(step).columns(begin, end)
    looked = everything.of(step).columns(begin, end)[0]
    crowded = node.past.crowded
    quiet = [i for i in range(len(looked))
             if looked[i] != GAP and found[0][i] == GAP and (begin + i) * step > crowded]
    for column in found:
        for i in quiet:
            column[i] = 0
    return found


def since(node: Node, step: i64) -> i64:
    """The Unix time from which on this node has rows; 0: it has none."""
    everything = node.past.rings.get(ALL)
    if everything is None:
        return 0
    ring = everything.of(step)
    return max(ring.first, ring.last - ring.size + 1) * step


def is_idle(node: Node, queue: Queue) -> bool:
    """Nothing waits in it, is with a worker or is delayed. With ten thousand queues most are."""
    if queue.size + queue.lined > 0:
        return False
    tally = census.tally(node, queue)
    return tally.of(states.LEASED) == 0 and tally.of(states.DELAYED) == 0


def events(queue: Queue) -> i64:
    """The sum of what `counts_of` gives: while it stays, nothing has happened."""
    return queue.added + queue.handed_out() + queue.acked + queue.nacked + queue.died + queue.expired


def counts_of(queue: Queue) -> list[int]:
    return [int(queue.added), int(queue.handed_out()), int(queue.acked), int(queue.nacked), int(queue.died),
            int(queue.expired)]


def levels_of(node: Node, queue: Queue) -> list[int]:
    oldest = queue.oldest(1)
    age = (node.now - oldest[0].ctime // 1_000_000) // 1000 if oldest else 0
    tally = census.tally(node, queue)
    return [int(queue.size + queue.lined), tally.of(states.LEASED), tally.of(states.DELAYED), max(0, int(age))]


def sums(node: Node, minutes: i64) -> list[tuple[bytes, i64, list[int]]]:
    """For each queue with a ring: the second in which it was last active, and what was counted in the last minutes, the
    one that is not over among them."""
    found: list[tuple[bytes, i64, list[int]]] = []
    now = node.wall // 1000 // MINUTE
    for name in sorted(node.past.rings):
        rings = node.past.rings[name]
        total = [0] * len(COUNTS)
        for row in rings.minutes.rows(now - minutes + 1, now + 1):
            if row[0] != GAP:
                for i in range(len(COUNTS)):
                    total[i] += row[i]
        found.append((name, rings.active, total))
    return found
