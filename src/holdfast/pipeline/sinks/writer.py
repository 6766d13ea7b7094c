"""The sink: what Spark calls to turn the rows of a table, or of a stream, into jobs.

`direct` adds each row as it comes, in windows of some hundred commands. A task that Spark runs again (a retry,
speculation, a replayed batch) adds its rows again: with a column `unique` the second one finds the first and there is
one job, without it there may be two. So give the column, or accept that.

Options: `queue` (where rows do not say), `runId` (goes before each unique key: a run under the same name adds nothing
again, one under another name adds all), `uniqueWindow` (seconds in which a key is remembered after its job is done),
`timeout` (seconds to wait for the copies), `fetchSize` (commands per window).
"""
from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.client.errors import BadRequest, Error, Refused, Unknown
from holdfast.client.resp import Arg
from holdfast.client.target import Target
from holdfast.pipeline.nodes import Nodes
from holdfast.pipeline.sources.options import BadOption, Options

from . import rows
from .rows import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

KNOWN: Final = ("queue", "writeMode", "runId", "uniqueWindow", "timeout", "fetchSize", "retries")
WINDOW: Final = 500
"""Commands under way at once: enough that nobody waits for a round trip, few enough to be repeated."""
RETRIES: Final = 8
PAUSE_S: Final = 0.2
"""Before a refused command is sent again, doubled each time: about a minute in all, in which a node can come back."""


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
        self.nodes = Nodes(self.options.url())
        self.window = self.options.number("fetchSize", WINDOW)
        self.retries = self.options.number("retries", RETRIES, 0)
        self.has_keys = "unique" in schema.names

    def add_all(self, batches: Iterator[pa.RecordBatch]) -> Added:
        count = 0
        window: list[list[Arg]] = []
        for batch in batches:
            for words in rows.commands(batch, self.wanted):
                window.append(words)
                if len(window) >= self.window:
                    count += self.add(window)
                    window = []
        if window:
            count += self.add(window)
        return Added(count)

    def add(self, window: list[list[Arg]]) -> int:
        """Add a window of jobs; what is refused is tried again elsewhere and later, the rest is an error."""
        left = window
        for attempt in range(self.retries + 1):
            last: Error | None = None
            try:
                replies = self.nodes.ask_many(self.target(attempt), left, self.wanted.timeout_ms / 1000)
            except Refused as error:
                last, replies = error, [error] * len(left)
            except Unknown as error:
                if not self.has_keys:
                    raise Unknown(
                        f"{error.text}. Rows may have been added: without a column `unique` they cannot be sent again "
                        "safely", error.code) from error
                last, replies = error, [error] * len(left)
            again: list[list[Arg]] = []
            for words, reply in zip(left, replies, strict=True):
                if isinstance(reply, Refused) or (isinstance(reply, Unknown) and self.has_keys):
                    last = reply
                    again.append(words)
                elif isinstance(reply, Error):
                    raise BadRequest(f"{reply.text} (in queue {words[1]!r}, a body of {len(bytes_of(words[2]))} bytes)",
                                     reply.code)
            if not again:
                return len(window)
            left = again
            if attempt < self.retries:
                time.sleep(PAUSE_S * 2**attempt)
        assert last is not None
        kinds = Counter(str(words[1]) for words in left).most_common(3)
        raise Refused(f"{len(left)} rows were refused {self.retries + 1} times, the last time because: {last.text} "
                      f"(queues: {', '.join(f'{name} {count}' for name, count in kinds)})", last.code)

    def target(self, attempt: int) -> Target:
        """The first node that was named, then any."""
        if attempt == 0:
            return self.nodes.named[0]
        targets = list(self.nodes.members().values())
        return targets[attempt % len(targets)]


def bytes_of(word: Arg) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


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
