"""One Spark session for all tests of the pipeline: starting it costs more than all of them together."""
from __future__ import annotations

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
    session = open_session("local[2,3]", "holdfast-tests", SETTINGS | warehouse)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three joined nodes with a journal and a history."""
    from cluster_harness import SETTINGS as DEFAULTS
    from cluster_harness import Cluster

    cluster = Cluster(tmp_path_factory.mktemp("nodes"), 3, settings={**DEFAULTS, "history": "yes"})
    yield cluster
    cluster.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").create()
