"""Real nodes that meet each other, and strangers who try to.

Nodes are processes with free ports and logs in files; they are found by what their log says, and stopped by
their process ids. The strangers here shake hands by hand (holdfast.shell.handshake has the bytes), rightly or
not. BAD_FRAMES=100000 for the long form of the last test.
"""
from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.shell import cluster_secret, handshake
from holdfast.shell.handshake import ANSWER, DIALER, HEAD, LISTENER, Agreement, Hello
from holdfast.shell.seal import TAG_BYTES, nonce
from holdfast.wire import bus

PATIENCE_S = 20.0
SECRET = "correct horse battery staple"
STRANGER = "0" * 39 + "1"  # the smallest id there can be: it decides
TOO_LONG = struct.pack("<I", bus.FRAME_BYTES_MAX + TAG_BYTES + 1)
BAD_FRAMES = int(os.environ.get("BAD_FRAMES", "5000"))


def until(ask: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    end = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < end, f"never came about; the last answer was {answer!r}"
        time.sleep(0.005)
    return answer


class Process:
    """A node. `flags` are those of `holdfast node`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        folder.mkdir(exist_ok=True)
        self.starts = self.port = self.bus_port = 0
        self.start()

    def start(self) -> None:
        """The first time at any free ports, then at the same again."""
        self.starts += 1
        self.log_path = self.folder / f"log{self.starts}"
        port = str(self.port)
        same = ["--set", f"cluster-bus-port={self.bus_port}"] if self.bus_port else []
        arguments = ["--port", port, "--dir", str(self.folder / "data"), *same, *self.flags]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_") or k == "HOLDFAST_PURE"}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "node", *arguments],
                env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        ready = until(lambda: self.process.poll() is not None or re.search(r"ready on \S+:(\d+),", self.log()))
        assert self.process.poll() is None, self.log()
        self.port = int(ready[1])
        found = re.search(r"bus on \S+?:(\d+)(,|$)", self.log(), re.MULTILINE)
        assert found is not None
        self.bus_port = int(found[1])

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def ask(self, *words: str | bytes | int) -> Any:
        with Client(self.port) as client:
            return client.ask(*words)

    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID").decode())

    def connected(self) -> set[str]:
        """Ids of the others with which it has a link."""
        lines = self.ask("CLUSTER", "NODES").decode().splitlines()
        return {line.split()[0] for line in lines if line.endswith(" connected") and "myself" not in line}

    def place(self) -> str:
        return f"127.0.0.1:{self.port}@{self.bus_port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the node did not stop:\n{self.log()}") from None

    def is_unharmed(self) -> bool:
        log = self.log()
        return bool(self.ask("PING") == b"PONG") and "Traceback" not in log and "fault" not in log


class Client:
    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.sock = socket.create_connection((host, port), PATIENCE_S)
        self.file = self.sock.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()
        self.sock.close()

    def ask(self, *words: str | bytes | int) -> Any:
        self.send(*words)
        return self.read()

    def send(self, *words: str | bytes | int) -> None:
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.sock.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts))

    def read(self) -> Any:
        line = self.file.readline()[:-2]
        kind, text = line[:1], line[1:]
        if kind in b"+-":
            return text
        if kind == b":":
            return int(text)
        if text == b"-1":
            return None
        if kind == b"$":
            return self.file.read(int(text) + 2)[:-2]
        assert kind == b"*", line
        return [self.read() for _ in range(int(text))]


Nodes = Callable[..., Process]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made: list[Process] = []

    def make(*flags: str) -> Process:
        made.append(Process(tmp_path / str(len(made)), *flags))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    return str(path)


def meet(*all_of_them: Process) -> None:
    """Until each has a link with each other."""
    ids = {each.id() for each in all_of_them}
    for each in all_of_them:
        until(lambda each=each: each.connected() == ids - {each.id()})


# -- clusters ----------------------------------------------------------------------------------------------


def test_three_nodes_join_share_jobs_and_go_on_without_one(nodes: Nodes, secret_file: str) -> None:
    a = nodes("--cluster-secret-file", secret_file)
    b = nodes("--cluster-secret-file", secret_file, "--join", a.place())
    c = nodes("--cluster-secret-file", secret_file, "--join", a.place(), "--join", b.place())
    meet(a, b, c)
    job_id = a.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 3, "RETRY", 60)
    assert job_id.startswith(b"DI")
    assert b.ask("GETJOB", "TIMEOUT", 5000, "FROM", "q") == [[b"q", job_id, b"body"]]
    assert c.ask("ACKJOB", job_id) == 1
    for each in (a, b, c):
        until(lambda each=each: each.ask("SHOW", job_id) is None)

    name = c.id()
    c.kill()
    until(lambda: name not in a.connected() | b.connected(), 5)
    assert b.ask("ADDJOB", "q", "more", 5000, "REPLICATE", 2).startswith(b"DI")
    assert a.ask("ADDJOB", "q", "too many", 300, "REPLICATE", 3).startswith(b"NOREPL")
    assert a.ask("GETJOB", "TIMEOUT", 5000, "FROM", "q")[0][2] == b"more"

    c.flags = ("--cluster-secret-file", secret_file)  # nobody tells it whom to join: it remembers
    c.start()
    assert c.id() == name
    meet(a, b, c)
    assert c.ask("ADDJOB", "q", "three again", 5000, "REPLICATE", 3).startswith(b"DI")
    for each in (a, b, c):
        assert each.is_unharmed(), each.log()
        assert SECRET not in each.log()


def test_nodes_meet_by_command_and_find_the_others_by_themselves(nodes: Nodes) -> None:
    a, b, c = nodes(), nodes(), nodes()
    for each in (b, c):
        assert each.ask("CLUSTER", "MEET", "127.0.0.1", a.port, a.bus_port) == b"OK"
    meet(a, b, c)
    assert b.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 3).startswith(b"DI")
    assert c.ask("GETJOB", "TIMEOUT", 5000, "FROM", "q")[0][2] == b"body"


def test_a_node_that_is_not_there_yet_is_met_when_it_is(nodes: Nodes) -> None:
    """And at an address where nobody ever is, the handshake is shown and logged."""
    a, b = nodes(), nodes()
    b.kill()
    assert a.ask("CLUSTER", "MEET", "127.0.0.1", b.port, b.bus_port) == b"OK"
    until(lambda: "cannot meet the node at" in a.log())
    shown = f" 127.0.0.1:{b.port} handshake 0 0 disconnected"
    assert shown in a.ask("CLUSTER", "NODES").decode()
    b.start()
    meet(a, b)
    until(lambda: shown not in a.ask("CLUSTER", "NODES").decode())


def test_a_hard_reset_gives_an_id_that_is_kept(nodes: Nodes) -> None:
    """Its cluster knows it by the old id only; it joins again under the new one."""
    a = nodes()
    b = nodes("--join", a.place())
    meet(a, b)
    was = b.id()
    assert b.ask("CLUSTER", "RESET", "HARD") == b"OK"
    now = b.id()
    assert now != was
    until(lambda: b.connected() == set())
    assert b.ask("CLUSTER", "MEET", "127.0.0.1", a.port, a.bus_port) == b"OK"
    until(lambda: a.connected() == {now})
    assert a.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 2).startswith(b"DI")
    b.kill()
    b.start()
    assert b.id() == now
    until(lambda: a.connected() == {now})
    for each in (a, b):
        assert each.is_unharmed(), each.log()


def test_a_node_that_stands_still_loses_its_link_when_too_much_waits_for_it(nodes: Nodes) -> None:
    a = nodes("--set", "cluster-send-buffer=1mb")
    b = nodes("--join", a.place())
    c = nodes("--join", a.place())
    meet(a, b, c)
    b.process.send_signal(signal.SIGSTOP)
    body = bytes(200_000)
    with Client(a.port) as client:
        for _ in range(200):
            client.ask("ADDJOB", "q", body, 1000, "REPLICATE", 3, "ASYNC")
            if "cluster-send-buffer" in a.log():
                break
    until(lambda: "cluster-send-buffer" in a.log())
    assert a.ask("ADDJOB", "other", "x", 5000, "REPLICATE", 2).startswith(b"DI")
    b.process.send_signal(signal.SIGCONT)
    meet(a, b, c)
    assert a.ask("ADDJOB", "other", "x", 5000, "REPLICATE", 3).startswith(b"DI")


def test_ipv6_and_names(nodes: Nodes) -> None:
    a = nodes("--bind", "::1 127.0.0.1")
    b = nodes("--bind", "::1 127.0.0.1", "--join", f"[::1]:{a.port}@{a.bus_port}")
    c = nodes("--bind", "::1 127.0.0.1", "--join", f"localhost:{a.port}@{a.bus_port}", "--set", "announce-ip=localhost")
    meet(a, b, c)
    assert f"localhost:{c.port}" in a.ask("CLUSTER", "NODES").decode()


def test_unix_sockets(nodes: Nodes, tmp_path: Path) -> None:
    a = nodes("--set", f"cluster-bus-unixsocket={tmp_path}/bus")
    b = nodes("--join", f"unix:{tmp_path}/bus")
    meet(a, b)
    assert b.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 2).startswith(b"DI")


# -- the secret --------------------------------------------------------------------------------------------


def test_the_secret_is_never_shown(nodes: Nodes, secret_file: str) -> None:
    for flags in (["--set", f"cluster-secret={SECRET}"], ["--cluster-secret-file", secret_file]):
        node = nodes(*flags, "--set", "enable-debug=yes")
        node.ask("CONFIG", "SET", "maxclients", 500)
        assert node.ask("CONFIG", "REWRITE") == b"OK"
        shown = repr(node.ask("CONFIG", "GET", "*")) + repr(node.ask("INFO", "all")) + repr(node.ask("CLUSTER", "INFO"))
        node.process.send_signal(signal.SIGHUP)
        until(lambda node=node: "settings reloaded" in node.log())
        files = [path for path in (node.folder / "data").rglob("*") if path.is_file()]
        kept = "".join(path.read_text("utf-8", "replace") for path in files)
        assert SECRET not in shown + kept + node.log()
        assert node.ask("CONFIG", "SET", "cluster-secret", "x") != b"OK"


def test_wrong_secrets_do_not_meet(nodes: Nodes, secret_file: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("something else again")
    a = nodes("--cluster-secret-file", secret_file)
    b = nodes("--cluster-secret-file", str(tmp_path / "other"), "--join", a.place())
    c = nodes("--join", a.place())
    until(lambda: "is the cluster-secret the same" in b.log())
    until(lambda: "does not know the cluster's secret" in a.log())
    until(lambda: "it goes by the cluster's secret, this node by the secret of its user on its machine" in c.log())
    assert a.connected() == b.connected() == c.connected() == set()


@pytest.mark.parametrize("flags, words", [
    (["--cluster-secret-file", "/no/such/file"], "cannot read the cluster-secret-file"),
    (["--cluster-secret-file", "/dev/null"], "holds nothing"),
    (["--set", "cluster-secret=too short"], "a secret of 9 bytes is soon guessed"),
    (["--set", "tls-node-name=*.example.org"], "it takes tls-cluster yes"),
    (["--join", "nowhere"], "join: 'nowhere' is not host:port"),
    (["--join", "h:60000"], "join: 'h:60000' is not host:port"),
    (["--set", "zone=two words"], "zone: letters, digits"),
])
def test_settings_that_make_no_sense_are_refused_with_words(flags: list[str], words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "node", "--port", "0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_without_a_secret_the_bus_is_on_loopback_only(nodes: Nodes, secret_file: str) -> None:
    anywhere = ["--bind", "0.0.0.0", "--set", "protected-mode=no"]
    assert listening(nodes(*anywhere).bus_port) == {"0100007F"}
    assert listening(nodes(*anywhere, "--cluster-secret-file", secret_file).bus_port) == {"00000000"}


def listening(port: int) -> set[str]:
    """The addresses on which this machine listens at a port, as the kernel writes them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}


# -- strangers ---------------------------------------------------------------------------------------------


@functools.cache
def key_of(secret: str) -> bytes:
    return cluster_secret.key_of(secret.encode())


class Stranger:
    """A connection to a node's bus. It notes what it was sent and what it sent."""

    def __init__(self, node: Process, node_id: str = STRANGER, goes_by: str = handshake.SECRET) -> None:
        self.sock = socket.create_connection(("127.0.0.1", node.bus_port), PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.hello = Hello(node_id.encode(), 1, random.getrandbits(64), 1, 1, goes_by=goes_by).anew()
        self.mine = self.hello.pack()
        self.theirs = b""
        self.sent = b""
        self.agreed: Agreement
        self.said = self.heard = 0  # frames

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()

    def say(self, data: bytes) -> None:
        self.sent += data
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def hear(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def greet(self) -> None:
        self.say(self.mine)
        head = self.hear(HEAD.size)
        self.theirs = head + self.hear(HEAD.unpack(head)[2])

    def agreements(self, secret: str = SECRET, mine: bytes = b"") -> list[Agreement]:
        share = handshake.read_hello(self.theirs[HEAD.size:]).share
        return handshake.agree([key_of(secret)], self.hello, share, mine or self.mine, self.theirs)

    def prove(self, secret: str = SECRET, mine: bytes = b"") -> None:
        agreements = self.agreements(secret, mine)
        said = handshake.answer(agreements, DIALER, 0)
        self.say(said)
        given = self.hear(ANSWER.size)
        self.agreed = handshake.check_answer(agreements, LISTENER, given)[1].after(said, given)

    def link(self) -> None:
        self.greet()
        self.prove()
        self.say(handshake.verdict(self.agreed, 1))
        self.seals = self.agreed.seals(DIALER)

    def frame(self) -> bytes:
        sealed = self.hear(struct.unpack("<I", self.hear(4))[0])
        self.heard += 1
        return self.seals.into.decrypt(nonce(self.heard - 1), sealed, None)

    def say_frame(self, data: bytes) -> None:
        sealed = self.seals.out.encrypt(nonce(self.said), data, None)
        self.said += 1
        self.say(struct.pack("<I", len(sealed)) + sealed)

    def is_closed(self) -> bool:
        """The node closes the connection, whatever it may say before."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionError:
            pass
        return True


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One node with a secret, for all strangers."""
    folder = tmp_path_factory.mktemp("lone")
    settings = (f"cluster-secret={SECRET}", "requirepass=p", "loglevel=debug")
    node = Process(folder / "node", *(word for setting in settings for word in ("--set", setting)))
    yield node
    with Client(node.port) as client:
        assert client.ask("AUTH", "p") == b"OK" and client.ask("PING") == b"PONG"
        assert "faults:0" in client.ask("INFO", "stats").decode()
    assert "Traceback" not in node.log()
    node.stop()


def known(node: Process) -> str:
    with Client(node.port) as client:
        client.ask("AUTH", "p")
        return str(client.ask("CLUSTER", "NODES").decode())


def my_id(node: Process) -> str:
    with Client(node.port) as client:
        client.ask("AUTH", "p")
        return str(client.ask("CLUSTER", "MYID").decode())


def test_who_knows_the_secret_is_linked(lone: Process) -> None:
    with Stranger(lone) as friend:
        friend.link()
        seq, _ = struct.unpack_from("<QQ", friend.frame())
        assert seq == 1
        until(lambda: f"{STRANGER} 127.0.0.1:1 noflags" in known(lone))
        friend.say_frame(bytes(bus.HEADER))
        friend.say(TOO_LONG)
        assert friend.is_closed()
    until(lambda: "node 00000000: link lost: a frame longer than any" in lone.log())


def test_a_wrong_secret(lone: Process) -> None:
    with Stranger(lone) as stranger:
        stranger.greet()
        with pytest.raises((EOFError, ConnectionError)):
            stranger.prove("wrong")


def test_no_secret(lone: Process) -> None:
    with Stranger(lone, goes_by=handshake.MACHINE) as stranger:
        stranger.greet()
        assert stranger.is_closed()


def test_a_handshake_played_again(lone: Process) -> None:
    """All that a listener on the wire heard, said once more: the node's random bytes are others now."""
    with Stranger(lone) as friend:
        friend.link()
        friend.frame()
    before = lone.log().count("linked, at")
    with Stranger(lone) as thief:
        thief.say(friend.sent)
        assert thief.is_closed()
    assert lone.log().count("linked, at") == before


def test_an_answer_sent_back(lone: Process) -> None:
    """The node's own answer, as ours: it signs under another label than we must."""
    with Stranger(lone) as friend:
        friend.greet()
        friend.say(handshake.answer(friend.agreements(), DIALER, 0))
        given = friend.hear(ANSWER.size)
    with Stranger(lone) as thief:
        thief.mine = friend.mine
        thief.greet()
        thief.say(given)
        assert thief.is_closed()


def test_an_id_changed_on_the_way(lone: Process) -> None:
    """Somebody between two nodes puts another id into a hello; the secret's owner signed what it said itself."""
    with Stranger(lone) as thief:
        honest = thief.mine
        thief.mine = honest.replace(STRANGER.encode(), b"0" * 39 + b"2")
        thief.greet()
        with pytest.raises((EOFError, ConnectionError)):
            thief.prove(mine=honest)
    assert "0" * 39 + "2" not in known(lone)


def test_the_nodes_own_id(lone: Process) -> None:
    with Stranger(lone, my_id(lone)) as thief:
        thief.greet()
        assert thief.is_closed()


@pytest.mark.parametrize("bytes_of_it", [
    b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(100), bytes(5000),
    HEAD.pack(handshake.MAGIC, bus.VERSION, 0), HEAD.pack(handshake.MAGIC, bus.VERSION, 65535) + bytes(70_000),
    HEAD.pack(handshake.MAGIC, bus.VERSION, 200) + bytes(200), HEAD.pack(b"HOLDFASX", bus.VERSION, 200) + bytes(200),
])
def test_garbage(lone: Process, bytes_of_it: bytes) -> None:
    with Stranger(lone) as stranger:
        stranger.say(bytes_of_it)
        assert stranger.is_closed()


def test_another_version_is_told_ours(lone: Process) -> None:
    with Stranger(lone) as stranger:
        stranger.say(HEAD.pack(handshake.MAGIC, bus.VERSION + 1, 10) + bytes(10))
        magic, version, _ = HEAD.unpack(stranger.hear(HEAD.size))
        assert (magic, version) == (handshake.MAGIC, bus.VERSION)
        assert stranger.is_closed()


def test_random_strangers(lone: Process) -> None:
    """300 handshakes that go wrong somewhere."""
    rng = random.Random(3)
    for _ in range(300):
        with Stranger(lone) as stranger:
            data = bytearray(stranger.mine)
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            if bytes(data) == stranger.mine:
                continue
            stranger.say(bytes(data[:rng.choice([len(data), rng.randrange(len(data))])]))
            with contextlib.suppress(OSError):
                stranger.sock.shutdown(socket.SHUT_WR)
            assert stranger.is_closed()


def test_bad_frames_from_one_who_knows_the_secret(nodes: Nodes) -> None:
    """A broken peer: link, bad frame, closed, and again. A good peer and a client notice nothing.

    What is whole in front of what is broken counts, as the word of one who belongs to the cluster: that it has the job
    queued, or a worker of its own. So the job comes back in its time, when that peer is not heard any more.

    A fifth of BAD_FRAMES: each costs a handshake. All of them are in tests/wire/test_bad_frames.py."""
    rng = random.Random(4)
    settings = "--set", f"cluster-secret={SECRET}", "--set", "cluster-node-timeout=5000"
    node = nodes(*settings)
    friend = nodes(*settings, "--join", node.place())
    meet(node, friend)
    job_id = node.ask("ADDJOB", "kept", "body", 5000, "REPLICATE", 2, "RETRY", 1)
    closed = 0
    for i in range(BAD_FRAMES // 5):
        with Stranger(node, f"{i % 8 + 1:040x}") as broken:
            broken.link()
            kind = bytes([rng.choice([*range(1, 60), 255])])
            stamp = rng.choice([0, 0, -1, 1 << 62])
            data = rng.choice([
                struct.pack("<QQq", 1, 0, stamp) + kind + rng.randbytes(rng.randrange(120)),
                struct.pack("<QQq", 1, 0, stamp) + kind + job_id + rng.randbytes(rng.randrange(40)),
                struct.pack("<QQq", rng.choice([2, 1 << 63]), 0, stamp) + kind,
                struct.pack("<QQq", 1, rng.choice([9, 1 << 63]), stamp) + kind,
                rng.randbytes(rng.randrange(64)),
            ])
            broken.say_frame(data)
            broken.say(TOO_LONG)
            closed += broken.is_closed()
        if i % 500 == 0:
            assert node.ask("PING") == b"PONG"
    assert closed == BAD_FRAMES // 5
    assert "link lost" not in friend.log() and friend.id() in node.connected()
    assert node.ask("GETJOB", "FROM", "kept")[0][1] == job_id
    assert node.is_unharmed(), node.log()[-3000:]
