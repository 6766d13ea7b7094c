"""The `browse` source: the jobs that are there now, as a batch. Looks, and takes nothing.

A job has copies at several nodes, and each may be in another state: queued at one, held as a copy at two. Scans are in
the order of ids at every node (JSCAN), so a partition reads the same range of ids at all nodes side by side and makes
one row of what it finds: the copy that says most. Ranges are those of the nodes that created the jobs.

Queue, states and ages are options, or filters that Spark hands down where
`spark.sql.python.filterPushdown.enabled` is on (the sessions of `holdfast pipeline` have it on).
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from holdfast.client.resp import to_text
from holdfast.client.target import Target
from holdfast.client.values import items, text
from holdfast.pipeline.nodes import Nodes

from .options import Options

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = ("subscribe", "states", "olderThan", "fetchSize", "includeBody", "pushdown")
SCHEMA: Final = (
    "id string, queue string, state string, body binary, enqueued_at timestamp, ttl int, delay int, retry int, "
    "nacks int, deliveries int, priority int, copies int, node string"
)
FETCH: Final = 1000
"""Jobs asked for at once from each node; a node looks at no more before it turns to others."""
ROWS: Final = 8192
"""Rows per Arrow batch."""
ID, QUEUE, STATE, TTL, CTIME, DELAY, RETRY, NACKS, DELIVERIES, BODY, MORE = 1, 3, 5, 9, 11, 13, 15, 17, 19, 29, 30
"""Where a value is in what SHOW says: the first thirty elements are Disque's, in this order, and will stay."""
NUMBERS: Final = ("ttl", "delay", "retry", "nacks", "deliveries", "priority", "copies")
PRIORITY: Final = 5
STATES: Final = ("queued", "wait-repl", "active", "acked")
"""From the copy that says most to the one that says least: queued is queued at one node only."""
FIRST_ID: Final = "{prefix}" + "0" * 36 + "SQ"
Copy: TypeAlias = tuple[bytes, str, list[Any]]
"""What one node says of a job: id, node, SHOW."""


@dataclass
class Range(InputPartition):
    """Ids from one prefix up to another, at all nodes."""

    begin: str
    end: str
    targets: list[tuple[str, Target]]


class BrowseReader(DataSourceReader):
    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = Options(given, KNOWN)
        self.nodes = Nodes(self.options.url())
        self.queues = set(self.options.names("subscribe"))
        self.states = set(self.options.names("states"))
        self.older_s = self.options.seconds("olderThan", 0.0)
        self.before_us: int | None = None
        self.fetch = self.options.number("fetchSize", FETCH)
        self.with_body = self.options.flag("includeBody", True)

    def partitions(self) -> Sequence[InputPartition]:
        members = self.nodes.members()
        if self.older_s:
            seconds, micros = items(self.nodes.ask(next(iter(members.values())), "TIME"))
            now_us = int(to_text(seconds)) * 1_000_000 + int(to_text(micros))  # type: ignore[arg-type]
            older = now_us - int(self.older_s * 1e6)
            self.before_us = older if self.before_us is None else min(older, self.before_us)
        places = sorted(members.items())
        # Ids begin with the eight first digits of the node that made the job; it may have left long ago.
        prefixes = ["", *sorted({f"DI{node[:8]}" for node in members})]
        ends = [*prefixes[1:], "E"]
        return [Range(begin, end, places) for begin, end in zip(prefixes, ends, strict=True)]

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, Range)
        scans = [self.scan(node, target, part.begin, part.end) for node, target in part.targets]
        rows: list[tuple[Any, ...]] = []
        for copies in by_job(scans):
            row = one_row(copies)
            if self.takes(row):
                rows.append(row)
            if len(rows) >= ROWS:
                yield batch(rows, self.with_body)
                rows = []
        if rows:
            yield batch(rows, self.with_body)

    def scan(self, node: str, target: Target, begin: str, end: str) -> Iterator[Copy]:
        """Jobs of one node in the order of their ids: id, node, what SHOW says."""
        cursor = f"={FIRST_ID.format(prefix=begin)}" if begin else "0"
        words = ["QUEUE", next(iter(self.queues))] if len(self.queues) == 1 else []
        last = end.encode()
        while True:
            reply = self.nodes.ask(target, "JSCAN", cursor, "COUNT", self.fetch, *words, "REPLY", "all")
            following, found = items(reply)
            for each in items(found):
                job: Any = each
                if job[ID] >= last:
                    return
                yield job[ID], node, job
            cursor = text(following)
            if cursor == "0" or cursor[1:] >= end:
                return

    def takes(self, row: tuple[Any, ...]) -> bool:
        return not (
            (self.queues and words(row[1]) not in self.queues)
            or (self.states and words(row[2]) not in self.states)
            or (self.before_us is not None and row[4] // 1000 >= self.before_us)
        )


class PushedReader(BrowseReader):
    """The same, taking filters from Spark. A class of its own: where pushing is off, Spark refuses one that could."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if isinstance(each, EqualTo | In) and each.attribute in (("queue",), ("state",)):
                values = {each.value} if isinstance(each, EqualTo) else set(each.value)
                kept = self.queues if each.attribute == ("queue",) else self.states
                if kept:
                    values &= kept
                kept.clear()
                kept.update(values or {"\0"})  # nothing can be both
                continue
            if isinstance(each, LessThan | LessThanOrEqual) and each.attribute == ("enqueued_at",):
                micros = int(each.value.timestamp() * 1_000_000) + 1
                self.before_us = micros if self.before_us is None else min(micros, self.before_us)
            yield each  # Spark looks again: ours is only a first sieve


def reader(given: Mapping[str, str]) -> DataSourceReader:
    pushed = Options(given, KNOWN).flag("pushdown", False)
    return PushedReader(given) if pushed else BrowseReader(given)


def by_job(scans: list[Iterator[Copy]]) -> Iterator[list[Copy]]:
    """All copies of one job after the other."""
    if len(scans) == 1:
        for copy in scans[0]:
            yield [copy]
        return
    for _, copies in groupby(heapq.merge(*scans, key=itemgetter(0)), key=itemgetter(0)):
        yield list(copies)


def one_row(copies: list[Copy]) -> tuple[Any, ...]:
    """One row of all copies of a job, as the node said it."""
    job_id, node, job = copies[0] if len(copies) == 1 else min(copies, key=rank)
    body, nacks, deliveries = job[BODY], job[NACKS], job[DELIVERIES]
    for _, _, other in copies if len(copies) > 1 else ():
        body = other[BODY] if body is None else body
        nacks, deliveries = max(nacks, other[NACKS]), max(deliveries, other[DELIVERIES])
    # Names and values of Holdfast's own follow, in any order; the priority is among them unless it is the usual one.
    priority = dict(zip(job[MORE::2], job[MORE + 1::2], strict=True)).get(b"priority", PRIORITY)
    return (job_id, job[QUEUE], job[STATE], body, job[CTIME], job[TTL], job[DELAY], job[RETRY], nacks, deliveries,
            priority, len(copies), node)


def rank(copy: Copy) -> int:
    state = words(copy[2][STATE])
    return STATES.index(state) if state in STATES else -1


@lru_cache(maxsize=10_000)
def words(raw: bytes) -> str:
    """Names of queues and states, of which there are few."""
    return raw.decode("utf-8", "backslashreplace")


def batch(rows: list[tuple[Any, ...]], with_body: bool) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = list(zip(*rows, strict=True))
    small = pa.int32()
    made = {
        "id": pa.array(columns[0], pa.binary()).cast(pa.string()),
        "queue": pa.array([words(name) for name in columns[1]], pa.string()),
        "state": pa.array([words(name) for name in columns[2]], pa.string()),
        "body": pa.array(columns[3], pa.binary()) if with_body else pa.nulls(len(rows), pa.binary()),
        "enqueued_at": pc.divide(pa.array(columns[4], pa.int64()), 1000).cast(pa.timestamp("us", tz="UTC")),
        **{name: pa.array(columns[5 + i], small) for i, name in enumerate(NUMBERS)},
        "node": pa.array(columns[12], pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))
