"""Clients that break the protocol, lie, flood, stall or vanish, at a real node.

After each: the documented error or a closed connection; and while it lasts and afterwards another client's
PING is answered promptly, the log has nothing above INFO, no fault is counted, and no memory stays behind.
The same tests run in both forms of the node: HOLDFAST_PURE=1 chooses the plain one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import Client, ErrorReply, Node, allow_files, command, until

KIB = 1024
MIB = 1024 * 1024
CONNECTIONS = 5000
PROTOCOL = b"Protocol error: "
UNKNOWN_ID = b"DI" + b"0" * 40 + b"05a1SQ"


def start(*flags: str) -> Iterator[Node]:
    with Node(*flags) as node:
        node.measure()
        yield node


@pytest.fixture(scope="module")
def patient() -> Iterator[Node]:
    """With the usual settings, except that half a command is waited for only so long."""
    yield from start("--set", "command-timeout-ms=300")


@pytest.fixture(scope="module")
def strict() -> Iterator[Node]:
    """With limits that are easy to reach."""
    yield from start(
        "--set", "max-body-bytes=100kb", "--set", "max-command-bytes=300kb",
        "--set", "client-output-buffer-limit=normal 8mb 0 0",
    )


@pytest.fixture
def node(patient: Node) -> Iterator[Node]:
    with patient.another_client():
        yield patient
    patient.check()


@pytest.fixture
def strict_node(strict: Node) -> Iterator[Node]:
    with strict.another_client():
        yield strict
    strict.check()


def send_anyway(client: Client, data: bytes) -> None:
    """Whether or not the other side still listens."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.send_raw(data)


# -- broken protocol ----------------------------------------------------------------------------------------

BROKEN = {
    b"*x\r\n": b"invalid multibulk length",
    b"*99999999999999999999\r\n": b"invalid multibulk length",
    b"*1048577\r\n": b"invalid multibulk length",
    b"*1\r\n$-1\r\n": b"invalid bulk length",
    b"*1\r\n$-99999999999\r\n": b"invalid bulk length",
    b"*1\r\n$99999999999999999999\r\n": b"invalid bulk length",
    b"*1\r\n$536870913\r\n": b"an argument is longer than the setting max-body-bytes allows",
    b"*1\r\n:1\r\n": b"expected '$', got ':'",
    b"*1\r\n\x00": b"expected '$', got '\\x00'",
    b"*2\r\n$4\r\nPING\r\nPING\r\n": b"expected '$', got 'P'",
    b'PING "x\r\n': b"unbalanced quotes in request",
    b"x" * 64 * KIB: b"too big inline request",
    b"*" + b"1" * 64 * KIB: b"too big mbulk count string",
    b"*1\r\n$" + b"1" * 64 * KIB: b"too big bulk count string",
    b"GET / HTTP/1.1\r\nHost: 'x\r\n": b"unbalanced quotes in request",
}


@pytest.mark.parametrize("sent", BROKEN, ids=lambda sent: repr(sent[:20]))
def test_broken_protocol(node: Node, sent: bytes) -> None:
    with node.client() as client:
        send_anyway(client, command("PING", "before") + sent + command("ADDJOB", "after", "x", 0) * 3)
        assert client.read() == b"before"
        replies = client.read_to_end().split(b"\r\n")
        assert replies[-2:] == [b"-ERR " + PROTOCOL + BROKEN[sent], b""]
    with node.client() as client:
        assert client.ask("QLEN", "after") == 0


@pytest.mark.parametrize(
    "noise", [bytes(range(256)) * 400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 70_000],
    ids=["every byte", "TLS", "zeros"],
)
def test_noise_ends_in_errors_or_silence(node: Node, noise: bytes) -> None:
    """Binary noise, a TLS greeting, zeros. Nobody knows what they say; everybody else goes on."""
    with node.client() as client:
        send_anyway(client, noise)
        client.sock.shutdown(socket.SHUT_WR)
        for line in client.read_to_end().split(b"\r\n")[:-1]:
            assert line.startswith(b"-ERR ")


def test_half_a_command_is_not_waited_for_for_ever(node: Node) -> None:
    clients = [node.client() for _ in range(4)]
    halves = [b"*2\r\n$4\r\nPING\r\n$10\r\nabc", b"*", b"PING", b"*3\r\n$100000\r\n" + b"x" * 50_000]
    began = time.monotonic()
    for client, half in zip(clients, halves):
        client.send_raw(command("PING") + half)
        assert client.read() == b"PONG"
    blocked = node.client()
    blocked.send("GETJOB", "FROM", "nothing")
    blocked.send("PING")
    for client in clients:
        assert client.read_to_end() == b""
        client.close()
    assert 0.3 <= time.monotonic() - began < 5
    with node.client() as other:  # who waits for a job has finished its commands, also those behind it
        other.ask("ADDJOB", "nothing", "x", 0)
    assert blocked.read()[0][2] == b"x"
    assert blocked.read() == b"PONG"
    blocked.close()


def test_ten_thousand_commands_in_one_write(node: Node) -> None:
    count = 10_000
    with node.client() as client, ThreadPoolExecutor(1) as sender:
        pings = b"".join(command("PING", i) for i in range(count))
        done = sender.submit(client.send_raw, pings)
        assert [client.read() for _ in range(count)] == [b"%d" % i for i in range(count)]
        done.result()
        adds = command("ADDJOB", "q", "x" * 100, 0) * count
        gets = command("GETJOB", "NOHANG", "FROM", "q") * count
        done = sender.submit(client.send_raw, adds + gets)
        ids = [client.read() for _ in range(count)]
        assert len(set(ids)) == count
        assert [client.read()[0][1] for _ in range(count)] == ids
        done.result()


def test_huge_counts_and_lengths_cost_nothing(node: Node) -> None:
    """A million words announced, a mebibyte announced: nothing is set aside for what may never come."""
    clients = [node.client() for _ in range(100)]
    with node.client() as watcher:
        before = int(node.info(watcher, "memory")["used_memory_rss"])
        for client in clients:
            client.send_raw(b"*1048576\r\n$1048576\r\nx")
        until(lambda: watcher.ask("CLIENT", "LIST").count(b" qbuf=0 ") == 2)
        assert int(node.info(watcher, "memory")["used_memory_rss"]) - before < 20 * MIB
    for client in clients:
        client.close()


# -- many ---------------------------------------------------------------------------------------------------


def test_five_thousand_connections(patient: Node) -> None:
    """Limits of the machine may allow fewer; then it is as many as they do."""
    possible = allow_files(2 * CONNECTIONS)
    count = min(CONNECTIONS, possible - 200)
    if count < CONNECTIONS:
        print(f"this machine allows {possible} open files: testing with {count} connections")
    with Node("--set", f"maxclients={count + 10}") as node:
        node.measure()
        with node.another_client(most_s=5):
            clients = [node.client() for _ in range(count)]
            with node.client() as watcher:
                until(lambda: node.info(watcher, "clients")["connected_clients"] == str(count + 2))
                for i, client in enumerate(clients):
                    client.send("PING", i)
                for i, client in enumerate(clients):
                    assert client.read() == b"%d" % i
                for client in clients[: count // 2]:
                    client.send("GETJOB", "FROM", "nothing")
                until(lambda: node.info(watcher, "clients")["blocked_clients"] == str(count // 2))
            for client in clients:
                client.close()
        node.check()


def test_more_clients_than_allowed() -> None:
    with Node("--set", "maxclients=20") as node:
        node.measure()
        clients = [node.client() for _ in range(20)]
        for client in clients:
            assert client.ask("PING") == b"PONG"
        for _ in range(50):
            with node.client() as refused:
                assert refused.read_to_end() == b"-ERR max number of clients reached\r\n"
        assert clients[0].ask("PING") == b"PONG"
        assert node.info(clients[0], "stats")["rejected_connections"] == "50"
        clients.pop().close()

        def admitted() -> bool:
            with node.client() as client:
                return client.ask("PING") == b"PONG"

        until(admitted)
        for client in clients:
            client.close()
        node.check()


def test_more_clients_than_the_system_has_files_for() -> None:
    """The limit of open files below maxclients: those who are here are served, and nobody burns a processor."""
    with Node(files=60) as node:
        first = node.client()
        assert first.ask("PING") == b"PONG"
        others = [node.client() for _ in range(100)]
        assert first.ask("PING") == b"PONG"
        before = processor_s(node)
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            assert first.ask("PING") == b"PONG"
            time.sleep(0.02)
        assert processor_s(node) - before < 0.12
        for client in others:
            client.close()
        with node.client() as late:
            assert late.ask("PING") == b"PONG"
        first.close()


def processor_s(node: Node) -> float:
    with open(f"/proc/{node.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


# -- nonsense in good form ----------------------------------------------------------------------------------

WRONG = {
    ("FOO",): b"ERR unknown command 'FOO'",
    ("F\r\n\xff",): b"ERR unknown command 'F\\r\\n\\xc3\\xbf'",
    ("",): b"ERR unknown command ''",
    ("QLEN",): b"ERR wrong number of arguments for 'qlen' command",
    ("PING", 1, 2): b"ERR wrong number of arguments for 'ping' command",
    ("ADDJOB", "q", "b", "x"): b"ERR timeout is not an integer or out of range",
    ("ADDJOB", "q", "b", "-1"): b"ERR timeout is negative",
    ("ADDJOB", "q", "b", "9" * 30): b"ERR timeout is not an integer or out of range",
    ("ADDJOB", "q", "b", 0, "TTL", 0): b"ERR TTL must be a number > 0",
    ("ADDJOB", "q", "b", 0, "TTL", "1.5"): b"ERR TTL must be a number > 0",
    ("ADDJOB", "q", "b", 0, "RETRY", "-1"): b"ERR RETRY time must be a non negative number",
    ("ADDJOB", "q", "b", 0, "DELAY", "x"): b"ERR DELAY time must be a non negative number",
    ("ADDJOB", "q", "b", 0, "DELAY", 10, "TTL", 5):
        b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered",
    ("ADDJOB", "q", "b", 0, "TTL", 4294967296): b"ERR a time in seconds must not exceed 2147483647",
    ("ADDJOB", "q", "b", 0, "REPLICATE", 65536): b"ERR REPLICATE must be between 1 and 65535",
    ("ADDJOB", "q", "b", 0, "REPLICATE", 0): b"ERR REPLICATE must be between 1 and 65535",
    ("ADDJOB", "q", "b", 0, "REPLICATE", 2): b"NOREPL Not enough reachable nodes for the requested replication level",
    ("ADDJOB", "q", "b", 0, "MAXLEN", 0): b"ERR MAXLEN must be a positive number",
    ("ADDJOB", "q", "b", 0, "PRIORITY", 10): b"ERR PRIORITY must be between 0 and 9",
    ("ADDJOB", "q", "b", 0, "BOGUS"): b"ERR syntax error",
    ("ADDJOB", "q", "b", 0, "TTL"): b"ERR syntax error",
    ("GETJOB", "q"): b"ERR syntax error",
    ("GETJOB", "FROM"): b"ERR syntax error",
    ("GETJOB", "NOHANG", "COUNT", 0, "FROM", "q"): b"ERR COUNT must be a number greater than zero",
    ("GETJOB", "TIMEOUT", "-5", "FROM", "q"): b"ERR timeout is negative",
    ("GETJOB", "BOGUS", "FROM", "q"): b"ERR syntax error",
    ("ACKJOB", "x"): b"BADID Invalid Job ID format.",
    ("ACKJOB", UNKNOWN_ID, "x"): b"BADID Invalid Job ID format.",
    ("ACKJOB", UNKNOWN_ID.upper()): b"BADID Invalid Job ID format.",
    ("ACKJOB", UNKNOWN_ID + b"0"): b"BADID Invalid Job ID format.",
    ("ACKJOB", b"\x00" * 48): b"BADID Invalid Job ID format.",
    ("NACK", ""): b"BADID Invalid Job ID format.",
    ("SHOW", "D-0123456789"): b"BADID Invalid Job ID format.",
    ("WORKING", UNKNOWN_ID): b"NOJOB Job not known in the context of this node.",
    ("QPEEK", "q", "many"): b"ERR value is not an integer or out of range",
    ("QSCAN", "x"): b"ERR invalid cursor or option name",
    ("JSCAN", 0, "STATE", "sleeping"): b"ERR Invalid job state name",
    ("JSCAN", 0, "REPLY", "some"): b"ERR Invalid REPLY type, try ID or ALL",
    ("PAUSE", "q", "maybe"): b"ERR syntax error",
    ("CONFIG", "SET", "nothing", 1): b"ERR Unsupported CONFIG parameter: nothing",
    ("CONFIG", "SET", "maxmemory", "lots"): b"ERR Invalid argument 'lots' for CONFIG SET 'maxmemory'",
    ("AUTH", "x"): b"ERR Client sent AUTH, but no password is set",
    ("HELLO", 4): b"NOPROTO unsupported protocol version",
    ("DEBUG", "SEGFAULT"): b"ERR DEBUG is off. Start the node with the setting enable-debug yes to use it",
}


def is_said(reply: Any, error: bytes, words: tuple[Any, ...]) -> bool:
    """To the letter; after a syntax error it is said how the command is used."""
    if error != b"ERR syntax error":
        return bool(reply == error)
    return reply.startswith(error) and f", use {words[0]} ".encode() in reply


def test_wrong_types_options_and_ids(node: Node) -> None:
    with node.client() as client:
        for words, error in WRONG.items():
            reply = client.ask(*words)
            assert isinstance(reply, ErrorReply) and is_said(reply, error, words), words
        for words in WRONG:  # the same in one write: errors keep their places
            client.send(*words)
            client.send("PING", "after")
        for words, error in WRONG.items():
            assert is_said(client.read(), error, words)
            assert client.read() == b"after"
        assert client.ask("QLEN", "q") == 0


@pytest.mark.parametrize(
    "name", [b"a\r\nb", b"\r\n+OK\r\n", b"\xff\xfe\x00", b"", b" ", b"x" * 64 * KIB, bytes(range(256))],
    ids=lambda name: repr(name[:12]),
)
def test_queue_names_are_any_bytes(node: Node, name: bytes) -> None:
    with node.client() as client:
        jid = client.ask("ADDJOB", name, "first", 0)
        assert client.ask("ADDJOB", "other", "x", 0).startswith(b"DI")
        assert client.ask("QLEN", name) == 1
        assert client.ask("QPEEK", name, 1) == [[name, jid, b"first"]]
        assert client.ask("QSTAT", name)[:4] == [b"name", name, b"len", 1]
        assert name in client.ask("QSCAN", "BUSYLOOP")[1]
        assert client.ask("SHOW", jid)[3] == name
        assert client.ask("GETJOB", "NOHANG", "FROM", name) == [[name, jid, b"first"]]
        client.send("GETJOB", "FROM", name)
        with node.client() as other:
            second = other.ask("ADDJOB", name, "second", 0)
        assert client.read() == [[name, second, b"second"]]
        assert client.ask("ACKJOB", jid, second) == 2


def test_a_queue_name_that_is_too_long(node: Node) -> None:
    name = b"x" * (64 * KIB + 1)
    error = b"ERR the queue name has 65537 bytes, at most 65536 are allowed"
    with node.client() as client:
        assert client.ask("ADDJOB", name, "b", 0) == error
        assert client.ask("ADDJOB", name, "b", 0, "RETRY", 1) == error
        assert client.ask("ADDJOBS", name, 0, 1, "b") == error
        assert client.ask("GETJOB", "TIMEOUT", 1, "FROM", name) == error
        assert client.ask("PAUSE", name, "in") == error
        assert client.ask("QLEN", name) == 0
        assert node.info(client, "queues")["registered_queues"] == "0"


def test_bodies_at_and_over_the_limit(strict_node: Node) -> None:
    fits, too_long = b"x" * 100 * KIB, b"x" * (100 * KIB + 1)
    with strict_node.client() as client:
        assert client.ask("ADDJOB", "q", fits, 0).startswith(b"DI")
        assert client.ask("GETJOB", "FROM", "q")[0][2] == fits
        send_anyway(client, command("ADDJOB", "q", too_long, 0))
        assert client.read_to_end() == (
            b"-ERR " + PROTOCOL + b"an argument is longer than the setting max-body-bytes allows\r\n"
        )
    with strict_node.client() as client:
        send_anyway(client, command("ADDJOBS", "q", 0, 4, *[fits] * 4))
        assert client.read_to_end() == (
            b"-ERR " + PROTOCOL + b"a command is longer than the setting max-command-bytes allows\r\n"
        )
    with strict_node.client() as client:
        assert client.ask("QLEN", "q") == 0


def test_a_body_over_a_small_limit_is_an_answer_not_an_end(node: Node) -> None:
    """Below 64 KiB the whole command is read, and refused by name; the connection lives."""
    with node.client() as client:
        client.ask("CONFIG", "SET", "max-body-bytes", 10)
        error = b"ERR the body has 11 bytes, the setting max-body-bytes allows 10"
        assert client.ask("ADDJOB", "q", "x" * 11, 0) == error
        assert client.ask("ADDJOB", "q", "x" * 11, 0, "RETRY", 5) == error
        assert client.ask("ADDJOBS", "q", 0, 2, "x", "x" * 11) == error
        assert client.ask("ADDJOB", "q", "x" * 10, 0).startswith(b"DI")
        assert client.ask("QLEN", "q") == 1
        client.ask("CONFIG", "SET", "max-body-bytes", "1mb")


# -- gone ---------------------------------------------------------------------------------------------------


def test_a_client_that_never_reads_is_closed_at_the_limit(strict_node: Node) -> None:
    """8 MiB here. The jobs it was given come back after their RETRY time: nothing is lost with it."""
    count = 400
    body = b"x" * 64 * KIB
    with strict_node.client() as producer, strict_node.client(receive_bytes=4 * KIB) as deaf:
        for _ in range(count):
            producer.send("ADDJOB", "q", body, 0, "RETRY", 1)
        ids = {producer.read() for _ in range(count)}
        deaf.send("GETJOB", "COUNT", count, "FROM", "q")
        until(lambda: strict_node.info(producer, "clients")["connected_clients"] == "2")
        got: set[bytes] = set()
        while len(got) < count:
            for job in producer.ask("GETJOB", "COUNT", 50, "TIMEOUT", 10_000, "FROM", "q"):
                got.add(job[1])
                producer.ask("ACKJOB", job[1])
        assert got == ids


def test_a_monitor_that_never_reads_is_closed_at_the_limit(strict_node: Node) -> None:
    with strict_node.client(receive_bytes=4 * KIB) as deaf, strict_node.client() as client:
        assert deaf.ask("MONITOR") == b"OK"
        clients = int(strict_node.info(client, "clients")["connected_clients"])
        batch = command("PING", "x" * 500) * 1000

        def is_closed() -> bool:
            client.send_raw(batch)
            for _ in range(1000):
                client.read()
            return int(strict_node.info(client, "clients")["connected_clients"]) < clients

        until(is_closed)


@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["closed", "reset"])
def test_gone_while_blocked(node: Node, leave: object) -> None:
    gone = node.client()
    gone.send("GETJOB", "FROM", "q", "q2")
    with node.client() as client:
        until(lambda: node.info(client, "clients")["blocked_clients"] == "1")
        leave(gone)  # type: ignore[operator]
        until(lambda: node.info(client, "clients")["blocked_clients"] == "0")
        jid = client.ask("ADDJOB", "q", "x", 0)
        assert client.ask("GETJOB", "NOHANG", "FROM", "q") == [[b"q", jid, b"x"]]


@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["closed", "reset"])
def test_gone_mid_command(node: Node, leave: object) -> None:
    whole = command("ADDJOB", "q", "x" * 100_000, 0)
    for size in (1, 5, 30, 50_000, len(whole) - 1):
        client = node.client()
        client.send_raw(whole[:size])
        leave(client)  # type: ignore[operator]
    with node.client() as client:
        until(lambda: node.info(client, "clients")["connected_clients"] == "2")
        assert client.ask("QLEN", "q") == 0


def test_gone_between_hand_out_and_reply(node: Node) -> None:
    """Each takes a job and is gone before it has read it. All jobs come back after their RETRY time."""
    count = 40
    with node.client() as client:
        ids = {client.ask("ADDJOB", "q", i, 0, "RETRY", 1) for i in range(count)}
        for i in range(count):
            gone = node.client()
            gone.send("GETJOB", "FROM", "q")
            gone.reset() if i % 2 else gone.close()
        got: dict[bytes, int] = {}
        while len(got) < count:
            reply = client.ask("GETJOB", "TIMEOUT", 10_000, "WITHCOUNTERS", "FROM", "q")
            assert reply is not None, f"only {len(got)} of {count} jobs came back"
            got[reply[0][1]] = reply[0][6]
            client.ask("ACKJOB", reply[0][1])
        assert set(got) == ids and set(got.values()) <= {0, 1}


def test_half_closed_clients_get_their_replies(node: Node) -> None:
    """printf 'PING\\r\\n' | nc: the end of input is not the end of interest."""
    with node.client() as client:
        client.send_raw(b"PING\r\nPING x\r\n")
        client.sock.shutdown(socket.SHUT_WR)
        assert client.read_to_end() == b"+PONG\r\n$1\r\nx\r\n"


def test_connections_that_come_and_go(node: Node) -> None:
    for _ in range(300):
        sock = socket.create_connection(("127.0.0.1", node.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    with node.client() as client:
        until(lambda: node.info(client, "clients")["connected_clients"] == "2")


# -- strangers ----------------------------------------------------------------------------------------------


def test_before_a_client_has_said_who_it_is() -> None:
    with Node("--set", "requirepass=secret") as node:
        cases = {
            b"*9\r\n": b"unauthenticated multibulk length",
            b"*2\r\n$4\r\nAUTH\r\n$5120\r\n": b"unauthenticated bulk length",
            b"x" * 5 * KIB: b"too big inline request",
        }
        for sent, error in cases.items():
            with node.client() as client:
                assert client.ask("PING") == b"NOAUTH Authentication required."
                send_anyway(client, sent)
                assert client.read_to_end() == b"-ERR " + PROTOCOL + error + b"\r\n"
        with node.client() as client:
            for words in (
                ["ADDJOB", "q", "b", 0], ["GETJOB", "FROM", "q"], ["GETJOB", "NOHANG", "FROM", "q"],
                ["ACKJOB", UNKNOWN_ID], ["INFO"], ["HELLO"], ["SHUTDOWN"], ["MONITOR"], ["CONFIG", "GET", "*"],
            ):
                assert client.ask(*words) == b"NOAUTH Authentication required.", words
            assert client.ask("HELLO", 3).startswith(b"NOAUTH HELLO must be called")
            assert client.ask("AUTH", "wrong") == b"ERR invalid password"
            assert client.ask("AUTH", "default", "wrong").startswith(b"WRONGPASS ")
            assert client.ask("AUTH", b"\xff\x00") == b"ERR invalid password"
            assert client.ask("AUTH", "secret") == b"OK"
            assert client.ask(*["ACKJOB"] + [UNKNOWN_ID] * 20) == 0  # more than a stranger may
            assert client.ask("PING", "x" * 5 * KIB) == b"x" * 5 * KIB
            assert client.ask("QLEN", "q") == 0 and node.info(client, "stats")["faults"] == "0"
        assert all("the secret is wrong" in line for line in node.alarms())
