"""What a connection does with its commands: wait, go on, be told to read first, end.

Each test runs with the compiled sockets and with their plain twin, around a node that only takes notes
(twins.py). Where it matters how much the kernel holds, the client is a real socket.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twins import ERROR, MIB, SOCKETS, Bounds, Node, Session, Transport, array, make_sockets

from holdfast.shell.bounds import HELD_INPUT_MAX, OUTPUT_HIGH_WATER, READ_BYTES

KIB = 1024
QUIET_S = 0.01
PING = array(b"PING")
KINDS = [*SOCKETS, *[f"{kind}-direct" for kind in SOCKETS]]


class Bench:
    """Sockets, their node, and clients of both sorts."""

    def __init__(self, kind: str, bounds: Bounds) -> None:
        self.node = Node()
        self.sockets: Any = make_sockets(kind, self.node, bounds)
        self.listener: socket.socket | None = None
        self.clients: list[socket.socket] = []

    def attach(self) -> tuple[Any, Transport, Session]:
        transport = Transport()
        connection = self.sockets.attach(transport, "test")
        return connection, transport, self.node.sessions[-1]

    def connect(self, receive_bytes: int = 8 * KIB) -> tuple[socket.socket, Session]:
        """A real client that holds little of what it has not read."""
        if self.listener is None:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.sockets.listen(self.listener)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.connect(self.listener.getsockname())
        self.clients.append(client)
        client.setblocking(False)
        count = len(self.node.sessions)
        self.until(lambda: len(self.node.sessions) > count)
        return client, self.node.sessions[-1]

    def until(self, is_so: Callable[[], bool], turns: int = 100_000) -> None:
        for _ in range(turns):
            if is_so():
                return
            self.sockets.step()
        pytest.fail("it never came about")

    def settle(self) -> None:
        """Turn until nothing moves any more: no client is ready, for longer than the kernel takes to tell."""
        poll = select.poll()  # not select: other tests of this process may have a thousand files open
        poll.register(self.sockets.fileno(), select.POLLIN)
        while poll.poll(QUIET_S * 1000):
            self.sockets.step()

    def wake(self, session: Session, reply: bytes) -> None:
        """Somebody else's command wakes a session; here it is the sweep that makes the turn."""
        self.node.wake(session, reply)
        self.sockets.sweep()

    def waiting(self) -> int:
        return int(self.sockets.figures()["client_biggest_input_buf"])

    def end(self) -> None:
        for client in self.clients:
            client.close()
        self.sockets.shut()


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(request.param, Bounds())
    yield made
    made.end()


def send_some(client: socket.socket, data: bytes, start: int = 0) -> int:
    """What the kernel takes now of data[start:]; how many bytes that was."""
    rest = memoryview(data)[start:]
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < len(rest):
            sent += client.send(rest[sent:sent + 64 * KIB])
    return sent


def read_some(client: socket.socket, most: int = MIB) -> bytes:
    try:
        return client.recv(most)
    except BlockingIOError:
        return b""


# -- held ---------------------------------------------------------------------------------------------------


def test_a_held_command_is_run_once_and_in_order_after_the_wakeup(bench: Bench) -> None:
    connection, transport, session = bench.attach()
    bench.sockets.feed(connection, array(b"a") + array(b"BLOCK") + array(b"b", b"1") + array(b"c"))
    assert bench.node.commands() == [[b"a"], [b"BLOCK"]] and bench.node.refusals == 1
    bench.sockets.feed(connection, array(b"d"))
    assert len(bench.node.ran) == 2 and transport.data() == b":1\r\n"
    bench.node.wake(session, b"+woken\r\n")
    bench.sockets.feed(connection, array(b"e"))
    assert bench.node.commands() == [[b"a"], [b"BLOCK"], [b"b", b"1"], [b"c"], [b"d"], [b"e"]]
    assert transport.data() == b":1\r\n+woken\r\n:3\r\n:4\r\n:5\r\n:6\r\n"


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_blocked_again_and_again(bench: Bench, count: int) -> None:
    connection, transport, session = bench.attach()
    bench.sockets.feed(connection, (array(b"x", b"y" * 20) + array(b"BLOCK")) * count + b"BLOCK\r\nlast\r\n")
    for _ in range(count + 1):
        assert session.blocked
        bench.node.wake(session, b"+woken\r\n")
        bench.sockets.feed(connection, b"")
    expected = [[b"x", b"y" * 20], [b"BLOCK"]] * count + [[b"BLOCK"], [b"last"]]
    assert bench.node.commands() == expected
    assert transport.data().count(b"+woken\r\n") == count + 1


@pytest.mark.parametrize("held", [array(b"held"), array(b"ADDJOB", b"q", b"b", b"0"), array(*b"abcdefgh".split()),
                                  b"held a b\r\n", array(b"ECHO", b"x" * 200_000)], ids=lambda held: held[:20])
def test_every_sort_of_command_can_be_held_and_cut(bench: Bench, held: bytes) -> None:
    """The held command comes whole or in two pieces, after commands of the same batch or alone."""
    places = range(len(held) + 1) if len(held) < 100 else (1, 8, 20, 100_000, len(held) - 1, len(held))
    for before in (b"", PING, PING * 17):
        for place in places:
            connection, transport, session = bench.attach()
            bench.node.ran.clear()
            bench.sockets.feed(connection, before + array(b"BLOCK") + held[:place])
            bench.sockets.feed(connection, held[place:] + array(b"after"))
            assert bench.node.commands()[-1] == [b"BLOCK"]
            bench.node.wake(session, b"+woken\r\n")
            bench.sockets.feed(connection, b"")
            ran = bench.node.commands()
            assert len(ran) == len(before) // len(PING) + 3 and ran[-1] == [b"after"]
            assert transport.data().count(b"\r\n") == len(ran)
            bench.sockets.detach(connection)


def test_a_wakeup_without_a_reply_lets_the_session_go_on(bench: Bench) -> None:
    connection, transport, session = bench.attach()
    bench.sockets.feed(connection, array(b"BLOCK") + array(b"next"))
    bench.node.wake(session, b"")
    bench.sockets.feed(connection, b"")
    assert bench.node.commands()[-1] == [b"next"] and transport.data() == b":2\r\n"


def test_a_reply_that_does_not_unblock_holds_on(bench: Bench) -> None:
    """MONITOR's lines come by wakeups, too."""
    connection, transport, session = bench.attach()
    bench.sockets.feed(connection, array(b"BLOCK") + array(b"next"))
    bench.node.wakeups.append((session, b"+line\r\n"))
    bench.sockets.feed(connection, b"")
    assert bench.node.commands() == [[b"BLOCK"]] and transport.data() == b"+line\r\n"


def test_one_session_wakes_the_other_in_the_same_turn(bench: Bench) -> None:
    first, transport, session = bench.attach()
    second, other, _ = bench.attach()
    bench.sockets.feed(first, array(b"BLOCK") + array(b"next"))
    bench.node.wake(session, b"+job\r\n")
    bench.sockets.feed(second, PING)
    assert transport.data().startswith(b"+job\r\n:") and other.data().count(b"\r\n") == 1


def test_a_wakeup_for_a_session_that_is_gone_is_dropped(bench: Bench) -> None:
    connection, transport, session = bench.attach()
    bench.sockets.feed(connection, array(b"BLOCK") + array(b"next"))
    bench.node.wake(session, b"+late\r\n")
    bench.sockets.detach(connection)
    other, heard, _ = bench.attach()
    bench.sockets.feed(other, PING)
    assert transport.data() == b"" and transport.is_closed and heard.data() == b":2\r\n"
    assert bench.node.gone == [session]


def test_a_protocol_error_is_said_in_its_turn(bench: Bench) -> None:
    """A blocked session's reply comes before the error for what it sent after it."""
    for broken in (b"*x\r\n", b'"\r\n', b"*1\r\n:1\r\n", b"*2\r\n$1\r\nx\r\n$-1\r\n"):
        connection, transport, session = bench.attach()
        bench.sockets.feed(connection, PING + array(b"BLOCK") + broken + PING)
        assert session.blocked and not transport.is_closed and transport.data().count(b"\r\n") == 1
        bench.node.wake(session, b"+job\r\n")
        bench.sockets.feed(connection, b"")
        assert transport.data().partition(b"\r\n")[2].startswith(b"+job\r\n" + ERROR) and transport.is_closed


def test_a_blocked_client_can_send_ahead_only_so_much(bench: Bench) -> None:
    client, session = bench.connect()
    client.sendall(array(b"BLOCK"))
    bench.until(lambda: session.blocked == 1)
    command = array(b"ADDJOB", b"q", b"x" * 1000, b"0")
    want = 16 * MIB // len(command)
    data = command * want
    sent = 0
    while more := send_some(client, data, sent):
        sent += more
        bench.settle()
    assert sent < len(data) and len(bench.node.ran) == 1
    assert HELD_INPUT_MAX < bench.waiting() < HELD_INPUT_MAX + 3 * READ_BYTES
    bench.wake(session, b"+woken\r\n")
    got = b""
    for _ in range(100_000):
        sent += send_some(client, data, sent)
        bench.sockets.step()
        got += read_some(client)
        if got.count(b"\n") == want + 1:
            break
    assert got.startswith(b"+woken\r\n:2\r\n:3\r\n") and len(bench.node.ran) == want + 1


def test_a_client_that_wants_no_replies_is_read_again_after_its_wait(bench: Bench) -> None:
    """CLIENT REPLY OFF: the wakeup is empty and nothing is ever owed, so nothing but the wakeup says go on."""
    client, session = bench.connect()
    bench.node.is_silent = True
    client.sendall(array(b"BLOCK"))
    bench.until(lambda: session.blocked == 1)
    command = array(b"ADDJOB", b"q", b"x" * 1000, b"0")
    want = 16 * MIB // len(command)
    data = command * want
    sent = 0
    while more := send_some(client, data, sent):
        sent += more
        bench.settle()
    bench.wake(session, b"")
    for _ in range(100_000):
        sent += send_some(client, data, sent)
        bench.sockets.step()
        if len(bench.node.ran) == want + 1:
            break
    assert len(bench.node.ran) == want + 1


# -- throttled ----------------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_is_not_served_and_goes_on_after_it_has(bench: Bench) -> None:
    client, _ = bench.connect()
    count = 2000
    data = b"".join(array(b"BIG", b"%d" % (10_000 + i)) for i in range(count))
    sent = 0
    while more := send_some(client, data, sent):
        sent += more
        bench.settle()
    stopped_at = len(bench.node.ran)
    assert 0 < stopped_at < count
    owed = bench.sockets.describe(bench.node.sessions[0])["omem"]
    assert OUTPUT_HIGH_WATER <= owed <= OUTPUT_HIGH_WATER + 17 * 12_010
    bench.settle()
    assert len(bench.node.ran) == stopped_at
    got = bytearray()
    expected = sum(10_000 + i + len(str(10_000 + i)) + 5 for i in range(count))
    for _ in range(100_000):
        sent += send_some(client, data, sent)
        bench.sockets.step()
        got += read_some(client)
        if len(got) == expected:
            break
    assert len(got) == expected and len(bench.node.ran) == count
    position = 0
    for i in range(count):
        head = b"$%d\r\n" % (10_000 + i)
        assert got.startswith(head, position)
        position += len(head) + 10_000 + i + 2


def test_others_are_served_while_one_does_not_read(bench: Bench) -> None:
    client, _ = bench.connect()
    send_some(client, array(b"BIG", b"20000") * 2000)
    bench.settle()
    other, _ = bench.connect()
    other.sendall(PING)
    got = b""
    for _ in range(1000):
        bench.sockets.step()
        got += read_some(other)
        if got:
            break
    assert got.endswith(b"\r\n")


def test_a_long_pipeline_by_another_transport_is_answered_in_order(bench: Bench) -> None:
    """There nothing is ever owed for long: throttled and resumed within the turn."""
    connection, transport, _ = bench.attach()
    count = 200
    sizes = [5000 + i for i in range(count)]
    bench.sockets.feed(connection, b"".join(array(b"BIG", b"%d" % size) for size in sizes) + array(b"*")[:3])
    bench.sockets.feed(connection, array(b"*")[3:])
    expected = b"".join(b"$%d\r\n%b\r\n" % (size, bytes(size)) for size in sizes) + b":%d\r\n" % (count + 1)
    assert transport.data() == expected


def test_throttled_and_then_blocked(bench: Bench) -> None:
    connection, transport, session = bench.attach()
    bench.sockets.feed(connection, array(b"BIG", b"300000") * 20 + array(b"BLOCK") + array(b"next"))
    assert bench.node.commands()[-1] == [b"BLOCK"]
    bench.node.wake(session, b"+woken\r\n")
    bench.sockets.feed(connection, b"")
    assert transport.data().endswith(b"\r\n+woken\r\n:22\r\n")


def test_a_client_over_the_hard_limit_is_closed(bench: Bench) -> None:
    bench.sockets.configure(100, 0, 0, 30_000, MIB, 64 * MIB, 20 * MIB, 0, 0)
    client, session = bench.connect()
    client.sendall(array(b"BIG", b"%d" % (30 * MIB)))
    bench.until(lambda: bench.node.gone == [session])
    other, _ = bench.connect()
    other.sendall(PING)
    bench.until(lambda: read_some(other).endswith(b"\r\n"))


# -- ending -------------------------------------------------------------------------------------------------


def test_after_a_protocol_error_nothing_more_is_run(bench: Bench) -> None:
    client, session = bench.connect()
    client.sendall(PING + b"*x\r\n" + PING * 10)
    got = b""

    def is_over() -> bool:
        nonlocal got
        got += read_some(client)
        return got.endswith(b"length\r\n")

    bench.until(is_over)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(PING * 10)
    bench.settle()
    assert got == b":1\r\n" + ERROR + b"invalid multibulk length\r\n"
    assert bench.node.commands() == [[b"PING"]] and read_some(client) == b""
    client.close()
    bench.until(lambda: bench.node.gone == [session])


def test_what_a_closing_client_sends_is_dropped_not_kept(bench: Bench) -> None:
    """It said QUIT and does not read its last replies, so it is still there; it must not fill our memory."""
    client, session = bench.connect()
    bench.sockets.configure(100, 0, 0, 30_000, MIB, 64 * MIB, 0, 0, 0)
    while bench.sockets.describe(session)["omem"] == 0:
        client.sendall(array(b"BIG", b"100000"))
        bench.settle()
    assert bench.sockets.describe(session)["omem"] < OUTPUT_HIGH_WATER
    session.is_closing = True
    bench.sockets.close_session(session, False)
    assert bench.node.gone == []
    sent = 0
    while sent < 8 * MIB and (more := send_some(client, b"x" * MIB)):
        sent += more
        bench.settle()
    assert bench.waiting() <= HELD_INPUT_MAX + 3 * READ_BYTES
    assert bench.node.gone == []

    def has_read_it_all() -> bool:
        read_some(client)
        return bench.node.gone == [session]

    bench.until(has_read_it_all)


def test_new_limits_hold_for_clients_that_are_here(bench: Bench) -> None:
    connection, transport, _ = bench.attach()
    bench.sockets.feed(connection, array(b"x" * 100_000))
    bench.sockets.configure(100, 0, 0, 30_000, 1, 64 * MIB, 0, 0, 0)
    bench.sockets.feed(connection, array(b"x" * 100_000))
    assert transport.is_closed and b"max-body-bytes" in transport.data()


def test_too_many_clients(bench: Bench) -> None:
    bench.sockets.configure(2, 0, 0, 30_000, MIB, 64 * MIB, 0, 0, 0)
    bench.attach()
    connection, _, _ = bench.attach()
    assert bench.sockets.attach(Transport(), "test") is None
    bench.sockets.detach(connection)
    assert bench.sockets.attach(Transport(), "test") is not None
    assert bench.sockets.figures()["rejected_connections"] == 1


def test_direct_commands_are_counted_once_and_only_when_they_ran(bench: Bench) -> None:
    connection, _, session = bench.attach()
    bench.sockets.feed(connection, array(b"ACKJOB", b"x") * 3 + array(b"BLOCK") + array(b"ACKJOB", b"x"))
    rows = {name: calls for name, calls, _ in bench.sockets.direct()}
    assert rows in ({}, {b"ADDJOB": 0, b"GETJOB": 0, b"ACKJOB": 3})
    bench.node.wake(session, b"")
    bench.sockets.feed(connection, b"")
    rows = {name: calls for name, calls, _ in bench.sockets.direct()}
    assert rows in ({}, {b"ADDJOB": 0, b"GETJOB": 0, b"ACKJOB": 4})


def test_everything_is_closed_at_the_end(bench: Bench) -> None:
    _, transport, _ = bench.attach()
    client, _ = bench.connect()
    bench.sockets.shut()
    assert transport.is_closed and len(bench.node.gone) == 2
    client.setblocking(True)
    assert client.recv(1) == b""
