# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Links with other nodes, compiled: frames in, frames out. Python syntax, C types (Cython's pure mode).

plain_links.py is its twin and the one to read first. What differs here: a link reads into a buffer of its own,
and a frame longer than that straight into the object the node gets.
"""
import os
from traceback import format_exc

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.errno import EAGAIN, errno
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcpy, memmove, memset

from holdfast.shell import bounds
from holdfast.shell.seal import FORGED, NONCE_BYTES, TAG_BYTES, InvalidTag
from holdfast.wire import bus

LINK_READ_BYTES = cython.declare(cython.Py_ssize_t, bounds.LINK_READ_BYTES)
LINK_CHUNK_BYTES = cython.declare(cython.Py_ssize_t, bounds.LINK_CHUNK_BYTES)
SEALED_BYTES_MAX = cython.declare(cython.Py_ssize_t, bus.FRAME_BYTES_MAX + TAG_BYTES)
NONCE = cython.declare(cython.Py_ssize_t, NONCE_BYTES)


@cython.cfunc
def nonce(number: cython.ulonglong) -> bytes:
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, NONCE)
    p: cython.p_char = PyBytes_AS_STRING(made)
    k: cython.Py_ssize_t
    for k in range(NONCE):
        p[k] = number & 255
        number >>= 8
    return made


@cython.final
@cython.cclass
class Link:
    """A connection with another node, handshaken: frames both ways."""

    sock: object
    peer: object
    encrypt: object
    decrypt: object
    said: cython.ulonglong       # frames so far
    heard: cython.ulonglong
    fd: cython.int
    buf: cython.p_uchar          # frames that arrived, the last one perhaps in part
    have: cython.Py_ssize_t
    whole: bytes                 # or a frame too long for that, being filled
    filled: cython.Py_ssize_t
    chunks: list                 # what the peer is owed, from `first` on
    first: cython.Py_ssize_t
    sent: cython.Py_ssize_t      # of the first chunk
    owed: cython.Py_ssize_t
    interest: cython.uint
    is_open: cython.bint
    is_dirty: cython.bint

    def __init__(self, sock, peer, seals):
        self.sock = sock
        self.peer = peer
        self.encrypt = seals.out.encrypt
        self.decrypt = seals.into.decrypt
        self.fd = sock.fileno()
        self.chunks = []
        self.is_open = True
        self.interest = EPOLLIN | EPOLLRDHUP

    def __cinit__(self):
        self.buf = cython.cast(cython.p_uchar, malloc(LINK_READ_BYTES))
        if self.buf == cython.NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.buf)


@cython.final
@cython.cclass
class Links:
    node: object
    flush: object
    take_frame: object
    frames: list
    by_fd = cython.declare(dict, visibility="readonly")
    by_peer: dict
    unsent: list
    on_lost = cython.declare(object, visibility="public")
    epfd: cython.int
    bytes_max: cython.Py_ssize_t
    bytes_in: cython.longlong
    bytes_out: cython.longlong
    forged: cython.longlong

    def __init__(self, node, epfd: cython.int):
        self.node = node
        self.flush = node.flush
        self.take_frame = node.frame
        self.frames = node.frames
        self.epfd = epfd
        self.by_fd = {}
        self.by_peer = {}
        self.unsent = []
        self.on_lost = None
        self.bytes_max = 256 << 20

    def configure(self, send_bytes: int):
        self.bytes_max = send_bytes

    @cython.cfunc
    @cython.exceptval(-1)
    def control(self, fd: cython.int, op: cython.int, what: cython.uint) -> cython.int:
        event: epoll_event
        event.events = what
        event.data.fd = fd
        epoll_ctl(self.epfd, op, fd, cython.address(event))
        return 0

    # -- coming and going ----------------------------------------------------------------------------------

    def adopt(self, sock, facts, seals):
        """Take over a handshaken connection; an older link with the same node ends. None: the node wants none."""
        link: Link
        known = self.node.by_id.get(facts.node_id)
        if known is not None:
            self.drop(known, "a new connection has taken its place")
        peer = self.node.link_up(facts)
        if peer is None:
            sock.close()
        else:
            link = Link(sock, peer, seals)
            self.by_fd[link.fd] = self.by_peer[peer] = link
            self.control(link.fd, EPOLL_CTL_ADD, link.interest)
        return peer

    def drop(self, peer, why: str):
        """End the link with a peer, if there is one."""
        link = self.by_peer.get(peer)
        if link is not None:
            self.close(link, why)

    def drop_all(self, why: str):
        for peer in list(self.by_peer):
            self.drop(peer, why)

    @cython.cfunc
    @cython.exceptval(-1)
    def close(self, link: Link, why: str) -> cython.int:
        if not link.is_open:
            return 0
        link.is_open = False
        link.chunks = []
        link.whole = None
        link.owed = 0
        self.control(link.fd, EPOLL_CTL_DEL, 0)
        del self.by_fd[link.fd]
        del self.by_peer[link.peer]
        link.sock.close()
        self.node.link_down(link.peer)
        if self.on_lost is not None:
            self.on_lost(link.peer, why)
        return 0

    # -- in ------------------------------------------------------------------------------------------------

    def ready(self, fd: cython.int, what: cython.uint):
        n: cython.Py_ssize_t
        frame: bytes
        link: Link = cython.cast(Link, self.by_fd[fd])
        if what & EPOLLOUT:
            self.send(link)
            if not link.is_open:
                return
        if not what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            return
        if link.whole is not None:
            n = recv(link.fd, PyBytes_AS_STRING(link.whole) + link.filled, len(link.whole) - link.filled, 0)
        else:
            n = recv(link.fd, link.buf + link.have, LINK_READ_BYTES - link.have, 0)
        if n <= 0:
            if n == 0:
                self.close(link, "the other side has closed it")
            elif errno != EAGAIN:
                self.close(link, os.strerror(errno))
            return
        self.bytes_in += n
        if link.whole is None:
            link.have += n
            self.take_frames(link)
        else:
            link.filled += n
            if link.filled == len(link.whole):
                frame = link.whole
                link.whole = None
                self.frame(link, frame)

    @cython.cfunc
    @cython.exceptval(-1)
    def take_frames(self, link: Link) -> cython.int:
        """Do what the frames that are here say; keep the one that is here in part."""
        p: cython.p_uchar = link.buf
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = link.have
        size: cython.Py_ssize_t
        while end - at >= 4:
            size = p[at] | p[at + 1] << 8 | p[at + 2] << 16 | cython.cast(cython.Py_ssize_t, p[at + 3]) << 24
            if size > SEALED_BYTES_MAX:
                self.close(link, "a frame longer than any")
                return 0
            if end - at - 4 < size:
                if size + 4 > LINK_READ_BYTES:
                    link.whole = PyBytes_FromStringAndSize(cython.NULL, size)
                    link.filled = end - at - 4
                    memcpy(PyBytes_AS_STRING(link.whole), p + at + 4, link.filled)
                    at = end
                break
            data: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, p + at + 4), size)
            at += 4 + size
            if not self.frame(link, data):
                return 0
        link.have = end - at
        if at > 0 and link.have > 0:
            memmove(p, p + at, link.have)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def frame(self, link: Link, sealed: bytes) -> cython.int:
        is_good: cython.bint
        try:
            data = link.decrypt(nonce(link.heard), sealed, None)
        except InvalidTag:
            self.forged += 1
            self.close(link, FORGED)
            return 0
        link.heard += 1
        try:
            is_good = self.take_frame(link.peer, data) is True
        except Exception:
            # Ours or the peer's fault: this link is in doubt, and only this link.
            self.node.faults.append(format_exc())
            is_good = False
        if not is_good:
            self.close(link, "a frame that is none")
        return is_good

    # -- out -----------------------------------------------------------------------------------------------

    def make_frames(self):
        """What the node has to say to its peers in this turn. It leaves with send_all."""
        data: bytes
        chunk: bytes
        p: cython.p_char
        n: cython.Py_ssize_t
        self.flush()
        if not self.frames:
            return
        for peer, each in self.frames:
            found = self.by_peer.get(peer)
            if found is None:
                continue
            link: Link = cython.cast(Link, found)
            data = link.encrypt(nonce(link.said), each, None)
            link.said += 1
            n = len(data)
            chunk = PyBytes_FromStringAndSize(cython.NULL, 4 + n if n < LINK_CHUNK_BYTES else 4)
            p = PyBytes_AS_STRING(chunk)
            p[0] = n & 255
            p[1] = n >> 8 & 255
            p[2] = n >> 16 & 255
            p[3] = n >> 24 & 255
            link.chunks.append(chunk)
            if n < LINK_CHUNK_BYTES:
                memcpy(p + 4, PyBytes_AS_STRING(data), n)
            else:
                link.chunks.append(data)
            link.owed += 4 + n
            if not link.is_dirty:
                link.is_dirty = True
                self.unsent.append(link)
        self.frames.clear()

    def send_all(self):
        """Send what was made. True: a link has ended by that, and the node may have something to say about it."""
        unsent: list = self.unsent
        has_ended: cython.bint = False
        if not unsent:
            return False
        self.unsent = []
        for each in unsent:
            link: Link = cython.cast(Link, each)
            link.is_dirty = False
            self.send(link)
            if not link.is_open:
                has_ended = True
        return has_ended

    @cython.cfunc
    @cython.exceptval(-1)
    def send(self, link: Link) -> cython.int:
        """Many pieces, few calls, no copy: what the system does not take stays where it is."""
        n: cython.Py_ssize_t
        want: cython.uint = EPOLLIN | EPOLLRDHUP
        while link.is_open and link.owed > 0:
            n = self.send_pieces(link)
            if n < 0:
                if errno == EAGAIN:
                    break
                self.close(link, os.strerror(errno))
                return 0
            self.bytes_out += n
            link.owed -= n
            n += link.sent
            while link.first < len(link.chunks) and n >= len(cython.cast(bytes, link.chunks[link.first])):
                n -= len(cython.cast(bytes, link.chunks[link.first]))
                link.chunks[link.first] = None
                link.first += 1
            link.sent = n
            if link.first > 0 and (link.owed == 0 or link.first >= 1024):
                del link.chunks[:link.first]
                link.first = 0
        if link.owed > self.bytes_max:
            self.close(link, "it reads too slowly: more waits for it than cluster-send-buffer allows")
            return 0
        if link.owed > 0:
            want |= EPOLLOUT
        if link.is_open and want != link.interest:
            link.interest = want
            self.control(link.fd, EPOLL_CTL_MOD, want)
        return 0

    @cython.cfunc
    @cython.exceptval(-2)
    def send_pieces(self, link: Link) -> cython.Py_ssize_t:
        pieces: iovec[64]
        message: msghdr
        count: cython.Py_ssize_t = min(64, len(link.chunks) - link.first)
        k: cython.Py_ssize_t
        for k in range(count):
            chunk: bytes = cython.cast(bytes, link.chunks[link.first + k])
            pieces[k].iov_base = PyBytes_AS_STRING(chunk)
            pieces[k].iov_len = len(chunk)
        pieces[0].iov_base = cython.cast(cython.p_char, pieces[0].iov_base) + link.sent
        pieces[0].iov_len -= link.sent
        if count == 1:
            return send(link.fd, pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL)
        memset(cython.address(message), 0, cython.sizeof(message))
        message.msg_iov = pieces
        message.msg_iovlen = count
        return sendmsg(link.fd, cython.address(message), MSG_NOSIGNAL)

    # -- figures -------------------------------------------------------------------------------------------

    def figures(self):
        most: cython.Py_ssize_t = 0
        for each in self.by_fd.values():
            link: Link = cython.cast(Link, each)
            most = max(most, link.owed)
        return {
            "bus_links": len(self.by_fd),
            "bus_net_input_bytes": self.bytes_in,
            "bus_net_output_bytes": self.bytes_out,
            "bus_biggest_send_buffer": most,
            "bus_frames_refused": self.forged,
        }

    def reset(self):
        self.bytes_in = self.bytes_out = 0

    def shut(self):
        """The process ends: close the sockets and say nothing more to the node."""
        for each in self.by_fd.values():
            link: Link = cython.cast(Link, each)
            link.is_open = False
            link.sock.close()
        self.by_fd.clear()
        self.by_peer.clear()
