"""The sink: what Spark calls to turn the rows of a table, or of a stream, into jobs.

`direct` adds each row as it comes, in windows of some hundred commands. A task that Spark runs again (a retry,
speculation, a replayed batch) adds its rows again: with a column `unique` the second one finds the first and there is
one job, without it there may be two. So give the column, or accept that.

Options: `queue` (where rows do not say), `runId` (goes before each unique key: a run under the same name adds nothing
again, one under another name adds all), `uniqueWindow` (seconds in which a key is remembered after its job is done),
`timeout` (seconds to wait for the copies), `fetchSize` (commands per window), `rate` (jobs a second, of each task).
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

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = ("queue", "writeMode", "runId", "uniqueWindow", "timeout", "fetchSize", "retries", "rate")
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
        self.options.word("writeMode", ("direct",))
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
