"""One stream of bytes, read by every parser there is.

`Requests` is asked directly. The sockets, compiled and plain, are given a connection over a transport made
of lists, and a node that runs nothing but notes what it was asked to run. Whatever is read out of the same
bytes must be the same: the commands, their order, and the words at the end if the stream breaks the
protocol. The native sockets come twice: some commands reach the node by a list, those with a direct handler
by a call of their own, and each has its own code for finding the words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from librt.strings import BytesWriter

from holdfast import form
from holdfast.shell import plain
from holdfast.shell.seal import Seals
from holdfast.wire.resp import BULK_BYTES_FLOOR, ProtocolError, Requests

native: Any = None
if not form.PURE:
    with contextlib.suppress(ImportError):
        from holdfast.shell import native as compiled

        if not str(compiled.__file__).endswith(".py"):
            native = compiled

NEVER = 1 << 62
MIB = 1024 * 1024
ERROR = b"-ERR Protocol error: "


@dataclass(frozen=True)
class Bounds:
    """What a client may send, and whether it must say who it is first (by AUTH, with any word)."""

    body_bytes: int = MIB
    command_bytes: int = 64 * MIB
    is_stranger: bool = False

    def argument_bytes(self) -> int:
        return max(self.body_bytes, BULK_BYTES_FLOOR)


USUAL = Bounds()


@dataclass
class Read:
    """What was made of a stream."""

    commands: list[list[bytes]] = field(default_factory=list)
    error: bytes | None = None


class Session:
    """As much of a session as sockets look at."""

    def __init__(self, number: int, is_trusted: bool) -> None:
        self.number = number
        self.is_trusted = is_trusted
        self.handle: object = None
        self.blocked = 0
        self.is_closing = False
        self.is_monitor = False
        self.connected = self.used = 0


class Node:
    """Runs nothing. It notes each command and answers with the number of it.

    AUTH makes a session known. BLOCK runs and leaves the session blocked, as GETJOB on an empty queue does.
    BIG n is answered with n bytes. Whatever a blocked session sends is refused: keep it.
    """

    def __init__(self) -> None:
        self.out = BytesWriter()
        self.wakeups: list[tuple[Session, bytes]] = []
        self.requests: list[object] = []
        self.peers: list[object] = [None]  # this node and no other: it is never asked for frames
        self.frames: list[tuple[object, bytes]] = []
        self.is_trusting = True
        self.is_silent = False  # no replies at all, as after CLIENT REPLY OFF
        self.ran: list[tuple[Session, list[bytes]]] = []
        self.refusals = 0
        self.sessions: list[Session] = []
        self.gone: list[Session] = []

    def connect(self, address: str) -> Session:
        session = Session(len(self.sessions), self.is_trusting)
        self.sessions.append(session)
        return session

    def disconnect(self, session: Session) -> None:
        self.gone.append(session)

    def execute(self, session: Session, argv: list[bytes]) -> bool:
        if session.blocked or session.is_closing:
            self.refusals += 1
            return False
        self.ran.append((session, argv))
        if argv[0] == b"AUTH":
            session.is_trusted = True
        if argv[0] == b"BLOCK":
            session.blocked = 1
        elif self.is_silent:
            pass
        elif argv[0] == b"BIG":
            self.out.write(b"$%b\r\n%b\r\n" % (argv[1], bytes(int(argv[1]))))
        else:
            self.out.write(b":%d\r\n" % len(self.ran))
        return True

    def wake(self, session: Session, reply: bytes) -> None:
        session.blocked = 0
        self.wakeups.append((session, reply))

    def commands(self, session: Session | None = None) -> list[list[bytes]]:
        return [argv for ran, argv in self.ran if session is None or ran is session]

    def took(self, usec: int) -> None:
        pass

    def take_output(self) -> bytes:
        data = self.out.getvalue()
        self.out.truncate(0)
        return data

    def set_time(self, now: int, wall: int) -> None:
        pass

    def tick(self) -> None:
        pass

    def frame(self, peer: object, data: bytes) -> bool:
        raise AssertionError("a frame, and there is no peer")

    def flush(self) -> None:
        raise AssertionError("asked for frames, and there is no peer")

    def next_wake(self) -> int:
        return NEVER

    def handlers(self) -> dict[bytes, list[Any]]:
        """Direct handlers by command and number of words, as core/direct.py has them."""

        def direct(name: bytes) -> Callable[..., bool]:
            return lambda session, *words: self.execute(session, [name, *words])

        return {
            b"ADDJOB": [None, None, None, None, direct(b"ADDJOB")],
            b"GETJOB": [None, None, None, direct(b"GETJOB"), direct(b"GETJOB")],
            b"ACKJOB": [None, None, direct(b"ACKJOB"), None, None],
        }


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def hold(self, is_full: bool) -> None:
        self.is_full = is_full

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def data(self) -> bytes:
        return b"".join(self.written)


class NoSeal:
    """In place of a link's cipher, where a test is about frames and not about their seals."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        return data

    decrypt = encrypt


CLEAR = Seals(NoSeal(), NoSeal())


def make_sockets(kind: str, node: Node, bounds: Bounds = USUAL) -> Any:
    """`native`, `native-direct` or `plain` sockets around a node."""
    module = plain if kind.startswith("plain") else native
    sockets = module.Sockets(node, node.handlers() if kind.endswith("direct") else {}, 0)
    sockets.configure(100, 0, 0, 30_000, bounds.body_bytes, bounds.command_bytes, 0, 0, 0)
    node.is_trusting = not bounds.is_stranger
    return sockets


def read_by_requests(pieces: Iterable[bytes], bounds: Bounds) -> Read:
    requests = Requests()
    requests.bulk_bytes_max = bounds.argument_bytes()
    requests.command_bytes_max = bounds.command_bytes
    read = Read()
    is_stranger = bounds.is_stranger
    for piece in pieces:
        requests.feed(piece)
        try:
            while (argv := requests.next(is_stranger)) is not None:
                read.commands.append(argv)
                is_stranger = is_stranger and argv[0] != b"AUTH"
        except ProtocolError as error:
            read.error = error.text
            break
        assert 0 <= requests.waiting() <= most_waiting(bounds)
    return read


def read_by_sockets(kind: str, pieces: Iterable[bytes], bounds: Bounds) -> Read:
    node = Node()
    sockets = make_sockets(kind, node, bounds)
    transport = Transport()
    connection = sockets.attach(transport, "test")
    for piece in pieces:
        sockets.feed(connection, piece)
        assert sockets.figures()["client_biggest_input_buf"] <= most_waiting(bounds)
    read = Read(node.commands())
    replies, mark, error = transport.data().partition(ERROR)
    assert replies.count(b"\r\n") == len(read.commands)
    if mark:
        assert error.endswith(b"\r\n") and error.count(b"\r\n") == 1
        assert transport.is_closed and node.gone == node.sessions
        read.error = error[:-2]
    else:
        assert not transport.is_closed
        sockets.detach(connection)
    sockets.shut()
    return read


def most_waiting(bounds: Bounds) -> int:
    """No client makes us keep more: one command, the lines around its arguments, and the piece just read."""
    return bounds.command_bytes + 20 * MIB


READERS: dict[str, Callable[[Iterable[bytes], Bounds], Read]] = {"requests": read_by_requests}
SOCKETS = ["plain", *(["native"] if native else [])]
for each in [*SOCKETS, *[f"{kind}-direct" for kind in SOCKETS]]:
    READERS[each] = lambda pieces, bounds, kind=each: read_by_sockets(kind, pieces, bounds)  # type: ignore[misc]


def array(*words: bytes) -> bytes:
    """A command as clients send it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def halves(data: bytes, at: int) -> list[bytes]:
    return [data[:at], data[at:]]


def cut(data: bytes, at: Iterable[int]) -> list[bytes]:
    """The stream in pieces that end at these places; never an empty one, which no socket gives."""
    ends = sorted({place for place in at if 0 < place < len(data)} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends) if end > start]
