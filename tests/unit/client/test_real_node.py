"""The client against a real node in a process of its own: the parts a stub can't vouch for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import doors
from holdfast.client import errors
from holdfast.client.asks import give_back
from holdfast.client.connection import Connection
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.target import Target


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, "-m", "holdfast", "node", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "ready on" in line:
            yield int(line.split("ready on ")[1].split(",")[0].rpartition(":")[2])
            break
    else:
        pytest.fail("the node did not start")
    process.terminate()
    process.wait(10)
    process.stderr.close()


@pytest.fixture
def queue(port: int) -> Iterator[Queue]:
    with doors.open(f"holdfast://127.0.0.1:{port}") as opened:
        opened.call("QFLUSH", "q")
        yield opened


def until_blocked(queue: Queue, count: int) -> None:
    while (stats := queue.stats("q")) is None or stats.blocked != count:
        pass


def test_a_job_from_add_to_done(queue: Queue) -> None:
    job_id = queue.add("q", b"\x00\xff", retry=30, ttl=60, priority=5)
    with pytest.raises(ValueError), queue.next("q") as job:
        assert (job.id, job.body) == (job_id, b"\x00\xff")
        raise ValueError
    with queue.next("q", timeout=5) as job:
        assert job.nacks == 1 and job.extend() == 30.0
    assert queue.show(job_id) is None
    ids = queue.add_many("q", ["a", "b", "c"])
    assert [job.id for job in queue.peek("q")] == ids and queue.length("q") == 3
    assert queue.done(*queue.take("q")) == 3


def test_errors_arrive_as_exceptions(queue: Queue) -> None:
    with pytest.raises(errors.BadId):
        queue.done("nonsense")
    with pytest.raises(errors.BadRequest):
        queue.add("q", "b", ttl=-1)
    with pytest.raises(errors.Empty):
        queue.next("q", timeout=0.01)


def test_threads_produce_and_consume(queue: Queue) -> None:
    count = 200
    got: list[bytes] = []

    def work() -> None:
        for job in queue.jobs("q", timeout=1):
            with job:
                got.append(job.body)

    with ThreadPoolExecutor(8) as threads:
        workers = [threads.submit(work) for _ in range(4)]
        list(threads.map(lambda n: queue.add("q", str(n)), range(count)))
        for worker in workers:
            worker.result(60)
    assert sorted(got) == sorted(b"%d" % n for n in range(count))


def test_closing_ends_a_wait(queue: Queue) -> None:
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            queue.next("q")
        except errors.Error as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until_blocked(queue, 1)
    queue.close()
    thread.join(10)
    assert isinstance(raised[0], errors.Closed)


def test_an_interrupted_wait_gives_the_job_back_at_once(
    queue: Queue, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes after the node has sent the job and before we have read it."""
    connection = Connection(Target(port=port))
    receive = connection._receive

    def interrupted(seconds: float | None) -> bytes:
        until_blocked(queue, 1)
        queue.add("q", "b", retry=3600)
        monkeypatch.setattr(connection, "_receive", receive)
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.call(["GETJOB", "FROM", "q"], patience=None, undo=give_back)
    job = queue.next("q", timeout=5)
    assert job.nacks == 0
    job.done()


def test_tasks(queue: Queue, port: int) -> None:
    """Served, cancelled, and cancelled in the moment of delivery: no job is lost on anybody."""

    async def blocked(q: AsyncQueue, count: int) -> None:
        while (stats := await q.stats("q")) is None or stats.blocked != count:
            pass

    async def main() -> None:
        async with await doors.aopen(f"holdfast://127.0.0.1:{port}") as q:
            served = asyncio.create_task(q.next("q", timeout=30))
            await blocked(q, 1)
            job_id = await q.add("q", "b")
            async with await served as job:
                assert job.id == job_id
            for _ in range(20):
                task = asyncio.create_task(q.next("q"))
                await blocked(q, 1)
                job_id = await q.add("q", "b", retry=3600)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                async with await q.next("q", timeout=5) as job:
                    assert job.id == job_id

    asyncio.run(main())
