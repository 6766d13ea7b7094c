"""A worker in bad times: killed, stopped, blocked, cut off. No job is lost, and none runs twice without need.

The times are short here. LONG=1 runs the same with a lease of 5 s and a job of 2 minutes (`make show PART=doors
ONLY=long`).
"""
from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from tests.proc.harness import Node, until

import holdfast

from . import shop as tasks
from .running import Shop

LONG = os.environ.get("LONG") == "1"
LEASE_S, JOB_S = (5.0, 120.0) if LONG else (1.0, 3.0)


@pytest.fixture(autouse=True)
def bound(shop: Shop) -> None:
    tasks.app.bind(shop.queue)


def test_the_jobs_of_a_killed_worker_run_elsewhere(shop: Shop) -> None:
    """SIGKILL: nobody can say anything any more. The leases end, and another worker gets the jobs."""
    for number in range(20):
        tasks.nap.add(str(number), 0.0 if number >= 10 else 600.0 if number == 0 else 0.05)
    first = shop.worker("-q", "naps", "-c", "4", "--lease", "1")
    shop.noted("begin 0")
    first.kill()
    before = shop.count()
    second = shop.worker("-q", "naps", "-c", "4", "--lease", "1")
    shop.noted(*(f"end {n}" for n in range(1, 20)))
    until(lambda: shop.count()["begin 0"] == before["begin 0"] + 1)
    second.kill()


def test_sigterm_finishes_what_runs_and_gives_back_the_rest(shop: Shop) -> None:
    for number in range(12):
        tasks.nap.add(str(number), 1.0)
    worker = shop.worker("-q", "naps", "-c", "3")
    until(lambda: sum(line.startswith("begin") for line in shop.notes()) == 3)
    assert worker.stop() == 0
    notes = shop.notes()
    assert sum(line.startswith("begin") for line in notes) == sum(line.startswith("end") for line in notes) == 3
    left = shop.queue.take("naps", count=100)
    assert len(left) == 9 and all(job.attempt == 1 and job.nacks == 0 for job in left)


def test_what_does_not_finish_in_time_is_given_back_without_blame(shop: Shop) -> None:
    tasks.nap.add("async", 600.0)
    tasks.thread_nap.add("thread", 600.0)
    worker = shop.worker("-q", "naps", "--shutdown", "0.3")
    shop.noted("begin async", "begin thread")
    assert worker.stop() == 0
    jobs = shop.queue.take("naps", count=10)
    assert len(jobs) == 2 and all(job.nacks == 0 for job in jobs)


def test_a_second_signal_does_not_wait(shop: Shop) -> None:
    tasks.nap.add("it", 600.0)
    worker = shop.worker("-q", "naps", "--shutdown", "600")
    shop.noted("begin it")
    worker.signal(signal.SIGTERM)
    worker.until(lambda: "stopping" in worker.output())
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(20) == 0
    assert shop.queue.next("naps", timeout=5).nacks == 0


@pytest.mark.parametrize("task", [tasks.nap, tasks.thread_nap, tasks.blocking_nap])
def test_a_lease_is_kept_whatever_the_handler_blocks(shop: Shop, task: holdfast.Task[[str, float], None]) -> None:
    """The job takes longer than its lease. A second worker waits for it, and never gets it."""
    task.add("it", JOB_S)
    first = shop.worker("-q", "naps", "--lease", str(LEASE_S), "--name", "first")
    shop.noted("begin it")
    shop.worker("-q", "naps", "--lease", str(LEASE_S), "--name", "second")
    until(lambda: "end it" in shop.notes(), JOB_S + 30)
    shop.settled("naps")
    assert shop.count() == {"begin it": 1, "end it": 1}
    assert first.stop() == 0


class Proxy:
    """Between a worker and its node: passes bytes on, until it is told to cut, or to swallow what comes back."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.is_deaf = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """All connections end, at once and without a word."""
        pairs, self._pairs = self._pairs, []
        for sock in pairs:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            node = socket.create_connection(("127.0.0.1", self.target))
            self._pairs += [client, node]
            for source, sink, back in ((client, node, False), (node, client, True)):
                threading.Thread(target=self._pass, args=(source, sink, back), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        try:
            while data := source.recv(65536):
                if not (back and self.is_deaf):
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def test_a_lost_connection_loses_no_job_and_doubles_none(shop: Shop, node: Node) -> None:
    """The connections are cut while jobs run, and while acknowledgements are under way: first their answers are
    swallowed, then the line goes dead. They are told again, over a new one."""
    proxy = Proxy(node.port)
    for number in range(30):
        tasks.nap.add(str(number), 0.4)
    worker = shop.worker("-q", "naps", "-c", "30", "--lease", "5", url=f"holdfast://127.0.0.1:{proxy.port}")
    until(lambda: sum(line.startswith("begin") for line in shop.notes()) == 30)
    proxy.is_deaf = True
    shop.noted(*(f"end {n}" for n in range(30)))
    proxy.cut()
    proxy.is_deaf = False
    shop.settled("naps")
    assert shop.count() == {f"{word} {n}": 1 for n in range(30) for word in ("begin", "end")}
    assert worker.stop() == 0
    proxy.close()


def test_a_worker_goes_on_at_another_node_when_its_own_dies(tmp_path: Path) -> None:
    """It was told of one node only, and learned of the other there."""
    with Node("--set", "appendonly=no") as first, Node("--join", f"127.0.0.1:{first.port}") as second:
        with holdfast.open(f"holdfast://127.0.0.1:{second.port}") as queue:
            until(lambda: len(queue.call("HELLO")) == 4)  # type: ignore[arg-type]
        with Shop(tmp_path, f"holdfast://127.0.0.1:{second.port}") as shop:
            tasks.app.bind(shop.queue)
            worker = shop.worker("-q", "naps,async", "--lease", "2", url=f"holdfast://127.0.0.1:{first.port}")
            tasks.add.add_many(tasks.add.call(n, 0) for n in range(50))
            shop.noted(*(f"add {n} 0" for n in range(50)))
            first.process.kill()
            first.process.wait()
            tasks.add.using(replicate=1).add(51, 0)
            shop.noted("add 51 0")
            assert worker.process.poll() is None
            assert worker.stop() == 0
        tasks.app.bind(None)
        first.process.returncode = 0  # we killed it


def test_a_worker_that_starts_before_its_node_waits_for_it(shop: Shop, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    starting = threading.Thread(target=lambda: shop.worker("-q", "async", url=f"holdfast://127.0.0.1:{port}"))
    starting.start()
    until(lambda: shop.workers == [] or "no node yet" in shop.workers[0].output())
    with Node(port=port):
        starting.join(30)
        (worker,) = shop.workers
        with holdfast.open(f"holdfast://127.0.0.1:{port}") as queue:
            tasks.app.bind(queue)
            tasks.add.add(1, 1)
            shop.noted("add 1 1")
        assert worker.stop() == 0


def test_several_processes_and_one_that_dies(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "healthy"
    worker = shop.worker("-q", "process,async", "--processes", "2", "--lease", "1", "--health-file", str(file))

    def pids() -> set[str]:
        return {each.facts["pid"] for each in shop.queue.workers() if each.facts["queues"] == "process,async"}

    first = until(lambda: len(pids()) >= 2 and pids())
    until(file.exists)
    os.kill(int(min(first)), signal.SIGKILL)
    worker.until(lambda: "ended with -9" in worker.output())
    until(lambda: len(pids() - first) == 1)
    tasks.add.add_many(tasks.add.call(n, 0) for n in range(100))
    shop.noted(*(f"add {n} 0" for n in range(100)))
    assert worker.stop() == 0
    shop.settled("async")


def test_jobs_fetched_ahead_are_given_back_when_slots_are_busy(shop: Shop) -> None:
    """Short jobs made the worker fetch ahead; then a long one comes. What lies behind it goes to another worker."""
    tasks.add.using(queue="naps").add_many(tasks.add.call(n, 0) for n in range(3000))
    shop.worker("-q", "naps", "-c", "1", "--lease", "30")
    shop.noted("add 1500 0")
    tasks.blocking_nap.using(priority=9).add("long", 20.0)
    shop.noted("begin long")
    shop.worker("-q", "naps", "-c", "1", "--lease", "30")
    shop.noted(*(f"add {n} 0" for n in range(3000)))
    assert "end long" not in shop.notes()
    counts = shop.count()
    assert all(counts[f"add {n} 0"] == 1 for n in range(3000))
