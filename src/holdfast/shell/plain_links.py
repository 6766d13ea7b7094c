"""Links with other nodes, in plain Python: frames in, frames out. The twin of native_links.py.

bus.py makes a connection and proves who is there; adopt() takes it over. On it travel frames, each sealed (seal.py)
and behind its length as four bytes, little-endian. Many frames of a turn leave in one call, from where they lie. A link
ends as a whole: bytes that are no frame, a seal that does not open, a peer that reads too slowly, a broken socket;
never is a frame left out of the middle, because what follows it would be believed.

The descriptors are in the epoll set of the clients, and plain.py says when: a turn is described there.
"""
from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from traceback import format_exc

from holdfast.core.node import Node
from holdfast.core.peers import Peer, PeerFacts
from holdfast.shell.bounds import LINK_CHUNK_BYTES, LINK_CHUNKS_PER_SEND, LINK_READ_BYTES
from holdfast.shell.seal import FORGED, TAG_BYTES, InvalidTag, Seals, nonce
from holdfast.wire.bus import FRAME_BYTES_MAX

# Linux's numbers, as in plain.py.
EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, EPOLLRDHUP = 0x1, 0x4, 0x8, 0x10, 0x2000


class Link:
    """A connection with another node, handshaken: frames both ways."""

    def __init__(self, sock: socket.socket, peer: Peer, seals: Seals) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.seals = seals
        self.said = self.heard = 0  # frames so far
        self.buf = bytearray()  # frames that arrived, the last one perhaps in part
        self.whole = bytearray()  # or a frame too long for that, being filled
        self.filled = 0
        self.chunks: deque[bytes] = deque()  # what the peer is owed
        self.sent = 0  # of the first chunk
        self.owed = 0
        self.is_open = True
        self.is_dirty = False
        self.interest = EPOLLIN | EPOLLRDHUP


class Links:
    def __init__(self, node: Node, poll: select.epoll | None) -> None:
        self.node = node
        self.poll = poll
        self.frames = node.frames
        self.by_fd: dict[int, Link] = {}
        self.by_peer: dict[Peer, Link] = {}
        self.unsent: list[Link] = []
        self.on_lost: Callable[[Peer, str], None] = lambda peer, why: None
        self.bytes_max = 256 * 1024 * 1024
        self.bytes_in = self.bytes_out = 0
        self.forged = 0

    def configure(self, send_bytes: int) -> None:
        self.bytes_max = send_bytes

    # -- coming and going ----------------------------------------------------------------------------------

    def adopt(self, sock: socket.socket, facts: PeerFacts, seals: Seals) -> Peer | None:
        """Take over a handshaken connection; an older link with the same node ends. None: the node wants none."""
        assert self.poll is not None
        known = self.node.by_id.get(facts.node_id)
        if known is not None:
            self.drop(known, "a new connection has taken its place")
        peer = self.node.link_up(facts)
        if peer is None:
            sock.close()
        else:
            link = Link(sock, peer, seals)
            self.by_fd[link.fd] = self.by_peer[peer] = link
            self.poll.register(link.fd, link.interest)
        return peer

    def drop(self, peer: Peer, why: str) -> None:
        """End the link with a peer, if there is one."""
        link = self.by_peer.get(peer)
        if link is not None:
            self.close(link, why)

    def drop_all(self, why: str) -> None:
        for peer in list(self.by_peer):
            self.drop(peer, why)

    def close(self, link: Link, why: str) -> None:
        if not link.is_open:
            return
        link.is_open = False
        link.chunks.clear()
        link.buf.clear()
        assert self.poll is not None
        self.poll.unregister(link.fd)
        del self.by_fd[link.fd]
        del self.by_peer[link.peer]
        link.sock.close()
        self.node.link_down(link.peer)
        self.on_lost(link.peer, why)

    # -- in ------------------------------------------------------------------------------------------------

    def ready(self, fd: int, what: int) -> None:
        link = self.by_fd[fd]
        if what & EPOLLOUT:
            self.send(link)
            if not link.is_open:
                return
        if not what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            return
        try:
            if link.whole:
                came = link.sock.recv_into(memoryview(link.whole)[link.filled:])
                data = b""
            else:
                data = link.sock.recv(LINK_READ_BYTES)
                came = len(data)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(link, error.strerror or "a broken connection")
            return
        if came == 0:
            self.close(link, "the other side has closed it")
            return
        self.bytes_in += came
        if link.whole:
            link.filled += came
            if link.filled == len(link.whole):
                frame, link.whole = bytes(link.whole), bytearray()
                self.frame(link, frame)
        else:
            link.buf += data
            self.take_frames(link)

    def take_frames(self, link: Link) -> None:
        """Do what the frames that are here say; keep the one that is here in part."""
        buf = link.buf
        at, end = 0, len(buf)
        while end - at >= 4:
            size = int.from_bytes(buf[at:at + 4], "little")
            if size > FRAME_BYTES_MAX + TAG_BYTES:
                self.close(link, "a frame longer than any")
                return
            if end - at - 4 < size:
                if size + 4 > LINK_READ_BYTES:
                    link.whole = bytearray(size)
                    link.filled = end - at - 4
                    link.whole[:link.filled] = buf[at + 4:]
                    at = end
                break
            data = bytes(buf[at + 4:at + 4 + size])
            at += 4 + size
            if not self.frame(link, data):
                return
        del buf[:at]

    def frame(self, link: Link, sealed: bytes) -> bool:
        try:
            data = link.seals.into.decrypt(nonce(link.heard), sealed, None)
        except InvalidTag:
            self.forged += 1
            self.close(link, FORGED)
            return False
        link.heard += 1
        try:
            is_good = self.node.frame(link.peer, data)
        except Exception:
            # Ours or the peer's fault: this link is in doubt, and only this link.
            self.node.faults.append(format_exc())
            is_good = False
        if not is_good:
            self.close(link, "a frame that is none")
        return is_good

    # -- out -----------------------------------------------------------------------------------------------

    def make_frames(self) -> None:
        """What the node has to say to its peers in this turn. It leaves with send_all."""
        self.node.flush()
        for peer, frame in self.frames:
            link = self.by_peer.get(peer)
            if link is None:
                continue
            data = link.seals.out.encrypt(nonce(link.said), frame, None)
            link.said += 1
            head = len(data).to_bytes(4, "little")
            if len(data) < LINK_CHUNK_BYTES:
                link.chunks.append(head + data)
            else:
                link.chunks += (head, data)
            link.owed += 4 + len(data)
            if not link.is_dirty:
                link.is_dirty = True
                self.unsent.append(link)
        self.frames.clear()

    def send_all(self) -> bool:
        """Send what was made. True: a link has ended by that, and the node may have something to say about it."""
        unsent, self.unsent = self.unsent, []
        for link in unsent:
            link.is_dirty = False
            self.send(link)
        return not all(link.is_open for link in unsent)

    def send(self, link: Link) -> None:
        while link.is_open and link.owed > 0:
            pieces: list[bytes | memoryview] = list(islice(link.chunks, LINK_CHUNKS_PER_SEND))
            if link.sent > 0:
                pieces[0] = memoryview(pieces[0])[link.sent:]
            try:
                sent = link.sock.sendmsg(pieces)
            except BlockingIOError:
                break
            except OSError as error:
                self.close(link, error.strerror or "a broken connection")
                return
            self.bytes_out += sent
            link.owed -= sent
            sent += link.sent
            while link.chunks and sent >= len(link.chunks[0]):
                sent -= len(link.chunks.popleft())
            link.sent = sent
        if link.is_open:
            if link.owed > self.bytes_max:
                self.close(link, "it reads too slowly: more waits for it than cluster-send-buffer allows")
                return
            want = EPOLLIN | EPOLLRDHUP | (EPOLLOUT if link.owed > 0 else 0)
            if want != link.interest:
                link.interest = want
                assert self.poll is not None
                self.poll.modify(link.fd, want)

    # -- figures -------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, int]:
        return {
            "bus_links": len(self.by_fd),
            "bus_net_input_bytes": self.bytes_in,
            "bus_net_output_bytes": self.bytes_out,
            "bus_biggest_send_buffer": max((link.owed for link in self.by_fd.values()), default=0),
            "bus_frames_refused": self.forged,
        }

    def reset(self) -> None:
        self.bytes_in = self.bytes_out = 0

    def shut(self) -> None:
        """The process ends: close the sockets and say nothing more to the node."""
        for link in self.by_fd.values():
            link.is_open = False
            link.sock.close()
        self.by_fd.clear()
        self.by_peer.clear()
