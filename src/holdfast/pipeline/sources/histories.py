"""The histories of all nodes, as the pipeline reads them: how far they are, and the records between two places.

    start      the first offset: where options say, at every node that can be reached
    end        the offset to read to: as far as nodes are, within a limit of rows
    cut        what lies between two offsets, in pieces of some hundred thousand records, by node
    records    at an executor: the rows of a piece, which is Arrow already when it is decoded

What an offset means is in `places.py`. A node that does not answer is asked again for `retrySeconds`; what is gone
(removed by retention, lost in a power cut, or with a node) is `DataLoss`, unless `failOnDataLoss=false`.
"""
from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.errors import Error, Refused, Unknown, Unreachable
from holdfast.client.resp import Arg, Reply
from holdfast.client.target import Target
from holdfast.client.values import data, fields, items, text
from holdfast.pipeline.nodes import Nodes

from .options import BadOption, Options
from .places import NotReplayable, Offset, Place

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = (
    "startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp", "failOnDataLoss", "maxEventsPerTrigger",
    "maxOffsetsPerTrigger", "recordsPerPartition", "fetchSize", "columns", "includeHeaders", "retrySeconds",
)
RENAMED: Final = {"job": "key", "time": "timestamp", "event": "type", "position": "offset"}
"""Columns that have the names of Kafka's; all others are called as in docs/reference/history.md."""
PER_PARTITION: Final = 250_000
"""Records of one partition: a few seconds of work, so that a lost one costs little and every core gets some."""
FETCH: Final = 20_000
"""Records asked for at once: a few megabytes."""
RETRY_S: Final = 30.0
"""How long a node is asked again that does not answer: longer than a restart takes, shorter than people wait."""
PAUSE_S: Final = 0.1
"""Before a node is asked again; twice as long each time, and never longer than PAUSE_S_MAX."""
PAUSE_S_MAX: Final = 2.0
GONE: Final = re.compile(r"from \S+ to (\S+?):? ")


class DataLoss(RuntimeError):
    """Events that should have been read are not there any more."""


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


@dataclass(frozen=True)
class Piece:
    """A piece of one node's history, and where that node was when it was cut."""

    node: str
    target: Target
    begin: Place
    end: Place


class Histories:
    """All histories behind a url. Goes to the executors as it is, but for its connections."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = Options(given, KNOWN)
        self.columns = columns(given)
        self.nodes = Nodes(self.options.url())
        self.fails_on_loss = self.options.flag("failOnDataLoss", True)
        self.per_partition = self.options.number("recordsPerPartition", PER_PARTITION)
        self.fetch = self.options.number("fetchSize", FETCH)
        self.retry_s = self.options.seconds("retrySeconds", RETRY_S)
        self.unreached: dict[str, str] = {}
        """Nodes that did not answer when they were last asked, and why."""
        self.silent: dict[str, str] = {}
        """Nodes without a history."""

    # -- how far nodes are -----------------------------------------------------------------------------------

    def reachable(self) -> dict[str, tuple[Target, dict[str, Any]]]:
        """Nodes that answer and have a history: where they are and what HISTORY INFO says."""
        found: dict[str, tuple[Target, dict[str, Any]]] = {}
        self.unreached, self.silent = {}, {}
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
                self.silent[node] = "its history is off"
                continue
            if data(info["last"]):  # nothing has happened there otherwise, and there is no place yet
                found[node] = (target, info)
        without = self.unreached | self.silent
        if not found and len(without) == len(members):
            why = "; ".join(f"{node[:8]}: {words}" for node, words in without.items())
            if self.unreached:
                raise Unreachable(f"no node tells of its history ({why})")
            raise BadOption(f"no node has a history to read ({why}). To switch it on: CONFIG SET history yes")
        return found

    def lasts(self) -> dict[str, Place]:
        """Where the history of each node that can be reached ends now."""
        return {node: last(info) for node, (_, info) in self.reachable().items()}

    def start(self) -> Offset:
        """The first offset: where the options say at each node that can be reached, and since when for all others."""
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
            given = given_offset("startingOffsets", words)
            return Offset({}, 0).advanced({}, given.places, given.since or 0)
        is_last = words == "latest" and not stamp
        places = {node: last(info) if is_last else self.beginning(node, target, since)
                  for node, (target, info) in nodes.items()}
        return Offset({}, since).advanced({}, places)

    def now_ms(self, nodes: Mapping[str, tuple[Target, Any]]) -> int:
        """By the clock of a node: ours may be another."""
        target = next((target for target, _ in nodes.values()), self.nodes.named[0])
        seconds, micros = items(self.nodes.ask(target, "TIME"))
        return int(text(seconds)) * 1000 + int(text(micros)) // 1000

    def beginning(self, node: str, target: Target, since: int) -> Place:
        """Where a node is read from that no offset names."""
        if since:
            return Place.parse(text(self.nodes.ask(target, "HISTORY", "AT", since)))
        return Place.parse(text(fields(self.nodes.ask(target, "HISTORY", "INFO"))["first"]))

    def end(self, begin: Offset, limit: int | None, goal: Mapping[str, Place] | None = None) -> Offset:
        """The offset to read to: as far as nodes are, or as `goal` says, but at most `limit` rows or a bit more.

        The first offset and the beginnings of nodes that join are ends of their own: they are in the log of the stream
        before a row is read from there. A node that is away keeps its place.
        """
        if begin.is_initial():
            return self.start()
        nodes = self.reachable()
        joined: dict[str, Place] = {}
        for node, (target, _) in nodes.items():
            if node not in begin.places and (goal is None or node in goal):
                joined[node] = self.beginning(node, target, begin.since or 0)
        lasts = {node: last(info) if goal is None else min(last(info), goal[node])
                 for node, (_, info) in nodes.items() if goal is None or node in goal}
        ahead = begin.ahead(lasts)
        share = None if limit is None else max(1, limit // max(1, len(ahead)))
        read: dict[str, Place] = {}
        for node, (at, until) in ahead.items():
            target = nodes[node][0]
            try:
                read[node] = until if share is None else min(until, self.seek(node, target, at, share))
            except (Refused, Unknown) as error:
                self.unreached[node] = str(error)
        return begin.advanced({node: place for node, place in read.items() if place > begin.places[node]}, joined)

    def seek(self, node: str, target: Target, at: Place, count: int) -> Place:
        """At most `count` records further on. What is gone is passed over here; `records` tells of it."""
        try:
            return Place.parse(text(self.nodes.ask(target, "HISTORY", "SEEK", at.cursor(node), count)))
        except Error as error:
            if error.code != "GONE":
                raise
            return self.seek(node, target, after_gone(error, at), count)

    def cut(self, begin: Offset, end: Offset) -> list[Piece]:
        """What lies between two offsets, in pieces. `DataLoss` if a part of it cannot be read."""
        pieces, away = self.cut_what_is_there(begin, end)
        if away and self.fails_on_loss:
            raise lost(next(iter(away.values())))
        return pieces

    def cut_what_is_there(self, begin: Offset, end: Offset) -> tuple[list[Piece], dict[str, str]]:
        """The same, and by node why there is nothing of one."""
        try:
            wanted = begin.until(end)
        except NotReplayable as error:
            if self.fails_on_loss:
                raise lost(f"this batch cannot be read again: {error}") from error
            return [], {}
        members = self.nodes.members() if wanted else {}
        pieces: list[Piece] = []
        away: dict[str, str] = {}
        for node, (at, until) in wanted.items():
            if node not in members:
                away[node] = f"node {node[:8]} has left the cluster, and its history from {at} to {until} with it"
                continue
            try:
                pieces += self.cut_one(node, members[node], at, until)
            except (Refused, Unknown) as error:
                away[node] = f"node {node[:8]} cannot be reached for its events up to {until} ({error})"
        return pieces, away

    def cut_one(self, node: str, target: Target, at: Place, until: Place) -> Iterator[Piece]:
        while at < until:
            further = self.patiently(target, "HISTORY", "SEEK", at.cursor(node), self.per_partition)
            if isinstance(further, Place):  # what lies before it is gone
                further = self.seek(node, target, further, self.per_partition)
            else:
                further = Place.parse(text(further))
            further = min(until, further)
            if further <= at:
                further = until
            yield Piece(node, target, at, further)
            at = further

    # -- what they say ---------------------------------------------------------------------------------------

    def records(self, piece: Piece) -> Iterator[tuple[pa.RecordBatch | None, Place]]:
        """Rows of a piece as Arrow, and up to where they go. A node that does not answer is asked again for a while."""
        at = piece.begin
        while at < piece.end:
            reply = self.patiently(piece.target, "HISTORY", "READ", at.cursor(piece.node), "COUNT", self.fetch,
                                   "UNTIL", piece.end.cursor(piece.node))
            if isinstance(reply, Place):
                at = reply
                yield None, min(at, piece.end)
                continue
            cursor, raw = items(reply)
            went = Place.parse(text(cursor))
            if went <= at or went > piece.end:
                # Places of a finished segment are never used twice: this one is shorter than it was.
                if self.fails_on_loss:
                    raise lost(f"node {piece.node[:8]} has lost its history from {at} to {piece.end} in a power cut")
                yield None, piece.end
                return
            yield self.rows(data(raw)) if data(raw) else None, went
            at = went

    def patiently(self, target: Target, *words: Arg) -> Reply | Place:
        """The answer of a node, or the place to go on with where what lies before it is gone.

        A node that cannot be reached, or whose connection breaks, is asked again: reading changes nothing.
        """
        ends = time.monotonic() + self.retry_s
        pause = PAUSE_S
        while True:
            try:
                return self.nodes.ask(target, *words)
            except (Refused, Unknown):
                if time.monotonic() + pause > ends:
                    raise
                time.sleep(pause)
                pause = min(PAUSE_S_MAX, pause * 2)
            except Error as error:
                if error.code != "GONE":
                    raise
                node, _, at = str(words[2]).partition(":")
                if self.fails_on_loss and words[1] == "READ":
                    raise lost(f"node {node[:8]} no longer keeps what was to be read ({error.text})") from error
                return after_gone(error, Place.parse(at))

    def rows(self, piece: bytes) -> pa.RecordBatch:
        import pyarrow as pa

        from holdfast.history import decode

        batch = decode(piece)
        names = {RENAMED.get(name, name): name for name in batch.schema.names}
        arrays = [batch.column(names[name]) for name in self.columns]
        fields = [pa.field(name, array.type) for name, array in zip(self.columns, arrays, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def last(info: Mapping[str, Any]) -> Place:
    return Place.parse(text(info["last"]))


def after_gone(error: Error, at: Place) -> Place:
    """Where a history goes on whose records after `at` were removed."""
    found = GONE.search(error.text)
    place = Place.parse(found[1]) if found else at
    if place <= at:
        raise error
    return place


def given_offset(option: str, words: str) -> Offset:
    """Offsets as JSON, as an earlier query printed them."""
    try:
        said = json.loads(words)
        if not isinstance(said, dict):
            raise ValueError("it is no object")
        return Offset.load(said)
    except (ValueError, TypeError, Error) as error:
        raise BadOption(f"{option} takes earliest, latest or JSON with a place per node ({error})") from error


def lost(words: str) -> DataLoss:
    return DataLoss(f"{words}. To go on without these events set failOnDataLoss=false, or --allow-loss")
