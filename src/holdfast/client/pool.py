"""The connections of one queue: shared ones for short calls, one each for calls that wait for jobs.

Commands that the node answers at once share one connection per node (`shared`), and adds, which may have to wait for
copies, share another, so that an ack never waits behind an add. A GETJOB keeps its connection busy for as
long as it waits, and so does a WAITJOB, an add without a limit, or a raw command, of which we can't tell: such a call
takes an idle connection or makes a new one, and puts it back when the answer is here. There are at most WAITING_MAX of
them; more are refused, since waiting for a place to wait could last for ever.

Which node? `nodes` knows an order. The first that can be reached is used. A node that is leaving, or still loading, has
not done anything when it says so: the next one is asked. One whose connection breaks is left to the caller as
`Unknown`; the call after that goes to the next node.

Since connections are shared, a command that changes its connection (MONITOR, CLIENT REPLY, AUTH …) is refused:
it would change it for some later call, and what the node then sends would be taken for that call's answer.

A pool does not survive a fork: the child forgets the connections (they are the parent's conversations)
and makes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from .adding import ADD_TIMEOUT_S
from .asks import Undo
from .connection import AsyncConnection, Connection
from .errors import BadRequest, Closed, Error, Leaving, Loading, TooManyClients, Unknown, Unreachable
from .nodes import Nodes
from .resp import Argv, Reply, to_bytes, to_text
from .shared import IDLE_S, AsyncShared, Shared
from .target import Target, none_reachable

WAITING_MAX: Final = 1000
SHARED_PATIENCE_S: Final = ADD_TIMEOUT_S
"""A call that may wait longer than this has a connection of its own."""
ALONE: Final = frozenset(("GETJOB", "WAITJOB"))
CAN_SHARE: Final = os.name != "nt"
"""Elsewhere the kernel does not understand how long we wait for an answer."""

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
    "ACKJOB", "NACK", "RELEASE", "KEEPALIVE", "PROGRESS", "WORKING", "ADDJOB", "ADDJOBS", "PING", "SHOW", "QLEN",
    "QSTAT", "QPEEK", "EXPLAIN", "CANCEL", "QSCAN", "QUEUE", "WORKER", "DELJOB", "ENQUEUE", "MOVE", "PRIORITY",
))
"""Commands whose answer is never far; anything else has a connection to itself."""


def shares(argv: Argv, patience: float | None, target: Target) -> bool:
    """May this command go where others go?"""
    return (
        argv[0] in SHARED and patience is not None and patience <= SHARED_PATIENCE_S and CAN_SHARE
        and target.tls is None  # Two threads must not use one TLS connection at once.
    )


class Pool:
    """Connections to the nodes of a url; a `Channel` for many threads."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.nodes = Nodes(tuple(targets))
        self._is_closed = False
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._lines: dict[tuple[Target, bool], Shared] = {}
        self._forget()

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        check_shared(argv)
        if self._pid != os.getpid():
            self._forget()
        failures: list[Error] = []
        for target in self.nodes.order(near):
            try:
                if undo is None and shares(argv, patience, target):
                    reply = self._line(target, patience != 0).call(argv)
                    if not isinstance(reply, Error) and not self.nodes.is_known(target):
                        self._learn(target)
                else:
                    reply = self._alone(target, argv, patience, undo)
            except Unreachable as error:
                failures.append(error)
                self.nodes.failed(target)
                continue
            except Unknown:
                self.nodes.failed(target)
                if self._is_closed:
                    raise closed() from None
                raise
            if not isinstance(reply, Leaving | Loading):
                if undo is not None and self.nodes.saw(reply):
                    self._let_go()
                return reply
            failures.append(reply)
            self.nodes.failed(target)
        if isinstance(failures[-1], Unreachable):
            raise none_reachable(failures)
        return failures[-1]

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        if not commands:
            return []
        for argv in commands:
            check_shared(argv)
        if self._pid != os.getpid():
            self._forget()
        failures: list[Error] = []
        for target in self.nodes.order(near):
            try:
                if all(shares(argv, 0, target) for argv in commands):
                    return self._line(target, False).call_many(commands)
                return self._alone_many(target, commands)
            except Unreachable as error:
                failures.append(error)
                self.nodes.failed(target)
            except Unknown:
                self.nodes.failed(target)
                if self._is_closed:
                    raise closed() from None
                raise
        raise none_reachable(failures)

    def twin(self) -> AsyncPool:
        return AsyncPool(self.nodes.targets())

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            connections = [*self._idle, *self._busy]
            lines = list(self._lines.values())
            self._idle.clear()
        for connection in connections:
            connection.close()
        for line in lines:
            line.close()

    def _line(self, target: Target, is_for_adds: bool) -> Shared:
        """The shared connection to a node."""
        key = (target, is_for_adds)
        line = self._lines.get(key)
        if line is not None and line.is_good():
            return line
        with self._making:  # One thread connects, the others wait for what it brings.
            line = self._lines.get(key)
            if self._is_closed:
                raise closed()
            if line is None or not line.is_good():
                line = Shared(target, SHARED_PATIENCE_S if is_for_adds else 0.0)
                with self._lock:
                    self._lines[key] = line
                self.nodes.worked(target)
        return line

    def _learn(self, target: Target) -> None:
        """Ask a node that has answered who the others are. If that fails, the call before it has not."""
        with contextlib.suppress(Error):
            self.nodes.learned(target, self._line(target, False).call(["HELLO"]))

    def _alone(self, target: Target, argv: Argv, patience: float | None, undo: Undo | None) -> Reply:
        is_waiting = patience is None or patience > 0
        if is_waiting and not self._waiting.acquire(blocking=False):
            raise crowded()
        try:
            connection = self._checkout(target)
            try:
                return connection.call(argv, patience, undo)
            finally:
                self._checkin(connection)
        finally:
            if is_waiting:
                self._waiting.release()

    def _alone_many(self, target: Target, commands: Sequence[Argv]) -> list[Reply]:
        connection = self._checkout(target)
        try:
            return connection.call_many(commands)
        finally:
            self._checkin(connection)

    def _checkout(self, target: Target) -> Connection:
        while True:
            with self._lock:
                if self._is_closed:
                    raise closed()
                connection = next((each for each in reversed(self._idle) if each.target == target), None)
                if connection is not None:
                    self._idle.remove(connection)
                    self._busy.add(connection)
            if connection is None:
                return self._connect(target)
            if time.monotonic() - connection.used < IDLE_S or not connection.is_stale():
                return connection
            with self._lock:
                self._busy.discard(connection)
            connection.close()

    def _connect(self, target: Target) -> Connection:
        connection = Connection(target)
        self.nodes.worked(target)
        with self._lock:
            if not self._is_closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise closed()

    def _checkin(self, connection: Connection) -> None:
        connection.used = time.monotonic()
        with self._lock:
            self._busy.discard(connection)
            if connection.is_open and not self._is_closed:
                self._idle.append(connection)

    def _let_go(self) -> None:
        """Another node is better: connections that lie idle elsewhere will not be used soon."""
        best = self.nodes.order()[0]
        with self._lock:
            old = [each for each in self._idle if each.target != best]
            self._idle = [each for each in self._idle if each.target == best]
        for connection in old:
            connection.close()

    def _forget(self) -> None:
        """Start with nothing: in a new pool, and in a forked child."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._waiting = threading.Semaphore(WAITING_MAX)
        self._idle = []
        self._busy = set()
        self._lines = {}


class AsyncPool:
    """The same for the tasks of one event loop."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.nodes = Nodes(tuple(targets))
        self._is_closed = False
        self._making = asyncio.Lock()
        self._waiting = 0
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._lines: dict[tuple[Target, bool], AsyncShared] = {}

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        check_shared(argv)
        failures: list[Error] = []
        for target in self.nodes.order(near):
            try:
                if undo is None and shares(argv, patience, target):
                    reply = await (await self._line(target, patience != 0)).call(argv)
                    if not isinstance(reply, Error) and not self.nodes.is_known(target):
                        await self._learn(target)
                else:
                    reply = await self._alone(target, argv, patience, undo)
            except Unreachable as error:
                failures.append(error)
                self.nodes.failed(target)
                continue
            except Unknown:
                self.nodes.failed(target)
                if self._is_closed:
                    raise closed() from None
                raise
            if not isinstance(reply, Leaving | Loading):
                if undo is not None and self.nodes.saw(reply):
                    await self._let_go()
                return reply
            failures.append(reply)
            self.nodes.failed(target)
        if isinstance(failures[-1], Unreachable):
            raise none_reachable(failures)
        return failures[-1]

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        if not commands:
            return []
        for argv in commands:
            check_shared(argv)
        failures: list[Error] = []
        for target in self.nodes.order(near):
            try:
                if all(shares(argv, 0, target) for argv in commands):
                    return await (await self._line(target, False)).call_many(commands)
                return await self._alone_many(target, commands)
            except Unreachable as error:
                failures.append(error)
                self.nodes.failed(target)
            except Unknown:
                self.nodes.failed(target)
                if self._is_closed:
                    raise closed() from None
                raise
        raise none_reachable(failures)

    async def close(self) -> None:
        self._is_closed = True
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in connections:
            await connection.close()
        for line in self._lines.values():
            await line.close()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _line(self, target: Target, is_for_adds: bool) -> AsyncShared:
        """The shared connection to a node."""
        key = (target, is_for_adds)
        line = self._lines.get(key)
        if line is not None and line.is_good():
            return line
        async with self._making:
            line = self._lines.get(key)
            if self._was_closed():
                raise closed()
            if line is None or not line.is_good():
                line = await AsyncShared.open(target, SHARED_PATIENCE_S if is_for_adds else 0.0)
                self._lines[key] = line
                self.nodes.worked(target)
        return line

    async def _learn(self, target: Target) -> None:
        """See `Pool._learn`."""
        with contextlib.suppress(Error):
            self.nodes.learned(target, await (await self._line(target, False)).call(["HELLO"]))

    async def _alone(self, target: Target, argv: Argv, patience: float | None, undo: Undo | None) -> Reply:
        is_waiting = patience is None or patience > 0
        if is_waiting and self._waiting >= WAITING_MAX:
            raise crowded()
        self._waiting += is_waiting
        try:
            connection = await self._checkout(target)
            try:
                return await connection.call(argv, patience, undo)
            finally:
                self._checkin(connection)
        finally:
            self._waiting -= is_waiting

    async def _alone_many(self, target: Target, commands: Sequence[Argv]) -> list[Reply]:
        connection = await self._checkout(target)
        try:
            return await connection.call_many(commands)
        finally:
            self._checkin(connection)

    def _checkin(self, connection: AsyncConnection) -> None:
        self._busy.discard(connection)
        self._leaving |= connection.withdrawals
        for task in connection.withdrawals:
            task.add_done_callback(self._leaving.discard)
        if connection.is_open and not self._is_closed:
            self._idle.append(connection)

    async def _checkout(self, target: Target) -> AsyncConnection:
        if self._was_closed():
            raise closed()
        for connection in [each for each in self._idle if each.target == target][::-1]:
            if connection not in self._idle:
                continue
            self._idle.remove(connection)
            if not connection.is_stale():
                self._busy.add(connection)
                return connection
            await connection.close()
        connection = await AsyncConnection.open(target)
        self.nodes.worked(target)
        if self._was_closed():
            await connection.close()
            raise closed()
        self._busy.add(connection)
        return connection

    async def _let_go(self) -> None:
        """See `Pool._let_go`."""
        best = self.nodes.order()[0]
        old = [each for each in self._idle if each.target != best]
        self._idle = [each for each in self._idle if each.target == best]
        for connection in old:
            await connection.close()

    def _was_closed(self) -> bool:
        """A question of its own: between two awaits the answer changes."""
        return self._is_closed


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


def closed() -> Closed:
    return Closed("this queue was closed")


def crowded() -> TooManyClients:
    return TooManyClients(f"{WAITING_MAX} calls of this queue are already waiting for jobs")
