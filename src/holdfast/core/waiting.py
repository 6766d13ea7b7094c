"""Sessions that wait, and what they are woken by.

A session is blocked by GETJOB on empty queues, by something only the shell can do, or by CLIENT PAUSE; a job
that is queued goes first to whoever waits for its queue, in the order in which they came.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from holdfast.core import results
from holdfast.core.effects import CLOSE, Request
from holdfast.core.job import Job
from holdfast.core.limits import NEVER
from holdfast.core.queue import PAUSE_OUT, Queue
from holdfast.core.reply import write_null_array
from holdfast.core.session import FOR_END, FOR_JOB, FOR_RESUME, NOTHING, Session

if TYPE_CHECKING:
    from holdfast.core.node import Node


def block(node: Node, session: Session, why: i64) -> None:
    session.blocked = why
    session.settle()
    node.blocked += 1


def unblock(node: Node, session: Session) -> None:
    if session.blocked == NOTHING:
        return
    if session.blocked == FOR_JOB:
        for queue in session.waits_on:
            queue.waiting.pop(session.number, None)
            queue.asked_for -= session.asks_for
        session.waits_on = []
        session.wake = NEVER
    elif session.blocked == FOR_END:
        results.stop(node, session)
    session.blocked = NOTHING
    session.settle()
    node.blocked -= 1


def wait_for_job(
    node: Node, session: Session, wanted: list[Queue], timeout_ms: i64, form: i64, lease_ms: i64, count: i64
) -> None:
    """Block until one of the queues has a job; 0 waits for ever."""
    block(node, session, FOR_JOB)
    session.waits_on = wanted
    session.asks_for = count
    session.form = form
    session.lease_ms = lease_ms
    for queue in wanted:
        queue.waiting[session.number] = session
        queue.asked_for += session.asks_for
    if timeout_ms > 0:
        node.alarms.set(session, node.now + timeout_ms)


def give_up(node: Node, session: Session) -> None:
    """A session's patience has ended."""
    if session.blocked == FOR_JOB:
        reply = BytesWriter()
        write_null_array(reply, session)
        node.answer(session, reply.getvalue())


def serve(node: Node, queue: Queue) -> None:
    """Give queued jobs to those who wait, one each, first come first served."""
    while queue.waiting and queue.size > 0 and queue.paused & PAUSE_OUT == 0:
        job = node.pop(queue)
        if job is None:
            return
        give_to_first(node, queue, job)


def give_to_first(node: Node, queue: Queue, job: Job) -> None:
    """Hand a job to the session that has waited longest."""
    session = queue.waiting.popitem(last=False)[1]
    reply = BytesWriter()
    reply.write(b"*1\r\n")
    node.hand_out(reply, job, session, session.form, session.lease_ms)
    node.answer(session, reply.getvalue())


PASSES_PAUSE: Final = (b"CLIENT", b"SHUTDOWN")
"""Commands that run while all others wait: who has paused the clients can end that, and stop the node."""


def resume_clients(node: Node) -> None:
    """CLIENT PAUSE is over."""
    node.paused_until = 0
    node.settle()
    held = node.held
    node.held = []
    for session in held:
        if session.blocked == FOR_RESUME:
            unblock(node, session)
            node.wakeups.append((session, b""))


def close_session(node: Node, session: Session) -> None:
    """Run nothing more from this session, and have its connection closed once it has its replies."""
    session.is_closing = True
    session.settle()
    node.requests.append(Request(CLOSE, session))
