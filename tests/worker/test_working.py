"""A worker in calm times: where handlers run, what they return, how they end."""
from __future__ import annotations

import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.doors.faces import DOORS
from tests.proc.harness import until

import holdfast
from holdfast.tasks import bodies

from . import shop as tasks
from .running import Shop


@pytest.fixture(autouse=True)
def bound(shop: Shop) -> None:
    tasks.app.bind(shop.queue)


def test_handlers_run_in_the_loop_in_threads_and_in_processes(shop: Shop) -> None:
    worker = shop.worker("-q", "async,sync,process")
    assert tasks.add.add(2, 3).wait(20) == 5
    assert tasks.concat.add("a", b="b").wait(20) == "ab"
    word, pid = tasks.where.add("here").wait(20)
    assert word == "here" and pid != worker.process.pid
    shop.settled("async", "sync", "process")
    assert shop.count() == {"add 2 3": 1, "concat a b 1": 1, "where here": 1}
    assert worker.stop() == 0


def test_a_thousand_jobs_run_once_each(shop: Shop) -> None:
    added = tasks.add.add_many(tasks.add.call(n, 0) for n in range(1000))
    assert len({each.id for each in added}) == 1000
    shop.worker("-q", "async")
    shop.settled("async")
    assert shop.count() == {f"add {n} 0": 1 for n in range(1000)}


def test_without_q_all_queues_of_the_tasks_are_served(shop: Shop) -> None:
    tasks.concat.add("x")
    tasks.add.add(1, 1)
    shop.worker()
    shop.noted("concat x ! 1", "add 1 1")


def test_a_task_on_a_schedule_runs_once_each_time_however_many_workers_there_are(shop: Shop) -> None:
    workers = [shop.worker(app="worker.clockwork:app") for _ in range(2)]
    assert [each.name for each in shop.queue.schedules()] == ["worker.clockwork.tick"]
    until(lambda: len(shop.notes()) >= 3)
    assert [worker.stop() for worker in workers] == [0, 0]
    assert set(shop.count().values()) == {1}, "each instant has one job, and it runs once"
    shop.queue.unschedule("worker.clockwork.tick")


def test_an_exception_uses_up_attempts_until_the_job_is_dead(shop: Shop) -> None:
    job = tasks.ends.add("raise")
    shop.worker("-q", "ends")
    (dead,) = until(lambda: shop.queue.dead(queue="ends"))
    assert (dead.id, dead.error) == (job.id, "ValueError: oh no")
    assert shop.notes() == ["ends raise 1", "ends raise 2", "ends raise 3"]
    with pytest.raises(holdfast.TaskFailed, match="dead"):
        job.wait(5)


def test_a_handler_says_how_it_ends(shop: Shop) -> None:
    retry, discard, snooze = (tasks.ends.add(how) for how in ("retry", "discard", "snooze"))
    shop.worker("-q", "ends")
    (dead,) = until(lambda: shop.queue.dead(queue="ends"))
    assert (dead.id, dead.error) == (discard.id, "Discard: no use")
    for job, nacks in ((retry, 1), (snooze, 0)):
        view = until(lambda job=job: (v := shop.queue.show(job.id)) and (v.next_requeue_ms or 0) > 3_000_000 and v)
        assert view.nacks == nacks
    assert sorted(shop.notes()) == ["ends discard 1", "ends retry 1", "ends snooze 1"]


@pytest.mark.parametrize("name", ["too_long_async", "too_long_thread", "too_long_process"])
def test_a_time_limit_ends_a_handler(shop: Shop, name: str) -> None:
    getattr(tasks, name).add()
    worker = shop.worker("-q", "limits", "-c", "1")
    (dead,) = until(lambda: shop.queue.dead(queue="limits"))
    assert dead.error.startswith("TimeLimit")
    tasks.add.using(queue="limits").add(1, 1)
    shop.noted("add 1 1")  # and the slot is free again
    assert worker.stop() == 0


def test_a_handler_whose_process_dies_fails_and_the_worker_lives(shop: Shop) -> None:
    tasks.dies.add()
    shop.worker("-q", "limits", "-c", "1")
    (dead,) = until(lambda: shop.queue.dead(queue="limits"))
    assert "ended with 9" in dead.error
    tasks.add.using(queue="limits").add(1, 1)
    shop.noted("add 1 1")


@pytest.mark.parametrize("task", [tasks.forever, tasks.thread_forever, tasks.process_forever])
def test_a_job_that_runs_is_cancelled(shop: Shop, task: holdfast.Task[[str], None]) -> None:
    job = task.add("it")
    worker = shop.worker("-q", "calls", "--lease", "0.6", "-c", "1")
    shop.noted("begin it")
    assert shop.queue.cancel(job.id) == "asked"
    shop.settled("calls")
    if task is not tasks.process_forever:
        shop.noted("cancelled it")
    tasks.add.using(queue="calls").add(1, 1)
    shop.noted("add 1 1")  # the slot goes on
    assert worker.stop() == 0
    assert shop.count()["begin it"] == 1


def test_progress_is_shown(shop: Shop) -> None:
    job = tasks.reports.add()
    shop.worker("-q", "calls")
    view = until(lambda: (v := shop.queue.show(job.id)) and "progress" in v.more and v)
    assert view.more["progress-text"] == b"four of ten"


def test_a_raw_task_gets_the_bytes_of_every_job_of_its_queue(shop: Shop) -> None:
    tasks.raw.add(b"\x00\x01")
    shop.queue.add("raw", b"{not json")
    shop.worker("-q", "raw")
    shop.noted("raw 0001", f"raw {b'{not json'.hex()}")


def test_what_is_no_task_is_not_lost(shop: Shop) -> None:
    bad = shop.queue.add("async", "nonsense")
    strange = shop.queue.add("async", bodies.write("json", "no.such.task", (), {}))
    packed = shop.queue.add("async", bodies.write("msgpack", tasks.add.name, (1, 2), {}))
    shop.worker("-q", "async")
    (dead,) = until(lambda: shop.queue.dead(queue="async"))
    assert dead.id == bad and "no call of a task" in dead.error
    shop.noted("add 1 2")
    view = until(lambda: (v := shop.queue.show(strange)) and v.nacks == 1 and v)
    assert 20_000 < view.next_requeue_ms <= 30_000  # a newer worker may know it
    until(lambda: shop.queue.show(packed) is None)  # it is noted before it is acknowledged


@pytest.mark.parametrize("door", ["http", "grpc", "served"])
def test_a_worker_works_at_every_door(tmp_path: Path, door: str) -> None:
    with DOORS[door]() as url, Shop(tmp_path, url) as shop:
        tasks.app.bind(shop.queue)
        worker = shop.worker("-q", "async,naps", "--lease", "1", "-c", "4")
        assert tasks.add.add(20, 22).wait(20) == 42
        tasks.nap.add("it", 2.0)
        shop.noted("end it")
        shop.settled("async", "naps")
        assert shop.count()["begin it"] == 1
        assert worker.stop() == 0


def test_the_cluster_knows_its_workers(shop: Shop) -> None:
    shop.worker("-q", "async", "--name", "harriet")
    facts = until(lambda: {each.name: each.facts for each in shop.queue.workers()}.get("harriet"))
    assert facts["queues"] == "async" and facts["concurrency"] == "10"


def test_a_healthy_worker_says_so(shop: Shop, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    file = tmp_path / "healthy"
    worker = shop.worker("-q", "async", "--health-port", str(port), "--health-file", str(file))
    assert asked(f"http://127.0.0.1:{port}/healthz") == (200, "ok\n")
    assert asked(f"http://127.0.0.1:{port}/other")[0] == 404
    until(file.exists)
    worker.stop()
    assert not file.exists()


def asked(url: str) -> tuple[int, str]:
    """Status and body of a GET."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_figures_of_all_processes_are_at_one_port(shop: Shop) -> None:
    """Two processes share the work, one of them is killed: what it had done still counts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shop.worker("-q", "async", "--processes", "2", "--health-port", str(port))

    def page() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
            return str(reply.read().decode())

    for number in range(30):
        tasks.add.add(number, 1)
    shop.settled("async")
    done = 'holdfast_worker_jobs_total{task="worker.shop.add",queue="async",outcome="done"} 30'
    until(lambda: done in page().splitlines() and "holdfast_worker_processes 2" in page().splitlines())
    for pid in shop.workers[0].children():  # a list of the node has workers of earlier tests for a while
        os.kill(pid, signal.SIGKILL)
    until(lambda: sum("ready" in line for line in shop.workers[0].output().splitlines()) >= 4)
    tasks.add.add(30, 1)
    shop.settled("async")
    until(lambda: done.replace("} 30", "} 31") in page().splitlines())
