"""The Spark session the commands of the pipeline run in: local by default, anywhere by `--master`.

What is set here is what the stages rely on (UTC, timestamps as other readers of Parquet know them), what a queue of
this size needs, and Python: executors run `python3` from PATH unless told otherwise, which is seldom the environment
that has Holdfast.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*,4]"
"""All cores, and each task is tried four times, as on a cluster: with `local[*]` the first that fails is the end."""

NEEDED: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""What the stages and sources are written for, wherever they run."""

LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The first compiler only, and a collector without threads: half the processor time of a short run.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For Spark inside this process, where a run takes minutes and shares the machine."""


class NoSpark(RuntimeError):
    """PySpark is not installed."""


def open_session(
    master: str | None = None, name: str = "holdfast", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session at `master`, or the one there is. `settings` win over ours. `sc://host:port` is Spark Connect."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NoSpark("the pipeline runs on Spark: pip install 'holdfast[pipeline]'") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or MASTER
    builder: SparkSession.Builder = SparkSession.builder.appName(name)
    if master.startswith("sc://"):
        session = builder.remote(master).getOrCreate()
        for key, value in {**NEEDED, **(settings or {})}.items():
            session.conf.set(key, value)
        return session
    ensure_java()
    wanted = {**NEEDED, **(LOCAL if master.startswith("local") else {}), **(settings or {})}
    builder = builder.master(master)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
