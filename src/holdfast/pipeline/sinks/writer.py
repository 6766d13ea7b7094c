"""The sink: what Spark calls to turn the rows of a table, or of a stream, into jobs, in one of two ways.

`staged`, unless rows have keys: tasks put their jobs aside, and the commit publishes them, once (`staged.py`).

`direct` adds each row as it comes, in windows of some hundred commands. A task that Spark runs again (a retry,
speculation, a replayed batch) adds its rows again: with a column `unique` the second one finds the first and there is
one job, without it there may be two. So give the column, or accept that.

Options: `queue` (where rows do not say), `writeMode`; staged: `sinkId`, `runId` (the run that a sink belongs to),
`batchId` (of a batch, within its run); direct: `runId` (goes before each unique key: a run under the same name adds
nothing again, one under another name adds all), `uniqueWindow` (seconds in which a key is remembered after its job is
done), `rate` (jobs a second, of each task), `retries`; both: `timeout` (seconds to wait for the copies), `fetchSize`
(jobs per window).
"""
from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.client.resp import Arg
from holdfast.pipeline.nodes import Nodes
from holdfast.pipeline.sources.options import BadOption, Options

from . import rows
from .adder import RETRIES, Adder
from .rows import Wanted
from .staged import StagedWriter, names

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = (
    "queue", "writeMode", "sinkId", "runId", "batchId", "uniqueWindow", "timeout", "fetchSize", "retries", "rate",
)
WINDOW: Final = 500
"""Commands under way at once: enough that nobody waits for a round trip, few enough to be repeated."""


@dataclass
class Added(WriterCommitMessage):
    """What one task did."""

    jobs: int


class DirectWriter:
    """What both writers do: rows of one task to jobs."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self.options = Options(given, KNOWN)
        queue = self.options.text("queue")
        rows.check({field.name: field.dataType.simpleString() for field in schema}, queue)
        run = self.options.text("runId")
        if run and "unique" not in schema.names:
            raise BadOption("runId needs a column `unique` to tell rows apart: an id, or a hash of the row")
        self.wanted = Wanted(
            queue=queue, timeout_ms=int(self.options.seconds("timeout", 10.0) * 1000),
            window_s=int(self.options.seconds("uniqueWindow", 0.0)), key_prefix=f"{run}:" if run else "",
        )
        self.window = self.options.number("fetchSize", WINDOW)
        self.rate = self.options.seconds("rate", 0.0)
        self.adder = Adder(Nodes(self.options.url()), self.wanted.timeout_ms / 1000, "unique" in schema.names,
                           self.options.number("retries", RETRIES, 0))

    def add_all(self, batches: Iterator[pa.RecordBatch]) -> Added:
        count = 0
        begun = time.monotonic()
        size = min(self.window, max(1, int(self.rate))) if self.rate else self.window
        window: list[list[Arg]] = []
        waiting = 0
        for batch in batches:
            for words, jobs in rows.commands(batch, self.wanted, size):
                window.append(words)
                waiting += jobs
                if waiting >= size:
                    self.adder.add(window)
                    count += waiting
                    window, waiting = [], 0
                    ahead = count / self.rate - (time.monotonic() - begun) if self.rate else 0.0
                    if ahead > 0:
                        time.sleep(ahead)
        if window:
            self.adder.add(window)
        return Added(count + waiting)


class BatchWriter(DirectWriter, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.add_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every job is there already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was added stays; a run that is repeated finds it by its unique keys."""


class StreamWriter(DirectWriter, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.add_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every job is there already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was added stays; the batch is replayed and finds it by its unique keys."""


class StagedBatchWriter(StagedWriter, DataSourceArrowWriter):
    """A batch has the number 0, or the one that `batchId` gives it within its run."""

    def __init__(self, options: Options, schema: StructType, sink: str, run: str) -> None:
        super().__init__(options, schema, sink, run)
        self.batch = options.number("batchId", 0, 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publish(messages, self.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.drop(messages)


class StagedStreamWriter(StagedWriter, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.drop(messages)


def batch_writer(given: Mapping[str, str], schema: StructType) -> BatchWriter | StagedBatchWriter:
    options = Options(given, KNOWN)
    if is_direct(options, schema):
        return BatchWriter(given, schema)
    return StagedBatchWriter(options, schema, *names(options, given, False))


def stream_writer(given: Mapping[str, str], schema: StructType) -> StreamWriter | StagedStreamWriter:
    options = Options(given, KNOWN)
    if is_direct(options, schema):
        return StreamWriter(given, schema)
    return StagedStreamWriter(options, schema, *names(options, given, True))


def is_direct(options: Options, schema: StructType) -> bool:
    """As the option says; without one staged, unless rows have keys of their own."""
    if not options.text("writeMode"):
        return "unique" in schema.names or "group" in schema.names
    return options.word("writeMode", ("staged", "direct")) == "direct"
