"""No call waits for another's answer, for threads and for tasks: what waits has a connection of its own.

The stub holds an answer back by SILENCE, as a node does that waits for another one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.client import errors, manners, pool
from holdfast.client.manners import may_wait
from holdfast.client.pool import AsyncPool, Pool
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.resp import Argv
from holdfast.client.target import Target
from holdfast.client.values import AddedId

from .stub_node import SILENCE, Command, Stub
from .test_pool import running_stub

SOON_S = 2.0
"""Far less than the answers that never come would take."""
ID = "DI" + "0" * 44 + "SQ"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as stub:
        stub.answer = holds_back
        yield stub


def holds_back(argv: Command) -> bytes:
    """An add with a key waits, and so does one that is for the queue `slow`."""
    if argv[0] == b"ADDJOB":
        return SILENCE if b"UNIQUE" in argv or argv[1] == b"slow" else b"+%b\r\n" % ID.encode()
    return SILENCE if argv[0] in (b"EXPLAIN", b"SHOW") else b":1\r\n"


@pytest.mark.parametrize(
    ("argv", "may"),
    [
        (["ADDJOB", "q", "b", 5000], False),
        (["ADDJOB", "q", "UNIQUE", 5000, "RETRY", 1], False),
        (["ADDJOB", "q", "b", 5000, "UNIQUE", "k"], True),
        (["ADDJOB", "q", "b", 5000, "GROUP", "g"], True),
        (["ADDJOB", "q", "b", 5000, "REPLICATE", 3], True),
        (["ADDJOBS", "q", 5000, 2, "GROUP", "UNIQUE"], False),
        (["ADDJOBS", "q", 5000, 2, "a", "b", "GROUP", "g"], True),
        (["EXPLAIN", ID], True),
        (["WORKER", "LIST"], True),
        (["WORKER", "BEAT", "w", 1000], False),
        (["ACKJOB", ID], False),
    ],
)
def test_which_calls_may_wait_for_another_node(argv: Argv, may: bool) -> None:
    assert may_wait(argv) is may


def wait_until_late(channel: object) -> None:
    assert isinstance(channel, Pool | AsyncPool)
    while any(line.is_free() for lines in channel._lines.values() for line in lines):
        time.sleep(0.001)


def in_threads(*calls: object) -> list[threading.Thread]:
    """Calls that do not come back before the queue is closed."""

    def run(call: object) -> None:
        with pytest.raises((errors.Unknown, errors.Closed)):
            call()  # type: ignore[operator]

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def test_threads_go_on_beside_keyed_adds_that_wait(stub: Stub) -> None:
    queue = Queue(Pool([Target(port=stub.port)]))
    waiting = in_threads(*(lambda key=key: queue.add("q", "b", unique=f"k{key}") for key in range(5)))
    stub.wait_for(lambda s: s.names().count(b"ADDJOB") == 5)
    began = time.monotonic()
    for _ in range(20):
        assert queue.add("q", "b") == ID
        assert queue.done(ID) == 1
    assert time.monotonic() - began < SOON_S
    queue.close()
    for thread in waiting:
        thread.join(10)


def test_tasks_go_on_beside_keyed_adds_that_wait(stub: Stub) -> None:
    async def main() -> None:
        queue = AsyncQueue(AsyncPool([Target(port=stub.port)]))
        waiting = [asyncio.ensure_future(queue.add("q", "b", unique=f"k{key}")) for key in range(5)]
        while stub.names().count(b"ADDJOB") < 5:
            await asyncio.sleep(0)
        began = time.monotonic()
        for _ in range(20):
            assert await queue.add("q", "b") == ID
            assert await queue.done(ID) == 1
        assert time.monotonic() - began < SOON_S
        await queue.close()
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, errors.Error)

    asyncio.run(main())


def test_a_late_answer_does_not_hold_up_the_calls_of_other_threads(stub: Stub) -> None:
    """A plain add waits, nobody knows why: those that come after it go over the next connection."""
    queue = Queue(Pool([Target(port=stub.port)]))
    waiting = in_threads(lambda: queue.add("slow", "b"), lambda: queue.show(ID))
    stub.wait_for(lambda s: len(s.seen) == 2)
    wait_until_late(queue.channel)
    began = time.monotonic()
    for _ in range(5):
        assert queue.add("q", "b") == ID
        assert queue.done(ID) == 1
    assert time.monotonic() - began < SOON_S
    assert stub.connections == 4, "one more of each kind, and no more than that"
    queue.close()
    for thread in waiting:
        thread.join(10)


def test_a_late_answer_does_not_hold_up_the_calls_of_other_tasks(stub: Stub) -> None:
    async def main() -> None:
        queue = AsyncQueue(AsyncPool([Target(port=stub.port)]))
        waiting = [asyncio.ensure_future(queue.add("slow", "b")), asyncio.ensure_future(queue.show(ID))]
        while len(stub.seen) < 2:
            await asyncio.sleep(0)
        wait_until_late(queue.channel)
        began = time.monotonic()
        for _ in range(5):
            assert await queue.add("q", "b") == ID
            assert await queue.done(ID) == 1
        assert time.monotonic() - began < SOON_S
        assert stub.connections == 4, "one more of each kind, and no more than that"
        await queue.close()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(main())


def test_late_answers_on_all_connections_are_the_end_of_new_ones(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LINES_MAX", 2)
    monkeypatch.setattr("holdfast.client.shared.LATE_S", 0.0)
    queue = Queue(Pool([Target(port=stub.port)]))
    waiting: list[threading.Thread] = []
    for number in range(6):
        waiting += in_threads(lambda: queue.show(ID))
        if number < 2:
            stub.wait_for(lambda s, number=number: len(s.seen) == number + 1)
    stub.wait_for(lambda s: len(s.seen) == 6)
    assert stub.connections == 2
    queue.close()
    for thread in waiting:
        thread.join(10)


def test_a_burst_of_keyed_adds_does_not_open_a_connection_each(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "ASIDE_MAX", 3)
    stub.answer = lambda argv: b"+%b\r\n" % ID.encode()

    async def main() -> None:
        queue = AsyncQueue(AsyncPool([Target(port=stub.port)]))
        added = await asyncio.gather(*(queue.add("q", "b", unique=str(number)) for number in range(200)))
        assert added == [ID] * 200
        assert stub.connections == 5, "three of their own, and the two that calls share"
        await queue.close()

    asyncio.run(main())


def test_an_add_at_a_stopped_node_is_given_up_on_after_seconds_not_after_its_own_timeout() -> None:
    target = Target()
    add: Argv = ["ADDJOB", "q", "b", 60_000]
    assert manners.doubt_after((add,), 60.0, target) == manners.DOUBT_S
    assert manners.give_up_after((add,), 60.0, target) == 0.0
    assert manners.doubt_after((["GETJOB", "FROM", "q"],), 60.0, target) == 60.0 + manners.DOUBT_S


def test_the_id_of_an_added_job_knows_how_many_copies_there_are(stub: Stub) -> None:
    stub.answer = lambda argv: b"*2\r\n$48\r\n%b\r\n:2\r\n" % ID.encode() if argv[0] == b"ADDJOB" else (
        b"*2\r\n*2\r\n+%b\r\n+%b\r\n:3\r\n" % (ID.encode(), ID.encode())
    )
    queue = Queue(Pool([Target(port=stub.port)]))
    added = queue.add("q", "b", say_copies=True)
    assert isinstance(added, AddedId) and (added, added.copies) == (ID, 2)
    many = queue.add_many("q", ["a", "b"], say_copies=True)
    assert many == [ID, ID] and [each.copies for each in many if isinstance(each, AddedId)] == [3, 3]
    assert [b"SAYCOPIES" in argv for argv in stub.seen if argv[0].startswith(b"ADDJOB")] == [True, True]
    stub.answer = lambda argv: b"+%b\r\n" % ID.encode()
    with pytest.raises(errors.BadReply):
        queue.add("q", "b", say_copies=True)
    queue.close()
