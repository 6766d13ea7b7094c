"""Serving an embedded queue to others, from inside your process.

    q = holdfast.open("file:./jobs")
    with holdfast.serve(q, resp=7711) as serving:
        ...                                  # others: holdfast.open(serving.url), or any Redis client

A thread with an event loop of its own accepts connections. A client is one more caller of the embedded node
(`holdfast.embedded.Local`): it has a session, its commands run under the same lock, and one that waits for a job is a
waiter like a thread of yours. A busy queue wants `holdfast node`, which does the same with less per command.

Each way in is a `Door` with a loop to live in; there is one so far. Outside of this machine a password is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from holdfast.client.errors import BadRequest, Closed, Error, Unreachable
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.resp import Reply
from holdfast.client.target import PORT
from holdfast.embedded import AsyncLoopback, Local, SyncLoopback, Waiter
from holdfast.wire.resp import ProtocolError, Requests

READ_BYTES: Final = 64 * 1024
AHEAD_MAX: Final = 16
"""Pieces of what a client sends while it waits for an answer, before we stop reading."""
NOT_HERE: Final = {
    b"MONITOR": b"-ERR MONITOR is not available: this queue lives in somebody's program\r\n",
    b"SHUTDOWN": b"-ERR SHUTDOWN is not available: this queue lives in somebody's program\r\n",
}


class Serving:
    """An embedded queue that others can reach. Closing it leaves the queue open."""

    def __init__(self, local: Local, address: tuple[str, int]) -> None:
        self._local = local
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()
        self._fault: OSError | None = None
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-serving", daemon=True)
        self._thread.start()
        self._is_up.wait()
        if self._fault is not None:
            raise Unreachable(f"cannot listen on {address[0]} port {address[1]}: {self._fault.strerror}")

    @property
    def port(self) -> int:
        """The port, also where 0 asked for a free one."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """What to pass to `holdfast.open`, but for the password."""
        host = self._address[0]
        return f"holdfast://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Nobody can come in any more, and those who are here are sent away."""
        if not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Serving:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._server = self._loop.run_until_complete(
                asyncio.start_server(self._welcome, *self._address)
            )
        except OSError as error:
            self._fault = error
            self._loop.close()
            self._is_up.set()
            return
        self._is_up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._guests:
            task.cancel()
        await asyncio.gather(*self._guests, return_exceptions=True)

    async def _welcome(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._guests.add(task)
        peer = writer.get_extra_info("peername")
        guest = Guest(self._local, f"{peer[0]}:{peer[1]}")
        try:
            await guest.serve(stream, writer)
        except (OSError, Closed):
            pass
        finally:
            self._local.see_off(guest)
            self._guests.discard(task)
            writer.close()


class Guest(Waiter):
    """A client from outside: its commands, one after the other, and the bytes it is owed."""

    def __init__(self, local: Local, address: str) -> None:
        super().__init__()
        self._local = local
        self._requests = Requests()
        self._owed = bytearray()
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._waiting: deque[bytes] = deque()
        self._heard = asyncio.Event()
        self._is_short = asyncio.Event()
        self._is_gone = False
        local.welcome(address, self)

    def take(self, data: bytes, read: Callable[[bytes], Reply]) -> None:
        self._owed += data

    def arm(self) -> None:
        self._woken.clear()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._woken.set)

    def clear(self) -> None:
        self._woken.clear()

    async def serve(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the client hangs up, or says QUIT, or something that is no RESP."""
        hearing = asyncio.ensure_future(self._hear(stream))
        try:
            while await self._next():
                is_good = await self._run_all()
                writer.write(bytes(self._owed))
                self._owed.clear()
                await writer.drain()
                if not is_good:
                    return
        finally:
            hearing.cancel()

    async def _hear(self, stream: asyncio.StreamReader) -> None:
        """Take in what the client sends, also while it waits: else nobody would notice that it has hung up."""
        with contextlib.suppress(OSError):
            while data := await stream.read(READ_BYTES):
                self._waiting.append(data)
                self._heard.set()
                if len(self._waiting) > AHEAD_MAX:
                    self._is_short.clear()
                    await self._is_short.wait()
        self._is_gone = True
        self._heard.set()
        self._woken.set()

    async def _next(self) -> bool:
        """The next piece of what was sent. False: that was all."""
        while not self._waiting:
            if self._is_gone:
                return False
            self._heard.clear()
            await self._heard.wait()
        self._requests.feed(self._waiting.popleft())
        self._is_short.set()
        return True

    async def _run_all(self) -> bool:
        session = self.session
        assert session is not None
        while True:
            try:
                words = self._requests.next(not session.is_trusted)
            except ProtocolError as error:
                self._owed += b"-ERR Protocol error: %b\r\n" % error.text
                return False
            if words is None:
                return True
            if not words:
                continue
            command = words[0].upper()
            if command == b"QUIT":
                self._owed += b"+OK\r\n"
                return False
            if command in NOT_HERE:
                self._owed += NOT_HERE[command]
            elif not await self._run_one(words):
                return False

    async def _run_one(self, words: list[bytes]) -> bool:
        """False: the client hung up while it waited, or the queue was closed."""
        self.is_over = False
        self.error = None
        if not self._local.start(words, self):
            while not self._local.look(self):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.nap):
                        await self._woken.wait()
                if self._is_gone:
                    return False
        return self._noted()

    def _noted(self) -> bool:
        if isinstance(self.error, Error):
            self._owed += f"-{self.error}\r\n".encode()
        return not isinstance(self.error, Closed)


def serve(
    queue: Queue | AsyncQueue, *, resp: int | str | tuple[str, int] = 0, password: str = ""
) -> Serving:
    """Let others reach an embedded queue.

    resp      a port on this machine (0: any that is free), or "host:port"
    password  what they must say (`holdfast://:password@host`); needed where others than this machine can connect
    """
    channel = queue.channel
    if not isinstance(channel, SyncLoopback | AsyncLoopback):
        raise BadRequest("only an embedded queue (memory: or file:) can be served; this one is at a node already")
    address = _address(resp)
    if password:
        channel.local.guard(password)
    elif address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise BadRequest(f"{address[0]} can be reached from elsewhere: pass a password, or serve on 127.0.0.1")
    return Serving(channel.local, address)


def _address(resp: int | str | tuple[str, int]) -> tuple[str, int]:
    if isinstance(resp, int):
        return "127.0.0.1", resp
    if isinstance(resp, tuple):
        return resp
    host, colon, port = resp.rpartition(":")
    if not colon:
        return resp, PORT
    return host.strip("[]"), int(port)
