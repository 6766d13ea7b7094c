"""PRIORITY and MOVE: a job that waits gets another priority or another queue.

Done where somebody sees to the job, which may be another node, and said to all holders (fate.py). A job that a worker
has, or that is on its way between nodes, stays as it is; one whose group or unique key is decided with its queue stays
in its queue.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import bounds, errors, fate, inquire, queues, requeue
from holdfast.core.errors import BadRequest, Refused
from holdfast.core.inquire import Question
from holdfast.core.job import ACKED, ACTIVE, HANDED_OUT, IN_DOUBT, MOVING, WAIT_REPL
from holdfast.core.limits import QUEUE_NAME_BYTES_MAX
from holdfast.core.peers import ME, Peer
from holdfast.core.queue import PAUSE_IN
from holdfast.core.reply import write_int
from holdfast.core.session import Session
from holdfast.wire import bus
from holdfast.wire.bus import Reader

if TYPE_CHECKING:
    from holdfast.core.node import Node

SAME: Final = 255  # in place of a priority

# What came of it, from the weakest to the strongest.
UNKNOWN: Final = 0
ELSEWHERE: Final = 1
OUT: Final = 2  # a worker has it
REFUSED: Final = 3  # the new queue takes no jobs, or the job is bound to its own
DONE: Final = 4


class Changing(Question):
    def __init__(self, session: Session, outcome: i64) -> None:
        super().__init__(session)
        self.outcome: i64 = outcome
        self.error: bytes = b""  # why it was refused

    def hear(self, node: Node, peer: Peer, reader: Reader) -> None:
        self.outcome = max(self.outcome, min(reader.u8(), DONE))
        if reader.more():
            self.error = reader.name()

    def reply(self, node: Node, out: BytesWriter) -> None:
        if self.outcome == REFUSED and self.error:
            out.write(b"-%b\r\n" % self.error)
        else:
            write_int(out, 1 if self.outcome == DONE else 0)


def change(node: Node, session: Session, jid: bytes, priority: i64, queue: bytes) -> None:
    """`priority` SAME or an empty `queue`: leave it as it is. Raises BadRequest or Refused."""
    outcome = change_here(node, jid, priority, queue)
    if outcome > ELSEWHERE:
        write_int(node.out, 1 if outcome == DONE else 0)
        return
    what = BytesWriter()
    what.write(jid)
    bus.write_i8(what, priority)
    bus.write_name(what, queue)
    inquire.ask(node, Changing(session, outcome), inquire.CHANGED, what.getvalue(), -1)


def change_here(node: Node, jid: bytes, priority: i64, queue_name: bytes) -> i64:
    job = node.find(jid)
    if job is None or job.state == ACKED or job.state == WAIT_REPL or job.flags & IN_DOUBT:
        return UNKNOWN
    more = job.more
    if queue_name and queue_name != job.queue.name and more is not None and (more.group or more.unique):
        raise BadRequest(errors.MOVE_KEYED)
    if job.state == ACTIVE and (job.responsible != ME or job.flags & MOVING):
        return ELSEWHERE
    if requeue.is_leased(node, job) or (job.state == ACTIVE and job.retry == 0 and job.flags & HANDED_OUT):
        return OUT
    queue = job.queue
    if queue_name and queue_name != queue.name:
        found = queues.queue_or_none(node, queue_name)
        if found is None:
            raise Refused(errors.OUT_OF_MEMORY)
        if found.paused & PAUSE_IN:
            raise Refused(errors.PAUSED)
        bounds.admit(node, found, 1)
        queue = found
    fate.change(node, job, i64(job.priority) if priority == SAME else priority, queue)
    return DONE


def tell(node: Node, peer: Peer, reader: Reader, out: BytesWriter) -> None:
    jid = reader.job_id()
    priority = reader.u8()
    queue = reader.name()
    try:
        bus.write_i8(out, change_here(node, jid, priority, queue[:QUEUE_NAME_BYTES_MAX]))
    except (BadRequest, Refused) as error:
        bus.write_i8(out, REFUSED)
        bus.write_name(out, error.text)
