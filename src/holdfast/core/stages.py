"""Stages: jobs that a pipeline has written and not yet published.

A task of a pipeline may run twice, or fail in the middle; a batch may be written again after a crash. So tasks only put
their jobs aside (ADD), each under a name of its own, and the driver, when all tasks are done, names the stages that
count (PUBLISH) with the number of the batch. That happens once per sink and batch: a repeated one is ignored, and says
so. Stages that nobody names are dropped when their time is over.

All stages of a sink lie at one node, which its writers choose by the sink's name, so that publishing is a matter of one
turn of one node: its jobs and the note that the batch is published are in the journal together or not at all. The note
is a register (registers.py), which every node has a moment later: where the node is lost for good, the next one knows
what was published, unless it was lost in that moment. Copies of the jobs are made after that, and FILLED says how many
are still short of them: a writer waits for none before it says that a batch is safe.

A sink belongs to one run (the checkpoint of a stream). Another run under the same name begins to count at 0 again, and
all its batches would be ignored without a word: so that is refused.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from holdfast.core import errors, registers, replicate
from holdfast.core.alarms import Chore
from holdfast.core.errors import BadRequest, Refused
from holdfast.core.job import Job
from holdfast.core.limits import BODY_BYTES_EXTRA, NEVER, STAGE_JOB_BYTES, STAGE_MS, STAGES_MAX

if TYPE_CHECKING:
    from holdfast.core.commands.options import AddOptions
    from holdfast.core.node import Node

KIND: Final = b"sink"
FIELD: Final = b"published"


class Stage(Chore):
    """Jobs put aside: bodies by what else was said of them. As an alarm it is its own end."""

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self.name: bytes = name
        self.queues: list[bytes] = []
        self.options: list[AddOptions] = []
        self.bodies: list[list[bytes]] = []
        self.count: i64 = 0
        self.bytes: i64 = 0

    def run(self, node: Node) -> None:
        drop(node, self)


class Stages:
    """What a node keeps of them."""

    def __init__(self) -> None:
        self.open: dict[bytes, Stage] = {}
        self.last: dict[bytes, list[Job]] = {}  # by sink: the jobs last published, until they have their copies


def put(node: Node, name: bytes, queue: bytes, bodies: list[bytes], options: AddOptions) -> i64:
    """Put jobs aside; how many the stage has now."""
    stages = node.stages.open
    stage = stages.get(name)
    if stage is None:
        if len(stages) >= STAGES_MAX:
            raise Refused(errors.STAGES_FULL)
        stage = Stage(name)
        stages[name] = stage
    size: i64 = 0
    for body in bodies:
        size += len(body) + BODY_BYTES_EXTRA + STAGE_JOB_BYTES
    stage.queues.append(queue)
    stage.options.append(options)
    stage.bodies.append(bodies)
    stage.count += len(bodies)
    stage.bytes += size
    node.account(size)
    node.alarms.set(stage, node.now + STAGE_MS)
    return stage.count


def drop(node: Node, stage: Stage) -> None:
    node.alarms.set(stage, NEVER)
    node.account(-stage.bytes)
    node.stages.open.pop(stage.name, None)


def drop_all(node: Node) -> None:
    for stage in list(node.stages.open.values()):
        drop(node, stage)
    node.stages.last.clear()


def published(node: Node, sink: bytes, run: bytes) -> i64:
    """The last batch of this run that was published; -1: none yet. Raises BadRequest if the sink is another run's."""
    value = registers.value(node, KIND, sink, FIELD)
    if value is None:
        return -1
    of, _, batch = value.rpartition(b" ")
    if of != run and not node.broken("stage-any-run"):
        raise BadRequest(b"STAGERUN the sink belongs to the run %b, which has published batch %b" % (of, batch))
    return int(batch)


def publish(node: Node, sink: bytes, run: bytes, batch: i64, names: list[bytes]) -> i64:
    """Queue the jobs of these stages, if this batch was not published before; how many, -1 if it was."""
    if published(node, sink, run) >= batch and not node.broken("stage-published-twice"):
        for name in names:
            stage = node.stages.open.get(name)
            if stage is not None:
                drop(node, stage)
        return -1
    found: list[Stage] = []
    for name in names:
        stage = node.stages.open.get(name)
        if stage is None:
            raise Refused(errors.STAGE_GONE)
        found.append(stage)
    jobs: list[Job] = []
    for stage in found:
        drop(node, stage)
        for i in range(len(stage.bodies)):
            options = stage.options[i]
            queue = node.queue(stage.queues[i])
            for body in stage.bodies[i]:
                more = options.more
                job = node.add(
                    queue, body, options.ttl, options.retry, options.delay, options.priority, options.replicate, False,
                    None if more is None else more.copy(),
                )
                if options.replicate > 1:
                    replicate.start_async(node, job)
                jobs.append(job)
    registers.put(node, KIND, sink, {FIELD: b"%b %d" % (run, batch)})
    node.must_sync = True
    node.stages.last[sink] = jobs
    return len(jobs)


def unfilled(node: Node, sink: bytes) -> i64:
    """Of the jobs last published for a sink, those that are still short of copies."""
    jobs = node.stages.last.get(sink)
    if jobs is None:
        return 0
    left = [job for job in jobs if job in node.filling]
    if left:
        node.stages.last[sink] = left
    else:
        del node.stages.last[sink]
    return len(left)


def is_legal(field: bytes, value: bytes) -> bool:
    """Whether a register that a peer tells of is one of ours."""
    run, _, batch = value.rpartition(b" ")
    return field == FIELD and run != b"" and batch.isdigit() and len(batch) < 19
