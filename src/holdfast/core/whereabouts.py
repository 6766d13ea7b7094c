"""Where a job is: what the nodes that hold copies of it are told, and how they find out that nobody has it.

A node that dies takes along what only it knows: which of its jobs were with consumers. So the other holders are told
(OUT), a few times a second and many jobs at once: what a consumer has had for less than TELL_MS is not worth a word,
and most jobs are acknowledged by then. Of a copy whose holder knows better, its time is the end of that lease
(TOLD_UNTIL). Of any other it is taken that it waits in the queue of the node that is responsible for it, and when that
node is gone, so that another may queue it at once (orphans.py).

What was said before may be lost with a link or a restart. So when a link comes up each side tells the other what it has
out, once more, and names the copies that it takes to be with the other (WITHYOU). Those that are not the other names
in turn (NOTHERE); then the holders are asked (requeue.py). Nodes that take a job to be with each other find out so.

Jobs are named by the first half of their ids, creator and number: 12 bytes. Nothing here is about at-most-once jobs,
which have no copies.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import orphans, peers, requeue, tombs, twins
from holdfast.core.alarms import Chore
from holdfast.core.job import (
    ACKED,
    ACTIVE,
    ASKING,
    DEAD,
    FOLDED,
    MOVING,
    TOLD_UNTIL,
    Job,
)
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.walks import COST_SAID, Walk
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

TELL_MS: Final = 250
"""How long a job is out before others hear of it: what a consumer takes longer for is told, and nothing else."""

OUT_BYTES: Final = 12 + 8 + 4
OUT_PER_TURN: Final = 8_000
"""Jobs told of in one turn, to each peer: 192,000 bytes and a few milliseconds. The others come with the next."""

VISIT_MS: Final = 50
"""After a link came up: what else is said then goes before."""

NAMED_MOST: Final = 100_000
"""Jobs in one message: more than any node sends."""


class Outs(Chore):
    """Jobs that went out a moment ago. Its alarm is when holders hear of those that are still out."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Job] = []

    def run(self, node: Node) -> None:
        tell(node, self)


class Visit(Walk):
    """What each side of a new link takes the other to have."""

    def __init__(self) -> None:
        super().__init__()
        self.outs: list[Job] = []
        self.with_them: dict[int, BytesWriter] = {}

    def look(self, node: Node, job: Job) -> None:
        if job.state == DEAD and job.retry > 0:
            self.name_dead(node, job)
        if job.state != ACTIVE or job.retry == 0 or job.holders & ~MY_BIT == 0:
            return
        if job.responsible == ME:
            if job.holders & self.mask and requeue.is_leased(node, job):
                self.outs.append(job)
                self.left -= COST_SAID
            else:
                twins.tell(node, job, job.holders & self.mask)
        elif not job.flags & (ASKING | MOVING):
            peer = node.peers[job.responsible]
            if peer.bit & self.mask and peer.is_linked:
                write_name(batch_for(self.with_them, peer), job)
                self.left -= COST_SAID

    def name_dead(self, node: Node, job: Job) -> None:
        """One of its holders counts and lists it, so all are to know each other; a copy may be new to the peer."""
        for peer in node.peers:
            if peer.bit & job.holders & self.mask & ~MY_BIT and peer.is_linked:
                write_name(batch_for(self.with_them, peer), job)
                self.left -= COST_SAID

    def end_turn(self, node: Node) -> None:
        write_outs(node, self.outs, self.mask)
        self.outs = []
        say(node, self.with_them, bus.WITHYOU, 12)


def batch_for(batches: dict[int, BytesWriter], peer: Peer) -> BytesWriter:
    found = batches.get(int(peer.index))
    if found is None:
        found = BytesWriter()
        batches[int(peer.index)] = found
    return found


def say(node: Node, batches: dict[int, BytesWriter], kind: int, size: int) -> None:
    """One message for each peer there is something to say to."""
    for index, batch in batches.items():
        peer = node.peers[index]
        if peer.is_linked:
            peer.out.append(kind)
            bus.write_u32(peer.out, len(batch) // size)
            peer.out.write(batch.getvalue())
    batches.clear()


def write_name(out: BytesWriter, job: Job) -> None:
    bus.write_u32(out, job.origin.code)
    bus.write_i64(out, job.seq)


def read_count(reader: Reader) -> i64:
    count = reader.u32()
    if count > NAMED_MOST:
        raise BadFrame("more jobs than are named at once")
    return count


def read_named(node: Node, reader: Reader) -> Job | None:
    code = reader.u32()
    seq = reader.long()
    origin = node.origins.get(b"DI%08x" % int(code))
    return None if origin is None or seq < 0 else origin.get(seq)


# -- what is out ------------------------------------------------------------------------------------------------


def went_out(node: Node, job: Job) -> None:
    """A consumer has it from now on, or for longer: others that hold copies are to know."""
    if job.holders == MY_BIT:
        return
    outs = node.reach.outs
    if not outs.jobs:
        node.alarms.set(outs, node.now + TELL_MS)
    outs.jobs.append(job)


def tell(node: Node, outs: Outs) -> None:
    """Those that are still out, as far as they fit."""
    jobs = outs.jobs
    told: list[Job] = []
    looked = 0
    for job in jobs:
        looked += 1
        if requeue.is_leased(node, job):
            told.append(job)
            if len(told) >= OUT_PER_TURN:
                break
    outs.jobs = jobs[looked:]
    if outs.jobs:
        node.alarms.set(outs, node.now + TELL_MS)
    write_outs(node, told, peers.linked(node))


def write_outs(node: Node, jobs: list[Job], mask: i64) -> None:
    if not jobs or node.broken("outs-untold"):
        return
    batches: dict[int, BytesWriter] = {}
    for job in jobs:
        for peer in node.peers:
            if peer.bit & job.holders & mask & ~MY_BIT and peer.is_linked:
                out = batch_for(batches, peer)
                write_name(out, job)
                bus.write_i64(out, job.qtime - node.now)
                bus.write_u32(out, i64(job.nacks))
    say(node, batches, bus.OUT, OUT_BYTES)


def on_out(node: Node, peer: Peer, reader: Reader) -> None:
    """Consumers of a peer have these jobs. Not one that was given back since: whoever queued it says so."""
    for _ in range(read_count(reader)):
        job = read_named(node, reader)
        ms = reader.long()
        nacks = reader.u32()
        if not 0 <= ms <= requeue.LEFT_MS_MAX:
            raise BadFrame("a lease of less than nothing, or for longer than there are")
        if job is None or job.state == FOLDED or job.retry == 0:
            continue
        if nacks < i64(job.nacks) and not node.broken("out-after-nack"):
            continue
        requeue.hear_state(node, peer, job, requeue.IS_LEASED, ms)


# -- who has it -------------------------------------------------------------------------------------------------


def link_up(node: Node, peer: Peer) -> None:
    if not node.broken("visits-left-out"):
        node.reach.visit.want(node, peer.bit, node.now + VISIT_MS)


def on_withyou(node: Node, peer: Peer, reader: Reader) -> None:
    """A peer takes these jobs to be with us: name those that are not."""
    answer: dict[int, BytesWriter] = {}
    for _ in range(read_count(reader)):
        code = reader.u32()
        seq = reader.long()
        origin = node.origins.get(b"DI%08x" % int(code))
        job = None if origin is None or seq < 0 else origin.get(seq)
        if job is not None and job.retry > 0 and job.state != FOLDED:
            tombs.learn_holders(node, job, peer.bit)
        if job is None or (job.state != DEAD and not is_with_us(job)):
            out = batch_for(answer, peer)
            bus.write_u32(out, code)
            bus.write_i64(out, seq)
    say(node, answer, bus.NOTHERE, 12)


def is_with_us(job: Job) -> bool:
    """Whether this node sees to it. One that has ended is not here: who asks then hears how."""
    if job.state == ACTIVE:
        return job.responsible == ME or job.flags & MOVING != 0
    return job.state != ACKED and job.state != DEAD


def on_nothere(node: Node, peer: Peer, reader: Reader) -> None:
    """They are not with the peer: ask everybody, unless a lease that it told of may still run."""
    for _ in range(read_count(reader)):
        job = read_named(node, reader)
        if job is None or job.state != ACTIVE or job.retry == 0 or job.responsible != peer.index:
            continue
        if not job.flags & (ASKING | MOVING):
            orphans.adopt(node, job)
        if not job.flags & (ASKING | MOVING) and not (job.flags & TOLD_UNTIL and job.qtime > node.now):
            requeue.soon(node, job)
