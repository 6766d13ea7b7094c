"""The driver that is killed: takes jobs, writes them under their ids, and dies where a file in its folder says so.

    die-before  die-during  die-after     the writing of a batch, by SIGKILL of itself
    die-after-claim, wait-after-claim     see source.py
    fail-tasks                            some tasks fail, once each
"""
from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1])
url, lease, fails, per_trigger = sys.argv[2:6]
checkpoint, master = sys.argv[6:8]
os.environ["CHAOS_FOLDER"] = str(folder)
os.environ["CHAOS_DRIVER"] = str(os.getpid())

from chaos.source import ChaosSource  # noqa: E402
from holdfast.pipeline.session import open_session  # noqa: E402

spark = open_session(master, "chaos", {
    "spark.sql.shuffle.partitions": "2", "spark.speculation": "true", "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.5", "spark.speculation.quantile": "0.5", "spark.driver.memory": "1g",
    "spark.executor.memory": "600m", "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    "spark.executorEnv.CHAOS_FOLDER": str(folder), "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
})
spark.dataSource.register(ChaosSource)
database = sqlite3.connect(folder / "sink.db", check_same_thread=False)
database.execute("CREATE TABLE IF NOT EXISTS sink (id TEXT PRIMARY KEY, body BLOB, times INTEGER)")


def dies(where: str) -> None:
    if (folder / f"die-{where}").exists():
        (folder / f"die-{where}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def shaky(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if (folder / "fail-tasks").exists() and random.random() < 0.2:
            raise OSError("a task that fails")
        yield batch


def write(rows: Any, number: int) -> None:
    dies("before")
    found = sorted((row.id, bytes(row.body)) for row in rows.select("id", "body").mapInArrow(
        shaky, "id string, body binary").collect())
    count = rows.count()  # a second action: everything is read again
    digest = hashlib.sha256(repr(found).encode()).hexdigest()
    with (folder / "reads.jsonl").open("a") as log:
        log.write(json.dumps([checkpoint, number, len(found), count, digest]) + "\n")
    half = len(found) // 2
    for part, last in ((found[:half], False), (found[half:], True)):
        with database:
            database.executemany(
                "INSERT INTO sink VALUES (?, ?, 1) ON CONFLICT (id) DO UPDATE SET times = times + 1", part)
        if not last:
            dies("during")
    dies("after")


query = (
    spark.readStream.format("chaosfast").option("url", url).option("subscribe", "chaos").option("leaseSeconds", lease)
    .option("failOnDataLoss", fails).option("maxJobsPerTrigger", per_trigger).load("jobs")
    .writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    .trigger(processingTime="0 seconds").start()
)
(folder / "running").touch()
query.awaitTermination()
