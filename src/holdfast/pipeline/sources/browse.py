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
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

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
from holdfast.client.values import fields, items, text
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
STATES: Final = ("queued", "wait-repl", "active", "acked")
"""From the copy that says most to the one that says least: queued is queued at one node only."""
FIRST_ID: Final = "{prefix}" + "0" * 36 + "SQ"


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
        for _, copies in groupby(heapq.merge(*scans, key=itemgetter(0)), key=itemgetter(0)):
            row = self.row(list(copies))
            if self.takes(row):
                rows.append(row)
            if len(rows) >= ROWS:
                yield batch(rows)
                rows = []
        if rows:
            yield batch(rows)

    def scan(self, node: str, target: Target, begin: str, end: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Jobs of one node in the order of their ids: id, node, what SHOW says."""
        cursor = f"={FIRST_ID.format(prefix=begin)}" if begin else "0"
        words = ["QUEUE", next(iter(self.queues))] if len(self.queues) == 1 else []
        while True:
            reply = self.nodes.ask(target, "JSCAN", cursor, "COUNT", self.fetch, *words, "REPLY", "all")
            following, found = items(reply)
            for each in items(found):
                job = fields(each)
                job_id = text(job["id"])
                if job_id >= end:
                    return
                yield job_id, node, job
            cursor = text(following)
            if cursor == "0" or cursor[1:] >= end:
                return

    def row(self, copies: list[tuple[str, str, dict[str, Any]]]) -> tuple[Any, ...]:
        """One row of all copies of a job."""
        job_id, node, job = min(copies, key=lambda copy: rank(text(copy[2]["state"])))
        body = next((copy["body"] for _, _, copy in copies if copy["body"] is not None), None)
        return (
            job_id, None if job["queue"] is None else text(job["queue"]), text(job["state"]),
            body if self.with_body else None, job["ctime"] // 1000, job["ttl"], job["delay"], job["retry"],
            max(copy["nacks"] for _, _, copy in copies), max(copy["additional-deliveries"] for _, _, copy in copies),
            job.get("priority", 5), len(copies), node,
        )

    def takes(self, row: tuple[Any, ...]) -> bool:
        return not (
            (self.queues and row[1] not in self.queues)
            or (self.states and row[2] not in self.states)
            or (self.before_us is not None and row[4] >= self.before_us)
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


def rank(state: str) -> int:
    return STATES.index(state) if state in STATES else -1


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    small = pa.int32()
    kinds = {
        "id": pa.string(), "queue": pa.string(), "state": pa.string(), "body": pa.binary(),
        "enqueued_at": pa.timestamp("us", tz="UTC"), "ttl": small, "delay": small, "retry": small, "nacks": small,
        "deliveries": small, "priority": small, "copies": small, "node": pa.string(),
    }
    arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(kinds.items())))
