"""All of it together: which processes there are, where they listen, what they do at the moment.

    DIR/node-1 … node-n   the jobs, one folder per node        DIR/lake   the pipeline's tables
    DIR/log               what each process said               DIR/up.lock   held while we run
    DIR/cluster-secret    by which the nodes know each other

The ports are the usual ones where they are free; a folder that has been used before is used again, jobs and all.
"""
from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import secrets
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from holdfast import doors
from holdfast.client import sight, trouble
from holdfast.client.errors import Error
from holdfast.client.figures import Figures as Asked
from holdfast.client.queue import Queue
from holdfast.local.processes import Process

HOST = "127.0.0.1"
NODE_PORT = 7711
BUS_OFFSET = 10_000
METRICS_OFFSET = 2000
HTTP_PORT = 7780
GRPC_OFFSET = 10
"""From the port for HTTP to that for gRPC, where nobody names one: 7790 beside 7780."""
START_S = 60.0
"""For a node or the gateway to be there: far more than it takes, on a machine that is busy."""
LOOK_S = 0.05
LOCK = "up.lock"
SECRET = "cluster-secret"
SECRET_BYTES = 32
COUNTERS = ("added", "done", "failed")
"""Figures: what each node counts from its start, and so begins again when it does."""
ASK_S = 2.0
"""For a node to answer that is asked by itself."""


class StartError(Exception):
    """Something did not start; the message is for the person who wanted it."""


@dataclass
class Plan:
    folder: Path
    nodes: int = 3
    has_sample: bool = True
    has_pipeline: bool = True
    orders_per_second: float = 5.0
    port: int = NODE_PORT
    http: int = HTTP_PORT
    grpc: int = 0
    """0: beside that for HTTP."""


@dataclass
class Figures:
    """What the cluster did and does, summed over its nodes."""

    totals: dict[str, Any] = field(default_factory=dict)
    queues: list[dict[str, Any]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    """Nodes that did not answer: what they know is not in the sums."""
    words: str = ""
    """Why there are none."""


class Since:
    """Counters as they would be if no node had ever been away or started again. What a node that does not answer had
    counted stays in the sum; so does what one had counted that begins again with nothing."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], int] = {}
        self._missing: dict[tuple[str, str], int] = {}
        """What those have counted that are away now."""
        self._before: dict[tuple[str, str], int] = {}
        """And what was counted in earlier lives."""

    def take(self, rows: list[dict[str, Any]], is_whole: bool) -> None:
        """The counters in the rows become those since we look. `is_whole`: each node is in these sums."""
        named = {str(row["name"]): row for row in rows}
        for name in [*named, *sorted({queue for queue, _ in self._shown if queue not in named})]:
            row = named.setdefault(name, {"name": name})
            for counter in COUNTERS:
                row[counter] = self._take((name, counter), int(row.get(counter) or 0), is_whole)
        rows[:] = named.values()

    def _take(self, key: tuple[str, str], now: int, is_whole: bool) -> int:
        shown = self._shown.get(key, 0)
        known = now + self._before.get(key, 0)
        if is_whole:
            self._missing[key] = 0
            self._before[key] = self._before.get(key, 0) + max(0, shown - known)
        else:
            self._missing[key] = max(self._missing.get(key, 0), shown - known)
        self._shown[key] = now + self._before.get(key, 0) + self._missing[key]
        return self._shown[key]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(first: int, count: int, *offsets: int) -> list[int]:
    """Ports that follow each other, from `first` on where possible; what is at an offset from each is free, too."""
    ports = iter(range(first, first + 2000))
    found = [port for port in ports if all(is_free(port + offset) for offset in (0, *offsets))][:count]
    if len(found) < count:
        raise StartError(f"no {count} free ports from {first} on")
    return found


def why_no_pipeline() -> str:
    """Empty: it can run."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'holdfast[pipeline]'"
    from holdfast.pipeline.java import NoJava, ensure_java

    try:
        ensure_java()
    except NoJava as error:
        return str(error)
    return ""


class Whole:
    """Start it with `start`, look at it with `look`, and always `stop` it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.logs = plan.folder / "log"
        self.lake = plan.folder / "lake"
        self.ports = free_ports(plan.port, plan.nodes, BUS_OFFSET, METRICS_OFFSET)
        self.http = free_ports(plan.http, 1)[0]
        self.grpc = free_ports(plan.grpc or self.http + GRPC_OFFSET, 1)[0]
        self.url = "holdfast://" + ",".join(f"{HOST}:{port}" for port in self.ports)
        self.console = f"http://{HOST}:{self.http}/"
        self.processes: list[Process] = []
        self.notes: list[str] = []
        self.queue: Queue | None = None
        self.since = Since()
        self.lock: BinaryIO | None = None

    # -- what there is -------------------------------------------------------------------------------------

    def make(self, name: str, words: list[str], where: str, **more: Any) -> Process:
        made = Process(name, words, self.logs / f"{name.replace(' ', '-')}.log", where, **more)
        self.processes.append(made)
        return made

    def node(self, number: int) -> Process:
        port = self.ports[number]
        words = ["node", "--bind", HOST, "--port", str(port), "--dir", str(self.plan.folder / f"node-{number + 1}"),
                 "--set", "history=yes", "--set", "history-body-bytes=512",
                 "--set", f"metrics-port={port + METRICS_OFFSET}"]
        for other in self.ports:
            if other != port:
                words += ["--join", f"{HOST}:{other}"]
        words += ["--cluster-secret-file", str(self.secret())]
        return self.make(f"node {number + 1}", ["-m", "holdfast", *words], f"{HOST}:{port}")

    def secret(self) -> Path:
        """The file with what the nodes share, made at the first start."""
        path = self.plan.folder / SECRET
        if not path.exists():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(SECRET_BYTES) + "\n")
        return path

    def gateway(self) -> Process:
        words = ["gateway", "--connect", self.url, "--http", str(self.http), "--grpc", str(self.grpc)]
        return self.make("gateway", ["-m", "holdfast", *words, "--lake", str(self.lake)], self.console)

    def sample(self) -> Iterator[Process]:
        words = ["worker", "holdfast.local.shop:app", "--connect", self.url, "--concurrency", "20", "--shutdown", "5"]
        yield self.make("worker", ["-m", "holdfast", *words, "--name", "shop-worker"], "holdfast.local.shop:app")
        yield self.make("producer", ["-m", "holdfast.local.customers", self.url, str(self.plan.orders_per_second)],
                        f"{self.plan.orders_per_second:g} orders/s")

    def pipeline(self) -> Process:
        words = ["pipeline", "run", "--connect", self.url, "--lake", str(self.lake), "--master", "local[1]",
                 "--every", "5", "--refresh", "20", "--allow-loss"]
        return self.make("pipeline", ["-m", "holdfast", *words], str(self.lake), stop_s=30)

    # -- from start to stop --------------------------------------------------------------------------------

    def start(self) -> Iterator[str]:
        """One thing after the other, each said before it is begun. Raises StartError."""
        self.take_folder()
        if self.ports[0] != self.plan.port:
            self.notes.append(f"port {self.plan.port} is taken: the nodes are at {', '.join(map(str, self.ports))}")
        if self.http != self.plan.http:
            self.notes.append(f"port {self.plan.http} is taken: the console is at {self.http}")
        if self.plan.grpc and self.grpc != self.plan.grpc:
            self.notes.append(f"port {self.plan.grpc} is taken: gRPC is at {self.grpc}")
        yield "starting a node" if self.plan.nodes == 1 else f"starting {self.plan.nodes} nodes"
        for number in range(self.plan.nodes):
            self.node(number).start()
        for number, process in enumerate(list(self.processes)):
            self.wait_for_node(process, self.ports[number])
        self.queue = doors.open(self.url)
        self.wait_for_members()
        yield "starting the gateway"
        gateway = self.gateway()
        gateway.start()
        self.wait_for_http(gateway)
        if self.plan.has_sample:
            yield "starting the sample application"
            for process in self.sample():
                process.start()
        if self.plan.has_pipeline:
            why_not = why_no_pipeline()
            if why_not:
                self.notes.append(f"no pipeline, so no history charts: {why_not}")
            else:
                yield "starting the pipeline"
                self.pipeline().start()

    def take_folder(self) -> None:
        """Ours as long as we live: its nodes would refuse to start a second time, and say so only in their logs."""
        try:
            self.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.lock = (self.plan.folder / LOCK).open("ab")
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(f"another holdfast up uses the folder {self.plan.folder}") from None
        except OSError as error:
            raise StartError(f"cannot use the folder {self.plan.folder}: {error.strerror}") from None

    def check(self, process: Process, deadline: float) -> None:
        if not process.is_up():
            raise StartError(f"the {process.name} did not start:\n{process.tail()}")
        if time.monotonic() > deadline:
            raise StartError(f"the {process.name} does not answer after {START_S:g} s:\n{process.tail()}")

    def wait_for_node(self, process: Process, port: int) -> None:
        deadline = time.monotonic() + START_S
        while True:
            self.check(process, deadline)
            try:
                with doors.open(f"holdfast://{HOST}:{port}", connect_timeout=1) as queue:
                    queue.call("PING")
                    return
            except Error:
                time.sleep(LOOK_S)

    def wait_for_members(self) -> None:
        """Until the nodes have found each other: jobs that come sooner would have fewer copies."""
        assert self.queue is not None
        deadline = time.monotonic() + START_S
        while True:
            text: Any = self.queue.call("CLUSTER", "INFO")
            facts = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
            if int(facts["cluster_reachable_nodes"]) >= self.plan.nodes - 1:  # the others
                return
            for process in self.processes:
                self.check(process, deadline)
            time.sleep(LOOK_S)

    def wait_for_http(self, process: Process) -> None:
        deadline = time.monotonic() + START_S
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            self.check(process, deadline)
            try:
                with opener.open(f"{self.console}readyz", timeout=2):
                    return
            except OSError:
                time.sleep(LOOK_S)

    def look(self) -> list[tuple[Process, str]]:
        """Each process and what to say of it. Those that died are started again."""
        now = time.monotonic()
        return [(process, process.look(now)) for process in self.processes]

    def figures(self) -> Figures:
        if self.queue is None:
            return Figures(words="not yet")
        try:
            found = self.ask()
        except Error as error:
            return Figures(words=str(error))
        named = [each.row() for each in found.queues]
        away = self.names_of(list(found.silent))
        is_whole = not away and all(each.is_up() for each in self.processes if each.name.startswith("node "))
        self.since.take(named, is_whole)
        totals = {**found.total().row(), **{name: sum(row[name] for row in named) for name in COUNTERS}}
        return Figures(totals, sorted(named, key=lambda row: str(row["name"])), away)

    def problems(self) -> list[trouble.Problem]:
        """What is wrong now; nothing where nobody can be asked, which the figures say."""
        if self.queue is None:
            return []
        try:
            return trouble.what_is_wrong(sight.look(self.queue))
        except Error:
            return []

    def ask(self) -> Asked:
        """The sums, and who is not in them. A node that has just come back misses the others, who miss nobody: where
        half of them are missing, each is asked, and the one that knows most is believed."""
        assert self.queue is not None
        best = self.queue.figures()
        for port in self.ports if 2 * len(best.silent) >= self.plan.nodes else ():
            with contextlib.suppress(Error):
                with doors.open(f"holdfast://{HOST}:{port}", connect_timeout=ASK_S, answer_timeout=ASK_S) as queue:
                    found = queue.figures()
                if len(found.silent) < len(best.silent):
                    best = found
        return best

    def names_of(self, silent: list[str]) -> list[str]:
        """What nodes are called here, and whether they run; the others know where they were."""
        assert self.queue is not None
        if not silent:
            return []
        try:
            lines = [line.split() for line in plain(self.queue.call("CLUSTER", "NODES")).splitlines()]
        except Error:
            lines = []
        names = {each.where: f"{each.name} ({'no answer' if each.is_up() else 'away'})" for each in self.processes}
        places = {words[0]: words[1] for words in lines if len(words) > 1}
        return [names.get(places.get(each, ""), f"node {each[:8]}") for each in silent]

    def stop(self) -> Iterator[str]:
        """In the order that loses nothing. What had to be killed is said."""
        if self.queue is not None:
            self.queue.close()
        nodes = [process for process in self.processes if process.name.startswith("node")]
        makers = [process for process in self.processes if process.name in ("producer", "worker", "pipeline")]
        others = [process for process in self.processes if process not in nodes and process not in makers]
        for stage in (makers, others, nodes):
            for process in stage:
                process.tell()
            for process in stage:
                if not process.wait():
                    yield f"the {process.name} did not stop in {process.stop_s:g} s and was killed"
        if self.lock is not None:
            self.lock.close()


def plain(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
