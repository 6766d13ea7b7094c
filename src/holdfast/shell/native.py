# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Sockets, compiled: one epoll set, commands and frames in, replies and frames out.

Python syntax, C types (Cython's pure mode).

It knows no command: it frames, calls the node, and sends what the node says. plain.py is its twin and is
the one to read first: the same turn, the same methods, the same limits, without the C. What differs here:

* Reading goes into one shared buffer. A connection has a buffer of its own only while a command has arrived
  in part, and remembers how far that command has been scanned, so no byte is scanned twice.
* A command of up to four words that has a direct handler (core/direct.py) is run without making a list.
* Short arguments repeat (queue names, options): the last ones are kept, and the same object again saves
  making and hashing it.
* Time is looked at once per run of the same direct command, not once per command.
* A cfunc that returns an int says -1 for "raised": that is what Cython takes it for where nothing is said.
"""
import socket
from functools import partial

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.errno import EAGAIN, errno
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memchr, memcmp, memcpy, memmove
from cython.cimports.posix.time import CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from holdfast.shell import bounds, strangers
from holdfast.shell.listening import address_text
from holdfast.shell.plain import set_options
from holdfast.shell.native_links import Links
from holdfast.wire import resp

READ_BYTES = cython.declare(cython.Py_ssize_t, bounds.READ_BYTES)
EVENTS_PER_ROUND = cython.declare(cython.int, bounds.EVENTS_PER_ROUND)
ROUNDS_PER_STEP = cython.declare(cython.int, bounds.ROUNDS_PER_STEP)
OUTPUT_HIGH_WATER = cython.declare(cython.Py_ssize_t, bounds.OUTPUT_HIGH_WATER)
HELD_INPUT_MAX = cython.declare(cython.Py_ssize_t, bounds.HELD_INPUT_MAX)
STRANGER_READ_BYTES = cython.declare(cython.Py_ssize_t, strangers.READ_BYTES)
STRANGER_HELD_MAX = cython.declare(cython.Py_ssize_t, strangers.HELD_BYTES_MAX)
LINE_BYTES_MAX = cython.declare(cython.Py_ssize_t, resp.LINE_BYTES_MAX)
ARGS_MAX = cython.declare(cython.Py_ssize_t, resp.ARGS_MAX)
STRANGER_ARGS_MAX = cython.declare(cython.Py_ssize_t, resp.STRANGER_ARGS_MAX)
STRANGER_BYTES_MAX = cython.declare(cython.Py_ssize_t, resp.STRANGER_BYTES_MAX)
BULK_BYTES_FLOOR = cython.declare(cython.Py_ssize_t, resp.BULK_BYTES_FLOOR)
DIRECT_WORDS = cython.declare(cython.int, 4)   # longer commands are run from a list
SHORT_BYTES = cython.declare(cython.Py_ssize_t, 16)
CHECK_OUTPUT_EVERY = cython.declare(cython.int, 16)
# What reading a number can come to, beside the position after it.
INCOMPLETE = cython.declare(cython.Py_ssize_t, 0)
MALFORMED = cython.declare(cython.Py_ssize_t, -1)
ENDLESS = cython.declare(cython.Py_ssize_t, -2)


@cython.final
@cython.cclass
class Direct:
    """The direct handlers of one command, by number of words, and how much time they took."""

    name: bytes
    handlers: list
    calls: cython.longlong
    ns: cython.longlong

    def __init__(self, name: bytes, handlers: list):
        self.name = name
        self.handlers = handlers


@cython.final
@cython.cclass
class Connection:
    sock: object
    transport: object
    session = cython.declare(object, visibility="readonly")
    fd: cython.int
    # A command that arrived in part: the bytes, how far they were scanned, and which argument is next.
    buf: cython.p_uchar
    have: cython.Py_ssize_t
    room: cython.Py_ssize_t
    scanned: cython.Py_ssize_t
    first: cython.Py_ssize_t
    argc: cython.Py_ssize_t
    args_seen: cython.Py_ssize_t
    need: cython.Py_ssize_t      # no use looking before there are so many bytes
    total: cython.Py_ssize_t     # bytes of the arguments that were seen
    begun: cython.Py_ssize_t     # where the command begins that is being read
    chunks: list                 # what it is owed
    owed: cython.Py_ssize_t
    interest: cython.uint
    is_open: cython.bint
    is_dirty: cython.bint
    is_held: cython.bint
    is_throttled: cython.bint
    is_closing: cython.bint
    is_deaf: cython.bint
    is_stranger: cython.bint
    since: cython.longlong
    linger_until: cython.longlong
    over_soft_since: cython.longlong

    def __init__(self, sock, transport, session, now: cython.longlong):
        self.sock = sock
        self.transport = transport
        self.session = session
        self.fd = -1 if sock is None else sock.fileno()
        self.chunks = []
        self.is_open = True
        self.is_stranger = not session.is_trusted
        self.interest = EPOLLIN | EPOLLRDHUP
        self.since = now

    def __dealloc__(self):
        free(self.buf)

    @cython.cfunc
    def reserve(self, more: cython.Py_ssize_t) -> cython.int:
        """Room for `more` bytes after those that are here."""
        room: cython.Py_ssize_t = self.room
        grown: cython.p_uchar
        if self.have + more > room:
            room = max(self.have + more, 2 * room)
            grown = cython.cast(cython.p_uchar, realloc(self.buf, room))
            if grown == cython.NULL:
                raise MemoryError()
            self.buf = grown
            self.room = room
        return 0

    @cython.cfunc
    def keep(self, p: cython.p_uchar, start: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.int:
        """Keep p[start:n], which begins a command, and nothing else."""
        rest: cython.Py_ssize_t = n - start
        if rest == 0:
            self.drop_buffer()
        elif p == self.buf:
            if start > 0:
                memmove(self.buf, self.buf + start, rest)
            self.have = rest
        else:
            self.have = 0
            self.reserve(rest)
            memcpy(self.buf, p + start, rest)
            self.have = rest
        self.scanned -= start
        self.first -= start
        self.need -= start
        return 0

    @cython.cfunc
    def drop_buffer(self) -> cython.int:
        free(self.buf)
        self.buf = cython.NULL
        self.have = 0
        self.room = 0
        return 0


@cython.final
@cython.cclass
class Sockets:
    node: object
    execute: object
    took: object
    take_output: object
    set_time: object
    out: object
    wakeups: list
    requests: list
    peers: list
    on_requests = cython.declare(object, visibility="public")
    commit = cython.declare(object, visibility="public")
    directs: dict
    command: bytes          # the last one of few words, and its handlers: the next is often the same
    direct_of: Direct
    shorts: list
    connections: list       # by file descriptor
    attached: set
    links = cython.declare(object, visibility="readonly")
    link_fds: dict
    link_ready: object
    make_frames: object
    send_frames: object
    listeners: dict
    deferred: list          # listeners that wait for a free descriptor
    dirty: list
    resumed: list           # those that may go on, having read what they were owed
    is_unsettled: cython.bint   # something was closed since the node last made its frames
    epfd: cython.int
    count: cython.int
    inbuf: cython.p_uchar
    events: cython.pointer(epoll_event)
    offset_ms: cython.longlong
    now: cython.longlong
    wake: cython.longlong
    mark: cython.longlong   # when the present run of direct commands began, ns
    maxclients: cython.int
    reserved: cython.int        # connections above maxclients, to log in by
    strangers = cython.declare(object, visibility="readonly")
    keepalive_s: cython.longlong
    idle_ms: cython.longlong
    command_ms: cython.longlong
    bulk_bytes_max: cython.Py_ssize_t
    command_bytes_max: cython.Py_ssize_t
    hard_bytes: cython.Py_ssize_t
    soft_bytes: cython.Py_ssize_t
    soft_ms: cython.longlong
    bytes_in: cython.longlong
    bytes_out: cython.longlong
    refused: cython.longlong
    longest_ns: cython.longlong

    def __init__(self, node, handlers: dict, offset_ms: cython.longlong):
        self.node = node
        self.execute = node.execute
        self.took = node.took
        self.take_output = node.take_output
        self.set_time = node.set_time
        self.out = node.out
        self.wakeups = node.wakeups
        self.requests = node.requests
        self.peers = node.peers
        self.on_requests = None
        self.commit = None
        self.directs = {name: Direct(name, ways) for name, ways in handlers.items()}
        self.command = b""
        self.direct_of = None
        self.shorts = [None] * 256
        self.connections = []
        self.attached = set()
        self.listeners = {}
        self.deferred = []
        self.dirty = []
        self.resumed = []
        self.offset_ms = offset_ms
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(errno, "epoll_create1")
        self.links = Links(node, self.epfd)
        self.link_fds = self.links.by_fd
        self.link_ready = self.links.ready
        self.make_frames = self.links.make_frames
        self.send_frames = self.links.send_all
        self.maxclients = 10000
        self.strangers = strangers.Strangers()
        self.command_ms = 30000
        self.bulk_bytes_max = BULK_BYTES_FLOOR
        self.command_bytes_max = 64 << 20

    def __cinit__(self):
        self.inbuf = cython.cast(cython.p_uchar, malloc(READ_BYTES))
        self.events = cython.cast(cython.pointer(epoll_event), malloc(EVENTS_PER_ROUND * cython.sizeof(epoll_event)))
        if self.inbuf == cython.NULL or self.events == cython.NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.inbuf)
        free(self.events)

    def configure(self, maxclients: int, keepalive_s: int, idle_ms: int, command_ms: int, body_bytes: int,
                  command_bytes: int, hard_bytes: int, soft_bytes: int, soft_ms: int):
        self.maxclients = maxclients
        self.keepalive_s = keepalive_s
        self.idle_ms = idle_ms
        self.command_ms = command_ms
        self.bulk_bytes_max = max(body_bytes, BULK_BYTES_FLOOR)
        self.command_bytes_max = command_bytes
        self.hard_bytes = hard_bytes
        self.soft_bytes = soft_bytes
        self.soft_ms = soft_ms

    def reserve(self, count: int):
        """So many connections above maxclients, for those who have yet to log in (guard.py)."""
        self.reserved = count

    def fileno(self):
        return self.epfd

    # -- a turn --------------------------------------------------------------------------------------------

    def step(self):
        """Serve every client that is ready, and do what is due. Returns when the node wants to be woken."""
        i: cython.int
        n: cython.int
        rounds: cython.int
        fd: cython.int
        began: cython.longlong
        for rounds in range(ROUNDS_PER_STEP):
            n = epoll_wait(self.epfd, self.events, EVENTS_PER_ROUND, 0)
            began = self.look_at_clock()
            if self.wake <= self.now:
                self.node.tick()
            elif n <= 0:
                break
            for i in range(n):
                fd = self.events[i].data.fd
                if fd < len(self.connections) and self.connections[fd] is not None:
                    self.ready(cython.cast(Connection, self.connections[fd]), self.events[i].events)
                elif fd in self.link_fds:
                    self.link_ready(fd, self.events[i].events)
                elif fd in self.listeners:
                    self.accept(self.listeners[fd])
            self.finish()
            began = self.nanoseconds() - began
            if began > self.longest_ns:
                self.longest_ns = began
        return self.wake

    @cython.cfunc
    @cython.exceptval(check=False)
    def nanoseconds(self) -> cython.longlong:
        ts: timespec
        clock_gettime(CLOCK_MONOTONIC, cython.address(ts))
        return cython.cast(cython.longlong, ts.tv_sec) * 1000000000 + ts.tv_nsec

    @cython.cfunc
    def look_at_clock(self) -> cython.longlong:
        ts: timespec
        mono: cython.longlong = self.nanoseconds()
        clock_gettime(CLOCK_REALTIME, cython.address(ts))
        self.now = mono // 1000000 + self.offset_ms
        self.set_time(self.now, cython.cast(cython.longlong, ts.tv_sec) * 1000 + ts.tv_nsec // 1000000)
        return mono

    @cython.cfunc
    def finish(self) -> cython.int:
        """The second half of a turn: hand over wakeups, make frames, write to disk, send, carry out requests."""
        batch: list
        has_peers: cython.bint
        while True:
            self.is_unsettled = False
            if self.wakeups:
                self.pass_wakeups()
            has_peers = len(self.peers) > 1
            if has_peers:
                self.make_frames()
            if self.commit is not None and not self.commit():
                self.break_off()
            if has_peers and self.send_frames() is True:
                self.is_unsettled = True
            self.send_all()
            if self.resumed:
                batch = self.resumed
                self.resumed = []
                for each in batch:
                    self.run_kept(cython.cast(Connection, each))
            elif self.requests:
                self.on_requests()
            elif not self.is_unsettled:
                break
        self.wake = self.node.next_wake()
        return 0

    @cython.cfunc
    def break_off(self) -> cython.int:
        """What this turn would have said is not in the journal and should be: then nothing is said, to nobody."""
        dirty: list = self.dirty
        self.dirty = []
        for each in dirty:
            self.close(cython.cast(Connection, each))
        self.links.drop_all("the journal cannot be written")
        return 0

    @cython.cfunc
    def send_all(self) -> cython.int:
        dirty: list = self.dirty
        if dirty:
            self.dirty = []
            for each in dirty:
                connection: Connection = cython.cast(Connection, each)
                connection.is_dirty = False
                self.send(connection)
        return 0

    @cython.cfunc
    def pass_wakeups(self) -> cython.int:
        """Replies for sessions that were blocked; then their next commands, which may wake others in turn."""
        batch: list
        resumed: list
        while self.wakeups:
            batch = self.wakeups[:]
            self.wakeups.clear()
            resumed = []
            for session, data in batch:
                handle = session.handle
                if type(handle) is not Connection:
                    continue
                connection: Connection = cython.cast(Connection, handle)
                if not connection.is_open:
                    continue
                if data:
                    self.owe(connection, data)
                if connection.is_held and session.blocked == 0:
                    connection.is_held = False
                    resumed.append(connection)
            for each in resumed:
                self.run_kept(cython.cast(Connection, each))
        return 0

    # -- connections ---------------------------------------------------------------------------------------

    def listen(self, sock):
        sock.setblocking(False)
        self.listeners[sock.fileno()] = sock
        self.control(sock.fileno(), EPOLL_CTL_ADD, EPOLLIN)

    @cython.cfunc
    def control(self, fd: cython.int, op: cython.int, what: cython.uint) -> cython.int:
        event: epoll_event
        event.events = what
        event.data.fd = fd
        epoll_ctl(self.epfd, op, fd, cython.address(event))
        return 0

    @cython.cfunc
    def accept(self, listener: object) -> cython.int:
        k: cython.int
        connection: Connection
        for k in range(bounds.ACCEPTS_PER_ROUND):
            try:
                sock, address = listener.accept()
            except OSError as error:
                if error.errno in bounds.NO_DESCRIPTORS and not self.strangers.make_room():    # whoever knocks waits until a connection is closed
                    self.control(listener.fileno(), EPOLL_CTL_DEL, 0)
                    self.deferred.append(listener)
                return 0
            sock.setblocking(False)
            if self.is_full():
                self.refuse(sock)
                continue
            set_options(sock, self.keepalive_s)
            connection = self.admit(sock, None, address_text(sock, address))
            while len(self.connections) <= connection.fd:
                self.connections.append(None)
            self.connections[connection.fd] = connection
            self.control(connection.fd, EPOLL_CTL_ADD, connection.interest)
        return 0

    @cython.cfunc
    def is_full(self) -> cython.int:
        """Whether there is no place for one more. A stranger gives its place up."""
        return self.count >= self.maxclients + self.reserved and not self.strangers.make_room()

    def drop(self, session):
        """A stranger has to go: there are too many."""
        if type(session.handle) is Connection:
            connection: Connection = cython.cast(Connection, session.handle)
            self.owe(connection, b"-%b\r\n" % strangers.TRY_AGAIN.encode())
            self.send(connection)
            self.close(connection)

    @cython.cfunc
    def refuse(self, sock: object):
        self.refused += 1
        try:
            sock.send(b"-ERR max number of clients reached\r\n")
        except OSError:
            pass
        sock.close()

    @cython.cfunc
    def admit(self, sock: object, transport: object, address: str) -> Connection:
        session = self.node.connect(address)
        connection: Connection = Connection(sock, transport, session, self.now)
        session.handle = connection
        self.count += 1
        if connection.is_stranger:
            self.strangers.arrive(session.number, address, partial(self.drop, session))
        return connection

    def attach(self, transport, address: str):
        """A connection by some other transport; None if there are too many."""
        if self.is_full():
            self.refused += 1
            return None
        self.look_at_clock()
        connection: Connection = self.admit(None, transport, address)
        self.attached.add(connection)
        return connection

    def feed(self, connection: Connection, data: bytes):
        """Bytes that came by another transport. Returns when the node wants to be woken."""
        self.look_at_clock()
        size: cython.Py_ssize_t = len(data)
        if connection.is_open and size > 0:
            if connection.have > 0:
                connection.reserve(size)
                memcpy(connection.buf + connection.have, PyBytes_AS_STRING(data), size)
                self.take_in(connection, connection.buf, connection.have + size, size)
            else:
                self.take_in(connection, cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)), size, size)
        self.finish()
        return self.wake

    def detach(self, connection: Connection):
        """The other transport is closed."""
        self.look_at_clock()
        self.close(connection)
        self.finish()

    @cython.cfunc
    def close(self, connection: Connection) -> cython.int:
        if not connection.is_open:
            return 0
        connection.is_open = False
        connection.chunks = []
        connection.owed = 0
        self.is_unsettled = True
        self.count -= 1
        self.strangers.leave(connection.session.number)
        self.node.disconnect(connection.session)
        if connection.fd >= 0:
            self.control(connection.fd, EPOLL_CTL_DEL, 0)
            self.connections[connection.fd] = None
            connection.sock.close()
            connection.fd = -1
            while self.deferred:
                self.control(self.deferred.pop().fileno(), EPOLL_CTL_ADD, EPOLLIN)
        else:
            self.attached.discard(connection)
            connection.transport.close()
        return 0

    def close_session(self, session, at_once: bool):
        """Close a session's connection: now, or when it has been sent what it is owed."""
        handle = session.handle
        if type(handle) is Connection:
            connection: Connection = cython.cast(Connection, handle)
            if connection.is_open:
                connection.is_closing = True
                if at_once or connection.owed == 0:
                    self.close(connection)

    def shut(self):
        """Close everything."""
        for each in self.everybody():
            self.close(each)
        self.links.shut()
        for sock in self.listeners.values():
            sock.close()
        self.listeners.clear()
        if self.epfd >= 0:
            socket.close(self.epfd)
            self.epfd = -1

    def everybody(self):
        return [each for each in self.connections if each is not None] + list(self.attached)

    # -- reading -------------------------------------------------------------------------------------------

    @cython.cfunc
    def ready(self, connection: Connection, what: cython.uint) -> cython.int:
        n: cython.Py_ssize_t
        most: cython.Py_ssize_t = STRANGER_READ_BYTES if connection.is_stranger else READ_BYTES
        if self.wakeups:
            # Somebody before it in this turn may have woken its session: that reply goes before those to come.
            self.pass_wakeups()
        if what & EPOLLOUT:
            self.send(connection)
            if not connection.is_open:
                return 0
        if not connection.interest & EPOLLIN:
            if what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
                self.close(connection)
            return 0
        if not what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            return 0
        if connection.have > 0:
            connection.reserve(most)
            n = recv(connection.fd, connection.buf + connection.have, most, 0)
        else:
            n = recv(connection.fd, self.inbuf, most, 0)
        if n <= 0:
            if n == 0 or errno != EAGAIN:
                self.close(connection)
            return 0
        if connection.have > 0:
            self.take_in(connection, connection.buf, connection.have + n, n)
        else:
            self.take_in(connection, self.inbuf, n, n)
        return 0

    @cython.cfunc
    def take_in(self, connection: Connection, p: cython.p_uchar, n: cython.Py_ssize_t, fresh: cython.Py_ssize_t) -> cython.int:
        """`fresh` bytes have come; p[:n] is all that is here and not yet run."""
        self.bytes_in += fresh
        if connection.is_deaf or connection.is_closing:
            return 0
        if connection.have == 0:
            connection.since = self.now
        if connection.is_held or connection.is_throttled:
            connection.keep(p, 0, n)
            self.watch(connection)
            return self.note_stranger(connection)
        if connection.have > 0:
            connection.have = n
        if n < connection.need:
            if p != connection.buf:
                connection.keep(p, 0, n)
            return self.note_stranger(connection)
        self.run(connection, p, n)
        return self.note_stranger(connection)

    @cython.cfunc
    def note_stranger(self, connection: Connection) -> cython.int:
        """What is kept of a stranger's counts; who has logged in is none."""
        if connection.is_stranger and connection.is_open:
            connection.is_stranger = not connection.session.is_trusted
            self.strangers.holds(connection.session.number, connection.have)
        return 0

    @cython.cfunc
    def run_kept(self, connection: Connection) -> cython.int:
        """Go on with what a connection has sent before."""
        if connection.is_open and connection.have > 0 and not (
            connection.is_held or connection.is_closing or connection.is_deaf or connection.is_throttled
        ):
            self.run(connection, connection.buf, connection.have)
        if connection.is_open:
            self.watch(connection)
        return 0

    @cython.cfunc
    def run(self, connection: Connection, p: cython.p_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Run the commands in p[:n], until one must wait or the client is owed too much; keep the rest."""
        data: bytes
        self.mark = 0
        error = self.parse(connection, p, n)
        self.end_run()
        if error is not None and (connection.session.blocked or connection.session.is_closing):
            connection.is_held = True          # said in its turn, after the reply the session waits for
            connection.scanned = connection.first = connection.need = connection.begun
            connection.keep(p, connection.begun, n)
        elif error is not None:
            self.out.write(b"-ERR Protocol error: " + error + b"\r\n")
            connection.is_deaf = True
            connection.linger_until = self.now + bounds.LINGER_MS
            connection.drop_buffer()
        data = self.take_output()
        if data:
            self.owe(connection, data)
        elif connection.is_held:
            self.watch(connection)
        return 0

    @cython.cfunc
    @cython.inline
    def arg(self, p: cython.p_uchar, n: cython.Py_ssize_t) -> bytes:
        """An argument as bytes; a short one is most often the same object as last time."""
        slot: cython.Py_ssize_t
        if n == 0 or n > SHORT_BYTES:
            return PyBytes_FromStringAndSize(cython.cast(cython.p_char, p), n)
        slot = (n * 31 + p[0] * 7 + p[n - 1]) & 255
        known = self.shorts[slot]
        if known is not None and len(cython.cast(bytes, known)) == n and memcmp(PyBytes_AS_STRING(known), p, n) == 0:
            return cython.cast(bytes, known)
        made: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, p), n)
        self.shorts[slot] = made
        return made

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number(self, p: cython.p_uchar, i: cython.Py_ssize_t, n: cython.Py_ssize_t, v: cython.pointer(cython.Py_ssize_t)) -> cython.Py_ssize_t:
        """Read an integer and the end of its line at i. The position after them, INCOMPLETE, MALFORMED or ENDLESS."""
        x: cython.Py_ssize_t = 0
        line: cython.Py_ssize_t = i - 1
        start: cython.Py_ssize_t
        is_negative: cython.bint = i < n and p[i] == 45
        if is_negative:
            i += 1
        start = i
        while i < n and 48 <= p[i] <= 57:
            if i - start >= 15:
                return self.no_number(p, line, n)
            x = x * 10 + (p[i] - 48)
            i += 1
        if i >= n:
            return INCOMPLETE
        if i == start or p[i] != 13:
            return self.no_number(p, line, n)
        if i + 1 >= n:
            return INCOMPLETE
        if p[i + 1] != 10:
            return MALFORMED
        v[0] = -x if is_negative else x
        return i + 2

    @cython.cfunc
    @cython.exceptval(check=False)
    def no_number(self, p: cython.p_uchar, line: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """What stands at `line` is no number; which error that is shows when the line has ended, or grown too long."""
        end = cython.cast(cython.p_uchar, memchr(p + line, 13, min(n - line, LINE_BYTES_MAX)))
        if end == cython.NULL:
            return ENDLESS if n - line >= LINE_BYTES_MAX else INCOMPLETE
        return INCOMPLETE if end - p + 1 >= n else MALFORMED

    @cython.cfunc
    def parse(self, connection: Connection, p: cython.p_uchar, n: cython.Py_ssize_t):
        """Run what is complete, keep what is not. Returns what is wrong with the protocol, None if nothing."""
        start: cython.Py_ssize_t = 0                      # of the command
        first: cython.Py_ssize_t = connection.first       # of its first argument's `$`
        i: cython.Py_ssize_t = connection.scanned
        k: cython.Py_ssize_t = connection.args_seen
        argc: cython.Py_ssize_t = connection.argc
        length: cython.Py_ssize_t = 0
        total: cython.Py_ssize_t = connection.total
        checks: cython.int = 0
        at: cython.Py_ssize_t[4]
        size: cython.Py_ssize_t[4]
        ran: cython.bint
        connection.scanned = connection.args_seen = connection.argc = connection.first = connection.need = 0
        connection.total = 0
        while start < n:
            connection.begun = start
            if i == start:                                # a new command
                if p[start] != 42:
                    i = self.run_line(connection, p, start, n)
                    if i < 0:
                        return resp.LINE_FAULTS[i]
                    if i == start:
                        break
                    start = i
                    if not self.may_go_on(connection):
                        break
                    continue
                i = self.number(p, start + 1, n, cython.address(argc))
                if i <= 0:
                    if i == MALFORMED:
                        return resp.BAD_COUNT
                    if i == ENDLESS:
                        return resp.BAD_COUNT_LINE
                    i = start
                    break
                if argc > ARGS_MAX:
                    return resp.BAD_COUNT
                if connection.is_stranger and self.is_too_much(connection, argc > STRANGER_ARGS_MAX):
                    return resp.BAD_STRANGER_COUNT
                if argc <= 0:
                    start = i
                    continue
                first = i
                k = 0
                total = 0
            while k < argc:
                if i >= n:
                    break
                if p[i] != 36:
                    return resp.not_a_bulk(p[i])
                at_bytes: cython.Py_ssize_t = self.number(p, i + 1, n, cython.address(length))
                if at_bytes <= 0:
                    if at_bytes == MALFORMED:
                        return resp.BAD_LENGTH
                    if at_bytes == ENDLESS:
                        return resp.BAD_LENGTH_LINE
                    break
                if length < 0:
                    return resp.BAD_LENGTH
                if length > STRANGER_BYTES_MAX:
                    if connection.is_stranger and self.is_too_much(connection, True):
                        return resp.BAD_STRANGER_LENGTH
                    if length > self.bulk_bytes_max:
                        return resp.TOO_LONG_ARGUMENT
                if total + length > self.command_bytes_max:
                    return resp.TOO_LONG_COMMAND
                if at_bytes + length + 2 > n:
                    connection.need = at_bytes + length + 2
                    break
                if k < DIRECT_WORDS:
                    at[k] = at_bytes
                    size[k] = length
                i = at_bytes + length + 2
                total += length
                k += 1
            if k < argc:
                connection.scanned = i
                connection.total = total
                connection.args_seen = k
                connection.argc = argc
                connection.first = first
                break
            if argc <= DIRECT_WORDS:
                if connection.have > 0 and p == connection.buf:
                    self.find_words(p, first, n, cython.cast(cython.int, argc), at, size)
                ran = self.short_command(connection, p, cython.cast(cython.int, argc), at, size)
            else:
                ran = self.long_command(connection, p, first, n, argc)
            if not ran:
                connection.is_held = True
                i = start
                break
            start = i
            checks += 1
            if checks % CHECK_OUTPUT_EVERY == 0 and not self.may_go_on(connection):
                break
        if start == n:
            connection.drop_buffer()
        else:
            if connection.argc == 0:  # nothing of the next command has been scanned
                connection.scanned = connection.first = connection.need = start
            connection.keep(p, start, n)
        if start > 0:
            connection.since = self.now
        return None

    @cython.cfunc
    def may_go_on(self, connection: Connection) -> cython.int:
        """Whether the client is owed little enough to run its next command; if not it waits until it has read."""
        connection.is_throttled = len(self.out) + connection.owed >= OUTPUT_HIGH_WATER
        return not connection.is_throttled

    @cython.cfunc
    def is_too_much(self, connection: Connection, is_over: cython.bint) -> cython.int:
        """Whether a stranger sends more than strangers may. It may have said who it is by now."""
        if connection.session.is_trusted:
            connection.is_stranger = False
            return 0
        return is_over

    @cython.cfunc
    def find_words(self, p: cython.p_uchar, i: cython.Py_ssize_t, n: cython.Py_ssize_t, argc: cython.int,
                   at: cython.pointer(cython.Py_ssize_t), size: cython.pointer(cython.Py_ssize_t)) -> cython.int:
        """Where the words of a complete command are; those scanned in an earlier turn are not known any more."""
        k: cython.int
        length: cython.Py_ssize_t = 0
        for k in range(argc):
            i = self.number(p, i + 1, n, cython.address(length))
            at[k] = i
            size[k] = length
            i += length + 2
        return 0

    @cython.cfunc
    def short_command(self, connection: Connection, p: cython.p_uchar, argc: cython.int,
                      at: cython.pointer(cython.Py_ssize_t), size: cython.pointer(cython.Py_ssize_t)) -> cython.int:
        """A command of few words: by its direct handler if it has one. 0: it must wait."""
        k: cython.int
        ran: cython.bint
        if size[0] != len(self.command) or memcmp(p + at[0], PyBytes_AS_STRING(self.command), size[0]) != 0:
            self.end_run()
            self.command = self.arg(p + at[0], size[0])
            self.direct_of = self.directs.get(self.command)
        if self.direct_of is not None:
            handler = self.direct_of.handlers[argc]
            if handler is not None:
                if self.mark == 0:
                    self.mark = self.nanoseconds()
                if argc == 2:
                    ran = handler(connection.session, self.arg(p + at[1], size[1])) is True
                elif argc == 3:
                    ran = handler(connection.session, self.arg(p + at[1], size[1]), self.arg(p + at[2], size[2])) is True
                else:
                    ran = handler(connection.session, self.arg(p + at[1], size[1]), self.arg(p + at[2], size[2]),
                                  self.arg(p + at[3], size[3])) is True
                self.direct_of.calls += ran
                return ran
        argv: list = []
        for k in range(argc):
            argv.append(self.arg(p + at[k], size[k]))
        return self.timed(connection, argv)

    @cython.cfunc
    def end_run(self) -> cython.int:
        """A run of the same direct command is over: note the time it took."""
        if self.mark != 0:
            self.direct_of.ns += self.nanoseconds() - self.mark
            self.mark = 0
        return 0

    @cython.cfunc
    def long_command(self, connection: Connection, p: cython.p_uchar, i: cython.Py_ssize_t, n: cython.Py_ssize_t,
                     argc: cython.Py_ssize_t) -> cython.int:
        k: cython.Py_ssize_t
        length: cython.Py_ssize_t = 0
        argv: list = []
        for k in range(argc):
            i = self.number(p, i + 1, n, cython.address(length))
            argv.append(self.arg(p + i, length))
            i += length + 2
        return self.timed(connection, argv)

    @cython.cfunc
    def timed(self, connection: Connection, argv: list) -> cython.int:
        """Run a command from a list, and tell the node how long it took. 0: it must wait."""
        began: cython.longlong
        self.end_run()
        began = self.nanoseconds()
        if self.execute(connection.session, argv) is not True:
            return 0
        self.took((self.nanoseconds() - began) // 1000)
        return 1

    @cython.cfunc
    @cython.exceptval(-3)
    def run_line(self, connection: Connection, p: cython.p_uchar, i: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A line typed by a person. The position after it; `i` if it must wait; see resp.LINE_FAULTS."""
        most: cython.Py_ssize_t = LINE_BYTES_MAX
        if connection.is_stranger and self.is_too_much(connection, True):
            most = STRANGER_BYTES_MAX
        end = cython.cast(cython.p_uchar, memchr(p + i, 10, min(n - i, most)))
        if end == cython.NULL:
            return -1 if n - i >= most else i
        argv = resp.split_line(p[i:end - p])
        if argv is None:
            return -2 if resp.is_typed(p[i:end - p]) else -4
        if argv and not self.timed(connection, argv):
            connection.is_held = True
            return i
        return end - p + 1

    # -- writing -------------------------------------------------------------------------------------------

    @cython.cfunc
    def owe(self, connection: Connection, data: bytes) -> cython.int:
        connection.chunks.append(data)
        connection.owed += len(data)
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)
        return 0

    @cython.cfunc
    def send(self, connection: Connection) -> cython.int:
        data: bytes
        n: cython.Py_ssize_t
        if not connection.is_open:
            return 0
        if connection.fd < 0:
            for each in connection.chunks:
                connection.transport.write(each)
            self.bytes_out += connection.owed
            connection.chunks = []
            connection.owed = 0
        elif connection.owed > 0:
            if len(connection.chunks) == 1:
                data = cython.cast(bytes, connection.chunks[0])
            else:
                data = b"".join(connection.chunks)
            n = send(connection.fd, PyBytes_AS_STRING(data), len(data), MSG_NOSIGNAL)
            if n < 0:
                if errno != EAGAIN:
                    self.close(connection)
                    return 0
                n = 0
            self.bytes_out += n
            connection.owed = len(data) - n
            connection.chunks.clear()
            if connection.owed > 0:
                connection.chunks.append(data[n:] if n > 0 else data)
                if 0 < self.hard_bytes < connection.owed:
                    self.close(connection)
                    return 0
        if connection.owed == 0 and (connection.is_closing or connection.is_deaf):
            self.sent_all(connection)
            if not connection.is_open:
                return 0
        if connection.is_throttled and connection.owed < OUTPUT_HIGH_WATER:
            connection.is_throttled = False
            self.resumed.append(connection)
        if connection.owed > 0 or connection.interest != EPOLLIN | EPOLLRDHUP or connection.is_held:
            self.watch(connection)
        return 0

    @cython.cfunc
    def sent_all(self, connection: Connection) -> cython.int:
        """It has its replies: close it, or if it broke the protocol read on for a while so that it sees why."""
        if connection.is_closing or connection.fd < 0:
            self.close(connection)
            return 0
        try:
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close(connection)
        return 0

    @cython.cfunc
    def watch(self, connection: Connection) -> cython.int:
        """Tell epoll what we wait for from this client."""
        want: cython.uint = EPOLLRDHUP
        is_new: cython.bint = connection.is_stranger and not connection.session.is_trusted
        is_full: cython.bint = connection.is_held and connection.have > (STRANGER_HELD_MAX if is_new else HELD_INPUT_MAX)
        if connection.fd < 0:
            connection.transport.hold(is_full)
            return 0
        if connection.owed > 0:
            want |= EPOLLOUT
        if connection.is_deaf or not (is_full or connection.owed >= OUTPUT_HIGH_WATER):
            want |= EPOLLIN
        if want != connection.interest:
            connection.interest = want
            self.control(connection.fd, EPOLL_CTL_MOD, want)
        return 0

    def turn(self):
        """Pass on what became of something that happened outside of a turn. Returns when the node wants to be woken."""
        self.look_at_clock()
        self.finish()
        return self.wake

    # -- links ---------------------------------------------------------------------------------------------

    def adopt(self, sock, facts, seals):
        """Take over a handshaken connection with a node, as a turn of its own. None: the node wants none."""
        self.look_at_clock()
        peer = self.links.adopt(sock, facts, seals)
        self.finish()
        return peer

    # -- patience ------------------------------------------------------------------------------------------

    def sweep(self):
        """About once a second: close those who have kept us waiting too long."""
        now: cython.longlong
        self.look_at_clock()
        while self.deferred:    # a descriptor may be free that was no client's: a link's, or a handshake's
            self.control(self.deferred.pop().fileno(), EPOLL_CTL_ADD, EPOLLIN)
        now = self.now
        for each in self.everybody():
            connection: Connection = cython.cast(Connection, each)
            is_slow: cython.bint = connection.have > 0 and not connection.is_held and connection.owed == 0
            session = connection.session
            if (
                (connection.is_deaf and now >= connection.linger_until)
                or (is_slow and now - connection.since > self.command_ms)
                or (connection.is_stranger and not session.is_trusted and now - session.connected > bounds.STRANGER_MS)
                or (self.idle_ms > 0 and not session.blocked and not session.is_monitor
                    and now - session.used > self.idle_ms)
                or self.is_over_soft(connection)
            ):
                self.close(connection)
        self.finish()

    @cython.cfunc
    def is_over_soft(self, connection: Connection) -> cython.int:
        if not 0 < self.soft_bytes < connection.owed:
            connection.over_soft_since = 0
            return 0
        if connection.over_soft_since == 0:
            connection.over_soft_since = self.now
        return self.now - connection.over_soft_since >= self.soft_ms

    # -- figures -------------------------------------------------------------------------------------------

    def direct(self):
        rows: list = []
        for row in self.directs.values():
            rows.append((cython.cast(Direct, row).name, cython.cast(Direct, row).calls, cython.cast(Direct, row).ns // 1000))
        return rows

    def figures(self):
        longest: cython.Py_ssize_t = 0
        biggest: cython.Py_ssize_t = 0
        for each in self.everybody():
            connection: Connection = cython.cast(Connection, each)
            longest = max(longest, len(connection.chunks))
            biggest = max(biggest, connection.have)
        return {
            "total_net_input_bytes": self.bytes_in,
            "total_net_output_bytes": self.bytes_out,
            "rejected_connections": self.refused,
            "step_longest_usec": self.longest_ns // 1000,
            "client_longest_output_list": longest,
            "client_biggest_input_buf": biggest,
            **self.links.figures(),
        }

    def reset(self):
        self.bytes_in = self.bytes_out = self.refused = self.longest_ns = 0
        self.links.reset()
        for each in self.directs.values():
            cython.cast(Direct, each).calls = cython.cast(Direct, each).ns = 0

    def describe(self, session):
        handle = session.handle
        if type(handle) is not Connection:
            return {}
        connection: Connection = cython.cast(Connection, handle)
        return {
            "fd": connection.fd, "qbuf": connection.have, "qbuf-free": connection.room - connection.have, "obl": 0,
            "oll": len(connection.chunks), "omem": connection.owed,
        }
