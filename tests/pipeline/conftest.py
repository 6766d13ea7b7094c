"""One Spark session and one cluster for all tests of the pipeline: starting them costs more than most tests together.

Of the nodes everything stays but the jobs, so a test that reads the history says from where on (`places.now`).
"""
from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.pipeline.lake import Lake
from holdfast.pipeline.session import open_session

if TYPE_CHECKING:
    from cluster_harness import Cluster
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "proc"))  # the harness for real nodes

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    # A few rows through many plans: compiling each of them costs more than running it does.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    from cluster_harness import free_ports

    # The same JVM answers Spark Connect: a server of its own would be another start.
    connect = {"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
               "spark.connect.grpc.binding.address": "127.0.0.1",
               "spark.connect.grpc.binding.port": str(free_ports(1)[0])}
    settings = {"spark.driver.memory": "3g"} if "TRUTH_JOBS" in os.environ else SETTINGS
    session = open_session("local[2,3]", "holdfast-tests", settings | warehouse | connect)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three joined nodes with a journal and a history, for all tests: each clears them, or mends what others broke."""
    from cluster_harness import SETTINGS as DEFAULTS
    from cluster_harness import Cluster

    cluster = Cluster(tmp_path_factory.mktemp("nodes"), 3, settings={**DEFAULTS, "history": "yes"})
    yield cluster
    cluster.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").create()
