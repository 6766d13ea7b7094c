"""A cluster of real nodes, and what tests ask of it.

    cluster = Cluster(folder, 7)
    job = cluster[0].add("q", "body", "REPLICATE", 3)
    assert len(cluster.holders(job)) == 3

Nodes are processes with a folder each, at ports chosen once, client and bus, so that a node that was killed
comes back at the same place under the same id; what it held is gone, for there is no journal. Nodes are
killed, stopped (SIGSTOP) and woken by their process ids, and a `Cluster` can be made whole again (`mend`),
so that one cluster serves many tests.

Waiting is always for something: `until` asks again and again, and fails with what it asked last.
"""
from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from harness import ABOVE_INFO, Client, ErrorReply

from holdfast.shell.bus import BUS_PORT_OFFSET

Found = TypeVar("Found")

PATIENCE_S = 20.0
"""For anything that must happen: far longer than it ever takes, so that a busy machine fails no test."""

POLL_S = 0.01
NODE_TIMEOUT_MS = 2000
"""Short, so that tests need not wait long, and long enough for seven nodes on a busy machine."""

SETTINGS = {"cluster-node-timeout": str(NODE_TIMEOUT_MS), "heal-after-ms": "60000", "maxmemory": "1gb"}
IN_MEMORY = {**SETTINGS, "appendonly": "no"}
"""A node that ends has lost what it had, as most of what is tested here is about."""


def until(ask: Callable[[], Found], seconds: float = PATIENCE_S) -> Found:
    """Ask until the answer is true; that answer."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < end, f"never came about; the last answer was {answer!r}"
        time.sleep(POLL_S)
    return answer


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, all different, each with the one that its node takes for other nodes.

    Both are low enough that no dialed connection gets one by chance.
    """
    taken: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in range(10_000 + os.getpid() * 37 % 10_000, 22_000):
            with contextlib.suppress(OSError):
                for each in (port, port + BUS_PORT_OFFSET):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
                taken.append(port)
            if len(taken) == count:
                return taken
    raise AssertionError(f"{len(taken)} free ports where {count} are needed")


def pairs(flat: list[Any] | None) -> dict[str, Any]:
    """A reply of names and values, such as SHOW and QSTAT give."""
    return {} if flat is None else {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


class Member:
    """One node of a cluster."""

    def __init__(self, folder: Path, number: int, port: int, bus_port: int, joins: Iterable[str]) -> None:
        self.folder = folder / str(number)
        self.folder.mkdir()
        self.number = number
        self.port = port
        self.bus_port = bus_port
        self.joins = list(joins)
        self.host = "127.0.0.1"
        self.settings = IN_MEMORY
        self.launcher: list[str] = []  # words before the command that starts it
        self.environ: dict[str, str] = {}
        self.id = b""
        self.starts = 0
        self.is_frozen = False
        self.line: Client | None = None

    def __repr__(self) -> str:
        return f"node {self.number}"

    # -- the process ---------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start it; `wait_until_ready` is for the caller, who may start others meanwhile."""
        self.starts += 1
        self.is_frozen = False
        self.log_path = self.folder / f"log{self.starts}"
        flags = ["--port", str(self.port), "--dir", str(self.folder / "data")]
        for name, value in {**self.settings, "cluster-bus-port": str(self.bus_port)}.items():
            flags += ["--set", f"{name}={value}"]
        for place in self.joins:
            flags += ["--join", place]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_") or k == "HOLDFAST_PURE"}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*self.launcher, sys.executable, "-m", "holdfast", "node", *flags],
                env={**environ, **self.environ}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, f"{self} did not start:\n{self.log()}"
            return " ready on " in self.log()

        until(is_ready)
        self.id = self.ask("CLUSTER", "MYID")

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.hang_up()
        self.process.kill()
        self.process.wait()
        self.is_frozen = False

    def freeze(self) -> None:
        """It stands still, with all its connections open."""
        self.process.send_signal(signal.SIGSTOP)
        self.is_frozen = True
        self.hang_up()

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def stop(self) -> None:
        """In the orderly way; safe to call again."""
        self.hang_up()
        if self.is_running():
            self.thaw()
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self} did not stop:\n{self.log()}") from None

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def faults(self) -> list[str]:
        """What its logs, of all its lives, say of errors of its own."""
        texts = [path.read_text("utf-8", "replace") for path in sorted(self.folder.glob("log*"))]
        found = [match.group(0) for text in texts for match in ABOVE_INFO.finditer(text)]
        return [line for line in found if re.search(r"Traceback|Exception|ERROR|CRITICAL|fault", line)]

    # -- asking --------------------------------------------------------------------------------------------

    def client(self) -> Client:
        return Client((self.host, self.port))

    def ask(self, *words: str | bytes | int) -> Any:
        """Over a connection that is kept for the next question."""
        if self.line is None:
            self.line = self.client()
        try:
            return self.line.ask(*words)
        except BaseException:
            self.hang_up()
            raise

    def hang_up(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None

    def add(self, queue: str, body: str | bytes, *options: str | int, timeout_ms: int = 10_000) -> bytes:
        """Add a job, which must be accepted; its id."""
        reply = self.ask("ADDJOB", queue, body, timeout_ms, *options)
        assert isinstance(reply, bytes) and not isinstance(reply, ErrorReply), reply
        return reply

    def add_many(self, queue: str, bodies: Iterable[str | bytes], *options: str | int) -> list[bytes]:
        words = list(bodies)
        reply = self.ask("ADDJOBS", queue, 15_000, len(words), *words, *options)
        assert isinstance(reply, list), reply
        return reply

    def get(self, queue: str, seconds: float = PATIENCE_S - 8) -> bytes:
        """The id of the next job of a queue, which must come."""
        with self.client() as client:
            reply = client.ask("GETJOB", "TIMEOUT", int(seconds * 1000), "FROM", queue)
        assert isinstance(reply, list) and len(reply) == 1, reply
        assert isinstance(reply[0][1], bytes)
        return reply[0][1]

    def has_none(self, queue: str) -> bool:
        return self.ask("GETJOB", "NOHANG", "FROM", queue) is None

    def show(self, job: bytes) -> dict[str, Any]:
        """What SHOW says; empty if the job is not known."""
        return pairs(self.ask("SHOW", job))

    def qstat(self, queue: str) -> dict[str, Any]:
        return pairs(self.ask("QSTAT", queue))

    def counters(self) -> dict[str, int]:
        """The numbers in CLUSTER INFO."""
        lines = self.ask("CLUSTER", "INFO").decode().split("\r\n")
        return {name: int(value) for name, _, value in (line.partition(":") for line in lines) if value.isdigit()}

    def jobs(self, queue: str, *filters: str) -> list[bytes]:
        """Ids of all jobs of a queue that this node knows."""
        cursor, ids = self.ask("JSCAN", "BUSYLOOP", "QUEUE", queue, *filters)
        assert cursor == b"0" and isinstance(ids, list)
        return ids

    def known_jobs(self) -> int:
        """In whatever state, those too of which only the end is known."""
        found = re.search(rb"registered_jobs:(\d+)", self.ask("INFO", "jobs"))
        assert found is not None
        return int(found[1])

    def flags(self) -> dict[bytes, set[str]]:
        """What it thinks of each node: the flags of CLUSTER NODES, and `disconnected`."""
        table = {}
        for line in self.ask("CLUSTER", "NODES").decode().splitlines():
            node_id, _, flags, _, _, link = line.split(" ")
            table[node_id.encode()] = set(flags.split(",")) - {"noflags"} | {link} - {"connected"}
        return table

    def priorities(self) -> dict[bytes, int]:
        return {row[0]: int(row[3]) for row in self.ask("HELLO")[2:]}

    def place(self) -> str:
        return f"{self.host}:{self.port}@{self.bus_port}"


class Cluster:
    def __init__(self, folder: Path, size: int, settings: dict[str, str] = IN_MEMORY) -> None:
        self.folder = folder
        self.settings = settings
        self.ports = free_ports(2 * size + 4)
        self.nodes: list[Member] = []
        try:
            for _ in range(size):
                self.grow().launch()
            for node in self.nodes:
                node.wait_until_ready()
            self.settle()
        except BaseException:
            self.stop()
            raise

    def __getitem__(self, number: int) -> Member:
        return self.nodes[number]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.nodes)

    def grow(self) -> Member:
        """One more node, not started yet, that will join the first."""
        joins = [self.nodes[0].place()] if self.nodes else []
        node = Member(self.folder, len(self.nodes), self.ports.pop(), self.ports.pop(), joins)
        node.settings = self.settings
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        for node in self.nodes:
            if node.starts:
                node.stop()

    # -- as a whole ----------------------------------------------------------------------------------------

    def living(self) -> list[Member]:
        return [node for node in self.nodes if node.is_running() and not node.is_frozen]

    def is_whole(self) -> bool:
        """Every node has a link with every other, and thinks nothing bad of it."""
        ids = {node.id for node in self.nodes}
        return all(
            set(table) == ids and all(flags <= {"myself"} for flags in table.values())
            for table in (node.flags() for node in self.nodes)
        )

    def settle(self) -> None:
        until(self.is_whole, 30)

    def mend(self) -> None:
        """All nodes run, hear each other, and have the settings they began with."""
        for node in self.nodes:
            if not node.is_running():
                node.launch()
            elif node.is_frozen:
                node.thaw()
        for node in self.nodes:
            node.wait_until_ready()
            node.ask("CLUSTER", "LEAVING", "no")
        self.set(SETTINGS)
        self.settle()
        self.clear()

    def clear(self) -> None:
        """No job is left, of whatever test."""
        for node in self.nodes:
            node.ask("DISQUE", "FLUSHALL")
        until(lambda: not any(node.known_jobs() for node in self.nodes))

    def set(self, settings: dict[str, str]) -> None:
        for node in self.living():
            for name, value in settings.items():
                assert node.ask("CONFIG", "SET", name, value) == b"OK"

    def sees(self, node: Member, flag: str) -> bool:
        """All that can be asked have this flag beside the node."""
        return all(flag in each.flags()[node.id] for each in self.living() if each is not node)

    def holders(self, job: bytes) -> list[Member]:
        """The nodes that can be asked and know the job."""
        return [node for node in self.living() if node.show(job)]

    def strangers(self, job: bytes) -> list[Member]:
        return [node for node in self.living() if not node.show(job)]

    def queued(self, queue: str) -> int:
        """How many jobs are queued, all nodes together."""
        return sum(node.ask("QLEN", queue) for node in self.living())

    def copies(self, queue: str) -> dict[bytes, list[Member]]:
        """Who knows which job of a queue."""
        found: dict[bytes, list[Member]] = {}
        for node in self.living():
            for job in node.jobs(queue):
                found.setdefault(job, []).append(node)
        return found

    def wait_until_gone(self, *jobs: bytes) -> None:
        """No node knows any of them any more."""
        for job in jobs:
            until(lambda job=job: not self.holders(job))

    def count(self, what: str) -> int:
        """A counter of CLUSTER INFO, summed over all nodes."""
        return sum(node.counters().get(what, 0) for node in self.living())


def drain(
    cluster: Cluster, queue: str, wanted: Iterable[bytes], seconds: float = PATIENCE_S
) -> list[bytes]:
    """Fetch and acknowledge at all nodes until all wanted jobs have come; every delivery."""
    deliveries: list[bytes] = []
    missing = set(wanted)
    nodes = cluster.living()
    end = time.monotonic() + seconds
    while missing:
        for node in nodes:
            reply = node.ask("GETJOB", "NOHANG", "COUNT", 100, "FROM", queue)
            if reply is not None:
                ids = [row[1] for row in reply]
                node.ask("ACKJOB", *ids)
                deliveries += ids
                missing -= set(ids)
        assert time.monotonic() < end, f"{len(missing)} jobs never came, such as {sorted(missing)[:3]}"
    return deliveries


class Worker(threading.Thread):
    """A client that goes on, at another node when its own does not answer, until it is told to end."""

    def __init__(self, nodes: list[Member], queue: str) -> None:
        super().__init__(daemon=True)
        self.nodes = nodes  # its own first
        self.queue = queue
        self.ending = threading.Event()
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.go_on()
        except BaseException as error:
            self.error = error

    def go_on(self) -> None:
        turn = 0
        while not self.ending.is_set():
            node = self.nodes[turn % len(self.nodes)]
            turn += 1
            with contextlib.suppress(OSError, EOFError), node.client() as client:
                while not self.ending.is_set() and self.work(client):
                    pass

    def work(self, client: Client) -> bool:
        """Do one thing; False to go to another node."""
        raise NotImplementedError

    def end(self) -> None:
        self.ending.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


class Producer(Worker):
    """Adds jobs one after another. `added`: those it was given an id for."""

    def __init__(self, nodes: list[Member], queue: str, *options: str | int) -> None:
        self.options = options
        self.added: list[bytes] = []
        self.times: list[float] = []
        super().__init__(nodes, queue)

    def work(self, client: Client) -> bool:
        client.send("ADDJOB", self.queue, "body", 1000, *self.options)
        reply = client.read(2.0)
        if isinstance(reply, ErrorReply):
            return False
        self.added.append(reply)
        self.times.append(time.monotonic())
        return True

    def longest_gap_s(self) -> float:
        return max((b - a for a, b in zip(self.times, self.times[1:])), default=0.0)


class Consumer(Worker):
    """Fetches and acknowledges. `got`: every delivery."""

    def __init__(self, nodes: list[Member], queue: str) -> None:
        self.got: list[bytes] = []
        super().__init__(nodes, queue)

    def work(self, client: Client) -> bool:
        client.send("GETJOB", "TIMEOUT", 200, "FROM", self.queue)
        reply = client.read(2.0)
        if isinstance(reply, ErrorReply):
            return False
        if reply is not None:
            self.got.append(reply[0][1])
            client.send("ACKJOB", reply[0][1])
            client.read(2.0)
        return True
