"""A worker that does not consume is not healthy, and says why; and one that is reloaded."""
from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proc.harness import Node, until

import holdfast
from holdfast.tasks import bodies
from holdfast.worker import Worker, WorkerOptions, figures, runtime, slots
from holdfast.worker.health import HealthFile

from .running import ROOT


@contextlib.contextmanager
def working(app: holdfast.App, **options: object) -> Iterator[Worker]:
    """A worker in a thread of this process."""
    worker = Worker(app, WorkerOptions(shutdown_s=0.2, **options))  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: asyncio.run(worker.main()))
    thread.start()
    until(lambda: worker.fault() == "")
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()


def test_a_worker_whose_node_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "SILENT_S", 1.5)
    monkeypatch.setattr(runtime, "ANSWER_S", 1.0)
    with Node() as node:
        app = holdfast.App(f"holdfast://127.0.0.1:{node.port}")
        app.task(name="t")(print)
        with working(app) as worker:
            os.kill(node.pid, signal.SIGSTOP)
            until(lambda: worker.fault().startswith("no node has answered"))
            os.kill(node.pid, signal.SIGCONT)
            until(lambda: worker.fault() == "")


def test_a_worker_whose_loop_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "BLOCKED_S", 1.2)
    free = threading.Event()
    app = holdfast.App("memory:")

    @app.task(name="block")
    async def block() -> None:
        free.wait(30)

    with working(app) as worker:
        block.add()
        until(lambda: "event loop has been blocked" in worker.fault())
        free.set()
        until(lambda: worker.fault() == "")
    app.close()


def test_a_worker_whose_threads_are_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that waits inside C cannot be interrupted. Its job fails in time all the same."""
    monkeypatch.setattr(slots, "GRACE_S", 0.2)
    free = threading.Event()
    app = holdfast.App("memory:", retries=0)

    @app.task(name="stuck", timeout=0.1)
    def stuck() -> None:
        free.wait(30)

    with working(app, concurrency=1) as worker:
        stuck.add()
        until(lambda: worker.fault() == "all its threads are stuck in handlers that do not stop")
        (dead,) = until(lambda: app.queue.dead())
        assert "did not stop when told to" in dead.error
        free.set()
        until(lambda: worker.fault() == "")
    app.close()


def test_a_changed_file_starts_the_worker_again(tmp_path: Path) -> None:
    module = tmp_path / "shop.py"
    source = "import holdfast\napp = holdfast.App()\n@app.task(name='t', result=True)\ndef t() -> int:\n    return {}\n"
    module.write_text(source.format(1))
    with Node() as node:
        url = f"holdfast://127.0.0.1:{node.port}"
        log = tmp_path / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "worker", "shop:app", "--reload", "--url", url], cwd=tmp_path,
                stdout=file, stderr=file, env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOLDFAST_URL": url},
            )
        app = holdfast.App(url)
        task = app.task(name="t", result=True)(int)
        try:
            assert task.add().wait(20) == 1
            module.write_text(source.format(2) + "# longer\n")
            until(lambda: log.read_text().count("ready") == 2)
            assert task.add().wait(20) == 2
        finally:
            process.terminate()
            assert process.wait(40) == 0
            app.close()


@pytest.mark.parametrize(("words", "complaint"), [
    (["nowhere:app"], "there is no module 'nowhere'"),
    (["json:app"], "json has no 'app'"),
    (["json:dumps"], "is no holdfast.App but a function"),
    (["shop/tasks.py:app"], "shop.tasks:app"),
    (["json:app", "--processes", "2"], "none of the worker processes could start"),
])
def test_an_app_that_is_not_there_is_named(words: list[str], complaint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "worker", *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 1 and complaint in done.stderr


@pytest.mark.parametrize("flags", [
    ["-q", ","], ["--lease", "0"], ["--lease", "nan"], ["--shutdown", "-1"], ["--processes", "0"], ["-c", "0"],
    ["--health-port", "99999"], ["--health-file", "nowhere/at/all"], ["--health-port", "taken"],
    ["--processes", "2", "--health-port", "taken"],
])
def test_a_worker_that_could_not_work_does_not_start(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import holdfast\napp = holdfast.App()\n@app.task\ndef t() -> None: ...\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_worker(tmp_path, "shop:app", *(port if each == "taken" else each for each in flags))
    assert done.returncode in (1, 2) and "Error: " in done.stderr
    assert "Traceback" not in done.stderr and ": ready" not in done.stderr


def test_of_a_module_that_breaks_the_broken_line_is_shown(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import holdfast\nimport nosuchthing\n")
    done = run_worker(tmp_path, "shop:app")
    assert done.returncode == 1
    assert "shop cannot be imported" in done.stderr and "import nosuchthing" in done.stderr
    assert "No module named 'nosuchthing'" in done.stderr
    assert "importlib" not in done.stderr and "click" not in done.stderr


def run_worker(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "worker", *words], capture_output=True, text=True, check=False, timeout=60,
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_a_health_file_that_cannot_be_written_costs_no_lease(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    file = HealthFile(folder / "ok", lambda: "")
    file.tick(10.0)
    assert (folder / "ok").exists()
    shutil.rmtree(folder)
    file.tick(20.0)
    file.tick(30.0)
    assert [each.message for each in caplog.records] == [
        f"cannot refresh the health file {folder}/ok: No such file or directory"
    ]
    folder.mkdir()
    file.tick(40.0)
    assert (folder / "ok").exists()


def test_a_handler_that_fails_is_in_the_log_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.worker")
    app = holdfast.App("memory:", retries=0)

    @app.task(name="plain")
    def plain() -> None:
        raise ValueError("out of paper")

    @app.task(name="loop")
    async def loop() -> None:
        raise ValueError("out of ink")

    @app.task(name="meant")
    async def meant() -> None:
        raise holdfast.Discard("no such printer")

    with working(app):
        for task in (plain, loop, meant):
            task.add()
        until(lambda: len(app.queue.dead()) == 3)
    told = {each.message.partition(": ")[2]: each for each in caplog.records if "failed at" in each.message}
    assert set(told) == {
        "plain failed at attempt 1: ValueError: out of paper", "loop failed at attempt 1: ValueError: out of ink",
        "meant failed at attempt 1: Discard: no such printer",
    }
    assert [bool(told[each].exc_info) for each in sorted(told)] == [True, False, True]
    app.close()


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The one line of each job that ended, without its id and its milliseconds."""
    found = [each.message for each in caplog.records if hasattr(each, "outcome")]
    return [re.sub(r" in \d+ ms", "", each.partition(": ")[2]) for each in found]


def test_each_job_that_ends_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """What ran, how it ended, how long it took, at which attempt, and what becomes of it."""
    caplog.set_level("INFO", "holdfast.worker")
    app = holdfast.App("memory:", queue="work", retries=1, backoff=0)

    @app.task(name="fine")
    async def fine() -> None: ...

    @app.task(name="fails")
    def fails() -> None:
        raise ValueError("out of paper")

    @app.task(name="waits", backoff=3600)
    def waits() -> None:
        raise ValueError("out of ink")

    @app.task(name="later")
    async def later() -> None:
        raise holdfast.Snooze(600)

    @app.task(name="never")
    async def never() -> None:
        raise holdfast.Discard("no such printer")

    with working(app) as worker:
        for task in (fine, fails, waits, later, never):
            task.add()
        until(lambda: len(lines_of(caplog)) == 6)
        assert worker.hands.counts.figures({}).tasks[0].queue == "work"
    again = [each for each in lines_of(caplog) if each.startswith("waits")]
    seconds = re.fullmatch(r"waits of work: failed, attempt 1, again in (\d+) s", again[0])
    assert seconds and 1700 < int(seconds[1]) <= 3600
    assert sorted(each for each in lines_of(caplog) if each not in again) == [
        "fails of work: failed, attempt 1, again at once", "fails of work: failed, attempt 2, dead: attempts",
        "fine of work: done, attempt 1", "later of work: released, attempt 1, again in 600 s",
        "never of work: dead, attempt 1, dead: rejected",
    ]
    one = next(each for each in caplog.records if getattr(each, "outcome", "") == "done")
    assert (one.task, one.queue, one.attempt) == ("fine", "work", 1)  # type: ignore[attr-defined]
    app.close()


def test_a_queue_that_nobody_knows_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.worker")
    app = holdfast.App("memory:")
    app.task(name="t", queue="mail")(print)
    app.queue.add("invoices", "x")
    with working(app, queues=("mial", "invoices", "mail")):
        until(lambda: any(each.levelname == "WARNING" for each in caplog.records))
    (said,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert said == (
        "no task of this app names the queue 'mial', and there is none of that name yet: did you mean mail?"
    )
    app.close()


def test_its_port_has_the_figures_of_each_task() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = holdfast.App("memory:", queue="work", retries=0)
    app.task(name='odd "name"')(lambda: None)

    @app.task(name="fails")
    async def fails() -> None:
        raise ValueError("no")

    def page() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
            return str(reply.read().decode())

    with working(app, health_port=port):
        for _ in range(3):
            app.tasks['odd "name"'].add()  # type: ignore[attr-defined]
        fails.add()
        until(lambda: 'outcome="failed"} 1' in page() and 'outcome="done"} 3' in page())
        told = page()
    for line in (
        r'holdfast_worker_jobs_total{task="odd \"name\"",queue="work",outcome="done"} 3',
        'holdfast_worker_jobs_total{task="fails",queue="work",outcome="failed"} 1',
        'holdfast_worker_job_seconds_bucket{task="fails",queue="work",le="+Inf"} 1',
        'holdfast_worker_job_seconds_count{task="fails",queue="work"} 1', "holdfast_worker_concurrency 10",
    ):
        assert line in told.splitlines(), told
    app.close()


def test_figures_of_several_processes_add_up() -> None:
    one, two = figures.Counts(), figures.Counts()
    one.note("t", "q", "done", 0.02)
    two.note("t", "q", "done", 2.0)
    two.note("t", "q", "failed", 0.001)
    both = figures.total([one.figures({"running": 1}), figures.from_json(two.figures({"running": 2}).to_json())])
    assert both.tasks[0].outcomes == {"done": 2, "failed": 1}
    assert sum(both.tasks[0].counts) == 3 and both.now == {"running": 3}


def test_what_the_node_does_not_take_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that keeps less of a result than the worker thinks: the job is dead, with words, and runs once."""
    monkeypatch.setattr(bodies, "RESULT_BYTES_MAX", 1_000_000)
    app = holdfast.App("memory:", retries=5, backoff=0)
    runs: list[int] = []

    @app.task(name="large")
    async def large() -> str:
        runs.append(1)
        return "x" * 70_000

    with working(app):
        job = large.add()
        with pytest.raises(holdfast.TaskFailed, match="its result was refused: RESULT must not exceed 65536 bytes"):
            job.wait(20)
    assert runs == [1]
    app.close()
