"""What the journal keeps; recover.py reads it back.

A record is a type and fields as on the bus. Replaying the records of a node in order, with the tail that a crash may
have cut off missing, gives the state it may count on: jobs it holds, endings and tombstones, who else may hold what,
which moves it made, and how its queues are set. Sets of nodes are masks in the numbering of this node; NODE records
say which node a bit is before the first use. CLOCK records say what time it was on the wall; other times are what
was left then. A job that the journal knows is named by the first half of its id, its creator and its number.

Bytes count: each costs CPU time once more when it is synced. So the three records that every job has are short ones.

Each sets something to a value and none adds to one, so a record may be replayed over a state that knows it
already. That is what lets a snapshot (snapshot.py) be taken page by page while the node goes on.

The records of a turn are collected in `node.log`, each with its length before it, and leave as one piece.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from holdfast.core import batches, books
from holdfast.core.copies import write_job_id
from holdfast.core.job import (
    ACK_ONLY,
    BACKING_OFF,
    CLAIMED,
    DEAD,
    HANDED_OUT,
    IN_LINE,
    QUEUED_BEFORE,
    SPECIAL,
    UNSURE,
    Job,
    Lease,
)
from holdfast.core.peers import MY_BIT, Peer, Tomb
from holdfast.core.queue import Queue
from holdfast.core.throttle import Throttle, now_ns
from holdfast.wire import bus

if TYPE_CHECKING:
    from holdfast.core.batches import Batch
    from holdfast.core.node import Node

NODE: Final = 1
JOB: Final = 2
HOLDERS: Final = 3
ENDING: Final = 4
GONE: Final = 5
TOMB: Final = 6
HANDOUT: Final = 7
GAVE: Final = 8
BACK: Final = 9
TOOK: Final = 10
REFUSED: Final = 11
COUNTS: Final = 12
TAKEN: Final = 13
DOUBT: Final = 14
HAD: Final = 15
QUEUE: Final = 16
FLUSH: Final = 17
CUT: Final = 18
CLOCK: Final = 19
ADD: Final = 20
OWN: Final = 21
SHARED: Final = 22
EMPTIED: Final = 23
FATE: Final = 30
LEASE: Final = 31
RESULT: Final = 32
KEY: Final = 40
SLOTS: Final = 41
MERGED: Final = 42
BATCH: Final = 43
BATCH_BIT: Final = 44
SALVAGE: Final = 55
REGISTER: Final = 60
THROTTLE: Final = 61
CLAIM_EPOCH: Final = 80
RAN: Final = 62

SHORT: Final = 1 + 4 + 8  # a record of nothing but the name of a job
ID_BYTES: Final = 4 + 8 + 8 + 2
JOB_FIXED: Final = ID_BYTES + 8 * 8  # of a job, but for its queue and its body
ADD_FIXED: Final = 1 + ID_BYTES + 8 + 4 + 4 + 1 + 4
PLAIN_MS_MAX: Final = 0x7FFFFFFF
FLAGS_KEPT: Final = HANDED_OUT | QUEUED_BEFORE | UNSURE

# What a NODE record says of a node.
HEARD_OF: Final = 0
MEMBER: Final = 1
FORGOTTEN: Final = 2
BANNED: Final = 3  # forgotten by a RESET: see membership.meet


def tell_time(node: Node) -> None:
    """Before a record, if it is later than the journal knows."""
    node.log_wall = node.wall
    out = node.log
    write_i32_le(out, 9)
    out.append(CLOCK)
    write_i64_le(out, node.wall)


def begin(node: Node, kind: i64) -> BytesWriter:
    if node.wall != node.log_wall:
        tell_time(node)
    out = node.log
    node.log_from = len(out)
    write_i32_le(out, 0)
    out.append(int(kind))
    return out


def write_name(out: BytesWriter, job: Job) -> None:
    """A job that the journal knows."""
    write_i32_le(out, i32(job.origin.code))
    write_i64_le(out, job.seq)


def write_id(out: BytesWriter, job: Job) -> None:
    """A job that is new to the journal."""
    write_i32_le(out, i32(job.origin.code))
    write_i64_le(out, job.seq)
    write_i64_le(out, job.rnd)
    bus.write_u16(out, i64(job.minutes))


def end(node: Node) -> None:
    """Say how long the record just written came to be."""
    out = node.log
    at = node.log_from
    size: i64 = len(out) - at - 4
    out[at] = u8(size & 255)
    out[at + 1] = u8((size >> 8) & 255)
    out[at + 2] = u8((size >> 16) & 255)
    out[at + 3] = u8((size >> 24) & 255)


def end_of(node: Node, job: Job) -> None:
    """The same of a record about a job, which may belong to a journal of its queue (books.py)."""
    end(node)
    if job.queue.book is not None:
        books.take(node, job.queue.book, node.log_from)


def short(node: Node, kind: i64, job: Job) -> None:
    """A record of nothing but a name. There is one for each job that ends, so it is written without a detour."""
    if node.wall != node.log_wall:
        tell_time(node)
    write_short(node, kind, job)
    if job.queue.book is not None:
        books.take(node, job.queue.book, len(node.log) - 4 - SHORT)


def write_short(node: Node, kind: i64, job: Job) -> None:
    out = node.log
    write_i32_le(out, SHORT)
    out.append(int(kind))
    write_name(out, job)


def split(data: bytes) -> list[bytes]:
    """The records in what a turn left behind."""
    found: list[bytes] = []
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        size = i64(read_i32_le(data, at))
        found.append(data[at + 4:at + 4 + size])
        at += 4 + size
    return found


def explain(node: Node, mask: i64) -> None:
    """Which nodes the bits of a mask are, where the journal does not know yet."""
    new = mask & ~node.explained & ~MY_BIT
    if new == 0:
        return
    node.explained |= new
    for peer in node.peers:
        if peer.bit & new:
            member(node, peer)


def member(node: Node, peer: Peer) -> None:
    """What is known of another node: enough to find it again after a restart."""
    write_member(node, peer)
    if not node.books.is_walking:
        for book in node.books.by_name.values():
            books.write_member(node, book, peer)


def standing(peer: Peer) -> int:
    if peer.is_member:
        return MEMBER
    return BANNED if peer.is_banned() else FORGOTTEN if peer.is_forgotten() else HEARD_OF


def write_member(node: Node, peer: Peer) -> None:
    facts = peer.facts
    node.explained |= peer.bit
    out = begin(node, NODE)
    bus.write_i8(out, peer.index)
    out.write(peer.node_id())
    bus.write_i64(out, facts.incarnation)
    bus.write_i8(out, standing(peer))
    bus.write_name(out, facts.host.encode())
    bus.write_u16(out, facts.port)
    bus.write_u16(out, facts.bus_port)
    bus.write_name(out, facts.host_id)
    end(node)


def job(node: Node, job: Job) -> None:
    if not node.is_recording:
        return
    book = job.queue.book
    if node.syncs_adds if book is None else book.syncs_adds:
        node.must_sync = True
    life = job.expire - node.now
    if (
        job.holders == MY_BIT and job.delay == 0 and job.replicate == 1 and job.flags == 0 and life <= PLAIN_MS_MAX
        and job.nacks == 0 and job.responsible == 0 and job.ctime // 1_000_000 == node.now
    ):
        add(node, job, life)
        return
    explain(node, job.holders)
    out = begin(node, JOB)
    write_whole(node, out, job)
    end_of(node, job)


def add(node: Node, job: Job, life: i64) -> None:
    """A job about which nothing is special, made in this millisecond."""
    if node.wall != node.log_wall:
        tell_time(node)
    queue = job.queue.name
    body = job.kept
    out = node.log
    write_i32_le(out, i32(ADD_FIXED + len(queue) + len(body)))
    out.append(ADD)
    write_id(out, job)
    write_i64_le(out, job.ctime)
    write_i64_le(out, i64(job.retry) << 32 | life)
    out.append(int(job.priority))
    write_i32_le(out, i32(len(queue)))
    out.write(queue)
    out.write(body)
    if job.queue.book is not None:
        books.take(node, job.queue.book, len(out) - 4 - ADD_FIXED - len(queue) - len(body))


def write_whole(node: Node, out: BytesWriter, job: Job) -> None:
    """All there is to know of a job that is not queued: where it is queued, the queue knows.

    Of times it says what is left, except for the creation: that is the order inside a queue, to the last digit.
    The flag SPECIAL says that more follows the body.
    """
    now = node.now
    ms = job.ctime // 1_000_000
    more = job.more
    flags: i64 = i64(job.flags & FLAGS_KEPT) | (0 if more is None else SPECIAL)
    wait: i64 = max(0, ms + i64(job.delay) * 1000 - now) if job.delay > 0 else 0
    if wait > 0 and job.flags & (QUEUED_BEFORE | IN_LINE):
        wait = 0  # ENQUEUE has ended its delay
        flags |= QUEUED_BEFORE
    write_id(out, job)
    write_i64_le(out, job.ctime)
    write_i64_le(out, now - ms)
    write_i64_le(out, job.expire - now)
    write_i64_le(out, wait)
    write_i64_le(out, i64(job.retry) << 32 | i64(job.delay))
    write_i64_le(out, i64(job.nacks) << 32 | i64(job.deliveries))
    write_i64_le(
        out, i64(job.replicate) << 32 | flags << 24 | i64(job.priority) << 16
        | i64(job.hops) << 8 | i64(job.responsible)
    )
    write_i64_le(out, job.holders)
    bus.write_name(out, job.queue.name)
    bus.write_name(out, job.body)
    if more is not None:
        bus.write_name(out, more.to_bytes())


def holders(node: Node, job: Job) -> None:
    if not node.is_recording:
        return
    explain(node, job.holders)
    out = begin(node, HOLDERS)
    write_name(out, job)
    bus.write_i64(out, job.holders)
    end_of(node, job)


def counts(node: Node, job: Job) -> None:
    """How often it was refused and delivered again: never less after a restart."""
    if not node.is_recording:
        return
    out = begin(node, COUNTS)
    write_name(out, job)
    bus.write_u32(out, i64(job.nacks))
    bus.write_u32(out, i64(job.deliveries))
    end_of(node, job)


def ending(node: Node, job: Job, why: i64) -> None:
    if not node.is_recording or node.broken("h3-acks-not-durable"):
        return
    explain(node, job.holders)
    out = begin(node, ENDING)
    write_job_id(out, job)
    bus.write_i8(out, why)
    bus.write_i8(out, 1 if job.flags & ACK_ONLY else 0)
    bus.write_i64(out, job.holders)
    end_of(node, job)


def gone(node: Node, job: Job) -> None:
    if node.is_recording:
        short(node, GONE, job)


def tomb(node: Node, jid: bytes, tomb: Tomb) -> None:
    if not node.is_recording or node.broken("tombstone-not-journaled"):
        return
    explain(node, tomb.holders)
    out = begin(node, TOMB)
    out.write(jid)
    bus.write_i8(out, tomb.why)
    bus.write_i64(out, tomb.holders)
    bus.write_i64(out, tomb.until - node.now)
    end(node)


def handout(node: Node, job: Job, ms: i64) -> None:
    """It is out, for so many milliseconds unless it is said otherwise."""
    if not node.is_recording or (
        job.retry > 0 and (not node.logs_handouts or node.broken("restart-forgets-leases"))
    ):
        return
    if node.wall != node.log_wall:
        tell_time(node)
    out = node.log
    write_i32_le(out, SHORT + 8)
    out.append(HANDOUT)
    write_name(out, job)
    write_i64_le(out, ms)
    if job.queue.book is not None:
        books.take(node, job.queue.book, len(out) - 4 - SHORT - 8)
    if job.retry == 0 and not node.broken("once-not-synced"):
        node.must_sync = True


def lease(node: Node, job: Job, lease: Lease, ms: i64) -> None:
    """The same with its token and who has it, so that a restart knows them. A claim's are kept in any case."""
    if not node.is_recording or (
        job.retry > 0 and not lease.worker.startswith(CLAIMED)
        and (not node.logs_handouts or node.broken("restart-forgets-leases"))
    ):
        return
    out = begin(node, LEASE)
    write_name(out, job)
    bus.write_i64(out, ms)
    bus.write_i64(out, lease.start)
    bus.write_i64(out, lease.number)
    bus.write_i64(out, node.now - lease.since)
    bus.write_i8(out, 1 if lease.is_cancelled else 0)
    bus.write_name(out, lease.worker)
    bus.write_name(out, lease.address)
    end_of(node, job)
    if job.retry == 0 and not node.broken("once-not-synced"):
        node.must_sync = True


def fate(node: Node, job: Job) -> None:
    """What became of a job beyond being queued and handed out: failures, death, another queue or priority."""
    if not node.is_recording or (job.state == DEAD and node.broken("death-not-kept")):
        return
    out = begin(node, FATE)
    write_name(out, job)
    bus.write_i64(out, job.expire - node.now)
    bus.write_i64(out, max(1, job.qtime - node.now) if job.flags & BACKING_OFF else 0)
    bus.write_u32(out, i64(job.nacks))
    bus.write_u32(out, i64(job.deliveries))
    bus.write_i8(out, i64(job.priority))
    bus.write_name(out, job.queue.name)
    more = job.more
    bus.write_name(out, b"" if more is None else more.to_bytes())
    end_of(node, job)


def result(node: Node, jid: bytes, word: i64, left: i64, data: bytes) -> None:
    """What a job came to, for whoever asks."""
    if not node.is_recording or node.broken("result-not-kept"):
        return
    out = begin(node, RESULT)
    out.write(jid)
    bus.write_i8(out, word)
    bus.write_i64(out, left)
    bus.write_name(out, data)
    end(node)


def gave(node: Node, job: Job, peer: Peer, number: i64) -> None:
    if not node.is_recording or node.broken("move-not-recorded"):
        return
    explain(node, peer.bit)
    out = begin(node, GAVE)
    write_name(out, job)
    bus.write_i8(out, peer.index)
    bus.write_i64(out, number)
    end_of(node, job)
    if job.retry == 0:
        node.must_sync = True


def taken(node: Node, job: Job) -> None:
    """What we gave has arrived."""
    if node.is_recording:
        short(node, TAKEN, job)


def doubt(node: Node, job: Job) -> None:
    """Nobody can say any more whether it was taken: a restart must not ask again, and be told that it was not."""
    if not node.is_recording or node.broken("doubt-not-recorded"):
        return
    short(node, DOUBT, job)
    node.must_sync = True


def back(node: Node, job: Job) -> None:
    """It is ours again, and to be queued."""
    if node.is_recording:
        short(node, BACK, job)


def took(node: Node, job: Job, peer: Peer, number: i64, is_new: bool) -> None:
    """A job was given to us: that we took it, and the job itself, in one record, so that none is without the other."""
    if not node.is_recording or node.broken("took-not-recorded") or node.broken("h10-import-not-logged"):
        return
    explain(node, peer.bit | job.holders)
    out = begin(node, TOOK)
    write_job_id(out, job)
    bus.write_i8(out, peer.index)
    bus.write_i64(out, number)
    bus.write_i64(out, job.expire - node.now)
    bus.write_i8(out, 1 if is_new else 0)
    if is_new:
        write_whole(node, out, job)
    end_of(node, job)
    if job.retry == 0:
        node.must_sync = True


def refused(node: Node, peer: Peer, number: i64) -> None:
    if not node.is_recording:
        return
    explain(node, peer.bit)
    out = begin(node, REFUSED)
    bus.write_i8(out, peer.index)
    bus.write_i64(out, number)
    end(node)
    node.must_sync = True


def had(node: Node, peer: Peer, number: i64, until: i64) -> None:
    """That a move was taken, where its job may be gone: in a snapshot."""
    out = begin(node, HAD)
    bus.write_i8(out, peer.index)
    bus.write_i64(out, number)
    bus.write_i64(out, until - node.now)
    end(node)


def queue(node: Node, queue: Queue) -> None:
    """How a queue is set."""
    if not node.is_recording:
        return
    out = begin(node, QUEUE)
    bus.write_name(out, queue.name)
    bus.write_i8(out, queue.paused)
    bus.write_i64(out, queue.maxlen)
    bus.write_i64(out, queue.pause_stamp)
    end(node)


def slots(node: Node, slots: list[int]) -> None:
    """Who is the home of some slots."""
    if not node.is_recording:
        return
    homes = node.homes
    mask: i64 = 0
    for slot in slots:
        mask |= node.peers[homes.owners[slot]].bit
    explain(node, mask)
    out = begin(node, SLOTS)
    for slot in slots:
        bus.write_u16(out, slot)
        bus.write_u32(out, homes.epochs[slot])
        bus.write_i8(out, homes.owners[slot])
    end(node)


def batch(node: Node, batch: Batch, is_gone: bool) -> None:
    """A batch as it stands, or that there is none any more."""
    if not node.is_recording:
        return
    out = begin(node, BATCH)
    bus.write_i8(out, 1 if is_gone else 0)
    bus.write_name(out, batch.name if is_gone else batches.state(batch, node.now))
    end(node)


def batch_bit(node: Node, name: bytes, index: i64, cause: i64) -> None:
    if not node.is_recording:
        return
    out = begin(node, BATCH_BIT)
    bus.write_u32(out, index)
    bus.write_i8(out, cause)
    bus.write_name(out, name)
    end(node)


def merged(node: Node, jid: bytes, into: bytes) -> None:
    if not node.is_recording:
        return
    out = begin(node, MERGED)
    out.write(jid)
    out.write(into)
    end(node)


def register(
    node: Node, kind: bytes, name: bytes, field: bytes, value: bytes | None, time: i64, writer: bytes
) -> None:
    """What is set for the whole cluster; a time of 0: it is forgotten that this was deleted."""
    if not node.is_recording:
        return
    out = begin(node, REGISTER)
    bus.write_name(out, kind)
    bus.write_name(out, name)
    bus.write_name(out, field)
    bus.write_i8(out, 0 if value is None else 1)
    bus.write_name(out, b"" if value is None else value)
    bus.write_i64(out, time)
    out.write(writer)
    end(node)


def ran(node: Node, name: bytes, version: i64, ms: i64) -> None:
    """Up to when everything that a cron entry asks for was seen to."""
    if not node.is_recording:
        return
    out = begin(node, RAN)
    bus.write_name(out, name)
    bus.write_i64(out, version)
    bus.write_i64(out, ms)
    end(node)


def throttle(node: Node, throttle: Throttle) -> None:
    """How long a bucket takes to be full again: in a snapshot, since hand-outs before it are not told again."""
    out = begin(node, THROTTLE)
    bus.write_i8(out, 0 if throttle.queue is None else 1)
    bus.write_name(out, throttle.name)
    bus.write_i64(out, throttle.full_at - now_ns(node))
    end(node)


def claim_epoch(node: Node, group: bytes, epoch: i64) -> None:
    """Who speaks for a group of claims; 0: the group is forgotten."""
    if not node.is_recording:
        return
    out = begin(node, CLAIM_EPOCH)
    bus.write_i64(out, epoch)
    bus.write_name(out, group)
    end(node)
    node.must_sync = True


def taken_key(node: Node, key: bytes, jid: bytes, ms: i64) -> None:
    """A unique key that is taken for so long, by a job that has ended."""
    if not node.is_recording:
        return
    out = begin(node, KEY)
    out.write(jid)
    bus.write_i64(out, ms)
    bus.write_name(out, key)
    end(node)


def flush(node: Node) -> None:
    """Every job and every queue is gone."""
    if node.is_recording:
        begin(node, FLUSH)
        end(node)
        books.emptied(node)
