"""The machine as one function: step(node, now_ms, event) -> Effects.

The server calls the methods of Node one by one and drains what they leave behind in place, since it has a
million commands a second to run. Tests and simulations would rather have a value for what happens and a
value for what comes of it, to write down, to compare and to play again:

    Connect(address)     a client is there; Effects.session is the number it got
    Do(session, argv)    it sent a command
    Gone(session)        it is gone
    Tick()               the time next_wake had asked for has come, or is long past

Events and effects name sessions by number and hold nothing of the node, so one list of events can be given
to two nodes, and the two lists of effects compared with ==. A node born with the same settings, id, start
time and random source must give equal effects for equal events.
"""
from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.node import Node
from holdfast.core.session import NOTHING


@dataclass(frozen=True)
class Connect:
    address: str


@dataclass(frozen=True)
class Do:
    session: int
    argv: list[bytes]


@dataclass(frozen=True)
class Gone:
    session: int


@dataclass(frozen=True)
class Tick:
    pass


Event = Connect | Do | Gone | Tick


@dataclass(frozen=True)
class Effects:
    """What the machine wants done, in the order of effects.py: reply, wakeups, requests."""

    session: int  # the one that acted; 0 for a tick
    reply: bytes | None  # for that session; None if it is owed nothing yet: it waits, or was not heard
    was_run: bool  # False: the session may not go on yet, so keep its command and try again later
    wakeups: list[tuple[int, bytes]]
    requests: list[tuple[str, int, bytes]]  # kind, session (0: none), argument
    next_wake: int


def step(node: Node, now_ms: int, event: Event) -> Effects:
    """Let one thing happen at that time, and take away all that comes of it."""
    node.set_time(now_ms, now_ms)
    number = 0
    reply: bytes | None = None
    was_run = True
    if isinstance(event, Connect):
        number = node.connect(event.address).number
    elif isinstance(event, Do):
        number = event.session
        session = node.sessions[number]
        was_run = node.execute(session, event.argv)
        written = node.take_output()
        if was_run and (written or session.blocked == NOTHING):
            reply = written
    elif isinstance(event, Gone):
        number = event.session
        node.disconnect(node.sessions[number])
    else:
        node.tick()
    wakeups = [(session.number, data) for session, data in node.wakeups]
    requests = [(each.kind, 0 if each.session is None else each.session.number, each.argument)
                for each in node.requests]
    node.wakeups.clear()
    node.requests.clear()
    return Effects(number, reply, was_run, wakeups, requests, node.next_wake())
