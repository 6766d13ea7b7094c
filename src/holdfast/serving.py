"""Serving an embedded queue to others, from inside your process.

    q = holdfast.open("file:./jobs")
    with holdfast.serve(q, resp=7711, http=7780) as serving:
        ...                                  # others: holdfast.open(serving.url), any Redis client, a browser

A thread with an event loop of its own accepts connections. A client is one more caller of the embedded node
(`holdfast.embedded.Local`): it has a session, its commands run under the same lock, and one that waits for a job is a
waiter like a thread of yours. A busy queue wants `holdfast node`, which does the same with less per command.

HTTP and gRPC are a gateway (`holdfast.gateway`) in the same loop, before the same node. Outside of this machine a
password is asked for, at each door.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.client.asks import Undo
from holdfast.client.errors import BadRequest, Closed, Error, NotAvailable, Unreachable, from_reply
from holdfast.client.jobs import said
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.resp import Argv, Reply, to_bytes
from holdfast.client.target import PORT
from holdfast.core.session import Session
from holdfast.core.users import RIGHT
from holdfast.embedded import AsyncLoopback, Local, SyncLoopback, Waiter
from holdfast.shell.logins import Logins
from holdfast.shell.strangers import LOGIN_S, TRY_AGAIN, Strangers
from holdfast.shell.strangers import READ_BYTES as STRANGER_READ_BYTES
from holdfast.wire.resp import ProtocolError, Requests

if TYPE_CHECKING:
    from holdfast.gateway.serve import Gateway

READ_BYTES: Final = 64 * 1024
TRUSTED_READ_BYTES: Final = 256 * 1024
"""Read from a socket per turn; asyncio's own figure."""
STREAM_BYTES: Final = 4 * 1024
"""When twice as much has come that no guest has taken in, its socket is left unread."""
GUESTS_MAX: Final = 1000
"""Clients at one time over RESP: a program of its own usually may open 1,024 files."""
AHEAD_MAX: Final = 16
"""Pieces of what a client sends while it waits for an answer, before we stop reading."""
GRACE_S: Final = 1
"""How long requests that are under way have to end when the serving does."""
HERE: Final = ("127.0.0.1", "::1", "localhost")
PORTS: Final = {"resp": PORT, "http": 7780, "grpc": 7790}
PORT_MAX: Final = 65535
Address: TypeAlias = "tuple[str, int]"
NOT_HERE: Final = {
    b"MONITOR": b"-ERR MONITOR is not available: this queue lives in somebody's program\r\n",
    b"SHUTDOWN": b"-ERR SHUTDOWN is not available: this queue lives in somebody's program\r\n",
}


class Serving:
    """An embedded queue that others can reach. Closing it leaves the queue open."""

    def __init__(self, local: Local, ways: Mapping[str, Address], password: str) -> None:
        self.ports: dict[str, int] = {}
        """The port of each way in ("resp", "http", "grpc"), also where 0 asked for a free one."""
        self._local = local
        self._ways = ways
        self._password = password
        self._strangers = Strangers()
        self._logins = Logins(None, self._answer)
        self._logins.set_password(password.encode("utf-8", "surrogateescape"))
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()
        self._gateways: dict[Gateway, asyncio.Task[None]] = {}
        self._fault: Error | None = None
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-serving", daemon=True)
        self._thread.start()
        self._is_up.wait()
        if self._fault is not None:
            raise self._fault

    @property
    def port(self) -> int:
        """That of the first way in."""
        return next(iter(self.ports.values()))

    @property
    def url(self) -> str:
        """What to pass to `holdfast.open`, but for the password: the first way in. `url_of` has the others."""
        return self.url_of(next(iter(self.ports)))

    def url_of(self, way: str) -> str:
        """The url of "resp", "http" or "grpc"."""
        if way not in self.ports:
            raise BadRequest(f"this queue is not served by {way}: it is by {', '.join(self.ports)}")
        host = self._ways[way][0]
        scheme = "holdfast" if way == "resp" else way
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.ports[way]}"

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
            for way, address in self._ways.items():
                begin = self._begin_resp(address) if way == "resp" else self._begin_gateway(way, address)
                self.ports[way] = self._loop.run_until_complete(begin)
            self._is_up.set()
            self._loop.run_forever()
        except Exception as error:  # Whatever it is: who called `serve` waits for us, and must not think all is well.
            self._fault = error if isinstance(error, Error) else Unreachable(f"cannot serve: {said(error)}")
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()
            self._is_up.set()

    async def _begin_resp(self, address: Address) -> int:
        try:
            self._server = await asyncio.start_server(self._welcome, *address, limit=STREAM_BYTES)
            self._local.on_login = self._verify
        except OSError as error:
            raise Unreachable(f"cannot listen on {address[0]} port {address[1]}: {error.strerror}") from None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _begin_gateway(self, way: str, address: Address) -> int:
        """HTTP or gRPC. Imported here: those who serve neither need none of it."""
        try:
            from holdfast.gateway.serve import Gateway, Plan
            from holdfast.gateway.who import OneSecret
            from holdfast.shell.settings import SettingsError
        except ImportError as error:
            raise NotAvailable(f"{way} needs {error.name}: pip install 'holdfast[server]'") from None
        host, port = address
        ports = {"http": -1, "grpc": -1, way: port}
        plan = Plan(bind=host, http=ports["http"], grpc=ports["grpc"], console=False, grace_s=GRACE_S)
        gateway = Gateway(plan, OneSecret(self._password) if self._password else None)
        running = self._loop.create_task(gateway.serve(AsyncQueue(FromOutside(self._local))))
        ready = self._loop.create_task(gateway.ready.wait())
        await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        if not gateway.ready.is_set():
            ready.cancel()
            try:
                await running
            except SettingsError as error:
                raise Unreachable(str(error)) from None
        self._gateways[gateway] = running
        return gateway.http_port if way == "http" else gateway.grpc_port

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._local.on_login = None
        self._logins.close()
        for gateway in self._gateways:
            gateway.stop()
            gateway.door.close()
        for task in self._guests:
            task.cancel()
        await asyncio.gather(*self._guests, *self._gateways.values(), return_exceptions=True)

    async def _welcome(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._guests) >= GUESTS_MAX and not self._strangers.make_room():
            writer.write(b"-ERR max number of clients reached\r\n")
            writer.close()
            return
        self._guests.add(task)
        peer = writer.get_extra_info("peername")
        address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        guest = Guest(self._local, address, self._strangers)
        if guest.is_stranger():
            writer.transport.max_size = STRANGER_READ_BYTES  # type: ignore[attr-defined]  # asyncio's own have it
            self._strangers.arrive(guest, address, partial(drop, task, writer))
            self._loop.call_later(LOGIN_S, self._give_up, guest, task)
        try:
            await guest.serve(stream, writer)
        except (OSError, Closed, asyncio.CancelledError):
            pass  # It hung up, the queue was closed, or the serving was (`_end`): there is nobody to tell.
        finally:
            self._local.see_off(guest)
            self._strangers.leave(guest)
            self._guests.discard(task)
            writer.close()

    def _give_up(self, guest: Guest, task: asyncio.Task[None]) -> None:
        """It has had the time to say who it is."""
        if guest in self._strangers:
            task.cancel()

    def _verify(self, session: Session, argument: bytes) -> None:
        """The node wants to know whether a secret is right; it is locked meanwhile. From any thread."""
        name, _, secret = argument.partition(b"\0")
        self._loop.call_soon_threadsafe(self._logins.check, session, session.address, name, secret)

    def _answer(self, session: object, name: bytes, verdict: int) -> None:
        assert isinstance(session, Session)
        if verdict == RIGHT and isinstance(session.handle, Guest):
            session.handle.is_known()
        self._local.logged_in(session, name, verdict)


def drop(task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
    """A stranger has to go: there are too many."""
    writer.write(b"-%b\r\n" % TRY_AGAIN.encode())
    task.cancel()


class FromOutside(AsyncLoopback):
    """Calls of a gateway: what is not for others is not for its clients either."""

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        refusal = NOT_HERE.get(to_bytes(argv[0]).upper())
        if refusal is not None:
            return from_reply(refusal[1:].decode().strip())
        return await super().call(argv, patience, undo, near)


class Guest(Waiter):
    """A client from outside: its commands, one after the other, and the bytes it is owed."""

    def __init__(self, local: Local, address: str, strangers: Strangers) -> None:
        super().__init__()
        self._local = local
        self._strangers = strangers
        self._writer: asyncio.StreamWriter | None = None
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
        self._writer = writer
        hearing = asyncio.ensure_future(self._hear(stream))
        try:
            while await self._next():
                is_good = await self._run_all()
                await self._send()
                if not is_good:
                    return
        finally:
            hearing.cancel()

    async def _hear(self, stream: asyncio.StreamReader) -> None:
        """Take in what the client sends, also while it waits: else nobody would notice that it has hung up."""
        with contextlib.suppress(OSError):
            while data := await stream.read(STRANGER_READ_BYTES if self.is_stranger() else READ_BYTES):
                self._waiting.append(data)
                self._heard.set()
                self._note()
                while len(self._waiting) > (0 if self.is_stranger() else AHEAD_MAX):
                    self._is_short.clear()
                    await self._is_short.wait()
        self._is_gone = True
        self._heard.set()
        self._woken.set()

    async def _send(self) -> None:
        assert self._writer is not None
        self._writer.write(bytes(self._owed))
        self._owed.clear()
        await self._writer.drain()

    async def _next(self) -> bool:
        """The next piece of what was sent. False: that was all."""
        while not self._waiting:
            if self._is_gone:
                return False
            self._heard.clear()
            await self._heard.wait()
        self._requests.feed(self._waiting.popleft())
        self._is_short.set()
        self._note()
        return True

    def is_known(self) -> None:
        """Its login was right."""
        self._strangers.leave(self)
        assert self._writer is not None
        self._writer.transport.max_size = TRUSTED_READ_BYTES  # type: ignore[attr-defined]

    def is_stranger(self) -> bool:
        return self.session is not None and not self.session.is_trusted

    def _note(self) -> None:
        """What is kept of a stranger's counts."""
        if self in self._strangers:
            self._strangers.holds(self, sum(map(len, self._waiting)) + self._requests.held())

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
            if self._owed:
                await self._send()  # it waits for these answers no longer than for those to come
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
    queue: Queue | AsyncQueue, *, resp: int | str | Address | None = None, http: int | str | Address | None = None,
    grpc: int | str | Address | None = None, password: str = "",
) -> Serving:
    """Let others reach an embedded queue: over RESP, HTTP and gRPC, as you say; over RESP if you say nothing.

    resp, http, grpc  a port on this machine (0: any that is free), or "host:port"
    password          what they must say (`holdfast://:password@host`, `http://any:password@host`); needed where
                      others than this machine can connect
    """
    channel = queue.channel
    if not isinstance(channel, SyncLoopback | AsyncLoopback):
        raise BadRequest("only an embedded queue (memory: or file:) can be served; this one is at a node already")
    given = {"resp": resp, "http": http, "grpc": grpc}
    ways = {way: _address(where, PORTS[way]) for way, where in given.items() if where is not None}
    if not ways:
        ways = {"resp": (HERE[0], 0)}
    if password:
        channel.local.guard(password)
    else:
        for host, _ in ways.values():
            if host not in HERE:
                raise BadRequest(f"{host} can be reached from elsewhere: pass a password, or serve on 127.0.0.1")
    return Serving(channel.local, ways, password)


def _address(where: int | str | Address, usual: int) -> Address:
    """A port, a host, or both, as host and port."""
    if isinstance(where, tuple):
        host, port = where
    elif isinstance(where, int) or where.isdecimal():
        host, port = HERE[0], int(where)
    else:
        before, colon, after = where.rpartition(":")
        if colon and not after.isdecimal():
            raise BadRequest(f"{where!r} is no address: it is a port, or as in '127.0.0.1:7711'")
        host, port = (before.strip("[]"), int(after)) if colon else (where, usual)
    if not 0 <= port <= PORT_MAX:
        raise BadRequest(f"{port} is no port: they go from 0 (any that is free) to {PORT_MAX}")
    return host, port
