"""What the journal keeps; recover.py reads it back.

A record is a type, the wall clock, and fields as on the bus. Replaying the records of a node in order, with
the tail that a crash may have cut off missing, gives the state it may count on: jobs it holds, endings and
tombstones, who else may hold what, and which moves it made. Sets of nodes are masks in the numbering of this
node; NODE records say which node a bit is before the first use.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core.copies import write_copy, write_job_id
from holdfast.core.job import ACK_ONLY, Job
from holdfast.core.peers import MY_BIT, Peer, Tomb
from holdfast.wire import bus

if TYPE_CHECKING:
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

# What a NODE record says of a node.
HEARD_OF: Final = 0
MEMBER: Final = 1
FORGOTTEN: Final = 2


def begin(node: Node, kind: i64) -> BytesWriter:
    out = BytesWriter()
    out.append(int(kind))
    bus.write_i64(out, node.wall)
    return out


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
    facts = peer.facts
    node.explained |= peer.bit
    out = begin(node, NODE)
    bus.write_i8(out, peer.index)
    out.write(peer.node_id())
    bus.write_i64(out, facts.incarnation)
    bus.write_i8(out, MEMBER if peer.is_member else FORGOTTEN if peer.is_forgotten() else HEARD_OF)
    bus.write_name(out, facts.host.encode())
    bus.write_u16(out, facts.port)
    bus.write_u16(out, facts.bus_port)
    bus.write_name(out, facts.host_id)
    node.records.append(out.getvalue())


def job(node: Node, job: Job) -> None:
    if not node.is_recording:
        return
    explain(node, job.holders)
    out = begin(node, JOB)
    write_whole(node, out, job)
    node.records.append(out.getvalue())


def write_whole(node: Node, out: BytesWriter, job: Job) -> None:
    write_copy(node, out, job, job.holders, max(0, job.ctime // 1_000_000 + i64(job.delay) * 1000 - node.now))
    bus.write_i8(out, i64(job.responsible))


def holders(node: Node, job: Job) -> None:
    if not node.is_recording:
        return
    explain(node, job.holders)
    out = begin(node, HOLDERS)
    write_job_id(out, job)
    bus.write_i64(out, job.holders)
    node.records.append(out.getvalue())


def counts(node: Node, job: Job) -> None:
    """How often it was refused and delivered again: never less after a restart."""
    if not node.is_recording:
        return
    out = begin(node, COUNTS)
    write_job_id(out, job)
    bus.write_u32(out, i64(job.nacks))
    bus.write_u32(out, i64(job.deliveries))
    node.records.append(out.getvalue())


def ending(node: Node, job: Job, why: i64) -> None:
    if not node.is_recording or node.broken("h3-acks-not-durable"):
        return
    explain(node, job.holders)
    out = begin(node, ENDING)
    write_job_id(out, job)
    bus.write_i8(out, why)
    bus.write_i8(out, 1 if job.flags & ACK_ONLY else 0)
    bus.write_i64(out, job.holders)
    node.records.append(out.getvalue())


def gone(node: Node, job: Job) -> None:
    if not node.is_recording:
        return
    out = begin(node, GONE)
    write_job_id(out, job)
    node.records.append(out.getvalue())


def tomb(node: Node, jid: bytes, tomb: Tomb) -> None:
    if not node.is_recording or node.broken("tombstone-not-journaled"):
        return
    explain(node, tomb.holders)
    out = begin(node, TOMB)
    out.write(jid)
    bus.write_i8(out, tomb.why)
    bus.write_i64(out, tomb.holders)
    bus.write_i64(out, tomb.until - node.now)
    node.records.append(out.getvalue())


def handout(node: Node, job: Job) -> None:
    if not node.is_recording or (job.retry > 0 and node.broken("restart-forgets-leases")):
        return
    out = begin(node, HANDOUT)
    write_job_id(out, job)
    node.records.append(out.getvalue())
    if job.retry == 0 and not node.broken("once-not-synced"):
        node.must_sync = True


def gave(node: Node, job: Job, peer: Peer, number: i64) -> None:
    if not node.is_recording or node.broken("move-not-recorded"):
        return
    explain(node, peer.bit)
    out = begin(node, GAVE)
    write_job_id(out, job)
    bus.write_i8(out, peer.index)
    bus.write_i64(out, number)
    node.records.append(out.getvalue())
    if job.retry == 0:
        node.must_sync = True


def taken(node: Node, job: Job) -> None:
    """What we gave has arrived."""
    if not node.is_recording:
        return
    out = begin(node, TAKEN)
    write_job_id(out, job)
    node.records.append(out.getvalue())


def back(node: Node, job: Job) -> None:
    if not node.is_recording:
        return
    out = begin(node, BACK)
    write_job_id(out, job)
    node.records.append(out.getvalue())


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
    node.records.append(out.getvalue())
    if job.retry == 0:
        node.must_sync = True


def refused(node: Node, peer: Peer, number: i64) -> None:
    if not node.is_recording:
        return
    explain(node, peer.bit)
    out = begin(node, REFUSED)
    bus.write_i8(out, peer.index)
    bus.write_i64(out, number)
    node.records.append(out.getvalue())
    node.must_sync = True
