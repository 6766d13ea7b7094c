"""Between Spark and the files of a table: executors read and write Parquet by pyarrow, wherever the lake is.

    load     a table's rows as a DataFrame. In a folder Spark reads the files itself; from a store the executors do
    write    rows with `part` become files, one for each part that a task has; says what each file is and has
    see      the driver looks at the files with its own eyes, before they are committed

What executors say they have written is compared with what the driver sees: they may have other disks.
"""
from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .lake import PART, LakeError, Parts, Table, rows_in
from .store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS_PER_FILE: Final = 8_000_000
"""A file of some hundred megabytes: large enough to be read at full speed, small enough to be read in parts."""
GROUP_ROWS: Final = 200_000
"""Rows that are compressed together: a reader that wants little passes others over, one that wants all is fast."""
READ_TASKS: Final = 64
"""Tasks that read a table from a store: more than most clusters have cores for one, few enough to plan at once."""
FILES: Final = "part string, path string, rows long"


@dataclass(frozen=True)
class Written:
    """A file that an executor has written."""

    part: str
    path: str
    rows: int


def load(
    spark: SparkSession, table: Table, schema: StructType, keys: Iterable[str] | None = None, on: Parts | None = None
) -> DataFrame:
    """A table's rows, or those of some parts, as they are now or were `on`. Columns that older files lack are null."""
    paths = table.paths(keys, on)
    if not paths:
        return spark.createDataFrame([], schema)
    if table.store.is_local:
        return spark.read.schema(schema).parquet(*[table.store.full(path) for path in paths])
    tasks = min(len(paths), READ_TASKS)
    files = spark.createDataFrame([(path,) for path in paths], "path string").repartition(tasks)
    return files.mapInArrow(reader(table.store, schema), schema)


def reader(store: Store, schema: StructType) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """At an executor: the rows of the files whose paths come."""
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(schema, timezone="UTC")
        for batch in batches:
            for path in batch.column("path").to_pylist():
                with pq.ParquetFile(store.full(path), filesystem=store.fs) as file:
                    there = set(file.schema_arrow.names)
                    for rows in file.iter_batches(columns=[name for name in wanted.names if name in there]):
                        yield pa.RecordBatch.from_arrays([
                            rows.column(field.name).cast(field.type) if field.name in there
                            else pa.nulls(len(rows), field.type) for field in wanted
                        ], schema=wanted)

    return read


def write(rows: DataFrame, table: Table) -> list[Written]:
    """Rows, sorted by `part` within each task, as files that no commit names yet."""
    folder = table.new_folder()
    table.store.make(folder)
    files = rows.mapInArrow(writer(table.store, folder), FILES).collect()
    written = [Written(file.part, file.path, file.rows) for file in files]
    see(table.store, [(file.path, file.rows) for file in written])
    return written


def writer(store: Store, folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """At an executor: a file for each part."""
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        made: list[dict[str, Any]] = []
        out: Output | None = None
        try:
            for batch in batches:
                for part, rows in by_part(batch):
                    if out is None or out.part != part or out.rows + out.waiting_rows >= ROWS_PER_FILE:
                        made += [] if out is None else [out.close()]
                        out = Output(store, folder, part, rows.schema)
                    out.write(rows)
        finally:
            made += [] if out is None else [out.close()]
        if made:
            yield pa.RecordBatch.from_pylist(
                made, pa.schema([("part", pa.string()), ("path", pa.string()), ("rows", pa.int64())]))

    return run


class Output:
    """A file that is being written, in groups of many rows whatever comes at once."""

    def __init__(self, store: Store, folder: str, part: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.part, self.rows = part, 0
        name = f"{uuid.uuid4().hex}.parquet"
        self.path = f"{folder}/{PART}={part}/{name}" if part else f"{folder}/{name}"
        store.make(self.path.rpartition("/")[0])
        self.writer = pq.ParquetWriter(store.full(self.path), schema, filesystem=store.fs, compression="zstd")
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        if self.waiting_rows >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting), row_group_size=GROUP_ROWS)
            self.rows += self.waiting_rows
            self.waiting, self.waiting_rows = [], 0

    def close(self) -> dict[str, Any]:
        self.flush()
        self.writer.close()
        return {"part": self.part, "path": self.path, "rows": self.rows}


def by_part(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of each part that is in a batch, without the column that says it; parts follow one another."""
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    names = [name for name in batch.schema.names if name != PART]
    said = batch.column(PART)
    for part in pc.unique(said).to_pylist():
        yield part, batch.filter(pc.equal(said, part)).select(names)


def see(store: Store, files: Iterable[tuple[str, int]]) -> None:
    """`LakeError` unless every file is here, and has the rows that were written."""
    for path, rows in files:
        if not store.exists(path):
            raise LakeError(
                f"an executor has written {rows} rows to {path} in {store}, which is not there on this machine: "
                "nothing was committed, and nothing is lost. The lake must be a folder that the driver and all "
                "executors share, or s3://bucket/prefix"
            )
        if (there := rows_in(store, path)) != rows:
            raise LakeError(f"{path} in {store} has {there} rows, and {rows} were written: nothing was committed. "
                            "Is the disk full?")
