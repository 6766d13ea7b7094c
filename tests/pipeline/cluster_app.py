"""What the test of a standalone cluster submits: read events and jobs on its executors, and say from how many hosts."""
from __future__ import annotations

import json
import sys

from holdfast.pipeline.session import open_session

master, url, folder, here = sys.argv[1:5]
spark = open_session(master, "holdfast-standalone", {
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m", "spark.executor.cores": "1",
    "spark.cores.max": "2", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.driver.memory": "512m",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
})
events = (
    spark.read.format("holdfast").option("url", url).option("startingOffsets", here).option("recordsPerPartition", "20")
    .load("events")
)
kinds = {row.type: row["count"] for row in events.where("queue = 'standalone'").groupBy("type").count().collect()}


def executors(batches):  # type: ignore[no-untyped-def]
    import os

    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"executor": [os.environ.get("SPARK_EXECUTOR_DIRS", "")]})


used = spark.range(0, 40, 1, 8).mapInArrow(executors, "executor string").distinct().count()
taken: list[str] = []
query = (
    spark.readStream.format("holdfast").option("url", url).option("subscribe", "standalone").load("jobs")
    .writeStream.foreachBatch(lambda rows, number: taken.extend(row.id for row in rows.select("id").collect()))
    .option("checkpointLocation", f"{folder}/check").trigger(availableNow=True).start()
)
query.awaitTermination()
print(json.dumps({"kinds": kinds, "executors": used, "taken": len(set(taken))}))
spark.stop()
