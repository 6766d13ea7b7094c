"""A node in this process: threads, tasks, time, and callers that leave at the worst moment.

Where time matters the clock is the test's own and moves only by hand. Where a test must know that somebody
waits, it asks the node (`blocked` in its stats) until that is so.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import embedded
from holdfast.client import errors
from holdfast.client.asks import give_back
from holdfast.client.jobs import AsyncJob, Job
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.embedded import AsyncLoopback, Local, SyncLoopback

START_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


class Bench:
    """A node with a clock that stands still, both faces of it, and threads to call from."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.local = Local(clock_ms=self.clock)
        self.queue = Queue(SyncLoopback(self.local))
        self.threads = ThreadPoolExecutor(16)

    def advance(self, seconds: float) -> None:
        self.clock.ms += int(seconds * 1000)
        self.local.nudge()

    def start_next(self, timeout: float | None = None, queue: str = "q") -> Future[Job]:
        """Another thread waits for a job; returns when it does."""
        before = self.blocked(queue)
        future = self.threads.submit(self.queue.next, queue, timeout=timeout)
        until(lambda: self.blocked(queue) == before + 1)
        return future

    def blocked(self, queue: str = "q") -> int:
        stats = self.queue.stats(queue)
        return 0 if stats is None else stats.blocked


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.0005)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.queue.close()
    made.threads.shutdown()


def test_a_job_from_add_to_done(bench: Bench) -> None:
    q = bench.queue
    job_id = q.add("q", "hello", retry=30)
    assert q.length("q") == 1 and [job.id for job in q.peek("q")] == [job_id]
    with q.next("q", timeout=5) as job:
        assert (job.id, job.queue, job.body, job.nacks) == (job_id, "q", b"hello", 0)
        assert job.extend() == 30.0
        view = q.show(job)
        assert view is not None and view.state == "active"
    assert q.show(job_id) is None
    assert job.done() is False


def test_names_and_bodies_are_any_bytes(bench: Bench) -> None:
    name = b"\xff\r\n\x00".decode("utf-8", "surrogateescape")
    bench.queue.add(name, b"\x00\r\n\xff")
    job = bench.queue.next(name)
    assert (job.queue, job.body) == (name, b"\x00\r\n\xff")


def test_a_job_given_back_comes_again_and_counts(bench: Bench) -> None:
    bench.queue.add("q", "b")
    with pytest.raises(ValueError), bench.queue.next("q"):
        raise ValueError
    with bench.queue.next("q") as job:
        assert job.nacks == 1


def test_add_many_adds_all_or_nothing(bench: Bench) -> None:
    ids = bench.queue.add_many("q", ["a", "b", "c"], priority=3)
    assert [job.id for job in bench.queue.take("q", count=10)] == ids
    with pytest.raises(errors.MaxLen):
        bench.queue.add_many("small", ["a", "b", "c"], maxlen=2)
    assert bench.queue.length("small") == 0


def test_a_job_nobody_answers_for_comes_again_when_its_retry_time_is_over(bench: Bench) -> None:
    bench.queue.add("q", "b", retry=10)
    first = bench.queue.next("q")
    waiting = bench.start_next()
    bench.advance(9)
    assert not waiting.done()
    bench.advance(2)
    again = waiting.result(10)
    assert again.id == first.id and again.additional_deliveries == 1


def test_a_waiting_thread_gets_the_job_another_thread_adds(bench: Bench) -> None:
    waiting = bench.start_next()
    job_id = bench.queue.add("q", "b")
    assert waiting.result(10).id == job_id
    assert bench.blocked() == 0


def test_those_who_wait_are_served_in_order_one_job_each(bench: Bench) -> None:
    waiting = [bench.start_next() for _ in range(8)]
    ids = bench.queue.add_many("q", [str(n) for n in range(8)])
    assert [each.result(10).id for each in waiting] == ids


def test_empty_is_raised_when_the_time_is_over_and_not_before(bench: Bench) -> None:
    waiting = bench.start_next(timeout=5)
    bench.advance(4.9)
    assert bench.blocked() == 1
    bench.advance(0.1)
    with pytest.raises(errors.Empty):
        waiting.result(10)


def test_real_timeouts_are_exact() -> None:
    """Five threads with the real clock; whoever keeps the time must pass the duty on when it goes."""
    with embedded.open_memory() as q, ThreadPoolExecutor(5) as threads:

        def wait(seconds: float) -> float:
            start = time.monotonic()
            assert q.try_next("q", timeout=seconds) is None
            return time.monotonic() - start

        timeouts = [0.05, 0.01, 0.04, 0.02, 0.03]
        for asked, waited in zip(timeouts, threads.map(wait, timeouts), strict=True):
            assert asked <= waited + 0.001 < asked + 2


def test_a_delayed_job_makes_the_keeper_look_earlier(bench: Bench) -> None:
    """The keeper sleeps until the end of its own patience when a job with a delay of 2 s arrives."""
    waiting = bench.start_next(timeout=60)
    until(lambda: _nap(bench) == 60)
    bench.queue.add("q", "b", delay=2)
    until(lambda: _nap(bench) <= 2)
    assert not waiting.done()
    bench.advance(2)
    assert waiting.result(10).body == b"b"


def _nap(bench: Bench) -> float:
    keeper = bench.local._keeper
    return -1 if keeper is None or keeper.nap is None else keeper.nap


def test_when_the_keeper_is_served_another_keeps_the_time(bench: Bench) -> None:
    first = bench.start_next(timeout=60)
    until(lambda: _nap(bench) == 60)
    second = bench.start_next(timeout=90)
    assert _nap(bench) == 60
    bench.queue.add("q", "b")
    assert first.result(10).body == b"b"
    until(lambda: _nap(bench) == 90)
    bench.advance(90)
    with pytest.raises(errors.Empty):
        second.result(10)


def test_the_duty_passes_through_one_who_finds_its_own_answer(bench: Bench) -> None:
    """The keeper leaves and wakes the second; before that one looks, its own time is over as well. The third
    must have been told, or nobody moves time any more."""
    waiters = [embedded._ThreadWaiter() for _ in range(3)]
    for n, waiter in enumerate(waiters):
        assert not bench.local.start(["GETJOB", "TIMEOUT", 1000 * (n + 1), "FROM", "q"], waiter)
        assert not bench.local.look(waiter)
    first, second, third = waiters
    bench.clock.ms += 1000
    assert bench.local.look(first)
    bench.clock.ms += 1000
    assert bench.local.look(second)
    assert third._event.is_set()
    assert not bench.local.look(third) and third.nap == 1


def test_closing_wakes_everybody(bench: Bench) -> None:
    waiting = [bench.start_next() for _ in range(3)]
    bench.queue.close()
    for each in waiting:
        with pytest.raises(errors.Closed):
            each.result(10)
    with pytest.raises(errors.Closed):
        bench.queue.add("q", "b")
    bench.queue.close()


INTERRUPTED = """
import os, signal, threading, time
from holdfast import embedded

q = embedded.open_memory()

def press():
    while not (stats := q.stats("q")) or stats.blocked != 1:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press).start()
try:
    q.next("q")
except KeyboardInterrupt:
    q.add("q", "b")
    print(q.stats("q").blocked, q.length("q"))
"""


@pytest.mark.skipif(os.name == "nt", reason="a signal does not interrupt a wait there")
def test_ctrl_c_ends_a_wait_and_takes_no_job() -> None:
    """In a process of its own: the signal is a real one."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 1\n", done.stderr


def test_a_job_that_came_while_ctrl_c_was_pressed_goes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(self: object) -> None:
        bench.queue.add("q", "b")
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded._ThreadWaiter, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        bench.queue.next("q")
    job = bench.queue.try_next("q")
    assert job is not None and job.nacks == 0


def test_a_queue_does_not_follow_a_fork(bench: Bench) -> None:
    bench.local._pid += 1
    with bench.local._lock, pytest.raises(errors.Closed, match="forked"):  # Held by a thread left behind.
        bench.queue.add("q", "b")


def test_a_full_node_refuses() -> None:
    with embedded.open_memory({"maxmemory": "1mb"}) as q, pytest.raises(errors.Refused):
        for _ in range(1000):
            q.add("q", b"x" * 10_000)


def test_client_pause_holds_calls_back_until_it_is_over(bench: Bench) -> None:
    bench.queue.call("CLIENT", "PAUSE", 1000)
    adding = bench.threads.submit(bench.queue.add, "q", "b")
    until(lambda: len(bench.local._waiters) == 1)
    assert not adding.done()
    bench.advance(1)
    job_id = adding.result(10)
    assert [job.id for job in bench.queue.peek("q")] == [job_id]


@pytest.mark.parametrize("words", [["SHUTDOWN"], ["CONFIG", "REWRITE"]])
def test_what_only_a_server_can_do_is_refused_with_words(bench: Bench, words: list[str]) -> None:
    with pytest.raises(errors.BadRequest):
        bench.queue.call(*words)
    assert bench.queue.length("q") == 0


def test_sessions_that_were_made_special_are_not_used_again(bench: Bench) -> None:
    quiet = (["CLIENT", "REPLY", "OFF"], ["CLIENT", "REPLY", "SKIP"])
    for words in (["MONITOR"], ["QUIT"], ["HELLO", 3], *quiet):
        bench.queue.call(*words)
        assert isinstance(bench.queue.call("HELLO"), list)
        assert bench.queue.length("q") == 0
    assert len(bench.local._node.monitors) == 0


def test_sessions_are_used_again(bench: Bench) -> None:
    for _ in range(100):
        bench.queue.add("q", "b")
    assert len(bench.local._node.sessions) == 1


def test_a_call_ended_by_client_kill_is_told_so(bench: Bench) -> None:
    waiting = bench.start_next()
    listing = bench.queue.call("CLIENT", "LIST")
    assert isinstance(listing, bytes)
    waiter = next(line for line in listing.decode().splitlines() if "cmd=getjob" in line)
    number = waiter.split()[0].removeprefix("id=")
    bench.queue.call("CLIENT", "KILL", "ID", number)
    with pytest.raises(errors.Closed):
        waiting.result(10)


def test_threads_and_failures_lose_nothing() -> None:
    """Four producers, four workers that fail every third time; every job is done once in the end."""
    count = 400
    finished: list[bytes] = []
    with embedded.open_memory() as q, ThreadPoolExecutor(8) as threads:

        def produce(start: int) -> None:
            for n in range(start, count, 4):
                q.add("q", str(n), retry=60)

        def work(worker: int) -> None:
            turn = worker
            for job in q.jobs("q", timeout=0.3):
                turn += 1
                try:
                    with job:
                        if turn % 3 == 0:
                            raise ValueError
                        finished.append(job.body)
                except ValueError:
                    pass

        everybody = [threads.submit(do, n) for do in (produce, work) for n in range(4)]
        for each in everybody:
            each.result(60)
        assert q.length("q") == 0
    assert sorted(finished) == sorted(b"%d" % n for n in range(count))


# -- leaving when something is due ---------------------------------------------------------------------------


def enter(bench: Bench, *words: str | int) -> embedded._ThreadWaiter:
    """A call that waits, without a thread: the test decides when it looks and when it leaves."""
    waiter = embedded._ThreadWaiter()
    assert not bench.local.start(words or ["GETJOB", "TIMEOUT", 1000, "FROM", "q"], waiter)
    assert not bench.local.look(waiter)
    return waiter


def test_leaving_when_the_own_timeout_is_due_strands_nobody(bench: Bench) -> None:
    waiters = [enter(bench) for _ in range(3)]
    bench.clock.ms += 1000
    bench.local.leave(waiters[1], give_back)
    for waiter in (waiters[0], waiters[2]):
        assert waiter._event.is_set() and bench.local.look(waiter) and waiter.reply is None
    assert not bench.local._waiters and bench.blocked() == 0


@pytest.mark.parametrize("retry", [0, 30])
def test_a_job_that_becomes_due_as_its_taker_leaves_is_not_handed_out(bench: Bench, retry: int) -> None:
    job_id = bench.queue.add("q", "precious", delay=1, retry=retry)
    waiter = enter(bench, "GETJOB", "FROM", "q")
    bench.clock.ms += 1000
    bench.local.leave(waiter, give_back)
    job = bench.queue.try_next("q")
    assert job is not None and (job.id, job.nacks) == (job_id, 0)


def test_a_job_due_goes_to_the_next_in_line_when_the_first_leaves(bench: Bench) -> None:
    job_id = bench.queue.add("q", "precious", delay=1, retry=0)
    first, second = (enter(bench, "GETJOB", "FROM", "q") for _ in range(2))
    bench.clock.ms += 1000
    bench.local.leave(first, give_back)
    assert bench.local.look(second) and give_back(second.reply) == ["RELEASE", job_id.encode()]


def test_a_job_that_had_come_goes_to_another_who_waits(bench: Bench) -> None:
    first = enter(bench, "GETJOB", "FROM", "q")
    job_id = bench.queue.add("q", "b", retry=30)
    second = enter(bench, "GETJOB", "FROM", "q")
    bench.local.leave(first, give_back)
    assert bench.local.look(second) and give_back(second.reply) == ["RELEASE", job_id.encode()]


def test_a_job_is_given_back_even_in_a_pause(bench: Bench) -> None:
    waiter = enter(bench, "GETJOB", "FROM", "q")
    bench.queue.add("q", "b", retry=30)
    bench.queue.call("CLIENT", "PAUSE", 1000)
    bench.local.leave(waiter, give_back)
    bench.advance(1)
    assert bench.queue.length("q") == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_what_ended_the_wait_is_what_the_caller_sees(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def sleep(self: object) -> None:
        bench.clock.ms += 1000
        raise kind

    monkeypatch.setattr(embedded._ThreadWaiter, "sleep", sleep)
    with pytest.raises(kind):
        bench.queue.next("q", timeout=1)
    assert bench.blocked() == 0


def test_an_interrupt_while_answers_are_passed_on_loses_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters = [enter(bench) for _ in range(3)]
    bench.clock.ms += 1000
    pass_on = Local._pass_on

    def interrupted(*args: Any) -> None:
        monkeypatch.setattr(Local, "_pass_on", pass_on)
        raise KeyboardInterrupt

    monkeypatch.setattr(Local, "_pass_on", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.local.look(waiters[0])
    bench.local.leave(waiters[0], give_back)
    assert [bench.local.look(waiter) for waiter in waiters[1:]] == [True, True]


def test_an_interrupt_in_the_middle_of_a_command_leaves_no_answer_for_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has handed a job out, and the interrupt comes before its answer was read."""
    bench.queue.add("q", "b", retry=30)

    class Interrupting:
        def __getattr__(self, name: str) -> Any:
            return getattr(node, name)

        def execute(self, *args: Any) -> None:
            monkeypatch.setattr(bench.local, "_node", node)
            node.execute(*args)
            raise KeyboardInterrupt

    node = bench.local._node
    monkeypatch.setattr(bench.local, "_node", Interrupting())
    with pytest.raises(KeyboardInterrupt):
        bench.queue.next("q")
    assert bench.queue.call("ECHO", "mine") == b"mine"
    job = bench.queue.try_next("q")
    assert job is not None and job.nacks == 0


@pytest.mark.parametrize("name", ["port", "requirepass", "loglevel", "slowlog-max-len"])
def test_a_setting_without_effect_is_refused(name: str) -> None:
    with pytest.raises(errors.BadRequest, match=f"{name} has no effect .* maxmemory, maxmemory-policy"):
        embedded.open_memory({name: "3"})


def test_settings_with_effect() -> None:
    settings = dict(zip(embedded.SETTINGS, ("10mb", "noeviction", "10", "yes"), strict=True))
    with embedded.open_memory(settings) as q, pytest.raises(errors.BadRequest):
        q.add("q", "longer than ten bytes")
    with pytest.raises(errors.BadRequest, match="maxmemory: 'lots' is not a size"):
        embedded.open_memory({"maxmemory": "lots"})


# -- the async face ------------------------------------------------------------------------------------------


async def blocked(q: AsyncQueue, count: int) -> None:
    """Until so many tasks wait in queue q."""
    while True:
        stats = await q.stats("q")
        if stats is not None and stats.blocked == count:
            return
        await asyncio.sleep(0)


def test_tasks_wait_and_are_served() -> None:
    async def main() -> None:
        async with embedded.open_memory_async() as q:
            tasks = [asyncio.create_task(q.next("q", timeout=30)) for _ in range(5)]
            await blocked(q, 5)
            ids = await q.add_many("q", ["a"] * 5)
            assert [job.id for job in await asyncio.gather(*tasks)] == ids
            with pytest.raises(errors.Empty):
                await q.next("q", timeout=0.01)

    asyncio.run(main())


def test_many_tasks_each_with_its_own_patience() -> None:
    async def main() -> None:
        async with embedded.open_memory_async() as q:
            waits = (q.try_next("q", timeout=0.001 * (1 + n % 7)) for n in range(50))
            assert await asyncio.gather(*waits) == [None] * 50

    asyncio.run(main())


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with embedded.open_memory_async() as q:
            task = asyncio.create_task(q.next("q"))
            other = asyncio.create_task(q.next("q", timeout=30))
            await blocked(q, 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await blocked(q, 1)
            job_id = await q.add("q", "b")
            assert (await other).id == job_id
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(q.next("q"), 0.01)
            await blocked(q, 0)

    asyncio.run(main())


def test_a_task_cancelled_in_the_moment_of_delivery_gives_the_job_back() -> None:
    async def main() -> None:
        async with embedded.open_memory_async() as q:
            task = asyncio.create_task(q.next("q"))
            await blocked(q, 1)
            await q.add("q", "b")  # The waiter has its answer, its task has not run yet.
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            job = await q.try_next("q")
            assert job is not None and job.nacks == 0

    asyncio.run(main())


def test_tasks_cancelled_when_time_is_up() -> None:
    """The clock is by hand: at the moment of cancelling, every timeout and a delayed job are due."""

    async def main() -> None:
        clock = Clock()
        async with AsyncQueue(AsyncLoopback(Local(clock_ms=clock))) as q:
            job_id = await q.add("late", "precious", delay=1, retry=0)
            tasks = [asyncio.create_task(q.next(*names, timeout=1)) for names in (("q", "late"), ("q",))]
            await blocked(q, 2)
            clock.ms += 1000
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            with pytest.raises(errors.Empty):
                await asyncio.wait_for(tasks[1], 10)
            job = await q.try_next("late")
            assert job is not None and job.id == job_id

    asyncio.run(main())


def test_closing_wakes_tasks() -> None:
    async def main() -> None:
        q = embedded.open_memory_async()
        task = asyncio.create_task(q.next("q"))
        await blocked(q, 1)
        await q.close()
        with pytest.raises(errors.Closed):
            await task

    asyncio.run(main())


def test_a_busy_task_lets_others_run() -> None:
    """A loop of calls that never have to wait must not starve the event loop."""

    async def main() -> None:
        async with embedded.open_memory_async() as q:
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            deadline = time.monotonic() + 10
            while turns < 5:
                await q.length("q")
                assert time.monotonic() < deadline
            task.cancel()

    asyncio.run(main())


def test_a_thread_and_a_task_share_one_node() -> None:
    local = Local()
    threads_face = Queue(SyncLoopback(local))

    async def main() -> None:
        tasks_face = AsyncQueue(AsyncLoopback(local))
        waiting: asyncio.Task[AsyncJob] = asyncio.create_task(tasks_face.next("q"))
        await blocked(tasks_face, 1)
        job_id = await asyncio.to_thread(threads_face.add, "q", "b")
        assert (await waiting).id == job_id
        thread = asyncio.create_task(asyncio.to_thread(threads_face.next, "q"))
        await blocked(tasks_face, 1)
        job_id = await tasks_face.add("q", "b")
        assert (await thread).id == job_id

    asyncio.run(main())
    threads_face.close()


def test_a_loop_that_is_gone_does_not_hurt_those_who_add() -> None:
    """A loop was stopped with a task still waiting on it; adding from a thread must not raise."""
    local = Local()
    loop = asyncio.new_event_loop()
    q = AsyncQueue(AsyncLoopback(local))
    task = loop.create_task(q.next("q"))
    loop.run_until_complete(blocked(q, 1))
    adder = threading.Thread(target=Queue(SyncLoopback(local)).add, args=("q", "b"))
    loop.close()
    adder.start()
    adder.join(10)
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
