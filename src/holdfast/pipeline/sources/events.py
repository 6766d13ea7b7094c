"""The `events` source: the history of all nodes, as a batch or as a stream that can be replayed.

Each node has a history of its own with real places in it (HISTORY READ, docs/reference/history.md), so an offset is a
place per node (`places.py`) and the stream is an ordinary one: a batch is what lies between two offsets, and reading it
again gives the same rows, or an error. Nothing is acknowledged; a node keeps its history as long as its settings say.

    initialOffset  names no place: Spark asks for it again when it repeats the first batch
    latestOffset   the first time where options say, then how far every node is that can be reached, within the limit
    partitions     cuts what lies between into pieces, by node
    read           at an executor: asks the node for the piece

How the nodes are asked is in `histories.py`.
"""
from __future__ import annotations

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

from .histories import RENAMED, DataLoss, Histories, Piece, columns, given_offset, lost
from .places import INITIAL, Offset, Place

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataLoss", "EventsReader", "EventsStreamReader", "schema"]

KINDS: Final = {
    "string": "string", "int64": "long", "int32": "int", "bool": "boolean", "timestamp[us, tz=UTC]": "timestamp",
    "map<string, string>": "map<string, string>",
}


def schema(given: Mapping[str, str]) -> str:
    """The columns as Spark wants to know them."""
    from holdfast.history import schema as told

    kinds = {RENAMED.get(field.name, field.name): KINDS[str(field.type)] for field in told()}
    return ", ".join(f"`{name}` {kinds[name]}" for name in columns(given))


@dataclass
class Stretch(InputPartition):
    """A piece of a history, as Spark hands it to an executor."""

    piece: Piece


def rows_of(histories: Histories, part: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(part, Stretch)
    for batch, _ in histories.records(part.piece):
        if batch is not None:
            yield batch


class EventsReader(DataSourceReader):
    """The history as a batch."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.histories = Histories(given)

    def partitions(self) -> Sequence[InputPartition]:
        histories = self.histories
        begin = histories.start()
        words = histories.options.text("endingOffsets", "latest")
        if stamp := histories.options.number("endingTimestamp", 0, 0):
            goal: Mapping[str, Place] | None = {
                node: histories.beginning(node, target, stamp) for node, (target, _) in histories.reachable().items()
            }
        else:
            goal = None if words == "latest" else given_offset("endingOffsets", words).places
        # Nodes that the options do not name are read from where they begin.
        end = histories.end(begin, None, goal)
        begin = begin.advanced({}, {node: end.places[node] for node in end.joined})
        end = histories.end(begin, None, goal)
        if histories.unreached and histories.fails_on_loss:
            node, why = next(iter(histories.unreached.items()))
            raise lost(f"node {node[:8]} cannot be reached, so its events would be missing ({why})")
        return [Stretch(piece) for piece in histories.cut(begin, end)]

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self.histories, part)


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The history as a stream."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.histories = Histories(given)
        self.goal: Mapping[str, Place] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self.histories.options
        most = options.number("maxEventsPerTrigger", 0) or options.number("maxOffsetsPerTrigger", 0)
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.goal = self.histories.lasts()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.histories.end(Offset.load(start), most, self.goal).dump()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        lasts = {node: str(place) for node, place in self.histories.lasts().items()}
        without = self.histories.unreached | self.histories.silent
        return lasts | {f"unreached {node[:8]}": words for node, words in without.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Stretch(piece) for piece in self.histories.cut(Offset.load(start), Offset.load(end))]

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self.histories, part)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to acknowledge: a history is read, not used up."""

    def stop(self) -> None:
        self.histories.nodes.close()
