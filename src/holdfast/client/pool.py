"""As many connections as there are calls at once, so that one queue serves many threads or tasks.

A connection is busy from the command to its answer, and a GETJOB that waits keeps it busy for long. So a
call takes an idle connection, or makes a new one, and puts it back when the answer is here. One that
broke is thrown away; the next call connects again, to the first node of the list that answers. That is
all the failing over there is: a call whose outcome is unknown is not repeated, its caller has to decide.

Two bounds. Calls that don't wait for jobs share QUICK_MAX connections and queue up for them: they are
short. Calls that wait for jobs need one each, up to WAITING_MAX; more are refused, since waiting for a
place to wait could last for ever.

Since connections are shared, a command that changes its connection (MONITOR, CLIENT REPLY, AUTH …) is refused:
it would change it for some later call, and what the node then sends would be taken for that call's answer.

A pool does not survive a fork: the child forgets the connections (they are the parent's conversations)
and makes its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from typing import Final

from .asks import Undo
from .connection import AsyncConnection, Connection
from .errors import BadRequest, Closed, Error, TooManyClients, Unknown, Unreachable
from .resp import Argv, Reply, to_bytes, to_text
from .target import Target, none_reachable

QUICK_MAX: Final = 32
WAITING_MAX: Final = 1000

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


class Pool:
    """Connections to the first node that answers; a `Channel` for many threads."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = tuple(targets)
        self._is_closed = False
        self._forget()

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None) -> Reply:
        check_shared(argv)
        if self._pid != os.getpid():
            self._forget()
        if undo is None or patience == 0:
            with self._quick:
                return self._call(argv, patience, undo)
        if not self._waiting.acquire(blocking=False):
            raise crowded()
        try:
            return self._call(argv, patience, undo)
        finally:
            self._waiting.release()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            connections = [*self._idle, *self._busy]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def _call(self, argv: Argv, patience: float | None, undo: Undo | None) -> Reply:
        connection = self._checkout()
        try:
            return connection.call(argv, patience, undo)
        except Unknown:
            if self._is_closed:
                raise closed() from None
            raise
        finally:
            with self._lock:
                self._busy.discard(connection)
                if connection.is_open and not self._is_closed:
                    self._idle.append(connection)

    def _checkout(self) -> Connection:
        while True:
            with self._lock:
                if self._is_closed:
                    raise closed()
                connection = self._idle.pop() if self._idle else None
                if connection is not None:
                    self._busy.add(connection)
            if connection is None:
                return self._connect()
            if not connection.is_stale():
                return connection
            with self._lock:
                self._busy.discard(connection)
            connection.close()

    def _connect(self) -> Connection:
        failures: list[Error] = []
        for target in self._targets:
            try:
                connection = Connection(target)
            except Unreachable as error:
                failures.append(error)
                continue
            with self._lock:
                if not self._is_closed:
                    self._busy.add(connection)
                    return connection
            connection.close()
            raise closed()
        raise none_reachable(failures)

    def _forget(self) -> None:
        """Start with nothing: in a new pool, and in a forked child."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._quick = threading.Semaphore(QUICK_MAX)
        self._waiting = threading.Semaphore(WAITING_MAX)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()


class AsyncPool:
    """The same for the tasks of one event loop."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = tuple(targets)
        self._is_closed = False
        self._quick = asyncio.Semaphore(QUICK_MAX)
        self._waiting = 0
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None
    ) -> Reply:
        check_shared(argv)
        if undo is None or patience == 0:
            async with self._quick:
                return await self._call(argv, patience, undo)
        if self._waiting >= WAITING_MAX:
            raise crowded()
        self._waiting += 1
        try:
            return await self._call(argv, patience, undo)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        self._is_closed = True
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in connections:
            await connection.close()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _call(self, argv: Argv, patience: float | None, undo: Undo | None) -> Reply:
        connection = await self._checkout()
        self._busy.add(connection)
        try:
            return await connection.call(argv, patience, undo)
        except Unknown:
            if self._is_closed:
                raise closed() from None
            raise
        finally:
            self._busy.discard(connection)
            self._leaving |= connection.withdrawals
            for task in connection.withdrawals:
                task.add_done_callback(self._leaving.discard)
            if connection.is_open and not self._is_closed:
                self._idle.append(connection)

    async def _checkout(self) -> AsyncConnection:
        if self._was_closed():
            raise closed()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            await connection.close()
        failures: list[Error] = []
        for target in self._targets:
            try:
                connection = await AsyncConnection.open(target)
            except Unreachable as error:
                failures.append(error)
                continue
            if self._was_closed():
                await connection.close()
                raise closed()
            return connection
        raise none_reachable(failures)

    def _was_closed(self) -> bool:
        """A question of its own: between two awaits the answer changes."""
        return self._is_closed


def check_shared(argv: Argv) -> None:
    """`BadRequest` for a command that must not be sent over a connection others will use."""
    word = to_text(to_bytes(argv[0])).upper()
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
