"""WORKING: a consumer is still at it, and has more time than those who hold copies count on."""
from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from holdfast.core import requeue, rules, tombs, twins
from holdfast.core.copies import write_job_id
from holdfast.core.job import ACKED, ACTIVE, BACKING_OFF, DEAD, MOVING, QUEUED, TOLD_UNTIL, WAIT_REPL, Job
from holdfast.core.peers import MY_BIT, Peer
from holdfast.wire import bus
from holdfast.wire.bus import BadFrame, Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node


def tell(node: Node, job: Job, ms: i64) -> None:
    """A consumer has more time than the other holders count on: they must know, or they would ask too early.

    Of a lease of ours we say so: one who has the job out as well keeps his to its end, and no longer. Any other word
    may be that of his own consumer, who has then asked for more time there, too.
    """
    is_ours = job.lease is not None and not node.broken("lease-told-as-work")
    for peer in node.peers:
        if not peer.bit & job.holders & ~MY_BIT or not peer.is_linked:
            continue
        if is_ours:
            requeue.write_state(node, peer, node.id_text(job), requeue.IS_LEASED, ms, job.holders)
        else:
            peer.out.append(bus.WORKING)
            write_job_id(peer.out, job)
            bus.write_i64(peer.out, ms)


def on_working(node: Node, peer: Peer, reader: Reader) -> None:
    jid = reader.job_id()
    ms = reader.long()
    job = node.find(jid)
    if not 0 <= ms <= requeue.LEFT_MS_MAX:
        raise BadFrame("a lease of less than nothing, or for longer than there are")
    if job is None:
        return
    if job.state == WAIT_REPL:
        twins.note(node, job)
        return
    if job.state == ACKED or job.state == DEAD:
        requeue.say_ended(node, peer, job)
        return
    tombs.learn_holders(node, job, peer.bit)
    if job.state == QUEUED:
        job.queue.remove(job)
        job.state = ACTIVE
    rules.let_go(node, job)
    requeue.stop_asking(node, job)
    job.flags &= ~(MOVING | BACKING_OFF)
    job.flags |= TOLD_UNTIL
    job.responsible = int(peer.index)
    node.wake_at(job, node.now + ms + node.jitter())
