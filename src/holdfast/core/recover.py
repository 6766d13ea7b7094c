"""How a node comes back: the records of its last life, replayed (records.py says what they are)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i32, i64

from holdfast.core import acks, doubt, membership, replicate, requeue, tombs
from holdfast.core.copies import Copy, register
from holdfast.core.ids import NODE_ID_LENGTH
from holdfast.core.job import ACKED, ACTIVE, HANDED_OUT, IN_DOUBT, MOVING, QUEUED_BEFORE, Job
from holdfast.core.peers import ME, MY_BIT, Peer, PeerFacts
from holdfast.core.records import (
    BACK,
    COUNTS,
    DOUBT,
    ENDING,
    FORGOTTEN,
    GAVE,
    GONE,
    HANDOUT,
    HOLDERS,
    JOB,
    MEMBER,
    NODE,
    REFUSED,
    TAKEN,
    TOMB,
    TOOK,
)
from holdfast.wire import bus
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

ASK_AFTER_LOAD_MS: Final = 3000
"""After a restart, jobs that others hold too wait until links are up, so that their holders can be asked."""


class Loading:
    """A replay: the numbering of the node that wrote the records against ours."""

    def __init__(self, node: Node) -> None:
        self.node: Node = node
        self.table: list[int] = [-1] * 64
        self.table[ME] = ME
        self.moves: dict[Job, tuple[Peer, int]] = {}

    def mask(self, theirs: i64) -> i64:
        mask: i64 = 0
        for index in range(63):
            if theirs & (1 << i64(index)) and self.table[index] >= 0:
                mask |= 1 << i64(self.table[index])
        return mask

    def one(self, data: bytes) -> None:
        reader = Reader(data)
        kind = reader.u8()
        passed: i64 = max(0, self.node.wall - reader.long())
        if kind == NODE:
            self.load_node(reader)
        elif kind == JOB:
            self.load_job(reader, passed)
        elif kind == TOMB:
            jid = reader.text(bus.ID)
            why = reader.u8()
            holders = self.mask(reader.long())
            tombs.place(self.node, jid, why, holders, self.node.now + reader.long() - passed)
        elif kind == REFUSED:
            peer = self.node.peers[max(0, self.table[reader.u8()])]
            peer.refused[int(reader.long())] = int(self.node.now) + 86_400_000
        else:
            self.load_change(kind, reader, passed)

    def load_node(self, reader: Reader) -> None:
        index = reader.u8()
        node_id = reader.text(NODE_ID_LENGTH)
        incarnation = reader.long()
        standing = reader.u8()
        facts = PeerFacts(
            node_id, int(incarnation), reader.name().decode("ascii", "replace"), int(reader.u16()),
            int(reader.u16()), reader.name(),
        )
        peer = self.node.by_id.get(node_id)
        if peer is None:
            peer = self.node.add_peer(facts)
        if peer is not None:
            membership.begin_life(self.node, peer, facts.incarnation)
            peer.facts = facts
            peer.is_member = standing == MEMBER
            peer.forgotten_until = self.node.now if standing == FORGOTTEN else 0
            peer.has_missed = standing == FORGOTTEN
            self.table[index] = int(peer.index)

    def load_job(self, reader: Reader, passed: i64) -> None:
        copy = Copy(reader)
        copy.holders = self.mask(reader.long())
        copy.queue = reader.name()
        copy.body = reader.name()
        responsible = reader.u8()
        copy.age += passed
        life = copy.life - passed
        if life <= 0 and not doubt.is_possible(self.node):
            return
        copy.life = max(1, life)
        copy.delay_left = max(0, copy.delay_left - passed)
        known = self.node.find(copy.jid)
        if known is not None:
            known.holders |= copy.holders
            return
        job = register(self.node, copy)
        if job is None:
            return
        job.expire = self.node.now + life
        job.state = ACTIVE
        job.responsible = max(0, self.table[responsible])
        job.qtime = self.node.now + copy.delay_left

    def load_change(self, kind: i64, reader: Reader, passed: i64) -> None:
        node = self.node
        jid = reader.text(bus.ID)
        job = node.find(jid)
        if kind == ENDING:
            why = reader.u8()
            is_ack_only = reader.u8() != 0
            holders = self.mask(reader.long())
            if job is None:  # an ack of a job never seen here, or the end of one that was never accepted
                job = acks.make_ended(node, jid, is_ack_only)
            if job is not None and job.state != ACKED:
                job.holders |= holders
                acks.mark(node, job, why)
            return
        if kind == TOOK:
            peer = node.peers[max(0, self.table[reader.u8()])]
            number = int(reader.long())
            peer.taken[number] = int(node.now + reader.long() - passed)
            if reader.u8() == 1:
                self.load_job(reader, passed)
                job = node.find(jid)
            if job is not None:
                self.moves.pop(job, None)
                job.flags &= ~MOVING
                job.responsible = ME
            return
        if job is None:
            return
        if kind == HOLDERS:
            job.holders = self.mask(reader.long())
        elif kind == COUNTS:
            job.nacks = i32(reader.u32())
            job.deliveries = i32(reader.u32())
        elif kind == GONE:
            node.endings.pop(job, None)
            self.moves.pop(job, None)
            job.task = None
            node.forget(job)
        elif kind == HANDOUT:
            job.flags |= HANDED_OUT | QUEUED_BEFORE
            job.responsible = ME
            job.qtime = node.now + max(0, i64(job.retry) * 1000 - passed) if job.retry > 0 else 0
        elif kind == GAVE:
            peer = node.peers[max(0, self.table[reader.u8()])]
            self.moves[job] = (peer, int(reader.long()))
            job.flags |= MOVING | QUEUED_BEFORE
            job.responsible = int(peer.index)
            job.holders |= peer.bit
            job.qtime = node.now + max(0, i64(job.retry) * 1000 - passed) if job.retry > 0 else 0
        elif kind == DOUBT:
            self.moves.pop(job, None)
            job.flags &= ~MOVING
            job.flags |= IN_DOUBT | HANDED_OUT
            job.qtime = 0
        elif kind == TAKEN:
            self.moves.pop(job, None)
            job.flags &= ~MOVING
        elif kind == BACK:
            self.moves.pop(job, None)
            if job.flags & IN_DOUBT:
                job.flags &= ~(IN_DOUBT | HANDED_OUT)
            job.flags &= ~MOVING
            job.responsible = ME
            job.qtime = node.now

    def finish(self) -> None:
        """Everything is read: what was queued is queued again, what was out keeps its time."""
        node = self.node
        replicate.regard_hosts(node)
        if len(node.peers) > 1:
            node.alarms.set(node.beat, node.now + 1)
        doubt.begin(node)
        if not node.broken("forgotten-joins-at-once"):
            node.alone_until = node.now + requeue.QUARANTINE_MS
        for job, (peer, number) in self.moves.items():
            peer.moves[number] = job
        for job in node.all_jobs():
            if job.state == ACKED:
                node.wake_at(job, node.now + acks.RETRY_MS)
            elif job.state != ACTIVE or job.flags & IN_DOUBT:
                continue
            elif job.flags & (HANDED_OUT | MOVING) and job.retry == 0:
                job.qtime = 0
                if node.broken("once-requeued-at-start"):
                    node.enqueue(job)
            elif job.responsible == ME and job.flags & HANDED_OUT:
                node.wake_at(job, job.qtime)
            elif job.responsible == ME:
                if job.qtime > node.now:
                    node.wake_at(job, job.qtime)
                elif job.holders & ~MY_BIT and not node.broken("missed-acks-not-read"):
                    # Others may have queued it, or know how it ended: ask, when there are links to ask over.
                    job.flags |= QUEUED_BEFORE
                    node.wake_at(job, node.now + ASK_AFTER_LOAD_MS)
                else:
                    node.enqueue(job)
            else:
                node.wake_at(job, max(node.now, job.qtime) + i64(job.retry) * 1000 + node.jitter())


def load(node: Node, kept: list[bytes]) -> None:
    """Bring a node back to what its journal kept. Nothing is recorded meanwhile."""
    was_recording = node.is_recording
    node.is_recording = False
    loading = Loading(node)
    for data in kept:
        loading.one(data)
    loading.finish()
    node.is_recording = was_recording
    node.records.clear()


