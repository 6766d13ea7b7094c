"""One connection to one node: blocking, and for asyncio.

A connection carries one call at a time; `pool` has as many of them as there are calls at once. A call is
send, then read until the answer is whole. It ends in one of three ways:

    the answer       also an error reply: the connection is as good as before
    Unknown          the connection broke, or the node stayed silent: closed, since a late answer would
                     be taken for the answer to the next command
    the caller left  Ctrl-C, or its task was cancelled: *withdrawn*, see below

Withdrawing. A worker that waits in GETJOB and is interrupted may have been given a job at that very
moment. Closing the socket would leave that job leased to nobody until its retry time is over. So we close
our sending half first (the node then drops the waiting GETJOB), read what was still under way until the
node closes its half, and what `undo` makes of it (a NACK) is sent on a fresh connection. All that has a
bound of WITHDRAW_S, after which the job's own retry time takes over.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

from .asks import Undo
from .errors import BadRequest, Error, Unknown
from .later import Later
from .manners import doubt_after
from .resp import NOT_READY, PUSH, Argv, ProtocolError, Reader, Reply, encode, new_reader
from .target import Target

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Later("asyncio")

READ_BYTES: Final = 64 * 1024
PIPELINE_MAX: Final = 1000
"""Commands under way at once in `call_many`. A node must hold their answers while we still write."""
WITHDRAW_S: Final = 1.0
NEVER_SET: Final = -1.0
SLICE_S: float | None = 1.0 if os.name == "nt" else None
"""Where a signal does not interrupt a blocking read, reads are short, so that Ctrl-C works."""


class Connection:
    """A blocking connection, for one thread at a time. A `Channel`."""

    def __init__(self, target: Target, reader: Reader | None = None) -> None:
        """Connect and introduce ourselves. `Unreachable`, or what the node says to the introduction."""
        self.target = target
        self.is_open = False
        self.used = 0.0
        """When it last brought an answer."""
        self.doubt: Callable[[Target], bool] | None = None
        """Asked when an answer is late (`knocking`): shall we go on waiting?"""
        self._reader = reader or new_reader()
        try:
            self._socket = connect(target)
        except (OSError, UnicodeError) as error:
            raise target.unreachable(error) from error
        self._by_kernel = target.tls is None and os.name != "nt"
        self._timeouts: dict[int, float | None] = {}
        if self._by_kernel:
            self._socket.settimeout(None)
        self.is_open = True
        try:
            self._introduce()
        except BaseException:
            self.close()
            raise

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None) -> Reply:
        """Send one command, return its answer."""
        if not self.is_open:
            raise self.target.unreachable("it was closed")
        try:  # `_whole`, without what a context manager costs: this is the call each job makes.
            self._send(encode(argv))
            if self.doubt is None:
                return self._answer(self.target.allowance(patience))
            return self._answer(self.target.allowance(patience), doubt_after((argv,), patience, self.target))
        except Error:
            self.close()
            raise
        except BaseException:
            self._withdraw(undo)
            raise

    def call_many(self, commands: Sequence[Argv], patience: float | None = 0.0) -> list[Reply]:
        """Send many commands without waiting in between; their answers in order."""
        replies: list[Reply] = []
        doubt_s = None if self.doubt is None else doubt_after(commands, patience, self.target)
        for start in range(0, len(commands), PIPELINE_MAX):
            window = commands[start : start + PIPELINE_MAX]
            with self._whole(None):
                self._send(b"".join(map(encode, window)))
                replies += [self._answer(self.target.allowance(patience), doubt_s) for _ in window]
        return replies

    def receive(self, patience: float | None = None) -> Reply:
        """The next thing the node sends by itself (MONITOR, pushes)."""
        with self._whole(None):
            return self._read(self.target.allowance(patience))

    def is_stale(self) -> bool:
        """Did the node close it, or send something nobody asked for, while it lay idle?"""
        if not self.is_open:
            return True
        try:
            if self._by_kernel:
                self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                return True
            self._socket.settimeout(0)
            if self.target.tls is None:
                self._socket.recv(1, socket.MSG_PEEK)
            else:  # It cannot peek. But what is nobody's answer is lost with the connection anyway.
                self._socket.recv(1)
        except BlockingIOError:
            return False
        except OSError as error:
            return type(error).__name__ != "SSLWantReadError"  # by its name: without TLS nobody loads ssl for this
        return True

    def take_socket(self) -> socket.socket:
        """Give the socket away: from now on it is somebody else's, who has been introduced already."""
        self.is_open = False
        return self._socket

    def close(self) -> None:
        """Close it. A thread that waits on it is woken with `ConnectionLost`."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @contextlib.contextmanager
    def _whole(self, undo: Undo | None) -> Iterator[None]:
        """Either the answer was read to its end, or the connection is gone."""
        if not self.is_open:
            raise self.target.unreachable("it was closed")
        try:
            yield
        except Error:
            self.close()
            raise
        except BaseException:
            self._withdraw(undo)
            raise

    def _introduce(self) -> None:
        try:
            for words in self.target.greeting():
                reply = self.call(words)
                if isinstance(reply, Error):
                    raise reply
        except Unknown as error:
            raise self.target.unreachable(error.text) from error

    def _send(self, data: bytes) -> None:
        if self._by_kernel:
            self._set_timeout(socket.SO_SNDTIMEO, self.target.answer_timeout)
        else:
            self._socket.settimeout(self.target.answer_timeout)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self.target.lost(error) from error

    def _set_timeout(self, which: int, seconds: float | None) -> None:
        """Let the kernel watch over silence: a timeout of Python's costs a system call more at each turn."""
        if self._timeouts.get(which, NEVER_SET) != seconds:
            self._timeouts[which] = seconds
            whole, part = divmod(max(seconds or 0, 0), 1)
            if seconds is not None and seconds < 1e-6:
                part = 1e-6  # 0 would be for ever.
            self._socket.setsockopt(socket.SOL_SOCKET, which, struct.pack("@ll", int(whole), int(part * 1_000_000)))

    def _answer(self, seconds: float | None, doubt_s: float | None = None) -> Reply:
        while isinstance(reply := self._read(seconds, doubt_s), PUSH):
            pass
        return reply

    def _read(self, seconds: float | None, doubt_s: float | None = None) -> Reply:
        """What comes next, within `seconds` of silence. After `doubt_s` it is asked whether to go on waiting."""
        try:
            while (reply := self._reader.gets()) is NOT_READY:
                data = self._receive(seconds) if doubt_s is None else self._receive_or_doubt(seconds, doubt_s)
                if not data:
                    raise self.target.lost("closed by the other side")
                self._reader.feed(data)
        except TimeoutError:
            raise self.target.silent(seconds or 0) from None
        except OSError as error:
            raise self.target.lost(error) from error
        except (ProtocolError, TypeError) as error:
            raise self.target.not_a_node(f"it does not speak RESP: {error}") from error
        return reply

    def _receive_or_doubt(self, seconds: float | None, doubt_s: float) -> bytes:
        began = time.monotonic()
        while True:
            try:
                return self._receive(doubt_s)
            except TimeoutError:
                waited = time.monotonic() - began
                if seconds is not None and waited >= seconds:
                    raise
                if self.doubt is None or not self.doubt(self.target):
                    raise self.target.silent(round(time.monotonic() - began, 1)) from None

    def _receive(self, seconds: float | None) -> bytes:
        if self._by_kernel:
            self._set_timeout(socket.SO_RCVTIMEO, seconds)
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                raise TimeoutError from None
        if SLICE_S is None:
            self._socket.settimeout(seconds)
            return self._socket.recv(READ_BYTES)
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            self._socket.settimeout(max(0.001, min(left, SLICE_S)))
            try:
                return self._socket.recv(READ_BYTES)
            except TimeoutError:
                if left <= SLICE_S:
                    raise

    def _withdraw(self, undo: Undo | None) -> None:
        try:
            if undo is not None and self.target.tls is None:  # TLS knows no half-closed connection.
                self._socket.shutdown(socket.SHUT_WR)
                argv = undo(self._read(WITHDRAW_S))
                if argv is not None:
                    helper = Connection(self.target)
                    helper.call(argv)
                    helper.close()
        except (Error, OSError):
            pass  # Nothing was under way, or nobody can be told: the retry time takes over.
        finally:
            self.close()


def connect(target: Target) -> socket.socket:
    """A socket that nobody has said anything on yet. OSError."""
    if target.path:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no Unix sockets")
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.settimeout(target.connect_timeout)
        try:
            unix.connect(target.path)
        except BaseException:
            unix.close()
            raise
        return unix
    tcp = socket.create_connection((target.host, target.port), target.connect_timeout)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if target.tls is None:
        return tcp
    try:
        return target.tls.wrap_socket(tcp, server_hostname=target.host)
    except BaseException:
        tcp.close()
        raise


class AsyncConnection:
    """The same on asyncio streams, for one task at a time. Made by `AsyncConnection.open`."""

    def __init__(
        self, target: Target, stream: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.target = target
        self.is_open = True
        self.withdrawals: set[asyncio.Task[None]] = set()
        """Calls whose caller has left and whose job, if any, is being given back."""
        self._stream = stream
        self._writer = writer
        self._reader = new_reader()
        self._is_busy = False

    @classmethod
    async def open(cls, target: Target) -> AsyncConnection:
        """Connect and introduce ourselves. `Unreachable`, or what the node says to the introduction."""
        try:
            async with asyncio.timeout(target.connect_timeout):
                stream, writer = await _open_streams(target)
        except (OSError, UnicodeError) as error:
            raise target.unreachable(error) from error
        self = cls(target, stream, writer)
        try:
            await self._introduce()
        except BaseException:
            self._drop()
            raise
        return self

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None
    ) -> Reply:
        """Send one command, return its answer. Cancelled: nothing stays behind."""
        return (await self._exchange(encode(argv), 1, patience, undo))[0]

    async def call_many(
        self, commands: Sequence[Argv], patience: float | None = 0.0
    ) -> list[Reply]:
        """Send many commands without waiting in between; their answers in order."""
        replies: list[Reply] = []
        for start in range(0, len(commands), PIPELINE_MAX):
            window = commands[start : start + PIPELINE_MAX]
            replies += await self._exchange(b"".join(map(encode, window)), len(window), patience, None)
        return replies

    def is_stale(self) -> bool:
        """Did the node close it while it lay idle?"""
        return not self.is_open or self._stream.at_eof() or self._writer.is_closing()

    def take_transport(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        """Give the transport away: what comes from now on is somebody else's, who has been introduced already."""
        self.is_open = False
        transport = self._writer.transport
        transport.set_protocol(protocol)
        return cast(asyncio.Transport, transport)  # uvloop's is none by its type

    async def close(self) -> None:
        """Close it. A task that waits on it is woken with `ConnectionLost`."""
        if self.withdrawals:
            await asyncio.wait(self.withdrawals)
        self._drop()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _introduce(self) -> None:
        try:
            for words in self.target.greeting():
                reply = await self.call(words)
                if isinstance(reply, Error):
                    raise reply
        except Unknown as error:
            raise self.target.unreachable(error.text) from error

    async def _exchange(
        self, data: bytes, count: int, patience: float | None, undo: Undo | None
    ) -> list[Reply]:
        if self._is_busy:
            raise BadRequest("this connection is in the middle of another call; use a pool")
        if not self.is_open:
            raise self.target.unreachable("it was closed")
        self._is_busy = True
        try:
            self._writer.write(data)
            return [await self._answer(self.target.allowance(patience)) for _ in range(count)]
        except Error:
            self._drop()
            raise
        except BaseException:
            self.is_open = False
            task = asyncio.get_running_loop().create_task(self._withdraw(undo))
            self.withdrawals.add(task)
            task.add_done_callback(self.withdrawals.discard)
            raise
        finally:
            self._is_busy = False

    async def _answer(self, seconds: float | None) -> Reply:
        while isinstance(reply := self._ready(), PUSH) or reply is NOT_READY:
            if reply is not NOT_READY:
                continue
            try:
                async with asyncio.timeout(seconds):
                    data = await self._stream.read(READ_BYTES)
            except TimeoutError:
                raise self.target.silent(seconds or 0) from None
            except OSError as error:
                raise self.target.lost(error) from error
            if not data:
                raise self.target.lost("closed by the other side")
            self._reader.feed(data)
        return reply

    def _ready(self) -> Reply:
        try:
            return self._reader.gets()
        except (ProtocolError, TypeError) as error:
            raise self.target.not_a_node(f"it does not speak RESP: {error}") from error

    async def _withdraw(self, undo: Undo | None) -> None:
        try:
            if undo is not None and self._writer.can_write_eof():
                self._writer.write_eof()
                argv = undo(await self._answer(WITHDRAW_S))
                if argv is not None:
                    helper = await AsyncConnection.open(self.target)
                    await helper.call(argv)
                    await helper.close()
        except (Error, OSError, RuntimeError):
            pass  # Nothing was under way, or nobody can be told: the retry time takes over.
        finally:
            self._drop()

    def _drop(self) -> None:
        self.is_open = False
        self._writer.close()


async def _open_streams(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if target.path:
        if not hasattr(asyncio, "open_unix_connection"):
            raise OSError("this system has no Unix sockets")
        return await asyncio.open_unix_connection(target.path, limit=READ_BYTES)
    stream, writer = await asyncio.open_connection(
        target.host, target.port, limit=READ_BYTES, ssl=target.tls,
        server_hostname=target.host if target.tls is not None else None,
    )
    sock = writer.get_extra_info("socket")
    if sock is not None:  # asyncio sets TCP_NODELAY by itself.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return stream, writer
