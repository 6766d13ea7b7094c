"""The sink that publishes once: tasks put jobs aside at one node, the driver publishes them by the batch's number.

    write     at an executor: STAGE ADD under a name of its own; a task that is run again makes another stage
    commit    at the driver: STAGE PUBLISH names the stages of the tasks that count, with sink, run and batch;
              then it waits until every job has its copies. Repeated after a crash, it is ignored by the node
    abort     drops what was put aside; what nobody drops goes after an hour

All of a sink lies at one node, the first by a hash of sink and node, over all nodes of the cluster, reachable or not:
the node that has the note of what was published. While it is away the stream waits; forget it (CLUSTER FORGET) to go on
with the next, which has heard of the note.

A stream's run is a name kept beside its checkpoint, so that a checkpoint that was deleted is another run, and told.
"""
from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlparse

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.client.errors import BadRequest, Error, Refused, Unknown, Unreachable
from holdfast.client.resp import Arg
from holdfast.client.target import Target
from holdfast.client.values import whole
from holdfast.pipeline.nodes import Nodes
from holdfast.pipeline.sources.options import BadOption, Options

from . import rows
from .rows import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW: Final = 1000
NOTE: Final = "holdfast-sink"
"""The file beside a stream's checkpoint that has the name of its run."""
FILL_S: Final = 120.0
"""How long copies may take before the batch is called failed; it is published all the same, and will be ignored."""


@dataclass
class Staged(WriterCommitMessage):
    """What one task has put aside."""

    stage: str
    jobs: int


class StagedWriter:
    """What both writers do."""

    def __init__(self, options: Options, schema: StructType, sink: str, run: str) -> None:
        queue = options.text("queue")
        rows.check({field.name: field.dataType.simpleString() for field in schema}, queue)
        if keyed := [name for name in ("unique", "group") if name in schema.names]:
            raise BadOption(f"rows with {keyed[0]} cannot be staged: .option('writeMode', 'direct')")
        self.wanted = Wanted(queue=queue)
        self.sink, self.run = sink, run
        self.timeout_s = options.seconds("timeout", FILL_S)
        self.window = options.number("fetchSize", WINDOW)
        self.nodes = Nodes(options.url())
        self.home = home(self.nodes, sink)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        name = f"{self.sink}-{uuid.uuid4().hex}"
        count = waiting = 0
        window: list[list[Arg]] = []
        for batch in batches:
            for words, jobs in rows.commands(batch, self.wanted, self.window):
                window.append(staged(words, name))
                waiting += jobs
                if waiting >= self.window:
                    self.send(window)
                    count += waiting
                    window, waiting = [], 0
        if window:
            self.send(window)
        return Staged(name if count + waiting else "", count + waiting)

    def send(self, window: list[list[Arg]]) -> None:
        for reply in self.nodes.ask_many(self.home, window):
            if isinstance(reply, Error):
                raise reply

    def publish(self, messages: list[WriterCommitMessage | None], batch: int) -> int:
        """How many jobs were published; -1 if the batch was before."""
        stages = [each.stage for each in messages if isinstance(each, Staged) and each.stage]
        count = whole(self.nodes.ask(self.home, "STAGE", "PUBLISH", self.sink, self.run, batch, *stages,
                                     patience=self.timeout_s))
        ends = time.monotonic() + self.timeout_s
        pause = 0.002
        while left := whole(self.nodes.ask(self.home, "STAGE", "FILLED", self.sink)):
            if time.monotonic() > ends:
                raise Refused(f"{left} jobs are published and short of copies after {self.timeout_s:g} s", "NOREPL")
            time.sleep(pause)
            pause = min(0.2, pause * 2)
        return count

    def drop(self, messages: list[WriterCommitMessage | None]) -> None:
        for each in messages:
            if isinstance(each, Staged) and each.stage:
                self.nodes.ask(self.home, "STAGE", "DROP", each.stage)


def staged(words: list[Arg], stage: str) -> list[Arg]:
    """ADDJOB and ADDJOBS as STAGE ADD."""
    if words[0] == "ADDJOBS":
        return ["STAGE", "ADD", stage, words[1], *words[3:]]
    return ["STAGE", "ADD", stage, words[1], 1, words[2], *words[4:]]


def home(nodes: Nodes, sink: str) -> Target:
    """The node that has the note of what this sink has published."""
    members = nodes.members()
    node = max(members, key=lambda each: hashlib.sha256(f"{sink} {each}".encode()).digest())
    try:
        nodes.ask(members[node], "PING")
    except (Refused, Unknown) as error:
        raise Unreachable(
            f"node {node[:8]} knows what the sink {sink} has published, and cannot be reached ({error.text}). Start "
            f"it, or if it is gone for good: CLUSTER FORGET {node}"
        ) from error
    return members[node]


def names(options: Options, given: Mapping[str, str], is_stream: bool) -> tuple[str, str]:
    """The sink and its run: as options say, or for a stream as its checkpoint does."""
    sink, run = options.text("sinkId"), options.text("runId")
    if is_stream:
        place = given.get("checkpointLocation") or ""
        run = run or (kept(place) if place else "")
        if not run:
            raise BadOption("a staged stream needs its checkpoint as an option of the sink, or a runId of its own")
    run = run or uuid.uuid4().hex
    for name in (sink, run):
        if " " in name:
            raise BadRequest(f"sinkId and runId have no spaces: {name!r}")
    return sink or f"sink-{run}", run


def kept(place: str) -> str:
    """The name beside a checkpoint, made at its first use."""
    where = urlparse(place)
    if where.scheme not in ("", "file"):
        raise BadOption(f"the checkpoint {place} is in no file system of this machine: give the stream a runId")
    note = Path(where.path) / NOTE
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        fresh = note.with_suffix(f".{uuid.uuid4().hex}")
        fresh.write_text(uuid.uuid4().hex)
        fresh.replace(note)
    return note.read_text().strip()
