"""Producers and consumers at real nodes, and the history of what they asked and were told.

    load = Load(cluster.nodes, seed=7)
    ...                                  # harm the nodes; `mark` says what was done to them
    load.drain()                         # nothing new; at every node somebody waits, and acknowledges
    load.end()
    assert check(load.history) == []

All clients live in one thread with one event loop, so that the history has one order and one clock. Each has
its own dice, from the seed. They behave as clients in the simulator do: a producer whose node does not answer
goes to another; a consumer may die with a job in its hands, give it back, acknowledge it late, or elsewhere.
What was sent and not answered is `info`: nobody can know.

What was accepted, what is open, ended and acknowledged is kept beside it, for whoever looks into the nodes.
"""
from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from cluster_harness import Member
from harness import command

from holdfast.client.resp import NOT_READY, new_reader
from holdfast.testing.history import INFO, NEMESIS, OK, WATCH, History, Value
from holdfast.testing.sim.clients import meaning

QUEUES = ("q0", "q1", "q2")
KEPT = "kept"
"""Nobody asks for what is in this queue before the end: it has to live through everything."""

TTL_S = 3600
RETRIES_S = (2, 3, 4)
RETRY_MAX_S = max(RETRIES_S)
ADD_TIMEOUT_MS = 1_000
GET_TIMEOUT_MS = 400
PATIENCE_S = 1.5
"""How much longer than the command may take a client waits before it hangs up."""

BEHIND_S = 0.5
"""A producer that was held up makes good this much of what it did not add, not more."""

STAY = 0.97
"""A consumer goes to another node after one in so many hand-outs, or what is left of that."""

COMMANDS = {"ack": "ACKJOB", "nack": "NACK", "working": "WORKING"}


class Accepted(NamedTuple):
    t: int
    copies: int  # that were promised by the answer
    retry_s: int


class Gone(Exception):
    """The connection is, or nothing came over it in time."""


class Line:
    """A connection of one client to one node, one command at a time."""

    def __init__(self, load: Load, process: str, node: Member) -> None:
        self.load = load
        self.process = process
        self.node = node
        self.reader = new_reader()
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, f: str, words: Sequence[str | int], value: Value, wait_s: float = 0.0) -> tuple[str, Value]:
        """How it ended, and its value. Raises Gone if nobody can know."""
        load, name = self.load, str(self.node.number)
        if self.streams is None:
            try:
                dial = asyncio.open_connection(self.node.host, self.node.port)
                self.streams = await asyncio.wait_for(dial, PATIENCE_S)
            except (OSError, TimeoutError):
                raise Gone from None
        number = load.history.invoke(load.now(), self.process, name, f, value)
        try:
            self.streams[1].write(command(*words))
            reply = await asyncio.wait_for(self.read(self.streams[0]), wait_s + PATIENCE_S)
        except (OSError, TimeoutError, EOFError) as error:
            self.close()
            lost = {"error": f"{type(error).__name__}"}
            load.history.complete(load.now(), number, self.process, name, INFO, f, lost)
            raise Gone from None
        type_, told = meaning(f, reply)
        load.history.complete(load.now(), number, self.process, name, type_, f, told)
        return type_, told

    async def read(self, stream: asyncio.StreamReader) -> Any:
        while (reply := self.reader.gets()) is NOT_READY:
            more = await stream.read(65_536)
            if not more:
                raise EOFError
            self.reader.feed(more)
        return reply

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].transport.abort()
            self.streams = None
            self.reader = new_reader()


class Lines:
    """A client's connections, at most one per node."""

    def __init__(self, load: Load, process: str, dice: Random) -> None:
        self.load = load
        self.process = process
        self.dice = dice
        self.lines: dict[int, Line] = {}
        self.move()

    def move(self) -> None:
        """Make another node one's own."""
        self.home = self.dice.choice(self.load.nodes)

    def to(self, node: Member) -> Line:
        if node.number not in self.lines:
            self.lines[node.number] = Line(self.load, self.process, node)
        return self.lines[node.number]

    def close(self) -> None:
        for line in self.lines.values():
            line.close()


class Load(threading.Thread):
    def __init__(
        self, nodes: Sequence[Member], seed: int, *, producers: int = 8, consumers: int = 10, adds_per_s: int = 160,
        kept: float = 0.05, replicate: int = 0, slack_ms: int = 10_000,
    ) -> None:
        """`kept`: the share of jobs that wait for the end. `replicate`: of every job; 0: a mix, with some jobs
        that are handed out at most once."""
        super().__init__(daemon=True)
        self.nodes = list(nodes)
        self.seed = seed
        self.kept = kept
        self.replicate = replicate
        self.gap_s = producers / adds_per_s
        self.began = time.monotonic()
        self.history = History()
        self.rows: dict[str, Accepted] = {}
        self.open: dict[str, Accepted] = {}  # those of them that are not ended
        self.ended: set[str] = set()  # jobs for which an ack was sent
        self.acked: dict[str, int] = {}  # and answered, and when first
        self.excused: set[str] = set()  # jobs that were lost with all the copies they had
        self.bodies = 0
        self.is_draining = False
        self.is_over = threading.Event()
        self.error: BaseException | None = None
        self.workers: list[Callable[[], Any]] = [
            *(lambda i=i: self.produce(i) for i in range(producers)),
            *(lambda i=i: self.consume(i) for i in range(consumers)),
            *(lambda i=i: self.drain_at(i) for i in range(2 * len(self.nodes))),
        ]
        self.mark(
            "settings", seed=seed, nodes=[str(node.number) for node in self.nodes],
            settle_ms=20_000 + 1000 * RETRY_MAX_S, slack_ms=slack_ms,
        )
        self.start()

    def now(self) -> int:
        return int((time.monotonic() - self.began) * 1000)

    # -- the thread ----------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            asyncio.run(self.work())
        except BaseException as error:
            self.error = error

    async def work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker())

    def check(self) -> None:
        """It still goes on as it should."""
        if self.error is not None:
            raise self.error
        assert self.is_alive()

    def drain(self) -> None:
        self.check()
        self.is_draining = True

    def end(self) -> None:
        self.is_over.set()
        self.join(30)
        assert not self.is_alive(), "the clients did not end"
        self.mark("end")
        if self.error is not None:
            raise self.error

    # -- for whoever harms the nodes -----------------------------------------------------------------------

    def mark(self, f: str, node: str = "", **value: Any) -> None:
        self.history.mark(self.now(), NEMESIS, node, f, **value)

    def seen(self, promise: str, what: str, job: str, text: str) -> None:
        self.history.mark(self.now(), WATCH, "", "seen", promise=promise, what=what, job=job, text=text)

    def excuse(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            if self.open.pop(job, None) is not None:
                self.excused.add(job)

    def must_arrive(self, job: str) -> bool:
        return self.rows[job].retry_s > 0 and job not in self.excused

    def operations(self, since: int = 0, until: int = 1 << 60) -> int:
        """How many were answered, and with something: a GETJOB that came back empty is none."""
        return sum(
            1 for op in self.history.ops
            if op.type == OK and since <= op.t < until and (op.f != "get" or op.value["jobs"])
        )

    # -- producers -----------------------------------------------------------------------------------------

    async def produce(self, number: int) -> None:
        dice = Random(f"{self.seed}/producer/{number}")
        lines = Lines(self, f"p{number}", dice)
        due = time.monotonic() + dice.random() * self.gap_s
        while not self.is_draining and not self.is_over.is_set():
            await asyncio.sleep(due - time.monotonic())
            due = max(due + self.gap_s, time.monotonic() - BEHIND_S)
            try:
                type_, _ = await self.add(lines.to(lines.home), dice)
            except Gone:
                type_ = INFO
            if type_ != OK:
                lines.move()
        lines.close()

    async def add(self, line: Line, dice: Random) -> tuple[str, Value]:
        self.bodies += 1
        roll = dice.random()
        queue = KEPT if dice.random() < self.kept else dice.choice(QUEUES)
        replicate, retry_s = self.replicate or (2 if roll < 0.2 else 3), dice.choice(RETRIES_S)
        delay_s = 1 if dice.random() < 0.05 else 0
        if not self.replicate and roll > 0.85:
            replicate, retry_s = 1, 0
        value: Value = {
            "queue": queue, "body": f"b{self.bodies}", "replicate": replicate, "retry": retry_s, "ttl": TTL_S,
            "delay": delay_s, "async": False, "timeout": ADD_TIMEOUT_MS,
        }
        words: list[str | int] = [
            "ADDJOB", queue, value["body"], ADD_TIMEOUT_MS, "REPLICATE", replicate, "RETRY", retry_s, "TTL", TTL_S,
            "DELAY", delay_s,
        ]
        type_, told = await line.ask("add", words, value, ADD_TIMEOUT_MS / 1000)
        if type_ == OK:
            row = self.rows[told["id"]] = Accepted(self.now(), replicate, retry_s)
            if told["id"] not in self.ended:
                self.open[told["id"]] = row
        return type_, told

    # -- consumers -----------------------------------------------------------------------------------------

    async def get(self, lines: Lines, *queues: str) -> list[Value]:
        words: list[str | int] = ["GETJOB", "WITHCOUNTERS", "TIMEOUT", GET_TIMEOUT_MS, "FROM", *queues]
        line = lines.to(lines.home)
        type_, told = await line.ask("get", words, {"queues": list(queues)}, GET_TIMEOUT_MS / 1000)
        return told["jobs"] if type_ == OK else []

    async def tell(self, lines: Lines, f: str, id: str, elsewhere: bool = False) -> None:
        """Say something of a job; at another node if this one does not answer."""
        for attempt in range(3):
            node = lines.dice.choice(self.nodes) if elsewhere or attempt else lines.home
            if f == "ack":
                self.ended.add(id)
                self.open.pop(id, None)
            try:
                type_, _ = await lines.to(node).ask(f, [COMMANDS[f], id], {"ids": [id]})
            except Gone:
                continue
            if f == "ack" and type_ == OK:
                self.acked.setdefault(id, self.now())
            return

    async def consume(self, number: int) -> None:
        dice = Random(f"{self.seed}/consumer/{number}")
        lines = Lines(self, f"c{number}", dice)
        while not self.is_draining and not self.is_over.is_set():
            try:
                for job in await self.get(lines, *QUEUES):
                    await self.treat(lines, job["id"])
            except Gone:
                lines.move()
            if dice.random() > STAY:
                lines.move()
        lines.close()

    async def treat(self, lines: Lines, id: str) -> None:
        roll = lines.dice.random()
        if roll < 0.01:  # it dies
            lines.close()
            lines.move()
        elif roll < 0.03:
            await self.tell(lines, "nack", id)
        elif roll < 0.04:
            await asyncio.sleep(lines.dice.random() * 1.5 * RETRY_MAX_S)
            await self.tell(lines, "ack", id)
        else:
            if roll < 0.06:
                await self.tell(lines, "working", id)
            await self.tell(lines, "ack", id, elsewhere=roll > 0.9)

    async def drain_at(self, number: int) -> None:
        """Two for each node; they begin when the others end, and only ever acknowledge."""
        dice = Random(f"{self.seed}/drain/{number}")
        lines = Lines(self, f"d{number}", dice)
        lines.home = self.nodes[number % len(self.nodes)]
        while not self.is_over.is_set():
            if not self.is_draining:
                await asyncio.sleep(0.05)
                continue
            try:
                for job in await self.get(lines, *QUEUES, KEPT):
                    await self.tell(lines, "ack", job["id"], elsewhere=dice.random() < 0.3)
            except Gone:
                await asyncio.sleep(0.05)
        lines.close()


@contextlib.contextmanager
def loaded(load: Load) -> Any:
    """The load, which ends with the block whatever happens in it."""
    try:
        yield load
    finally:
        if load.is_alive():
            load.end()
