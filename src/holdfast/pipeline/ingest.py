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

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.client.errors import Refused, Unknown

from .lake import Lake, LakeConflict, LakeError, Parts, Table, rows_in
from .sources.histories import DataLoss, Histories, Piece
from .sources.places import Offset, Place

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
    """Its name in the folder of the batch; empty without rows."""
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
    done = on_executors(spark, pieces, histories, folder) if pieces else []
    if gone := [each.lost for each in done if each.lost]:
        raise DataLoss(gone[0])
    reached, counted = how_far(done)
    offset = begin.advanced(
        {node: place for node, place in reached.items() if place > begin.places[node]},
        {node: end.places[node] for node in end.joined}, end.since,
    )
    files = [(folder / each.file, each.rows) for each in counted if each.file]
    see(files)
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


def on_executors(spark: SparkSession, pieces: list[Piece], histories: Histories, folder: Path) -> list[Done]:
    """Each piece as a task of its own."""
    path = str(folder)
    tasks = spark.sparkContext.parallelize(pieces, len(pieces))
    return list(tasks.map(lambda piece: fetch(histories, piece, path)).collect())


def fetch(histories: Histories, piece: Piece, folder: str) -> Done:
    """At an executor: the rows of a piece, in one file."""
    import pyarrow.parquet as pq

    from .stages.events import arrow, from_source

    file = Path(folder) / f"{uuid.uuid4().hex}.parquet"
    reached, rows, away, gone = piece.begin, 0, "", ""
    writer: pq.ParquetWriter | None = None
    try:
        for batch, place in histories.records(piece):
            if batch is not None and batch.num_rows:
                if writer is None:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    writer = pq.ParquetWriter(file, arrow(), compression="zstd")
                writer.write_batch(from_source(batch))
                rows += batch.num_rows
            reached = place
    except (Refused, Unknown) as error:
        away = str(error)
    except DataLoss as error:
        gone = str(error)
    finally:
        if writer is not None:
            writer.close()
        histories.nodes.close()
    return Done(piece, reached, rows, file.name if rows else "", away, gone)


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


def see(files: Iterable[tuple[Path, int]]) -> None:
    """`LakeError` unless every file is here, and has the rows that were read."""
    for file, rows in files:
        if not file.exists():
            raise LakeError(
                f"an executor has read {rows} events and written them to {file}, which is not there on this machine: "
                "nothing was committed, and nothing is lost. The lake must be a folder that the driver and all "
                "executors share"
            )
        if (there := rows_in(file)) != rows:
            raise LakeError(f"{file} has {there} rows, and {rows} were read: nothing was committed. Is the disk full?")
