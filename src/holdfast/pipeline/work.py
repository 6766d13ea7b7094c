"""`holdfast pipeline work module:app`: the handlers of an App run on Spark's executors, as elastic workers.

The stream is the `jobs` source; each batch is spread over the executors (mapInArrow), where every row is given to the
handler that the App has for its queue. What comes back is a row per job: done, or failed with an error. Jobs that
failed are given back with that error before the batch ends (NACK by id), so that their attempts, back-off and death are
those of any worker; all others are acknowledged by the commit of the claim.

A handler may run twice for one job, as with any worker: a task that Spark runs again runs its handlers again.
"""
from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.errors import Error

from .nodes import Nodes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OUTCOME: Final = "id string, node string, is_done boolean, error string"
ERROR_CHARS: Final = 1000
GIVEN_BACK_AT_ONCE: Final = 500

Handler = Callable[[bytes], object]


class NoHandlers(LookupError):
    """The name leads to nothing that handles jobs."""


def handlers(name: str, folder: str = "") -> Mapping[str, Handler]:
    """What `module:attribute` has: a mapping of queue names to functions of a body, or an object with `handlers`.

    An object may be an App: its `spark_handlers()` or `handlers` say which function takes the jobs of which queue.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        raise NoHandlers(f"write module:name, not {name!r}")
    sys.path.insert(0, folder or str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise NoHandlers(f"{module} cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)
    for each in attribute.split("."):
        if not hasattr(found, each):
            raise NoHandlers(f"{module} has no {attribute}")
        found = getattr(found, each)
    found = getattr(found, "handlers", found)
    found = found() if callable(found) and not isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or not found:
        raise NoHandlers(f"{name} has no handlers: a mapping of queue names to functions, or an object with `handlers`")
    return found


def handled(batches: Iterator[pa.RecordBatch], name: str, folder: str) -> Iterator[pa.RecordBatch]:
    """At an executor: run the handler of each job; how each ended. The module is installed there, or in `folder`."""
    import pyarrow as pa

    table = handlers(name, folder)
    for batch in batches:
        rows: list[tuple[str, str, bool, str | None]] = []
        for job, queue, body, node in zip(*(batch.column(each).to_pylist() for each in ("id", "queue", "body", "node")),
                                          strict=True):
            try:
                table[queue](body)
                rows.append((job, node, True, None))
            except Exception as error:  # whatever a handler does wrong is the job's failure, not the stream's
                last = traceback.extract_tb(error.__traceback__)[-1]
                words = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
                rows.append((job, node, False, words[:ERROR_CHARS]))
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
        kinds = [("id", pa.string()), ("node", pa.string()), ("is_done", pa.bool_()), ("error", pa.string())]
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, kind) for values, (_, kind) in zip(columns, kinds, strict=True)], schema=pa.schema(kinds))


def give_back(url: str, failed: list[tuple[str, str]]) -> None:
    """NACK jobs with what went wrong, at any node: an ack that follows finds nothing to acknowledge."""
    nodes = Nodes(url)
    target = next(iter(nodes.members().values()))
    for start in range(0, len(failed), GIVEN_BACK_AT_ONCE):
        window = failed[start:start + GIVEN_BACK_AT_ONCE]
        for reply in nodes.ask_many(target, [["NACK", job, "ERROR", error] for job, error in window]):
            if isinstance(reply, Error):
                raise reply
    nodes.close()


def start(
    spark: SparkSession, url: str, name: str, checkpoint: str, options: Mapping[str, str], once: bool,
    tell: Callable[[int, int], None] = lambda done, failed: None,
) -> Any:
    """The stream that works; a StreamingQuery."""
    queues = list(handlers(name))
    folder = str(Path.cwd())
    jobs = (
        spark.readStream.format("holdfast").option("url", url).option("subscribe", ",".join(queues)).options(**options)
        .load("jobs")
    )

    def batch(rows: DataFrame, number: int) -> None:
        ended = rows.select("id", "queue", "body", "node").mapInArrow(
            lambda batches: handled(batches, name, folder), OUTCOME).cache()
        try:
            failed = [(row.id, row.error) for row in ended.where("NOT is_done").select("id", "error").collect()]
            count = ended.count()
        finally:
            ended.unpersist()
        give_back(url, failed)
        tell(count - len(failed), len(failed))

    writer = jobs.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")).start()
