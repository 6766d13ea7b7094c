"""Which commands may go over a connection that others use, and which must not.

A command whose answer is never far shares a connection with those of other calls (see `shared`). One that waits, or of
which we can't tell, has a connection to itself until its answer is here. In between are those that a node answers at
once in calm times, and that wait for another node otherwise (`may_wait`): an add whose key another node decides about,
or that wants a number of copies. They share only when too many of them are under way.

One that changes its connection (MONITOR, CLIENT REPLY, AUTH …) is refused: it would change it for some later call, and
what the node then sends would be taken for that call's answer.

And which of them a node answers at once, however much there is in it, and which only look, so that asking twice does no
harm.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from .adding import ADD_TIMEOUT_S
from .errors import BadRequest
from .resp import Argv, to_bytes, to_text
from .target import Target

SHARED_PATIENCE_S: Final = ADD_TIMEOUT_S
"""A call that may wait longer than this has a connection of its own."""
ALONE: Final = frozenset(("GETJOB", "WAITJOB"))
ADDS: Final = frozenset(("ADDJOB", "ADDJOBS"))
WAIT_FOR_NODES: Final = frozenset(("UNIQUE", "GROUP", "REPLICATE", "SYNC"))
"""Options of an add whose answer may have to wait for a node that is away."""
ASK_NODES: Final = frozenset(("EXPLAIN", "CANCEL", "ENQUEUE", "MOVE", "PRIORITY"))
"""Commands that ask the other nodes, and wait a second for one that says nothing."""
CAN_SHARE: Final = os.name != "nt"
"""Elsewhere the kernel does not understand how long we wait for an answer."""
DOUBT_S: Final = 1.0
"""An answer that is so late is reason to find out whether its node is there at all (`knocking`)."""

_BY_HAND: Final = "try it with `holdfast cli`"
ADVICE: Final = {
    "MONITOR": _BY_HAND,
    "QUIT": "use close()",
    "AUTH": "put the password into the url, holdfast://:password@host",
    "HELLO": "the client chooses the protocol; HELLO alone lists the nodes",
    "CLIENT REPLY": "every call needs its answer",
    "CLIENT SETNAME": _BY_HAND,
    "CLIENT SETINFO": _BY_HAND,
}
"""What must not be sent over a connection that others will use, and what to do instead."""
PRIVATE: Final = frozenset(each.partition(" ")[0] for each in ADVICE)
SHARED: Final = frozenset((
    "ACKJOB", "ACKJOBS", "NACK", "RELEASE", "KEEPALIVE", "PROGRESS", "WORKING", "ADDJOB", "ADDJOBS", "PING", "SHOW",
    "QLEN", "QSTAT", "QPEEK", "EXPLAIN", "CANCEL", "QSCAN", "QUEUE", "WORKER", "DELJOB", "ENQUEUE", "MOVE", "PRIORITY",
))
"""Commands whose answer is never far; anything else has a connection to itself."""

LOOKS: Final = frozenset((
    "PING", "ECHO", "TIME", "HELLO", "INFO", "COMMAND", "SHOW", "EXPLAIN", "QLEN", "QSTAT", "QPEEK", "QSCAN", "JSCAN",
    "SCAN", "CLUSTER NODES", "CLUSTER INFO", "CLUSTER MYID", "CLUSTER QSTAT", "CLUSTER AWAY", "QUEUE GET", "DEAD LIST",
    "CRON GET", "CRON LIST", "CRON NEXT", "DOMAIN GET", "DOMAIN LIST", "TENANT LIST", "BATCH GET", "BATCH LIST",
    "WORKER LIST", "CONFIG GET", "DISQUE HELLO", "DISQUE INFO", "PAST READ", "PAST SUMS",
    "SLOWLOG GET", "SLOWLOG LEN",
))
"""Commands that change nothing, nor what others are answered."""
AT_ONCE: Final = SHARED | ALONE | LOOKS | {"FASTACK", "DEQUEUE", "PAUSE", "TENANT SET", "DOMAIN SET", "CRON SET"}
"""Commands that take a node no longer the more jobs it has."""


def only_looks(argv: Argv) -> bool:
    """May it be sent a second time without harm?"""
    return _is_in(argv, LOOKS)


def give_up_after(commands: Sequence[Argv], patience: float | None, target: Target) -> float | None:
    """Seconds until a call is given up on whose node does not even answer a PING; None: it may wait for ever. What may
    keep the node busy has as long as if nobody had asked."""
    if all(argv[0] in ADDS for argv in commands):
        return 0.0  # who asks for copies is awake
    if patience is None or all(_is_in(argv, AT_ONCE) for argv in commands):
        return patience
    return target.allowance(patience)


def doubt_after(commands: Sequence[Argv], patience: float | None, target: Target) -> float | None:
    """Seconds until an answer is so late that it is worth asking whether the node is there; None: it is not."""
    if target.answer_timeout is None:
        return None
    if all(argv[0] in ADDS for argv in commands):
        patience = 0.0
    if patience is None:
        return target.answer_timeout
    if not all(_is_in(argv, AT_ONCE) for argv in commands):
        return None
    return patience + DOUBT_S if target.answer_timeout > DOUBT_S else None


def _is_in(argv: Argv, commands: frozenset[str]) -> bool:
    if argv[0] in commands:
        return True
    words = [to_text(to_bytes(word)).upper() for word in argv[:2]]
    return words[0] in commands or " ".join(words) in commands


def shares(argv: Argv, patience: float | None, target: Target) -> bool:
    """May this command go where others go?"""
    return (
        argv[0] in SHARED and patience is not None and patience <= SHARED_PATIENCE_S and can_share(target)
    )


def may_wait(argv: Argv) -> bool:
    """Of a command that may be shared: may its answer have to wait for another node?"""
    command = argv[0]
    if command == "ADDJOB":
        return len(argv) > 4 and not WAIT_FOR_NODES.isdisjoint(argv[4:])
    if command == "ADDJOBS":
        count = argv[3]
        return isinstance(count, int) and not WAIT_FOR_NODES.isdisjoint(argv[4 + count:])
    return command in ASK_NODES or (command == "WORKER" and argv[1] == "LIST")


def can_share(target: Target) -> bool:
    return CAN_SHARE and target.tls is None  # Two threads must not use one TLS connection at once.


def check_shared(argv: Argv) -> None:
    """`BadRequest` for a command that must not be sent over a connection others will use."""
    word = argv[0] if isinstance(argv[0], str) else to_text(to_bytes(argv[0]))
    if word in SHARED or word in ALONE:
        return
    word = word.upper()
    if word not in PRIVATE:
        return
    if word == "HELLO" and len(argv) == 1:
        return  # Only asks for the nodes of the cluster.
    if word == "CLIENT":
        word = f"CLIENT {to_text(to_bytes(argv[1])).upper()}" if len(argv) > 1 else ""
    advice = ADVICE.get(word)
    if advice is not None:
        raise BadRequest(f"{word} changes the connection, which other calls of this queue use as well: {advice}")
