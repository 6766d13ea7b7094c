"""A real standalone cluster with two workers, started from the pip package: the sources run on its executors."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_harness import free_ports, until
from places import now, url

from holdfast.pipeline.java import ensure_java

if TYPE_CHECKING:
    from cluster_harness import Cluster


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master and two workers with a core each."""
    import pyspark

    ensure_java()
    ports = free_ports(2)
    command = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
               "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as file:
            processes.append(subprocess.Popen(
                [str(command), *words], env=environ, stdout=file, stderr=file, cwd=tmp_path))
        return log

    place = f"spark://127.0.0.1:{ports[0]}"
    log = start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(ports[0]),
                "--webui-port", str(ports[1]))
    try:
        until(lambda: "Starting Spark master" in log.read_text(), 90)
        for number in range(2):
            start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "600m",
                  "--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(tmp_path / f"w{number}"), place)
        until(lambda: log.read_text().count("Registering worker") == 2, 90)
        yield place
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def test_sources_run_on_the_executors_of_a_real_cluster(master: str, three: Cluster, tmp_path: Path) -> None:
    three.clear()
    here = now(three)
    for number in range(50):
        three[number % 3].add("standalone", "x")
    app = Path(__file__).parent / "cluster_app.py"
    done = subprocess.run([sys.executable, str(app), master, url(three), str(tmp_path), here], text=True,
                          timeout=420, capture_output=True, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said == {"kinds": {"added": 50}, "executors": 2, "taken": 50}
    until(lambda: not three.copies("standalone"))


def test_ctrl_c_ends_a_run_without_a_traceback_and_the_next_goes_on(three: Cluster, tmp_path: Path) -> None:
    """As a terminal sends it: to the driver, to Java and to its Python workers."""
    three.clear()
    here = now(three)
    command = [sys.executable, "-m", "holdfast", "pipeline", "run", "--connect", url(three), "--lake",
               str(tmp_path / "lake"), "--starting", here, "--master", "local[1]", "--every", "1"]
    for queue in ("first", "second"):
        three[0].add(queue, "x")
        with (tmp_path / queue).open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        said = tmp_path / queue
        until(lambda said=said: b"events" in said.read_bytes(), 120)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0, said.read_text()
        assert "Traceback" not in said.read_text() and "Error" not in said.read_text()
        assert re.search(r"\n1 events read into ", said.read_text()), said.read_text()
