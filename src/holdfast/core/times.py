"""How long jobs wait and run, counted as it happens: what the histograms of a node's metrics are made of.

    wait     from the moment a job could first be handed out, its delay over, to its first hand-out
    run      from a hand-out to the ack of it, where both happened here
    copies   from its adding to the moment when enough nodes had it

A note is a few instructions and no memory: the time is the one the node has anyway, in milliseconds, and a histogram is
a row of native numbers. Bounds double, so the place of a time is how often it can be halved.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.vecs import vec
from mypy_extensions import i32, i64

from holdfast.core.job import HANDED_OUT, Job
from holdfast.core.peers import ME

if TYPE_CHECKING:
    from holdfast.core.node import Node

BOUNDS: Final = 24
"""The last is 2 ** 23 units: more than two hours in milliseconds, eight seconds in microseconds."""

WRAPS: Final = 0x7FFFFFFF
"""A job keeps when it was handed out in 31 bits of milliseconds: right for whoever runs less than 24 days."""


class Times:
    """How many took less than 1, 2, 4, 8 … units, each counted once; and longer than the last."""

    def __init__(self) -> None:
        self.sum: i64 = 0
        self.counts: vec[i64] = vec[i64]([0] * (BOUNDS + 1))

    def note(self, took: i64) -> None:
        place: i64 = 0
        if took > 0:  # clocks of two nodes may differ: less than nothing is nothing
            self.sum += took
            place = min(bits(took), BOUNDS)
        self.counts[place] += 1


def bits(n: i64) -> i64:
    """How often a number above 0 can be halved until nothing is left. Right below 2 ** 32, and more than BOUNDS beyond:
    the steps are few and always as many, as every hand-out and every ack takes them."""
    place: i64 = 1
    if n >= 1 << 16:
        n >>= 16
        place += 16
    if n >= 1 << 8:
        n >>= 8
        place += 8
    if n >= 1 << 4:
        n >>= 4
        place += 4
    if n >= 1 << 2:
        n >>= 2
        place += 2
    return place + 1 if n >= 2 else place


class Promised:
    """What docs/explanation/promises.md gives a time, where no queue has it. In milliseconds."""

    def __init__(self) -> None:
        self.adds_default: Times = Times()  # from an add to enough copies, where the producer named no number of them
        self.adds_asked: Times = Times()  # and where it did
        self.moves: Times = Times()  # from giving a job to a consumer of another node to the word that it has it
        self.rescues: Times = Times()  # from when its node counted as failed to its being queued here
        self.keyed: Times = Times()  # from an add with a key to its answer, where another node or a new home decided
        self.links: Times = Times()  # how long there was no link with a node, of those that came back
        self.cron: Times = Times()  # from the instant of a schedule to its job


def handed_out(node: Node, job: Job) -> None:
    """A job goes to a consumer. To be called before it is flagged as handed out."""
    queue = job.queue
    queue.jobs_out += 1
    if job.flags & HANDED_OUT or job.deliveries > 0 or job.nacks > 0:
        queue.redelivered += 1
    else:
        queue.waits.note(node.now - job.ctime // 1_000_000 - i64(job.delay) * 1000)
    job.since = i32(node.now & WRAPS)


def acked(node: Node, job: Job) -> None:
    """It is done, says its consumer or somebody else."""
    queue = job.queue
    queue.acked += 1
    if job.since >= 0 and job.responsible == ME:
        queue.runs.note((node.now - i64(job.since)) & WRAPS)


def copied(node: Node, job: Job, is_default: bool) -> None:
    """A job that waited for its copies is accepted: enough nodes have it."""
    job.queue.added += 1
    times = node.promised.adds_default if is_default else node.promised.adds_asked
    times.note(node.now - job.ctime // 1_000_000)


def given(node: Node, job: Job) -> None:
    """A job goes to another node, for a consumer there. It is not handed out here, so the place for that is free."""
    job.since = i32(node.now & WRAPS)


def taken(node: Node, job: Job) -> None:
    """That node has it. After a restart nobody knows when it was given."""
    if job.since >= 0:
        node.promised.moves.note((node.now - i64(job.since)) & WRAPS)
        job.since = -1


def rescued(node: Node, job: Job) -> None:
    """A job whose node is silent is queued here. To be called while it is said to be that node's."""
    peer = node.peers[job.responsible]
    if peer.is_failed:
        node.promised.rescues.note(node.now - peer.failed_at)


def refused(node: Node, error: bytes) -> None:
    """A client was told that it cannot have now what it might have later: counted by the code of the error."""
    code = error.partition(b" ")[0].decode()
    node.refusals[code] = node.refusals.get(code, 0) + 1
