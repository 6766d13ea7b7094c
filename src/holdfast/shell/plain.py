"""Sockets in plain Python: one epoll set, commands and frames in, replies and frames out. The twin of native.py.

It does what native.py does, byte for byte, where that is not compiled: a machine without a C compiler, a
debugger, HOLDFAST_PURE=1. It knows no command; it calls the node and sends what the node says.

One call of step() is a turn: read from every client and every peer that is ready and run their commands and
frames, let the node make its own frames (flush), have the journal written (commit), then send. Nothing is sent
before everything that was read has been run, so one write to disk can stand behind many replies, and what
fifty clients added in one turn goes to a peer as one frame, in one call.

Links with other nodes are in the same set and in the same turn; what is done with them is in plain_links.py.

Transports other than sockets of our own (TLS, for one) come in by attach, feed and detach: the same
connection with a `write` and a `close` in place of a file descriptor.
"""
from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.core.node import Node
from holdfast.core.peers import Peer, PeerFacts
from holdfast.core.session import Session
from holdfast.shell import strangers
from holdfast.shell.bounds import (
    ACCEPTS_PER_ROUND,
    EVENTS_PER_ROUND,
    HELD_INPUT_MAX,
    LINGER_MS,
    NO_DESCRIPTORS,
    OUTPUT_HIGH_WATER,
    READ_BYTES,
    ROUNDS_PER_STEP,
    STRANGER_MS,
)
from holdfast.shell.listening import address_text
from holdfast.shell.plain_links import Links
from holdfast.shell.seal import Seals
from holdfast.wire.resp import BULK_BYTES_FLOOR, ProtocolError, Requests

# Linux's numbers, so that the names exist where epoll does not and connections come in by attach() only.
EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP = 0x1, 0x4, 0x8, 0x10, 0x2000


class Transport(Protocol):
    """What a connection needs of anything that isn't a socket of our own."""

    def write(self, data: bytes) -> None: ...
    def hold(self, is_full: bool) -> None: ...
    def close(self) -> None: ...


class Connection:
    def __init__(self, sock: socket.socket | None, transport: Transport | None, session: Session, now: int) -> None:
        self.sock = sock
        self.transport = transport
        self.fd = -1 if sock is None else sock.fileno()
        self.session = session
        self.requests = Requests()
        self.chunks: list[bytes] = []  # what it is owed
        self.owed = 0
        self.is_open = True
        self.is_dirty = False  # in the list of those to send to at the end of the turn
        self.is_throttled = False  # it is owed so much that its next command waits
        self.is_held = False  # its next command waits, since its session is blocked
        self.is_closing = False  # to be closed when it has been sent what it is owed
        self.is_deaf = False  # what it sends is dropped; it broke the protocol
        self.interest = EPOLLIN | EPOLLRDHUP
        self.since = now  # when the command that is being received began, or the connection
        self.linger_until = 0
        self.over_soft_since = 0


class Sockets:
    def __init__(self, node: Node, handlers: dict[bytes, list[Any]], offset_ms: int) -> None:
        self.node = node
        self.handlers = handlers
        self.offset_ms = offset_ms  # from the monotonic clock to the node's
        self.connections: dict[int, Connection] = {}
        self.attached: set[Connection] = set()
        self.listeners: dict[int, socket.socket] = {}
        self.deferred: list[socket.socket] = []  # listeners that wait for a free descriptor
        self.dirty: list[Connection] = []
        self.resumed: list[Connection] = []  # those that may go on, having read what they were owed
        self.is_unsettled = False  # somebody was closed since the node last made its frames
        self.wakeups = node.wakeups
        self.requests = node.requests
        self.peers = node.peers
        self.on_requests: Callable[[], None] = lambda: None
        self.commit: Callable[[], bool] | None = None
        self.wake = 0
        self.now = 0
        self.maxclients = 10000
        self.reserved = 0  # connections above maxclients, to log in by
        self.strangers = strangers.Strangers()
        self.keepalive_s = 0
        self.idle_ms = 0
        self.command_ms = 30_000
        self.bulk_bytes_max = BULK_BYTES_FLOOR
        self.command_bytes_max = 64 * 1024 * 1024
        self.hard_bytes = self.soft_bytes = self.soft_ms = 0
        self.bytes_in = self.bytes_out = self.refused = self.longest_ns = 0
        self.direct_calls: dict[bytes, int] = dict.fromkeys(handlers, 0)
        self.direct_ns: dict[bytes, int] = dict.fromkeys(handlers, 0)
        self.poll = select.epoll() if hasattr(select, "epoll") else None
        self.links = Links(node, self.poll)

    def configure(
        self, maxclients: int, keepalive_s: int, idle_ms: int, command_ms: int, body_bytes: int,
        command_bytes: int, hard_bytes: int, soft_bytes: int, soft_ms: int,
    ) -> None:
        self.maxclients = maxclients
        self.keepalive_s = keepalive_s
        self.idle_ms = idle_ms
        self.command_ms = command_ms
        self.bulk_bytes_max = max(body_bytes, BULK_BYTES_FLOOR)
        self.command_bytes_max = command_bytes
        self.hard_bytes, self.soft_bytes, self.soft_ms = hard_bytes, soft_bytes, soft_ms
        for connection in [*self.connections.values(), *self.attached]:
            connection.requests.bulk_bytes_max = self.bulk_bytes_max
            connection.requests.command_bytes_max = self.command_bytes_max

    def reserve(self, count: int) -> None:
        """So many connections above maxclients, for those who have yet to log in (guard.py)."""
        self.reserved = count

    def fileno(self) -> int:
        assert self.poll is not None
        return self.poll.fileno()

    # -- a turn --------------------------------------------------------------------------------------------

    def step(self) -> int:
        """Serve every client that is ready, and do what is due. Returns when the node wants to be woken."""
        assert self.poll is not None
        for _ in range(ROUNDS_PER_STEP):
            events = self.poll.poll(0, EVENTS_PER_ROUND)
            began = self.look_at_clock()
            if self.wake <= self.now:
                self.node.tick()
            elif not events:
                break
            for fd, what in events:
                connection = self.connections.get(fd)
                if connection is not None:
                    self.ready(connection, what)
                elif fd in self.links.by_fd:
                    self.links.ready(fd, what)
                elif fd in self.listeners:
                    self.accept(self.listeners[fd])
            self.finish()
            self.longest_ns = max(self.longest_ns, time.monotonic_ns() - began)
        return self.wake

    def look_at_clock(self) -> int:
        mono = time.monotonic_ns()
        self.now = mono // 1_000_000 + self.offset_ms
        self.node.set_time(self.now, time.time_ns() // 1_000_000)
        return mono

    def finish(self) -> None:
        """The second half of a turn: hand over wakeups, make frames, write to disk, send, carry out requests."""
        while True:
            self.is_unsettled = False
            self.pass_wakeups()
            has_peers = len(self.peers) > 1
            if has_peers:
                self.links.make_frames()
            if self.commit is not None and not self.commit():
                self.break_off()
            if has_peers and self.links.send_all():
                self.is_unsettled = True
            self.send_all()
            if self.resumed:
                resumed, self.resumed = self.resumed, []
                for connection in resumed:
                    self.run(connection)
            elif self.requests:
                self.on_requests()
            elif not self.is_unsettled:
                break
        self.wake = self.node.next_wake()

    def break_off(self) -> None:
        """What this turn would have said is not in the journal and should be: then nothing is said, to nobody."""
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            self.close(connection)
        self.links.drop_all("the journal cannot be written")

    def send_all(self) -> None:
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.is_dirty = False
            self.send(connection)

    def pass_wakeups(self) -> None:
        """Replies for sessions that were blocked; then their next commands, which may wake others in turn."""
        while self.wakeups:
            batch = self.wakeups[:]
            self.wakeups.clear()
            resumed = []
            for session, data in batch:
                connection = session.handle
                if isinstance(connection, Connection) and connection.is_open:
                    if data:
                        self.owe(connection, data)
                    if connection.is_held and session.blocked == 0:
                        connection.is_held = False
                        resumed.append(connection)
            for connection in resumed:
                self.run(connection)
                if connection.is_open:
                    self.watch(connection)

    # -- connections ---------------------------------------------------------------------------------------

    def listen(self, sock: socket.socket) -> None:
        assert self.poll is not None
        sock.setblocking(False)
        self.listeners[sock.fileno()] = sock
        self.poll.register(sock.fileno(), EPOLLIN)

    def accept(self, listener: socket.socket) -> None:
        assert self.poll is not None
        for _ in range(ACCEPTS_PER_ROUND):
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno in NO_DESCRIPTORS and not self.strangers.make_room():
                    self.listen_later(listener)
                return  # none left, or gone again already
            sock.setblocking(False)
            if self.is_full():
                self.refuse(sock)
                continue
            set_options(sock, self.keepalive_s)
            connection = self.admit(sock, None, address_text(sock, address))
            self.connections[connection.fd] = connection
            self.poll.register(connection.fd, connection.interest)

    def listen_later(self, listener: socket.socket) -> None:
        """No descriptor is free: whoever knocks waits until a connection is closed, and we do not spin."""
        assert self.poll is not None
        self.poll.unregister(listener.fileno())
        self.deferred.append(listener)

    def listen_again(self) -> None:
        assert self.poll is not None
        for listener in self.deferred:
            self.poll.register(listener.fileno(), EPOLLIN)
        self.deferred.clear()

    def is_full(self) -> bool:
        """Whether there is no place for one more. A stranger gives its place up."""
        count = len(self.connections) + len(self.attached)
        return count >= self.maxclients + self.reserved and not self.strangers.make_room()

    def drop(self, session: Session) -> None:
        """A stranger has to go: there are too many."""
        connection = session.handle
        if isinstance(connection, Connection) and connection.is_open:
            self.owe(connection, b"-%b\r\n" % strangers.TRY_AGAIN.encode())
            self.send(connection)
            self.close(connection)

    def refuse(self, sock: socket.socket) -> None:
        self.refused += 1
        with contextlib.suppress(OSError):
            sock.send(b"-ERR max number of clients reached\r\n")
        sock.close()

    def admit(self, sock: socket.socket | None, transport: Transport | None, address: str) -> Connection:
        session = self.node.connect(address)
        connection = Connection(sock, transport, session, self.now)
        connection.requests.bulk_bytes_max = self.bulk_bytes_max
        connection.requests.command_bytes_max = self.command_bytes_max
        session.handle = connection
        if not session.is_trusted:
            self.strangers.arrive(session.number, address, lambda: self.drop(session))
        return connection

    def attach(self, transport: Transport, address: str) -> Connection | None:
        """A connection by some other transport; None if there are too many."""
        if self.is_full():
            self.refused += 1
            return None
        self.look_at_clock()
        connection = self.admit(None, transport, address)
        self.attached.add(connection)
        return connection

    def feed(self, connection: Connection, data: bytes) -> int:
        """Bytes that came by another transport. Returns when the node wants to be woken."""
        self.look_at_clock()
        if connection.is_open:
            self.take_in(connection, data)
        self.finish()
        return self.wake

    def detach(self, connection: Connection) -> None:
        """The other transport is closed."""
        self.look_at_clock()
        self.close(connection)
        self.finish()

    def close(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        connection.is_open = False
        connection.chunks.clear()
        connection.owed = 0
        self.is_unsettled = True
        self.strangers.leave(connection.session.number)
        self.node.disconnect(connection.session)
        if connection.sock is not None:
            assert self.poll is not None
            self.poll.unregister(connection.fd)
            del self.connections[connection.fd]
            connection.sock.close()
            if self.deferred:
                self.listen_again()
        else:
            assert connection.transport is not None
            self.attached.discard(connection)
            connection.transport.close()

    def close_session(self, session: Session, at_once: bool) -> None:
        """Close a session's connection: now, or when it has been sent what it is owed."""
        connection = session.handle
        if isinstance(connection, Connection) and connection.is_open:
            connection.is_closing = True
            if at_once or connection.owed == 0:
                self.close(connection)

    def shut(self) -> None:
        """Close everything."""
        for connection in [*self.connections.values(), *self.attached]:
            self.close(connection)
        self.links.shut()
        for sock in self.listeners.values():
            sock.close()
        self.listeners.clear()
        if self.poll is not None:
            self.poll.close()

    # -- reading -------------------------------------------------------------------------------------------

    def ready(self, connection: Connection, what: int) -> None:
        assert connection.sock is not None
        if self.wakeups:
            # Somebody before it in this turn may have woken its session: that reply goes before those to come.
            self.pass_wakeups()
        if what & EPOLLOUT:
            self.send(connection)
        if not connection.is_open:
            return
        if not connection.interest & EPOLLIN:
            if what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
                self.close(connection)
            return
        if not what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            return
        try:
            data = connection.sock.recv(READ_BYTES if connection.session.is_trusted else strangers.READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close(connection)
            return
        self.take_in(connection, data)

    def take_in(self, connection: Connection, data: bytes) -> None:
        self.bytes_in += len(data)
        if connection.is_deaf or connection.is_closing:
            return
        if not connection.requests.is_partial():
            connection.since = self.now
        connection.requests.feed(data)
        self.run(connection)
        if connection.is_open:
            self.watch(connection)
            if not connection.session.is_trusted:
                self.strangers.holds(connection.session.number, connection.requests.held())

    def run(self, connection: Connection) -> None:
        """Run the commands that are here, until one must wait, or the client is owed too much."""
        if (
            not connection.is_open or connection.is_held or connection.is_closing or connection.is_deaf
            or connection.is_throttled
        ):
            return
        requests = connection.requests
        session = connection.session
        out = self.node.out
        try:
            while True:
                if len(out) + connection.owed >= OUTPUT_HIGH_WATER:
                    connection.is_throttled = True
                    break
                argv = requests.next(not session.is_trusted)
                if argv is None:
                    break
                if not self.command(session, argv):
                    requests.give_back(argv)
                    connection.is_held = True
                    break
                connection.since = self.now
        except ProtocolError as error:
            if session.blocked or session.is_closing:
                connection.is_held = True  # said in its turn, after the reply the session waits for
            else:
                out.write(b"-ERR Protocol error: " + error.text + b"\r\n")
                connection.is_deaf = True
                connection.linger_until = self.now + LINGER_MS
        data = self.node.take_output()
        if data:
            self.owe(connection, data)

    def command(self, session: Session, argv: list[bytes]) -> bool:
        began = time.monotonic_ns()
        handlers = self.handlers.get(argv[0])
        if handlers is not None and len(argv) < len(handlers):
            handler = handlers[len(argv)]
            if handler is not None:
                ran: bool = handler(session, *argv[1:])
                self.direct_calls[argv[0]] += ran
                self.direct_ns[argv[0]] += time.monotonic_ns() - began
                return ran
        ran = self.node.execute(session, argv)
        if ran:
            self.node.took((time.monotonic_ns() - began) // 1000)
        return ran

    # -- writing -------------------------------------------------------------------------------------------

    def owe(self, connection: Connection, data: bytes) -> None:
        connection.chunks.append(data)
        connection.owed += len(data)
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    def send(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        if connection.transport is not None:
            for data in connection.chunks:
                connection.transport.write(data)
            self.bytes_out += connection.owed
            connection.chunks.clear()
            connection.owed = 0
        elif connection.sock is not None and connection.owed > 0:
            data = connection.chunks[0] if len(connection.chunks) == 1 else b"".join(connection.chunks)
            try:
                sent = connection.sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close(connection)
                return
            self.bytes_out += sent
            connection.owed = len(data) - sent
            connection.chunks = [data[sent:]] if sent < len(data) else []
        if connection.owed > self.hard_bytes > 0:
            self.close(connection)
            return
        if connection.owed == 0 and (connection.is_closing or connection.is_deaf):
            self.sent_all(connection)
        if connection.is_throttled and connection.owed < OUTPUT_HIGH_WATER:
            connection.is_throttled = False
            self.resumed.append(connection)
        if connection.is_open:
            self.watch(connection)

    def sent_all(self, connection: Connection) -> None:
        """It has its replies: close it, or if it broke the protocol read on for a while so that it sees why."""
        if connection.is_closing or connection.sock is None:
            self.close(connection)
            return
        try:
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close(connection)

    def watch(self, connection: Connection) -> None:
        """Tell epoll what we wait for from this client."""
        most = HELD_INPUT_MAX if connection.session.is_trusted else strangers.HELD_BYTES_MAX
        is_full = connection.is_held and connection.requests.waiting() > most
        if connection.transport is not None:
            connection.transport.hold(is_full)
            return
        want = EPOLLRDHUP
        if connection.owed > 0:
            want |= EPOLLOUT
        if connection.is_deaf or not (is_full or connection.owed >= OUTPUT_HIGH_WATER):
            want |= EPOLLIN
        if want != connection.interest:
            connection.interest = want
            assert self.poll is not None
            self.poll.modify(connection.fd, want)

    def turn(self) -> int:
        """Pass on what became of something that happened outside of a turn. Returns when the node wants to be woken."""
        self.look_at_clock()
        self.finish()
        return self.wake

    # -- links ---------------------------------------------------------------------------------------------

    def adopt(self, sock: socket.socket, facts: PeerFacts, seals: Seals) -> Peer | None:
        """Take over a handshaken connection with a node, as a turn of its own. None: the node wants none."""
        self.look_at_clock()
        peer = self.links.adopt(sock, facts, seals)
        self.finish()
        return peer

    # -- patience ------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """About once a second: close those who have kept us waiting too long."""
        self.look_at_clock()
        if self.deferred:
            self.listen_again()  # a descriptor may be free that was no client's: a link's, or a handshake's
        now = self.now
        for connection in [*self.connections.values(), *self.attached]:
            session = connection.session
            is_slow = connection.requests.is_partial() and not connection.is_held
            if (
                (connection.is_deaf and now >= connection.linger_until)
                or (is_slow and connection.owed == 0 and now - connection.since > self.command_ms)
                or (not session.is_trusted and now - session.connected > STRANGER_MS)
                or (self.idle_ms and not session.blocked and not session.is_monitor
                    and now - session.used > self.idle_ms)
                or self.is_over_soft(connection)
            ):
                self.close(connection)
        self.finish()

    def is_over_soft(self, connection: Connection) -> bool:
        if not 0 < self.soft_bytes < connection.owed:
            connection.over_soft_since = 0
            return False
        if connection.over_soft_since == 0:
            connection.over_soft_since = self.now
        return self.now - connection.over_soft_since >= self.soft_ms

    # -- figures -------------------------------------------------------------------------------------------

    def direct(self) -> list[tuple[bytes, int, int]]:
        return [(name, self.direct_calls[name], self.direct_ns[name] // 1000) for name in self.handlers]

    def figures(self) -> dict[str, int]:
        everybody = [*self.connections.values(), *self.attached]
        return {
            "total_net_input_bytes": self.bytes_in,
            "total_net_output_bytes": self.bytes_out,
            "rejected_connections": self.refused,
            "step_longest_usec": self.longest_ns // 1000,
            "client_longest_output_list": max((len(each.chunks) for each in everybody), default=0),
            "client_biggest_input_buf": max((each.requests.waiting() for each in everybody), default=0),
            **self.links.figures(),
        }

    def reset(self) -> None:
        self.bytes_in = self.bytes_out = self.refused = self.longest_ns = 0
        self.links.reset()
        for name in self.handlers:
            self.direct_calls[name] = self.direct_ns[name] = 0

    def describe(self, session: Session) -> dict[str, int]:
        connection = session.handle
        if not isinstance(connection, Connection):
            return {}
        return {
            "fd": connection.fd, "qbuf": connection.requests.waiting(), "qbuf-free": 0, "obl": 0,
            "oll": len(connection.chunks), "omem": connection.owed,
        }


def set_options(sock: socket.socket, keepalive_s: int) -> None:
    if sock.family == getattr(socket, "AF_UNIX", None):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if keepalive_s > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(keepalive_s, 32767))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, min(max(1, keepalive_s // 3), 32767))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
