"""Replies that wait for copies, in the order of their commands.

A producer may send many ADDJOBs without waiting. Each has a slot in its session, filled when enough nodes hold
its job; what leaves is the filled slots at the front. A frame of answers from a peer fills many slots of many
sessions: they are gathered until all of it is read (`gather`), so that a session gets one piece and not one per
job.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter

from holdfast.core import forward
from holdfast.core.session import FOR_COPIES, Session, Slot

if TYPE_CHECKING:
    from holdfast.core.node import Node


def fill(node: Node, session: Session | None, slot: Slot, reply: bytes) -> None:
    """The reply to one of a session's ADDJOBs; it leaves when those before it have left."""
    slot.reply = reply
    if session is None:
        forward.fill(node, slot, reply)
        return
    if node.is_gathering:
        node.gathered[session] = None
    else:
        release(node, session)


def gather(node: Node) -> None:
    """What is filled from here on waits for `release_all`."""
    node.is_gathering = True


def release_all(node: Node) -> None:
    node.is_gathering = False
    if node.gathered:
        for session in node.gathered:
            release(node, session)
        node.gathered.clear()


def release(node: Node, session: Session) -> None:
    ready = BytesWriter()
    while session.slots:
        reply = session.slots[0].reply
        if reply is None:
            break
        ready.write(reply)
        session.slots.popleft()
    if not session.slots and session.blocked == FOR_COPIES:
        node.answer(session, ready.getvalue())
    elif len(ready) > 0:
        node.wakeups.append((session, ready.getvalue()))
