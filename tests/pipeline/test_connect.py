"""The source and the sink over Spark Connect: a client without Java, in a process of its own."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_harness import until
from places import url

if TYPE_CHECKING:
    from cluster_harness import Cluster
    from pyspark.sql import SparkSession


def test_a_client_of_spark_connect_adds_browses_and_takes_jobs(
    spark: SparkSession, three: Cluster, tmp_path: Path
) -> None:
    three.clear()
    place = f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"
    app = Path(__file__).parent / "connect_app.py"
    environ = {**os.environ, "JAVA_HOME": "/nowhere", "SPARK_HOME": "/nowhere"}
    done = subprocess.run([sys.executable, str(app), place, url(three), str(tmp_path)], capture_output=True, text=True,
                          timeout=300, env=environ)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {"added": 40, "browsed": 40, "taken": 40}
    until(lambda: not three.copies("connected"))


def test_what_needs_a_driver_of_its_own_says_so() -> None:
    from click.testing import CliRunner

    from holdfast.cli.main import main

    for words in (["run"], ["work", "shop:app", "--checkpoint", "x"]):
        said = CliRunner().invoke(main, ["pipeline", *words, "--master", "sc://127.0.0.1:1"])
        assert said.exit_code == 1 and "is a driver of its own" in said.output
