"""Jobs on an executor: each row of a batch is a job, its task is run, and a row says how it ended.

The app is imported here, from the same place as at the driver: the module is installed on every machine, or the folder
is there. Tasks that are `async` run in one event loop, one after the other; a task with `runs_in="process"` has a child
process, as in a worker. A time limit of a plain function is an alarm, which Python delivers to the main thread only:
that is where Spark calls us.

What a worker does and this does not: `progress` is not passed on, and a job that is cancelled while its batch runs is
run all the same.
"""
from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.delivery import ATTEMPT, HEADERS, ID, KEYS, META, PRIORITY, Entry
from holdfast.tasks.app import App
from holdfast.tasks.find import find_app
from holdfast.tasks.outcomes import Outcome, TimeLimit
from holdfast.tasks.running import RunningJob, prepare, run_async, run_sync
from holdfast.worker.children import Child

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("id", "queue", "body", "attempt", "priority", "headers", "tenant", "domain", "parent", "node")
OUTCOME: Final = "id string, node string, kind string, error string, after double, throttled boolean, result binary"
KEYED: Final = ("tenant", "domain", "parent")
ERROR_CHARS: Final = 1000


class Executor:
    """Runs jobs one at a time."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self.loop = loop
        self.child: Child | None = None

    def run(self, entry: Entry) -> Outcome:
        job = RunningJob(entry, None)
        outcome = prepare(self.app, job)
        if outcome is not None:
            return outcome
        task = job.task
        assert task is not None
        if task.is_async:
            return self.loop.run_until_complete(run_async(self.app, job))
        if task.runs_in_process:
            return run_sync(self.app, job, self.in_child)
        return run_sync(self.app, job, limited if task.timeout is not None else None)

    def in_child(self, job: RunningJob) -> Any:
        if self.child is None or not self.child.is_alive():
            self.child = Child()
        assert job.task is not None
        if job.task.timeout is None:
            return self.child.run(job)
        timer = threading.Timer(job.task.timeout, self.child.kill, (TimeLimit,))
        timer.start()
        try:
            return self.child.run(job)
        finally:
            timer.cancel()

    def close(self) -> None:
        if self.child is not None:
            self.child.close()


def limited(job: RunningJob) -> Any:
    """A plain function that may take only so long."""
    task = job.task
    assert task is not None and task.timeout is not None
    seconds = task.timeout

    def over(*_: object) -> None:
        raise TimeLimit(f"it ran for longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return task.function(*job.args, **job.kwargs)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def handled(batches: Iterator[pa.RecordBatch], place: str, folder: str, url: str) -> Iterator[pa.RecordBatch]:
    """Run the task of each job; how each ended."""
    app = find_app(place, folder)
    app.url = url  # for handlers that add jobs, or have a result to wait for
    with asyncio.Runner() as runner, contextlib.closing(Executor(app, runner.get_loop())) as executor:
        for batch in batches:
            columns = {name: batch.column(name).to_pylist() for name in COLUMNS}
            entries = [entry(columns, i) for i in range(batch.num_rows)]
            yield rows(entries, [executor.run(each) for each in entries], columns["node"])


def entry(columns: dict[str, list[Any]], i: int) -> Entry:
    """A row as the hand-out that a worker would have got; it has no token, for the claim has the lease."""
    made: Entry = [columns["queue"][i].encode(), columns["id"][i].encode(), columns["body"][i]]
    for name, value in META:
        made += (name, value)
    made[ATTEMPT] = columns["attempt"][i]
    made[PRIORITY] = columns["priority"][i]
    made[HEADERS] = [word.encode() for pair in columns["headers"][i] or () for word in pair]
    keys = [(name, columns[name][i]) for name in KEYED if columns[name][i] is not None]
    made[KEYS] = [word.encode() for pair in keys for word in pair]
    return made


def rows(entries: list[Entry], outcomes: list[Outcome], nodes: list[str]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [
            pa.array([each[ID].decode() for each in entries], pa.string()),
            pa.array(nodes, pa.string()),
            pa.array([each.kind for each in outcomes], pa.string()),
            pa.array([each.error[:ERROR_CHARS] or None for each in outcomes], pa.string()),
            pa.array([each.after for each in outcomes], pa.float64()),
            pa.array([each.throttled for each in outcomes], pa.bool_()),
            pa.array([each.result for each in outcomes], pa.binary()),
        ],
        names=["id", "node", "kind", "error", "after", "throttled", "result"],
    )
