"""python -m chaos: the jobs source under every fault we can think of, and a count of what came of it.

A cluster of three real nodes, and jobs that keep coming. The driver is killed -9 before, during and after the writing
of a batch, between its claim and Spark's log, and from outside; its executors and their Python workers are killed; a
node is killed between claim and read; a lease runs out while nobody is there; a second driver starts on a copy of the
checkpoint; tasks fail and are run twice all along. In the end everything is drained and counted:

    lost              jobs that were added and are not in the sink: must be 0
    re-reads differ   batches that were read again and were not the same: must be 0
    sink              rows, one per job id: exactly the jobs that were added
    written twice     rows that were written more than once under their id: as many as there are
"""
from __future__ import annotations

import argparse
import contextlib
import functools
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
from collections.abc import Callable
from pathlib import Path

from cluster_harness import SETTINGS, Cluster

HERE = Path(__file__).parent
PATIENCE_S = 300.0
"""For one step of one driver, its start included, on a busy machine."""
LEASE_S = 1800
"""Longer than it takes until a driver has written its batch, though several die in a row."""
TELL_S = 15.0
"""How often it is said what is waited for."""
TRIES = 3
"""A driver may end for a reason of its own: the machine was too busy for Spark's time limits."""
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
        lease_s: int = LEASE_S, master: str = "local[2,6]",
    ) -> None:
        url = "holdfast://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster)
        environ = {**os.environ, "PYTHONPATH": f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"}
        self.log = folder / f"driver-{time.monotonic_ns()}.log"
        (folder / "running").unlink(missing_ok=True)
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "app.py"), str(folder), url, str(lease_s), str(fails).lower(),
                 str(per_trigger), str(folder / check), master], env=environ, stdout=file, stderr=file,
                start_new_session=True)

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """With everything it started: the JVM and its Python workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def parts(self, *kinds: str) -> list[int]:
        """Processes it started, by what is in their commands. By session: Python workers have groups of their own."""
        words = ["pgrep", "-s", str(self.process.pid), "-f", "|".join(kinds)]
        found = subprocess.run(words, capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split() if int(pid) != self.process.pid]


class Chaos:
    def __init__(self, folder: Path, jobs: int, per_trigger: int) -> None:
        self.folder = folder
        self.per_trigger = per_trigger
        self.cluster = Cluster(folder, 3, settings=SETTINGS)
        self.producer = Producer(self.cluster, jobs)
        self.share = max(1, jobs // 12)
        self.begun = time.monotonic()

    def rows(self) -> int:
        with contextlib.closing(sqlite3.connect(self.folder / "sink.db", timeout=30)) as database:
            try:
                return int(database.execute("SELECT count(*) FROM sink").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    def start(
        self, fails: bool = True, check: str = "check", lease_s: int = LEASE_S, master: str = "local[2,6]"
    ) -> Driver:
        return Driver(self.folder, self.cluster, self.per_trigger, fails, check, lease_s, master)

    def say(self, words: str) -> None:
        added = len(self.producer.ids)
        spent = time.monotonic() - self.begun
        print(f"{spent:6.0f} s  {words}; {added} added, {self.rows()} in the sink", flush=True)

    def wait(self, words: str, ask: Callable[[], object], driver: Driver, seconds: float = PATIENCE_S) -> None:
        """Until it is so, or the driver has ended; every so often it is told what is waited for."""
        told = begun = time.monotonic()
        while not ask() and not driver.has_ended():
            now = time.monotonic()
            assert now - begun < seconds, f"{words}: never came about\n{driver.said()[-3000:]}"
            if now - told > TELL_S:
                told = now
                self.say(f"... {words}")
            time.sleep(0.05)

    def rounds(self) -> dict[str, Callable[[], None]]:
        """By name, in the order they are played."""
        dying = ("die-before", "die-during", "die-after", "die-after-claim")
        return {
            **{where: functools.partial(self.dies, where) for where in dying},
            "driver": self.killed_from_outside, "executors": self.executors_killed,
            "node": self.node_killed_between_claim_and_read, "lease": self.lease_over, "copy": self.checkpoint_copied,
        }

    def run(self, only: list[str]) -> None:
        (self.folder / "fail-tasks").touch()
        for name, play in self.rounds().items():
            if not only or name in only:
                play()
        self.drain()

    def dies(self, where: str) -> None:
        self.producer.add(self.share)
        self.die(where)
        self.say(where)

    def die(self, where: str, lease_s: int = LEASE_S) -> None:
        """A driver kills itself there."""
        (self.folder / where).touch()
        for _ in range(TRIES):
            driver = self.start(lease_s=lease_s)
            self.wait(where, driver.has_ended, driver)
            driver.kill()
            if not (self.folder / where).exists():
                return
        raise AssertionError(f"no driver came to {where}:\n{driver.said()[-3000:]}")

    def killed_from_outside(self) -> None:
        self.producer.add(self.share)
        before = self.rows()
        driver = self.start()
        self.wait("a batch is written", lambda: self.rows() > before, driver)
        driver.kill()
        self.say("driver killed from outside")

    def executors_killed(self) -> None:
        """Executors are processes of their own here; first their Python workers are killed, then they."""
        self.producer.add(self.share)
        before = self.rows()
        driver = self.start(master="local-cluster[2,1,600]")
        for kind in ("pyspark.daemon", "CoarseGrainedExecutorBackend"):
            self.wait(f"there is a {kind}", lambda kind=kind: driver.parts(kind), driver)
            victims = driver.parts(kind)
            assert victims, driver.said()[-3000:]
            for pid in victims[:2]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.say(f"{len(victims[:2])} of {kind} killed")
        self.wait("a batch is written all the same", lambda: self.rows() > before, driver)
        driver.kill()
        self.say("executors killed")

    def node_killed_between_claim_and_read(self) -> None:
        (self.folder / "wait-after-claim").touch()
        for _ in range(TRIES):
            self.producer.add(self.share)
            driver = self.start()
            self.wait("a claim", (self.folder / "claimed").exists, driver)
            if (self.folder / "claimed").exists():
                break
            driver.kill()
        assert (self.folder / "claimed").exists(), driver.said()[-3000:]
        claimed = json.loads((self.folder / "claimed").read_text())
        victim = next(node for node in self.cluster if node.id.decode() in claimed)
        victim.kill()
        (self.folder / "claimed").unlink()
        self.wait("it fails for the node", driver.has_ended, driver)
        driver.kill()
        said = driver.said()
        assert "is gone at node" in said or "cannot be reached" in said or "no connection" in said, said[-3000:]
        victim.start()
        self.cluster.settle()
        self.say("node killed between claim and read")

    def lease_over(self) -> None:
        """Nobody comes back in time: the batch cannot be replayed, and says so; told to go on, it loses nothing."""
        self.producer.add(self.share)
        self.die("die-before", SHORT_S)
        time.sleep(SHORT_S + 6)  # what is waited for is that nothing happens
        driver = self.start()
        self.wait("it tells that the batch is gone", driver.has_ended, driver)
        driver.kill()
        assert "failOnDataLoss=false" in driver.said(), driver.said()[-3000:]
        self.say("lease over")

    def checkpoint_copied(self) -> None:
        first = self.start(fails=False)
        self.wait("the first driver", (self.folder / "running").exists, first)
        before = self.rows()
        self.producer.add(self.share)
        self.wait("a batch of the first driver", lambda: self.rows() > before, first)
        shutil.copytree(self.folder / "check", self.folder / "copy", dirs_exist_ok=True)
        second = self.start(fails=False, check="copy")
        self.producer.add(self.share)
        self.wait("one of the two gives way", second.has_ended, first)
        said = "".join(each.said() for each in (first, second) if each.has_ended())
        assert "must not share a checkpoint" in said, said[-3000:]
        first.kill()
        second.kill()
        self.say("checkpoint copied")

    def drain(self) -> None:
        """Everything that is left, by a driver that is let alone; another if that one ends."""
        self.producer.add(self.producer.total)
        (self.folder / "fail-tasks").unlink()
        for _ in range(TRIES):
            driver = self.start(fails=False)
            self.wait("all are in the sink", lambda: self.rows() >= len(self.producer.ids), driver, PATIENCE_S * 6)
            self.wait("all are acknowledged", lambda: not self.cluster.copies("chaos"), driver)
            driver.kill()
            if not self.cluster.copies("chaos"):
                break
        self.say("drained")

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
    parser.add_argument("--only", default="", help="rounds to play, with commas; then all is drained and counted")
    parser.add_argument("--keep", action="store_true", help="leave the folder with all logs")
    wanted = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    chaos = Chaos(folder, wanted.jobs, wanted.per_trigger)
    try:
        chaos.run([name for name in wanted.only.split(",") if name])
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
