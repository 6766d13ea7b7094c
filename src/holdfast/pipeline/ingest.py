"""One batch of the histories becomes one part of bronze: rows, files and the offset in one commit.

Each piece of a history is a task: an executor reads it from its node and writes what it got as one Parquet file, and
says how many rows it read and how far it came. The driver then looks at the files with its own eyes. Only if they hold
exactly the rows that were read does a commit of the table name them, and the same commit has the offset up to which
nodes were read (`Parts.offset`). So there is no second log that could disagree:

    a crash before the commit   leaves files nobody names, and the batch is planned anew
    a crash after it            leaves nothing to do
    a node that goes away       ends its piece where it was; its place is there, and the others' rows are kept
    executors on other disks    are found out, because the driver does not see their files

A batch is never repeated as it was planned, so a node that is away holds up nobody else.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.client.errors import Refused, Unknown

from .frames import Output, see
from .lake import Lake, LakeConflict, Parts, Table
from .sources.histories import DataLoss, Histories, Piece
from .sources.places import Offset, Place
from .store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE: Final = "bronze/events"


@dataclass(frozen=True)
class Done:
    """What a task did with its piece."""

    piece: Piece
    reached: Place
    rows: int
    file: str = ""
    """Where it is in the table; empty without rows."""
    away: str = ""
    """Why the node gave no more, though it has more."""
    lost: str = ""
    """What is gone for good."""


@dataclass(frozen=True)
class Ingested:
    """What came of a batch."""

    rows: int
    offset: Offset
    away: Mapping[str, str] = field(default_factory=dict)
    """Nodes that went away while they were read, and what was seen of it."""


def ingest(spark: SparkSession, lake: Lake, histories: Histories, begin: Offset, end: Offset) -> Ingested:
    """Read what lies between two offsets into bronze, as far as nodes give it; commit it with the offset it came to."""
    table = lake.table(TABLE)
    now = unmoved(table, begin)
    pieces, away = histories.cut_what_is_there(begin, end)
    folder = table.new_folder()
    done = on_executors(spark, pieces, histories, table.store, folder) if pieces else []
    if gone := [each.lost for each in done if each.lost]:
        raise DataLoss(gone[0])
    reached, counted = how_far(done)
    offset = begin.advanced(
        {node: place for node, place in reached.items() if place > begin.places[node]},
        {node: end.places[node] for node in end.joined}, end.since,
    )
    files = [(each.file, each.rows) for each in counted if each.file]
    see(table.store, files)
    if files or offset != begin:
        written = {f"batch-{now.version + 1:08d}": [file for file, _ in files]} if files else {}
        table.change(written, on=now, offset=offset.dump())
    away |= {each.piece.node: each.away for each in done if each.away}
    return Ingested(sum(count for _, count in files), offset, away)


def unmoved(table: Table, offset: Offset) -> Parts:
    """The table as it is now. `LakeConflict` if somebody else has read on from this offset."""
    now = table.now()
    if now.offset is not None and Offset.load(now.offset) != offset:
        raise LakeConflict(f"somebody else reads the histories into {table.folder}")
    return now


def nothing_came(lake: Lake, offset: Offset) -> None:
    """Say that the lake is complete up to now: nothing happened, which is news, too."""
    table = lake.table(TABLE)
    table.change({}, on=unmoved(table, offset), offset=offset.dump())


def on_executors(
    spark: SparkSession, pieces: list[Piece], histories: Histories, store: Store, folder: str
) -> list[Done]:
    """Each piece as a task of its own."""
    tasks = spark.sparkContext.parallelize(pieces, len(pieces))
    return list(tasks.map(lambda piece: fetch(histories, piece, store, folder)).collect())


def fetch(histories: Histories, piece: Piece, store: Store, folder: str) -> Done:
    """At an executor: the rows of a piece, in one file."""
    from .stages.events import arrow, from_source

    reached, rows, away, gone = piece.begin, 0, "", ""
    out: Output | None = None
    try:
        for batch, place in histories.records(piece):
            if batch is not None and batch.num_rows:
                if out is None:
                    out = Output(store, folder, "", arrow())
                out.write(from_source(batch))
                rows += batch.num_rows
            reached = place
    except (Refused, Unknown) as error:
        away = str(error)
    except DataLoss as error:
        gone = str(error)
    finally:
        if out is not None:
            out.close()
        histories.nodes.close()
    return Done(piece, reached, rows, out.path if out is not None else "", away, gone)


def how_far(done: Iterable[Done]) -> tuple[dict[str, Place], list[Done]]:
    """How far each node was read without a hole, and the tasks whose rows lie before that."""
    reached: dict[str, Place] = {}
    counted: list[Done] = []
    for each in sorted(done, key=lambda each: (each.piece.node, each.piece.begin)):
        node = each.piece.node
        if reached.setdefault(node, each.piece.begin) == each.piece.begin:
            reached[node] = each.reached
            counted.append(each)
    return reached, counted
