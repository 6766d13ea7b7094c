"""`holdfast pipeline work module:app`: the tasks of an App run on Spark's executors, as elastic workers.

The stream is the `jobs` source; each batch is spread over the executors (mapInArrow), where every row is a job whose
task is run (`handling.py`). What comes back is a row per job: how it ended. Whatever is more than "done" is told to the
nodes before the batch ends, in the words that any worker uses, so that attempts, back-off, death and results are those
of any worker; all other jobs are acknowledged by the commit of their claim.

A handler may run twice for one job, as with any worker: a task that Spark runs again runs its handlers again.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.delivery import entry_of
from holdfast.client.errors import Error, Refused, Unknown
from holdfast.client.resp import Arg
from holdfast.tasks.find import find_app
from holdfast.tasks.outcomes import Outcome
from holdfast.tasks.running import RunningJob
from holdfast.worker.telling import words

from .handling import COLUMNS, OUTCOME, handled
from .nodes import Nodes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOLD_AT_ONCE: Final = 500


class NoTasks(LookupError):
    """The app has nothing to run."""


def commands(rows: Iterable[Any]) -> dict[str, list[list[Arg]]]:
    """What to tell each node: everything but that a job is simply done, which the claim's commit says."""
    told: dict[str, list[list[Arg]]] = defaultdict(list)
    for row in rows:
        result = None if row.result is None else bytes(row.result)
        outcome = Outcome(row.kind, result, row.error or "", row.after, bool(row.throttled))
        told[row.node].append(list(words(RunningJob(entry_of(row.id, ""), None), outcome)))
    return told


def tell_nodes(nodes: Nodes, told: Mapping[str, list[list[Arg]]]) -> None:
    """At the node that has the claim, or any other if that is away."""
    members = nodes.members()
    for node, lines in told.items():
        places = [members[node]] if node in members else []
        places += [target for name, target in members.items() if name != node]
        for start in range(0, len(lines), TOLD_AT_ONCE):
            tell_one(nodes, places, lines[start:start + TOLD_AT_ONCE])


def tell_one(nodes: Nodes, places: list[Any], window: list[list[Arg]]) -> None:
    """Said twice it does no harm: a job that was given back is no longer under its claim."""
    for number, target in enumerate(places):
        try:
            for reply in nodes.ask_many(target, window):
                if isinstance(reply, Error):
                    raise reply
            return
        except (Refused, Unknown):
            if number == len(places) - 1:
                raise


def start(
    spark: SparkSession, url: str, place: str, checkpoint: str, options: Mapping[str, str], once: bool,
    tell: Callable[[int, int], None] = lambda done, failed: None,
) -> Any:
    """The stream that works; a StreamingQuery."""
    folder = str(Path.cwd())
    queues = find_app(place, folder).queues
    if not queues:
        raise NoTasks(f"{place} has no tasks: is the module that declares them imported by it?")
    jobs = (
        spark.readStream.format("holdfast").option("url", url).option("subscribe", ",".join(queues)).options(**options)
        .load("jobs")
    )
    nodes = Nodes(url)

    def batch(rows: DataFrame, number: int) -> None:
        # One action, and nothing kept at the executors: what they lose is run again, and no second action asks for it.
        ended = rows.select(*COLUMNS).mapInArrow(
            lambda batches: handled(batches, place, folder, url), OUTCOME).collect()
        told = commands(row for row in ended if row.kind != "done" or row.result is not None)
        done = sum(row.kind == "done" for row in ended)
        tell_nodes(nodes, told)
        tell(done, len(ended) - done)

    writer = jobs.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")).start()
