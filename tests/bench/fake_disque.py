"""A server of a hundred lines that knows just enough to talk to the load generator, and can be told to lie.

A real server would never send a body twice or answer in pieces of one byte; this one does, on request, so
that we can see whether the load generator notices.

    lie(words, reply)   may change any reply, or return None to say nothing more
    piece_bytes         how many bytes go into one send()
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

Words = list[bytes]
Lie = Callable[[Words, bytes], bytes | None]

NULL_ARRAY = b"*-1\r\n"
NULL_BULK = b"$-1\r\n"


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def job_id(number: int) -> bytes:
    return b"DI" + b"%044x" % number + b"SQ"


def read_command(file: BinaryIO) -> Words | None:
    head = file.readline()
    if not head:
        return None
    words = []
    for _ in range(int(head[1:])):
        length = int(file.readline()[1:])
        words.append(file.read(length + 2)[:-2])
    return words


class FakeDisque(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, lie: Lie | None = None, piece_bytes: int = 1 << 20) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.lie = lie
        self.piece_bytes = piece_bytes
        self.lock = threading.Lock()
        self.jobs: deque[tuple[bytes, bytes]] = deque()
        self.items: deque[bytes] = deque()
        self.added: list[Words] = []
        self.handed_out: set[bytes] = set()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> FakeDisque:
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.server_close()

    def reply_to(self, words: Words) -> bytes:
        match words:
            case [b"PING"]:
                return b"+PONG\r\n"
            case [b"LPUSH", _, body]:
                self.items.appendleft(body)
                return b":%d\r\n" % len(self.items)
            case [b"RPOP", _]:
                return bulk(self.items.pop()) if self.items else NULL_BULK
            case [b"ADDJOB", _, body, *_]:
                self.added.append(words)
                self.jobs.append((job_id(len(self.added)), body))
                return b"+" + job_id(len(self.added)) + b"\r\n"
            case [b"GETJOB", b"NOHANG", b"FROM", queue]:
                if not self.jobs:
                    return NULL_ARRAY
                identity, body = self.jobs.popleft()
                self.handed_out.add(identity)
                return b"*1\r\n*3\r\n" + bulk(queue) + bulk(identity) + bulk(body)
            case [b"ACKJOB", *identities]:
                known = self.handed_out.intersection(identities)
                self.handed_out -= known
                return b":%d\r\n" % len(known)
        return b"-ERR unknown command\r\n"


class Conversation(socketserver.StreamRequestHandler):
    server: FakeDisque

    def handle(self) -> None:
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (words := read_command(self.rfile)) is not None:
                with self.server.lock:
                    reply = self.server.reply_to(words)
                said = self.server.lie(words, reply) if self.server.lie is not None else reply
                if said is not None:
                    self.say(said)
        except (ConnectionError, ValueError):
            return  # the load generator left in the middle; that is what some tests are about

    def say(self, reply: bytes) -> None:
        for start in range(0, len(reply), self.server.piece_bytes):
            self.connection.sendall(reply[start : start + self.server.piece_bytes])
