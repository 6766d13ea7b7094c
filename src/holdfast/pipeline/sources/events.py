"""The `events` source: the history of all nodes, as a batch or as a stream that can be replayed.

Each node has a history of its own with real places in it (HISTORY READ, docs/reference/history.md), so an offset is a
place per node (`places.py`) and the stream is an ordinary one: a batch is what lies between two offsets, and reading it
again gives the same rows. Nothing is acknowledged; a node keeps its history for as long as its settings say.

    latestOffset   asks every node that can be reached how far it is, within the limit of rows
    partitions     cuts what lies between into pieces of some hundred thousand records, by node
    read           at an executor: asks the node for the piece, which is Arrow already when it is decoded

What is gone (removed by retention, or with a node) fails the query with words that say what, unless
`failOnDataLoss=false`.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from holdfast.client.errors import Error, Refused, Unknown
from holdfast.client.target import Target
from holdfast.client.values import data, fields, items, text
from holdfast.pipeline.nodes import Nodes

from .options import BadOption, Options
from .places import SINCE, Place, dump, load

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = (
    "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "failOnDataLoss", "maxEventsPerTrigger",
    "maxOffsetsPerTrigger", "recordsPerPartition", "fetchSize", "columns", "includeHeaders",
)
RENAMED: Final = {"job": "key", "time": "timestamp", "event": "type", "position": "offset"}
"""Columns that have the names of Kafka's; all others are called as in docs/reference/history.md."""
KINDS: Final = {
    "string": "string", "int64": "long", "int32": "int", "bool": "boolean", "timestamp[us, tz=UTC]": "timestamp",
    "map<string, string>": "map<string, string>",
}
PER_PARTITION: Final = 250_000
"""Records of one partition: a few seconds of work, so that a lost one costs little and every core gets some."""
FETCH: Final = 20_000
"""Records asked for at once: a few megabytes."""
GONE: Final = re.compile(r"from \S+ to (\S+?):? ")


def columns(given: Mapping[str, str]) -> list[str]:
    """Names of the columns, as the options want them, in the order of the history."""
    from holdfast.history import schema as told

    options = Options(given, KNOWN)
    names = [RENAMED.get(name, name) for name in told().names]
    wanted = options.names("columns") or names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise BadOption(f"events have no column {unknown[0]!r}; they have {', '.join(names)}")
    with_headers = options.flag("includeHeaders", True) or "headers" in options.names("columns")
    return [name for name in names if name in wanted and (name != "headers" or with_headers)]


def schema(given: Mapping[str, str]) -> str:
    """The same as Spark wants to know it."""
    from holdfast.history import schema as told

    kinds = {RENAMED.get(field.name, field.name): KINDS[str(field.type)] for field in told()}
    return ", ".join(f"`{name}` {kinds[name]}" for name in columns(given))


class DataLoss(RuntimeError):
    """Events that the query should have read are not there any more."""


@dataclass
class Stretch(InputPartition):
    """A piece of one node's history, and where that node was when the batch was planned."""

    node: str
    target: Target
    begin: Place
    end: Place


class Events:
    """What both readers do. Goes to the executors as it is, but for its connections."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = Options(given, KNOWN)
        self.columns = columns(given)
        self.nodes = Nodes(self.options.url())
        self.fails_on_loss = self.options.flag("failOnDataLoss", True)
        self.per_partition = self.options.number("recordsPerPartition", PER_PARTITION)
        self.fetch = self.options.number("fetchSize", FETCH)
        self.unreached: dict[str, str] = {}

    # -- on the driver -------------------------------------------------------------------------------------

    def reachable(self) -> dict[str, tuple[Target, dict[str, Any]]]:
        """Nodes that answer and have a history: where they are and what HISTORY INFO says."""
        found: dict[str, tuple[Target, dict[str, Any]]] = {}
        self.unreached = {}
        members = self.nodes.members()
        for node, target in members.items():
            try:
                info = fields(self.nodes.ask(target, "HISTORY", "INFO"))
            except (Unknown, Refused) as error:
                self.unreached[node] = str(error)
                continue
            except Error as error:
                if error.code != "NOHISTORY":
                    raise
                self.unreached[node] = "its history is off"
                continue
            if data(info["last"]):  # nothing has happened there otherwise, and there is no place yet
                found[node] = (target, info)
        if not found and len(self.unreached) == len(members):
            why = "; ".join(f"{node[:8]}: {words}" for node, words in self.unreached.items())
            raise BadOption(f"no node has a history to read ({why}). To switch it on: CONFIG SET history yes")
        return found

    def start(self) -> dict[str, Any]:
        """The offset that the options name."""
        words = self.options.text("startingOffsets", "earliest")
        stamp = self.options.text("startingTimestamp")
        nodes = self.reachable()
        if stamp:
            since = self.options.number("startingTimestamp", 0, 0)
        elif words == "latest":
            since = self.now_ms(nodes)  # for nodes that have no place yet, or cannot be reached now
        elif words == "earliest":
            since = 0
        else:
            return dump(given_places("startingOffsets", words), 0)
        is_last = words == "latest" and not stamp
        places = {
            node: Place.parse(text(info["last"])) if is_last else self.beginning(node, target, since)
            for node, (target, info) in nodes.items()
        }
        return dump(places, since)

    def now_ms(self, nodes: dict[str, tuple[Target, dict[str, Any]]]) -> int:
        """By the clock of a node: ours may be another."""
        target = next((target for target, _ in nodes.values()), self.nodes.named[0])
        seconds, micros = items(self.nodes.ask(target, "TIME"))
        return int(text(seconds)) * 1000 + int(text(micros)) // 1000

    def beginning(self, node: str, target: Target, since: int) -> Place:
        """Where a node is read from that no offset names."""
        if since:
            return Place.parse(text(self.nodes.ask(target, "HISTORY", "AT", since)))
        return Place.parse(text(fields(self.nodes.ask(target, "HISTORY", "INFO"))["first"]))

    def end(self, begin: dict[str, Any], limit: int | None, targets: dict[str, Place] | None) -> dict[str, Any]:
        """The offset to read to: as far as nodes are, or as `targets` says, but at most `limit` rows or a bit more."""
        places = load(begin)
        since = int(begin.get(SINCE, 0))
        ahead: dict[str, tuple[Target, Place, Place]] = {}
        for node, (target, info) in self.reachable().items():
            last = Place.parse(text(info["last"]))
            if targets is not None:
                if node not in targets:
                    continue
                last = min(last, targets[node])
            if node not in places:
                # Its beginning is a place of its own, so that a replayed batch does not look for it again.
                places[node] = self.beginning(node, target, since)
            elif places[node] < last:
                ahead[node] = (target, places[node], last)
        for node, (target, at, last) in ahead.items():
            if limit is not None:
                share = max(1, limit // len(ahead))
                last = min(last, self.seek(node, target, at, share))
            places[node] = last
        return dump(places, since)

    def seek(self, node: str, target: Target, at: Place, count: int) -> Place:
        """At most `count` records further on. What is gone is passed over here; `read` tells of it."""
        try:
            return Place.parse(text(self.nodes.ask(target, "HISTORY", "SEEK", at.cursor(node), count)))
        except Error as error:
            if error.code != "GONE":
                raise
            return self.seek(node, target, self.after_gone(error, at, node), count)

    def cut(self, begin: dict[str, Any], end: dict[str, Any]) -> list[Stretch]:
        """What lies between two offsets, in pieces."""
        begins = load(begin)
        wanted = {node: last for node, last in load(end).items() if begins.get(node, last) < last}
        if not wanted:
            return []
        members = self.nodes.members()
        stretches: list[Stretch] = []
        for node, last in wanted.items():
            if node not in members:
                if self.fails_on_loss:
                    raise lost(f"node {node[:8]} has left the cluster, and its history from {begins[node]} to {last}")
                continue
            target = members[node]
            try:
                at = begins[node]
                while at < last:
                    until = min(last, self.seek(node, target, at, self.per_partition))
                    if until <= at:
                        until = last
                    stretches.append(Stretch(node, target, at, until))
                    at = until
            except (Refused, Unknown) as error:
                if self.fails_on_loss:
                    raise lost(f"node {node[:8]} cannot be reached for its events up to {last} ({error})") from error
        return stretches

    # -- on the executors ----------------------------------------------------------------------------------

    def read(self, stretch: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a piece, as Arrow."""
        assert isinstance(stretch, Stretch)
        at = stretch.begin
        while at < stretch.end:
            try:
                cursor, piece = items(self.nodes.ask(
                    stretch.target, "HISTORY", "READ", at.cursor(stretch.node), "COUNT", self.fetch, "UNTIL",
                    stretch.end.cursor(stretch.node),
                ))
            except Error as error:
                if error.code != "GONE":
                    raise
                if self.fails_on_loss:
                    raise lost(f"node {stretch.node[:8]} no longer keeps what was to be read ({error.text})") from error
                at = self.after_gone(error, at, stretch.node)
                continue
            went = Place.parse(text(cursor))
            if data(piece):
                yield self.rows(data(piece))
            if went <= at:
                return  # a crash took what was served before it: nothing more is there
            at = went

    def rows(self, piece: bytes) -> pa.RecordBatch:
        import pyarrow as pa

        from holdfast.history import decode

        batch = decode(piece)
        names = {RENAMED.get(name, name): name for name in batch.schema.names}
        arrays = [batch.column(names[name]) for name in self.columns]
        fields = [pa.field(name, array.type) for name, array in zip(self.columns, arrays, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def after_gone(self, error: Error, at: Place, node: str) -> Place:
        found = GONE.search(error.text)
        place = Place.parse(found[1]) if found else at
        if place <= at:
            raise error
        return place


def given_places(option: str, words: str) -> dict[str, Place]:
    """Offsets as JSON, as an earlier query printed them."""
    try:
        said = json.loads(words)
        if not isinstance(said, dict):
            raise ValueError("it is no object")
        return load({str(node): str(place) for node, place in said.items()})
    except (ValueError, Error) as error:
        raise BadOption(f"{option} takes earliest, latest or JSON with a place per node ({error})") from error


def lost(words: str) -> DataLoss:
    return DataLoss(f"{words}. To go on without these events set failOnDataLoss=false")


class EventsReader(Events, DataSourceReader):
    """The history as a batch."""

    def partitions(self) -> Sequence[InputPartition]:
        begin = self.start()
        words = self.options.text("endingOffsets", "latest")
        if stamp := self.options.number("endingTimestamp", 0, 0):
            targets: dict[str, Place] | None = {
                node: self.beginning(node, target, stamp) for node, (target, _) in self.reachable().items()
            }
        else:
            targets = None if words == "latest" else given_places("endingOffsets", words)
        return self.cut(begin, self.end(begin, None, targets))


class EventsStreamReader(Events, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The history as a stream."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self.first: dict[str, Any] | None = None
        self.goal: dict[str, Place] | None = None

    def initialOffset(self) -> dict[str, Any]:
        # Spark asks at every poll until there is a first batch, and again when that is replayed.
        if self.first is None:
            self.first = self.start()
        return dict(self.first)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.number("maxEventsPerTrigger", 0) or self.options.number("maxOffsetsPerTrigger", 0)
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.goal = {node: Place.parse(text(info["last"])) for node, (_, info) in self.reachable().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.end(start, most, self.goal)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        nodes = self.reachable()
        return {node: str(Place.parse(text(info["last"]))) for node, (_, info) in nodes.items()} | {
            f"unreached {node[:8]}": words for node, words in self.unreached.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.cut(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to acknowledge: a history is read, not used up."""

    def stop(self) -> None:
        self.nodes.close()
