"""One connection under many calls: the commands of all threads, or all tasks, share its round trips.

Only commands that the node answers at once may go here, or at least within a bounded time: answers come in the order
of the commands, so one that waits holds up all behind it. A GETJOB has a connection of its own (see `pool`). Should an
answer be late all the same, no further call is sent behind it (`is_free`).

Threads. A call puts its bytes into the outbox and itself into the line. Whoever finds nobody sending sends, all that
is there, and looks again before it stops; whoever finds nobody reading reads, for everybody in the line, until its
own answer has come, and then names the next reader. So there is no thread of ours, a single caller never waits for
another, and what piles up while one sends leaves as one packet.

Tasks. Bytes are collected until the loop has run everything that is ready, and leave as one packet.

When the connection breaks, or the node is silent for too long, everybody in the line is told (`Unknown`); the
connection is not used again.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .connection import READ_BYTES, AsyncConnection, Connection
from .errors import Closed, Error
from .later import Later
from .manners import DOUBT_S
from .resp import NOT_READY, PUSH, Argv, ProtocolError, Reply, encode, new_reader
from .target import Target

if TYPE_CHECKING:
    import asyncio
    from asyncio import Protocol
else:
    asyncio = Later("asyncio")
    Protocol = object  # nobody asks whether we are one

WINDOW: Final = 1000
"""Commands of one call under way at once. A node must hold their answers while we still write."""
IDLE_S: Final = 0.05
"""After so long without a call we look whether the node has hung up before we send."""
LATE_S: Final = 0.1
"""An answer that takes longer waits for something, and calls that come now should not wait with it. Not less: on a
busy machine answers are late for no reason, and calls that share a packet are cheaper."""


class _Ticket:
    """A place in the line."""

    __slots__ = ("count", "error", "is_gone", "is_over", "is_reader", "replies", "since", "sleep")

    def __init__(self, count: int) -> None:
        self.count = count
        self.since = time.monotonic()
        self.replies: list[Reply] = []
        self.is_over = False
        self.is_reader = False
        self.is_gone = False
        self.error: Error | None = None
        self.sleep: threading.Lock | None = None

    def wake(self) -> None:
        if self.sleep is not None:
            with contextlib.suppress(RuntimeError):  # Woken already.
                self.sleep.release()


class Shared:
    """The connection for threads."""

    def __init__(self, connection: Connection, patience: float) -> None:
        """Over a connection that is nobody else's any more. `patience`: how long an answer may be held back."""
        self.target = target = connection.target
        self._doubt = connection.doubt
        self._socket = connection.take_socket()
        self._silence = None if target.answer_timeout is None else target.answer_timeout + patience
        # The kernel watches over silence: a socket with a timeout of Python's costs a system call more each time.
        self._socket.settimeout(None)
        if self._silence is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, kernels(self._silence))
            early = self._silence if self._doubt is None else min(self._silence, DOUBT_S)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, kernels(early))
        self._reader = new_reader()
        self._lock = threading.Lock()
        self._outbox: list[bytes] = []
        self._line: deque[_Ticket] = deque()
        self._is_sending = False
        self._is_read = False
        self._broken: Error | None = None
        self._used = time.monotonic()

    def is_free(self) -> bool:
        """Is it worth sending here, and is no answer late?"""
        return self.is_good() and self.late_by() < LATE_S

    def late_by(self) -> float:
        """Seconds that the oldest call has waited; 0 if there is none."""
        if self._line:
            with contextlib.suppress(IndexError):  # Another thread has just read its answer.
                return time.monotonic() - self._line[0].since
        return 0.0

    def is_good(self) -> bool:
        """Is it worth sending here? If nothing is under way, look whether the node has hung up."""
        if self._broken is not None:
            return False
        if self._line or time.monotonic() - self._used < IDLE_S:
            return True
        with self._lock:
            if self._line or self._is_read:
                return True
            try:
                self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except OSError:
                pass
            self._broken = self.target.unreachable("it was closed")
            self._socket.close()
            return False

    def call(self, argv: Argv) -> Reply:
        """One command, its answer."""
        return self._run(encode(argv), 1)[0]

    def call_many(self, commands: Sequence[Argv]) -> list[Reply]:
        """Many commands, their answers in order."""
        replies: list[Reply] = []
        for start in range(0, len(commands), WINDOW):
            window = commands[start : start + WINDOW]
            replies += self._run(b"".join(map(encode, window)), len(window))
        return replies

    def close(self) -> None:
        """Everybody in the line is told."""
        self._break(Closed("this queue was closed"))

    def _run(self, data: bytes, count: int) -> list[Reply]:
        mine = _Ticket(count)
        sends = False
        try:
            with self._lock:
                if self._broken is not None:
                    raise self.target.unreachable("it was closed")
                self._line.append(mine)
                sends = not self._is_sending
                self._is_sending = True
                if not sends:
                    self._outbox.append(data)
            if sends:
                self._send(data)
                sends = False
            with self._lock:
                mine.is_reader = not mine.is_over and not self._is_read
                if mine.is_reader:
                    self._is_read = True
                elif not mine.is_over:
                    mine.sleep = threading.Lock()
                    mine.sleep.acquire()
            while not mine.is_over:
                if mine.is_reader:
                    self._read(mine)
                elif mine.sleep is not None:
                    mine.sleep.acquire()
        except BaseException:
            self._leave(mine, sends)
            raise
        if mine.error is not None:
            raise mine.error
        return mine.replies

    def _send(self, data: bytes) -> None:
        """Mine, and then all that was put into the outbox meanwhile."""
        while True:
            try:
                self._socket.sendall(data)
            except OSError as error:
                self._break(self.target.lost(error))
            with self._lock:
                if not self._outbox or self._broken is not None:
                    self._is_sending = False
                    return
                data = b"".join(self._outbox)
                self._outbox.clear()

    def _read(self, mine: _Ticket) -> None:
        """Read for everybody until my own answers are here."""
        reader = self._reader
        try:
            while not mine.is_over:
                data = self._receive()
                if not data:
                    raise self.target.lost("closed by the other side")
                reader.feed(data)
                while (reply := reader.gets()) is not NOT_READY:
                    if not isinstance(reply, PUSH):
                        ticket = self._line[0]
                        ticket.replies.append(reply)
                        if len(ticket.replies) == ticket.count:
                            self._end(ticket, mine)
        except OSError as error:
            self._break(self.target.lost(error))
        except (ProtocolError, TypeError) as error:
            self._break(self.target.not_a_node(f"it does not speak RESP: {error}"))
        except Error as error:
            self._break(error)
        self._used = time.monotonic()
        self._pass_on(mine)

    def _receive(self) -> bytes:
        """What the node sends next. While it is silent, and we are in doubt whether it is there, that is found out."""
        began = time.monotonic()
        while True:
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                waited = time.monotonic() - began
                if self._doubt is None or waited >= (self._silence or 0) or not self._doubt(self.target):
                    raise self.target.silent(round(time.monotonic() - began, 1)) from None

    def _end(self, ticket: _Ticket, reader: _Ticket) -> None:
        """The first in the line has all its answers."""
        with self._lock:
            self._line.popleft()
            ticket.is_over = True
            if ticket is not reader:
                ticket.wake()

    def _pass_on(self, mine: _Ticket) -> None:
        """I read no longer: the first in the line that is still there does."""
        with self._lock:
            mine.is_reader = False
            self._is_read = False
            for ticket in self._line:
                if ticket.sleep is not None and not ticket.is_gone:
                    ticket.is_reader = self._is_read = True
                    ticket.wake()
                    return

    def _leave(self, mine: _Ticket, was_sending: bool) -> None:
        """The caller was interrupted. Where it was with the bytes of all cannot be told: then the connection ends."""
        with self._lock:
            mine.is_gone = True
            was_reader = mine.is_reader
        if was_reader or was_sending:
            self._break(self.target.lost("a caller was interrupted while it read or wrote for all"))
        if was_reader:
            self._pass_on(mine)

    def _break(self, error: Error) -> None:
        with self._lock:
            if self._broken is None:
                self._broken = error
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                self._socket.close()
            self._outbox.clear()
            while self._line:
                ticket = self._line.popleft()
                ticket.error = error
                ticket.is_over = True
                ticket.wake()


def kernels(seconds: float) -> bytes:
    """A time as the kernel wants it."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))


class AsyncShared(Protocol):
    """The connection for the tasks of one loop. Made by `open`."""

    def __init__(self, target: Target, silence: float | None) -> None:
        self.target = target
        self._silence = silence
        self._reader = new_reader()
        self._outbox: list[bytes] = []
        self._line: deque[asyncio.Future[Reply]] = deque()
        self._broken: Error | None = None
        self._loop = asyncio.get_running_loop()
        self._connection: AsyncConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._heard = 0.0

    @classmethod
    async def open(cls, target: Target, patience: float) -> AsyncShared:
        """Connect and introduce ourselves; then the transport is ours."""
        connection = await AsyncConnection.open(target)
        silence = None if target.answer_timeout is None else target.answer_timeout + patience
        self = cls(target, silence)
        self._connection = connection  # Kept: a stream that is collected would close what it has given us.
        self._transport = connection.take_transport(self)
        return self

    def is_good(self) -> bool:
        return self._broken is None and self._transport is not None and not self._transport.is_closing()

    def is_free(self) -> bool:
        """Is it worth sending here, and is no answer late?"""
        return self.is_good() and self.late_by() < LATE_S

    def late_by(self) -> float:
        """Seconds since the node has last said anything, while calls wait; 0 if none does."""
        return self._loop.time() - self._heard if self._line else 0.0

    async def call(self, argv: Argv) -> Reply:
        """One command, its answer. Cancelled: the answer is passed over when it comes."""
        return await self._put(encode(argv), 1)[0]

    async def call_many(self, commands: Sequence[Argv]) -> list[Reply]:
        """Many commands, their answers in order."""
        replies: list[Reply] = []
        for start in range(0, len(commands), WINDOW):
            window = commands[start : start + WINDOW]
            replies += await asyncio.gather(*self._put(b"".join(map(encode, window)), len(window)))
        return replies

    def _put(self, data: bytes, count: int) -> list[asyncio.Future[Reply]]:
        if self._broken is not None:
            raise self.target.unreachable("it was closed")
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        futures = [self._loop.create_future() for _ in range(count)]
        if not self._line:
            self._heard = self._loop.time()
            if self._watch is None and self._silence is not None:
                self._watch = self._loop.call_later(self._silence, self._check)
        self._line.extend(futures)
        return futures

    def _flush(self) -> None:
        data = b"".join(self._outbox)
        self._outbox.clear()
        if self._transport is not None and self._broken is None:
            self._transport.write(data)

    def _check(self) -> None:
        """Is the node still talking, or nobody waiting for it?"""
        self._watch = None
        if self._broken is not None or not self._line or self._silence is None:
            return
        left = self._heard + self._silence - self._loop.time()
        if left <= 0:
            self.fail(self.target.silent(self._silence))
        else:
            self._watch = self._loop.call_later(left, self._check)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not NOT_READY:
                if isinstance(reply, PUSH):
                    continue
                if not self._line:
                    self.fail(self.target.not_a_node("it answers without being asked"))
                    return
                future = self._line.popleft()
                if not future.done():
                    future.set_result(reply)
        except (ProtocolError, TypeError) as error:
            self.fail(self.target.not_a_node(f"it does not speak RESP: {error}"))

    def eof_received(self) -> None:
        """The transport is closed then, and says that the connection is lost."""

    def pause_writing(self) -> None:
        """What is sent is bounded by who waits for answers."""

    def resume_writing(self) -> None:
        """The same."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(self.target.lost(exc or "closed by the other side"))

    def fail(self, error: Error) -> None:
        """Tell everybody in the line, and use it no more."""
        if self._broken is None:
            self._broken = error
        if self._transport is not None:
            self._transport.close()
        if self._watch is not None:
            self._watch.cancel()
        while self._line:
            future = self._line.popleft()
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        """Everybody in the line is told."""
        self.fail(Closed("this queue was closed"))
