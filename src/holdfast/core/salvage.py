"""What a node makes of a journal that was damaged: nothing it has read is sure until every member was asked.

Records are missing. So an ended job may seem to live, a job that was given away may seem to be here, who else has a
copy may not be known, and jobs that others take to be here are not. For the other nodes such a node is one that has
lost its data: it comes back as a new life of itself (its incarnation, membership.py), so none of them counts on what it
had, and those jobs are healed.

What could be read is kept beside that, and doubtful: this node is the only holder it knows of, and neither queues it
nor says how it stands. It tells every member the ids (SALVAGED), some at a time, and each says what it knows: how the
job ended, that it is dead, where it is queued or leased. When all have answered (SEEN), a job that nobody else sees to
is queued. A member that cannot be heard is waited for as after any start that may have missed something
(requeue.QUARANTINE_MS).

At-most-once jobs: one that may have been handed out in what is missing is in doubt (`cut`), and so is one
that was on its way to another node. A member that has it says so, and it is not here then. Nobody can know more.

A crash before all have answered begins it again, by a record in the journal (SALVAGE).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import acks, bounds, fate, records, requeue
from holdfast.core.copies import write_job_id
from holdfast.core.job import (
    ACK_ONLY,
    ACKED,
    ACTIVE,
    ASKING,
    DEAD,
    GONE,
    HANDED_OUT,
    IN_DOUBT,
    MOVING,
    QUEUED_BEFORE,
    Job,
)
from holdfast.core.peers import ME, MY_BIT, Peer
from holdfast.core.rows import Homes
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node
    from holdfast.core.recover import Loading

JOBS_AT_ONCE: Final = 500
"""So many ids are told before an answer is waited for: a few milliseconds of the member's time."""


class Salvage:
    """Who is still to be asked about what."""

    def __init__(self) -> None:
        self.is_on: bool = False
        self.until: i64 = 0  # members that have not answered by then are not waited for
        self.waiting: i64 = 0  # members that have not answered about all
        self.jobs: dict[Job, None] = {}  # the doubtful ones
        self.order: list[Job] = []  # the same, as they are told
        self.told: dict[int, int] = {}  # by index of a member: up to where it has answered
        self.held: dict[Job, None] = {}  # those whose time has come meanwhile

    def count(self) -> int:
        return len(self.jobs)


def cut(loading: Loading) -> None:
    """Records are missing here: whether an at-most-once job was handed out nobody can say."""
    node = loading.node
    loading.is_cut = True
    for job in node.all_jobs():
        is_open = job.state == ACTIVE and not job.flags & HANDED_OUT
        if node.broken("missing-handout-trusted"):
            continue
        if job.retry == 0 and is_open and loading.is_of_book(job):
            job.flags |= IN_DOUBT | HANDED_OUT
            job.qtime = 0
            node.dead[job] = None


def record(node: Node) -> None:
    """Whether members are still to be asked."""
    out = records.begin(node, records.SALVAGE)
    bus.write_i8(out, 1 if node.salvage.is_on else 0)
    records.end(node)


def begin_life(node: Node, incarnation: int) -> None:
    """While the journal is read: what others know of this node's data is over."""
    node.incarnation = incarnation
    node.peers[ME].facts.incarnation = incarnation


def others(node: Node) -> i64:
    """Members beside this node."""
    mask: i64 = 0
    for peer in node.peers:
        if peer.is_member and peer.index != ME:
            mask |= peer.bit
    return mask


def begin(node: Node, jobs: list[Job]) -> bool:
    """Everything is read. False: there is nobody to ask, and what could be read must do."""
    waiting = others(node)
    if waiting == 0 or node.broken("salvage-trusted"):
        return False
    found = node.salvage
    found.is_on = True
    found.until = node.now + requeue.QUARANTINE_MS
    found.waiting = waiting
    node.homes = Homes()  # whoever decides about a key now, it is not us
    for job in jobs:
        if job.flags & ACK_ONLY:
            continue
        if job.retry > 0:
            acks.distrust(node, job)
        if job.state == ACKED:
            node.wake_at(job, node.now + acks.RETRY_MS)
            continue
        if job.queue.total_most > 0:
            bounds.count_own(node, job)
        found.jobs[job] = None
        found.order.append(job)
        doubt(node, job)
    return True


def doubt(node: Node, job: Job) -> None:
    """A job was read: as far as we know nobody else has it, and it is to be queued here."""
    is_moving = job.flags & MOVING != 0
    job.flags &= ~(MOVING | ASKING)
    job.holders = MY_BIT
    job.responsible = ME
    if job.state != ACTIVE:
        return
    if job.retry == 0 and is_moving:
        job.flags |= IN_DOUBT | HANDED_OUT
        node.dead[job] = None
    if job.retry == 0 and job.flags & HANDED_OUT:
        job.qtime = 0
    elif job.qtime > node.now:
        node.wake_at(job, job.qtime)
    else:
        hold(node, job)


def hold(node: Node, job: Job) -> None:
    """It is to be queued, and waits until all have been asked."""
    job.qtime = 0
    node.salvage.held[job] = None


def is_doubtful(node: Node, job: Job) -> bool:
    return node.salvage.is_on and job in node.salvage.jobs


def link_up(node: Node, peer: Peer) -> None:
    found = node.salvage
    if found.is_on and found.waiting & peer.bit:
        tell(node, peer)


def tell(node: Node, peer: Peer) -> None:
    """The next ids for a member; if there are none it has answered about all."""
    found = node.salvage
    at = found.told.get(int(peer.index), 0)
    jobs: list[Job] = []
    while at < len(found.order) and len(jobs) < JOBS_AT_ONCE:
        job = found.order[at]
        at += 1
        if job.state != GONE and job.state != ACKED:
            jobs.append(job)
    if not jobs:
        found.waiting &= ~peer.bit
        settle(node)
        return
    out = peer.out
    out.append(bus.SALVAGED)
    bus.write_i64(out, at)
    bus.write_u16(out, len(jobs))
    for job in jobs:
        write_job_id(out, job)


def on_salvaged(node: Node, peer: Peer, reader: Reader) -> None:
    """A member has read these jobs from a damaged journal: say what we know of them."""
    at = reader.long()
    count = reader.u16()
    mine = BytesWriter()
    found: i64 = 0
    for _ in range(count):
        jid = reader.job_id()
        job = node.find(jid)
        if job is None:
            acks.answer_from_tomb(node, peer, jid, peer.bit)
        elif job.retry > 0 or job.state == ACKED:
            requeue.say_how_it_is(node, peer, job, peer.bit)
        elif not job.flags & (MOVING | IN_DOUBT):
            write_job_id(mine, job)
            found += 1
    peer.out.append(bus.SEEN)
    bus.write_i64(peer.out, at)
    bus.write_u16(peer.out, found)
    peer.out.write(mine.getvalue())


def on_seen(node: Node, peer: Peer, reader: Reader) -> None:
    """A member has said what it knows of the jobs up to there, and which at-most-once ones it has itself."""
    at = reader.long()
    count = reader.u16()
    found = node.salvage
    if at < 0 or at > len(found.order):
        raise BadFrame("an answer about jobs that were never told")
    for _ in range(count):
        job = node.find(reader.job_id())
        if job is not None and job in found.jobs and job.retry == 0 and not node.broken("salvaged-copy-kept"):
            node.count("salvaged-elsewhere")
            records.gone(node, job)
            node.forget(job)
    if found.is_on and found.waiting & peer.bit:
        found.told[int(peer.index)] = int(at)
        tell(node, peer)


def beat(node: Node) -> None:
    """Once a second: members that were forgotten are not waited for, nor others for ever."""
    found = node.salvage
    if not found.is_on:
        return
    found.waiting &= others(node)
    if node.now >= found.until:
        found.waiting = 0
    settle(node)


def settle(node: Node) -> None:
    """If everybody has answered there is no doubt any more: what waited is queued, and what is dead is told."""
    found = node.salvage
    if not found.is_on or found.waiting != 0:
        return
    node.salvage = Salvage()
    if node.is_recording:
        record(node)
    node.count("salvaged")
    for job in found.jobs:
        if job.state == DEAD or (job.state == ACTIVE and fate.is_to_be_told(job)):
            fate.spread(node, job)
    for job in found.held:
        if job.state == ACTIVE and job.qtime == 0:
            job.flags |= QUEUED_BEFORE
            node.wake_at(job, node.now)
