"""python -m chaos: the jobs source under every fault we can think of, and a count of what came of it.

A cluster of three real nodes, and jobs that keep coming. The driver is killed -9 before, during and after the writing
of a batch, between its claim and Spark's log, and from outside; its Python workers are killed; a node is killed between
claim and read; a lease runs out while nobody is there; a second driver starts on a copy of the checkpoint; tasks fail
and are run twice all along. In the end everything is drained and counted:

    lost              jobs that were added and are not in the sink: must be 0
    re-reads differ   batches that were read again and were not the same: must be 0
    sink              rows, one per job id: exactly the jobs that were added
    written twice     rows that were written more than once under their id: as many as there are
"""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from cluster_harness import SETTINGS, Cluster, until

HERE = Path(__file__).parent
PATIENCE_S = 240.0
LEASE_S = 300
"""Longer than a driver takes to be back, on a busy machine, too."""
SHORT_S = 8
"""In the one round in which it is to be over."""


class Producer:
    """Adds jobs at all nodes in turn until there are enough; windows of 50."""

    def __init__(self, cluster: Cluster, total: int) -> None:
        self.cluster = cluster
        self.total = total
        self.ids: list[str] = []

    def add(self, count: int) -> None:
        count = min(count, self.total - len(self.ids))
        while count > 0:
            node = self.cluster.living()[len(self.ids) // 50 % len(self.cluster.living())]
            size = min(50, count)
            with node.client() as client:
                reply = client.ask("ADDJOBS", "chaos", 5000, size, *[f"body {len(self.ids) + i}" for i in range(size)],
                                   "RETRY", 5, "TTL", 86400)
            if isinstance(reply, list):
                self.ids += [each.decode() for each in reply]
                count -= size
            else:
                time.sleep(0.2)


class Driver:
    def __init__(
        self, folder: Path, cluster: Cluster, per_trigger: int, fails: bool = True, check: str = "check",
        lease_s: int = LEASE_S,
    ) -> None:
        url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
        environ = {**os.environ, "PYTHONPATH": f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"}
        self.log = folder / f"driver-{time.monotonic_ns()}.log"
        (folder / "running").unlink(missing_ok=True)
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "app.py"), str(folder), url, str(lease_s), str(fails).lower(),
                 str(per_trigger), str(folder / check)], env=environ, stdout=file, stderr=file, start_new_session=True)

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_for_end(self) -> str:
        until(self.has_ended, PATIENCE_S)
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """With everything it started: the JVM and its Python workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[int]:
        """Python processes that run tasks."""
        words = ["pgrep", "-g", str(self.process.pid), "-f", "pyspark.daemon"]
        found = subprocess.run(words, capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]


class Chaos:
    def __init__(self, folder: Path, jobs: int, per_trigger: int) -> None:
        self.folder = folder
        self.per_trigger = per_trigger
        self.cluster = Cluster(folder, 3, settings=SETTINGS)
        self.producer = Producer(self.cluster, jobs)
        self.share = max(1, jobs // 12)

    def rows(self) -> int:
        with contextlib.closing(sqlite3.connect(self.folder / "sink.db", timeout=30)) as database:
            try:
                return int(database.execute("SELECT count(*) FROM sink").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    def start(self, fails: bool = True, check: str = "check", lease_s: int = LEASE_S) -> Driver:
        return Driver(self.folder, self.cluster, self.per_trigger, fails, check, lease_s)

    def say(self, words: str) -> None:
        added = len(self.producer.ids)
        print(f"{time.strftime('%H:%M:%S')} {words}; {added} added, {self.rows()} in the sink", flush=True)

    def run(self) -> None:
        (self.folder / "fail-tasks").touch()
        for where in ("die-before", "die-during", "die-after", "die-after-claim"):
            self.producer.add(self.share)
            (self.folder / where).touch()
            driver = self.start()
            driver.wait_for_end()
            driver.kill()
            assert not (self.folder / where).exists(), driver.log.read_text()[-2000:]
            self.say(where)
        self.killed_from_outside()
        self.workers_killed()
        self.node_killed_between_claim_and_read()
        self.lease_over()
        self.checkpoint_copied()
        self.producer.add(self.producer.total)
        (self.folder / "fail-tasks").unlink()
        driver = self.start(fails=False)
        until(lambda: self.rows() >= len(self.producer.ids) or driver.has_ended(), PATIENCE_S * 4)
        until(lambda: not self.cluster.copies("chaos") or driver.has_ended(), PATIENCE_S)
        driver.kill()
        self.say("drained")

    def killed_from_outside(self) -> None:
        self.producer.add(self.share)
        before = self.rows()
        driver = self.start()
        until(lambda: self.rows() > before or driver.has_ended(), PATIENCE_S)
        driver.kill()
        self.say("driver killed from outside")

    def workers_killed(self) -> None:
        driver = self.start()
        self.producer.add(self.share)
        until(lambda: driver.workers() or driver.has_ended(), PATIENCE_S)
        before = self.rows()
        for pid in driver.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: self.rows() > before or driver.has_ended(), PATIENCE_S)
        driver.kill()
        self.say("Python workers killed")

    def node_killed_between_claim_and_read(self) -> None:
        self.producer.add(self.share)
        (self.folder / "wait-after-claim").touch()
        driver = self.start()
        until(lambda: (self.folder / "claimed").exists() or driver.has_ended(), PATIENCE_S)
        assert (self.folder / "claimed").exists(), driver.log.read_text()[-2000:]
        self.cluster[2].kill()
        (self.folder / "claimed").unlink()
        said = driver.wait_for_end()
        assert "is gone at node" in said or "cannot be reached" in said or "no connection" in said, said[-2000:]
        self.cluster[2].start()
        self.cluster.settle()
        self.say("node killed between claim and read")

    def lease_over(self) -> None:
        """Nobody comes back in time: the batch cannot be replayed, and says so; told to go on, it loses nothing."""
        self.producer.add(self.share)
        (self.folder / "die-before").touch()
        driver = self.start(lease_s=SHORT_S)
        driver.wait_for_end()
        driver.kill()
        time.sleep(SHORT_S + 6)  # what is waited for is that nothing happens
        said = self.start().wait_for_end()
        assert "failOnDataLoss=false" in said, said[-2000:]
        self.say("lease over")

    def checkpoint_copied(self) -> None:
        first = self.start(fails=False)
        until(lambda: (self.folder / "running").exists() or first.has_ended(), PATIENCE_S)
        before = self.rows()
        self.producer.add(self.share)
        until(lambda: self.rows() > before or first.has_ended(), PATIENCE_S)
        shutil.copytree(self.folder / "check", self.folder / "copy", dirs_exist_ok=True)
        second = self.start(fails=False, check="copy")
        self.producer.add(self.share)
        until(lambda: first.has_ended() or second.has_ended(), PATIENCE_S)
        said = "".join(each.log.read_text(errors="replace") for each in (first, second) if each.has_ended())
        assert "must not share a checkpoint" in said, said[-2000:]
        first.kill()
        second.kill()
        self.say("checkpoint copied")

    def judge(self) -> bool:
        database = sqlite3.connect(self.folder / "sink.db")
        sink = {row[0]: row[1] for row in database.execute("SELECT id, times FROM sink")}
        lost = set(self.producer.ids) - sink.keys()
        strange = sink.keys() - set(self.producer.ids)
        reads: dict[tuple[str, int], set[str]] = defaultdict(set)
        again = 0
        for line in (self.folder / "reads.jsonl").read_text().splitlines():
            check, number, count, counted, digest = json.loads(line)
            again += (check, number) in reads
            if count and counted:  # a batch whose claim was given up is empty
                reads[check, number].add(digest)
                again += count != counted
        differ = sum(len(digests) > 1 for digests in reads.values())
        left = len(self.cluster.copies("chaos"))
        print(f"\njobs {len(self.producer.ids)}  lost {len(lost)}  not ours {len(strange)}  re-reads {again}  "
              f"re-reads that differ {differ}  written more than once {sum(times > 1 for times in sink.values())}  "
              f"left in the cluster {left}")
        return not lost and not strange and not differ and not left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--per-trigger", type=int, default=4_000)
    parser.add_argument("--keep", action="store_true", help="leave the folder with all logs")
    wanted = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    chaos = Chaos(folder, wanted.jobs, wanted.per_trigger)
    try:
        chaos.run()
        is_good = chaos.judge()
    finally:
        chaos.cluster.stop()
        if not wanted.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(folder)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
