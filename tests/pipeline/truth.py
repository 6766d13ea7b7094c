"""Jobs whose fates are known, driven through real nodes, and every figure that gold should have. Imports no pipeline.

What each job does follows from its number alone. Counts come from that; times come from the nodes' own records, read
straight from HISTORY READ, and are added up here by plain Python.
"""
from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

QUEUES = ("post", "film", "papers")
DONE, AGAIN, DEAD, OPEN = "done", "again", "dead", "open"

LEASE_S = 3600
"""Those that stay with their worker stay there: longer than the longest run takes."""


def fate(number: int) -> str:
    """Mostly done; some fail once and are done then, some are dead at once, some stay."""
    return {0: AGAIN, 1: DEAD, 2: OPEN}.get(number % 10, DONE)


def queue(number: int) -> str:
    return QUEUES[number % 3]


def error(number: int) -> str:
    return f"ValueError: row {number} is broken" if number % 2 else f"timeout after {number} ms"


@dataclass
class Truth:
    """What should be found."""

    added: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    nacked: Counter[str] = field(default_factory=Counter)
    handed: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


def drive(nodes: list[Any], count: int, window: int = 200) -> Truth:
    """Add `count` jobs at all nodes in turn and let one worker per node live through their fates."""
    truth = Truth()
    clients = [node.client() for node in nodes]
    for number, client in enumerate(clients):
        client.ask("CLIENT", "SETNAME", f"worker-{number}")
    for begin in range(0, count, window):
        batch = range(begin, min(begin + window, count))
        for number in batch:
            clients[number // 3 % 3].send("ADDJOB", queue(number), str(number), 5000, "RETRY", LEASE_S, "TENANT",
                                     f"t{number % 4}", "BACKOFF", 0)
            truth.added[queue(number)] += 1
        for number in batch:
            reply = clients[number // 3 % 3].read()
            assert reply.startswith(b"DI"), reply
        work(clients, truth)
    for name in QUEUES:
        truth.left[name] = truth.added[name] - truth.done[name] - truth.dead[name]
    return truth


def work(clients: list[Any], truth: Truth) -> None:
    """Until nothing is queued any more."""
    while True:
        idle = True
        for client in clients:
            rows = client.ask("GETJOB", "NOHANG", "COUNT", 100, "WITHMETA", "FROM", *QUEUES) or []
            told = 0
            for row in rows:
                idle = False
                meta = {row[i].decode(): row[i + 1] for i in range(3, len(row), 2)}
                told += live(client, truth, row[0].decode(), row[1], int(row[2]), meta["token"], meta["attempt"])
            for _ in range(told):
                reply = client.read()
                assert reply == 1, reply
        if idle:
            return


def live(client: Any, truth: Truth, name: str, job: bytes, number: int, token: bytes, attempt: int) -> bool:
    """What a worker does with a job; whether that will be answered."""
    truth.handed[name] += 1
    truth.again[name] += attempt > 1
    what = fate(number)
    if what == OPEN:
        return False
    if what == DONE or (what == AGAIN and attempt > 1):
        client.send("ACKJOB", job, "TOKEN", token)
        truth.done[name] += 1
        return True
    truth.nacked[name] += 1
    truth.dead[name] += what == DEAD
    client.send("NACK", job, "TOKEN", token, "ERROR", error(number), *(["DEAD"] if what == DEAD else ["DELAY", 0]))
    return True


Record = tuple[str, str, str, int]
"""Event, job, queue, microseconds."""


def records(nodes: list[Any]) -> Iterator[Record]:
    """What the nodes have written down of our queues."""
    from holdfast.history import decode

    for node in nodes:
        cursor = b"first"
        with node.client() as client:
            while True:
                cursor, piece = client.ask("HISTORY", "READ", cursor, "COUNT", 50_000)
                if not piece:
                    break
                batch = decode(piece)
                times = batch.column("time").cast("int64").to_pylist()
                columns = [batch.column(name).to_pylist() for name in ("event", "job", "queue")]
                for event, job, name, micros in zip(*columns, times, strict=True):
                    if job is not None and name in QUEUES:
                        yield event, job, name, micros


def durations(found: Iterable[Record]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Waits and runs in milliseconds, by queue."""
    added: dict[str, int] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    acked: dict[str, int] = {}
    queues: dict[str, str] = {}
    for event, job, name, micros in found:
        queues[job] = name
        if event == "added":
            added[job] = micros
        elif event == "handed-out":
            first[job] = min(first.get(job, micros), micros)
            last[job] = max(last.get(job, micros), micros)
        elif event == "acked":
            acked[job] = micros
    waits, runs = defaultdict(list), defaultdict(list)
    for job, name in queues.items():
        if job in added and job in first:
            waits[name].append(max(0.0, (first[job] - added[job]) / 1000))
        if job in acked and job in last:
            runs[name].append(max(0.0, (acked[job] - last[job]) / 1000))
    return waits, runs


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share is not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
