"""Many connections of people that never say who they are, and what they cost the process at the other end."""
from __future__ import annotations

import contextlib
import errno
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from harness import allow_files

MIB = 1024 * 1024
HOST = "127.0.0.1"


def resident_mib(pid: int) -> float:
    """Memory of a process that is in use now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


class Crowd:
    """Connections to one port. `from_hosts`: addresses of this machine that they come from, in turn."""

    def __init__(self, port: int, count: int, from_hosts: tuple[str, ...] = (HOST,)) -> None:
        allow_files(4096 + count)
        self.sockets: list[socket.socket] = []
        for number in range(count):
            sock = socket.socket()
            sock.settimeout(5.0)
            with contextlib.suppress(OSError):
                sock.bind((from_hosts[number % len(from_hosts)], 0))
                sock.connect((HOST, port))
            sock.setblocking(False)
            self.sockets.append(sock)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self.sockets:
            sock.close()

    def send(self, data: bytes, each_max: int, total_max: int, seconds: float) -> int:
        """Each sends `data` again and again, as long as somebody takes it. How many bytes went out in all."""
        sent = dict.fromkeys(self.sockets, 0)
        total = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end and total < total_max:
            moved = 0
            for sock in self.sockets:
                if sent[sock] < each_max:
                    with contextlib.suppress(OSError):
                        count = sock.send(data[sent[sock] % len(data):])
                        sent[sock] += count
                        moved += count
            total += moved
            if not moved:
                time.sleep(0.01)
        return total

    def open_count(self) -> int:
        """Connections that the other end has not closed."""
        count = 0
        for sock in self.sockets:
            try:
                while sock.recv(65536):
                    pass
            except BlockingIOError:
                count += 1
            except OSError:
                pass
        return count

    def said(self) -> list[bytes]:
        """What each was told so far."""
        return [everything(sock) for sock in self.sockets]


def everything(sock: socket.socket) -> bytes:
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE), error
    return data


class Peak:
    """The most memory a process had while the block ran, looked at between the steps of what is done in it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.before = self.most = resident_mib(pid)

    def look(self) -> float:
        self.most = max(self.most, resident_mib(self.pid))
        return self.most - self.before


def p99(ask: Callable[[], object], count: int = 300) -> float:
    """Of a hundred calls the second slowest; the best of three rounds, as other programs use this machine, too."""
    return min(seconds_of(ask, count)[-1 - count // 100] for _ in range(3))


def seconds_of(ask: Callable[[], object], count: int) -> list[float]:
    """How long each of `count` calls took, in order of length."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        found.append(time.perf_counter() - began)
    return sorted(found)


@contextlib.contextmanager
def bound_client(host: str, port: int) -> Iterator[socket.socket]:
    """A connection from that address of this machine."""
    sock = socket.create_connection((HOST, port), timeout=15, source_address=(host, 0))
    try:
        yield sock
    finally:
        sock.close()
