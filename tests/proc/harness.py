"""A real node in a process of its own, and a client that sends bytes and reads replies.

    with Node("--set", "maxclients=100") as node, node.client() as client:
        assert client.ask("PING") == b"PONG"

The node takes a free port, its log goes to a file, and it is ready when the log says so. It is stopped by
its own process id, and killed if it does not stop. Both forms are tested: HOLDFAST_PURE goes through to
the node; other HOLDFAST_ variables only if a test gives them.

Waiting is always for something: `until` asks again and again, and fails with what it asked last.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

Found = TypeVar("Found")

PATIENCE_S = 15.0
"""For anything that must happen: far longer than it ever takes, so that a busy machine fails no test."""

POLL_S = 0.002
ABOVE_INFO = re.compile(r"^\S+ \S+ (WARNING|ERROR|CRITICAL) .*|^Traceback .*|^Exception .*", re.MULTILINE)
READY = re.compile(r"ready on \S*:(\d+), process (\d+)")


def until(ask: Callable[[], Found], seconds: float = PATIENCE_S) -> Found:
    """Ask until the answer is true; that answer."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < end, f"never came about; the last answer was {answer!r}"
        time.sleep(POLL_S)
    return answer


def allow_files(count: int) -> int:
    """Raise this process's limit of open files, which nodes started after it inherit; how many are possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    return possible


class ErrorReply(bytes):
    """A reply that began with a minus sign; the bytes are the text after it."""


class Client:
    """A connection. Words go out as RESP, replies come back as bytes, numbers, None, lists, dicts, ErrorReply."""

    def __init__(self, address: tuple[str, int] | str, receive_bytes: int = 0) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else (
            socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        )
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.connect(address)
        self.data = b""  # read from the socket and not yet used

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Be gone at once, without a word: the other side gets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()

    def name(self) -> bytes:
        """The address under which CLIENT LIST has this connection."""
        host, port = self.sock.getsockname()[:2]
        return f"{host}:{port}".encode()

    def send(self, *words: str | bytes | int) -> None:
        self.sock.sendall(command(*words))

    def send_raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def ask(self, *words: str | bytes | int) -> Any:
        self.send(*words)
        return self.read()

    def read(self, seconds: float = PATIENCE_S) -> Any:
        """The next reply. Raises EOFError where the connection ends instead, TimeoutError where nothing comes."""
        self.sock.settimeout(seconds)
        line = self.read_line()
        kind, text = line[:1], line[1:]
        if kind == b"+":
            return text
        if kind == b"-":
            return ErrorReply(text)
        if kind == b":":
            return int(text)
        if kind == b"_" or text == b"-1":
            return None
        if kind == b"$":
            return self.read_exactly(int(text) + 2)[:-2]
        if kind == b"*":
            return [self.read(seconds) for _ in range(int(text))]
        if kind == b"%":
            return {self.read(seconds): self.read(seconds) for _ in range(int(text))}
        raise AssertionError(f"not a reply: {line!r}")

    def read_line(self) -> bytes:
        """Up to the end of a line, without it."""
        while (end := self.data.find(b"\r\n")) < 0:
            self.receive()
        line, self.data = self.data[:end], self.data[end + 2:]
        return line

    def read_exactly(self, size: int) -> bytes:
        pieces = [self.data]
        have = len(self.data)
        self.data = b""
        while have < size:
            self.receive()
            pieces.append(self.data)
            have += len(self.data)
            self.data = b""
        whole = b"".join(pieces)
        self.data = whole[size:]
        return whole[:size]

    def receive(self) -> None:
        more = self.sock.recv(256 * 1024)
        if not more:
            raise EOFError("the node has closed the connection")
        self.data += more

    def read_to_end(self) -> bytes:
        """Everything until the node closes the connection, by whatever way."""
        self.sock.settimeout(PATIENCE_S)
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                self.receive()
        data, self.data = self.data, b""
        return data

    def is_quiet(self, seconds: float = 0.03) -> bool:
        """Nothing comes for that long."""
        self.sock.settimeout(seconds)
        try:
            self.receive()
        except TimeoutError:
            return True
        except EOFError:
            pass
        return False


def command(*words: str | bytes | int) -> bytes:
    """A command as clients send it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


LIBC = ctypes.CDLL(None, use_errno=True)
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1


def be_bound() -> None:
    """Before a program is run: the permissions of files hold for it, even where tests are run by a superuser."""
    if os.getuid() == 0 and LIBC.prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up CAP_DAC_OVERRIDE")


class Node:
    """A node process. `flags` are those of `holdfast node`; it is ready when this object is there."""

    def __init__(
        self, *flags: str, env: Mapping[str, str] | None = None, port: int = 0, files: int = 0, wait: bool = True,
        is_bound: bool = False, prefix: Sequence[str] = (),
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-test-")
        self.log_path = Path(self.folder.name) / "log"
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_") or k == "HOLDFAST_PURE"}
        environ.update(env or {})
        arguments = [*prefix, sys.executable, "-m", "holdfast", "node", *flags]
        if port >= 0 and "--port" not in flags:
            arguments += ["--port", str(port)]
            if port + 10_000 > 65535 and not any("cluster-bus-port" in flag for flag in flags):
                arguments += ["--set", f"cluster-bus-port={port - 10_000}"]  # the system chose it, for an earlier node
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                arguments, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else
                be_bound if is_bound else None,
            )
        self.port = 0
        self.base = 0
        if wait:
            try:
                self.wait_until_ready()
            except BaseException:
                self.stop()
                raise

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.stop()
        if kind is None:
            assert code in (0, None), f"the node ended with {code}:\n{self.log()}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_ready(self) -> None:
        def is_ready() -> re.Match[str] | None:
            assert self.process.poll() is None, f"the node did not start:\n{self.log()}"
            return READY.search(self.log())

        self.port = int(until(is_ready)[1])

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def alarms(self) -> list[str]:
        """Lines of the log above INFO, and tracebacks."""
        return [found.group(0) for found in ABOVE_INFO.finditer(self.log())]

    def client(self, receive_bytes: int = 0) -> Client:
        return Client(("127.0.0.1", self.port), receive_bytes)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code, when it has come to that."""
        return self.process.wait(PATIENCE_S)

    def stop(self) -> int | None:
        """Stop by SIGTERM; None if it had to be killed. Safe to call again."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code: int | None = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the node did not stop:\n{self.log()}") from None
        self.last_log = self.log() if self.log_path.exists() else ""
        with contextlib.suppress(OSError):
            self.folder.cleanup()
        return code

    # -- what a node says of itself ------------------------------------------------------------------------

    def info(self, client: Client, section: str = "default") -> dict[str, str]:
        text = client.ask("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def used(self, client: Client) -> int:
        return int(self.info(client, "memory")["used_memory"])

    def measure(self) -> None:
        """Note what memory an empty node with one client uses."""
        with self.client() as client:
            until(lambda: self.info(client, "clients")["connected_clients"] == "1")
            self.base = self.used(client)

    def check(self) -> None:
        """Unharmed: nobody left behind, no fault, a quiet log, and no more memory than an empty node has."""
        with self.client() as client:
            assert client.ask("PING") == b"PONG"
            client.ask("DISQUE", "FLUSHALL")
            until(lambda: self.info(client, "clients")["connected_clients"] == "1")
            facts = self.info(client, "all")
            assert facts["blocked_clients"] == "0" and facts["faults"] == "0"
            assert int(facts["used_memory"]) == self.base, (facts["used_memory"], self.base)
        assert self.alarms() == []

    @contextlib.contextmanager
    def another_client(self, most_s: float = 2.0) -> Iterator[Other]:
        """While the block runs, another client asks PING all the time, and must be answered promptly."""
        other = Other(self)
        try:
            yield other
        finally:
            other.end()
        other.check(most_s)


class Other:
    """A client in a thread that asks PING again and again, and notes how long the longest answer took."""

    def __init__(self, node: Node) -> None:
        self.client = node.client()
        self.count = 0
        self.longest_s = 0.0
        self.error: BaseException | None = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                began = time.monotonic()
                assert self.client.ask("PING") == b"PONG"
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.count += 1
                self.is_over.wait(POLL_S)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        until(lambda: self.count > 0 or self.error)
        self.is_over.set()
        self.thread.join(PATIENCE_S)
        self.client.close()

    def check(self, most_s: float) -> None:
        assert self.error is None, f"another client was harmed: {self.error!r}"
        assert self.longest_s < most_s, f"another client waited {self.longest_s:.3f} s"
