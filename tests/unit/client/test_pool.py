"""Many callers over few connections: sharing, waiting, closing, reconnecting, the second node of a list."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.client import errors
from holdfast.client import pool as module
from holdfast.client.asks import give_back
from holdfast.client.nodes import Nodes
from holdfast.client.pool import AsyncPool, Pool
from holdfast.client.target import Target

from .stub_node import HANG_UP, SILENCE, Command, Stub, job_reply

GETJOB = ["GETJOB", "FROM", "q"]


@pytest.fixture
def nobody() -> Target:
    """An address where nobody listens."""
    unused = socket.create_server(("127.0.0.1", 0))
    port = unused.getsockname()[1]
    unused.close()
    return Target(port=port)


@contextlib.contextmanager
def running_stub() -> Iterator[Stub]:
    node = Stub(socket.create_server(("127.0.0.1", 0)))
    yield node
    with contextlib.suppress(OSError):  # A test may have stopped it.
        node.stop()


def only_getjob_waits(argv: Command) -> bytes:
    return SILENCE if argv[0] == b"GETJOB" else b"+OK\r\n"


def test_threads_share_connections_and_get_their_own_answers(stub: Stub) -> None:
    stub.answer = lambda argv: b"+%b\r\n" % argv[-1]
    pool = Pool([Target(port=stub.port)])
    with ThreadPoolExecutor(8) as threads:
        numbers = range(400)
        answers = list(threads.map(lambda n: pool.call(["SHOW", n]), numbers))
    assert answers == [b"%d" % n for n in numbers]
    assert stub.connections <= 2, "eight threads share one, and where an answer is late a second one"
    pool.close()


def test_acks_do_not_wait_behind_an_add(stub: Stub) -> None:
    """An add may have to wait for copies, and answers come in order: so they have a connection of their own."""
    stub.answer = lambda argv: SILENCE if argv[0] == b"ADDJOB" else b":1\r\n"
    pool = Pool([Target(port=stub.port)])

    def add() -> None:
        with pytest.raises(errors.Closed):
            pool.call(["ADDJOB", "q", "b", 5000], 5.0)

    thread = threading.Thread(target=add)
    thread.start()
    stub.wait_for(lambda s: b"ADDJOB" in s.names())
    assert pool.call(["ACKJOB", "x"]) == 1
    pool.close()
    thread.join(10)
    assert not thread.is_alive()


def test_everybody_in_the_line_hears_that_the_connection_broke(stub: Stub) -> None:
    stub.answer = lambda argv: b"+OK\r\n" if argv[0] in (b"PING", b"HELLO") else SILENCE
    pool = Pool([Target(port=stub.port)])
    pool.call(["PING"])
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            pool.call(["SHOW", "x"])
        except errors.Error as error:
            raised.append(error)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    stub.wait_for(lambda s: s.names().count(b"SHOW") == 5)
    stub.hang_up()
    for thread in threads:
        thread.join(10)
    assert [type(each) for each in raised] == [errors.ConnectionLost] * 5
    pool.close()


def test_many_commands_share_a_round_trip(stub: Stub) -> None:
    stub.answer = lambda argv: b"+%b\r\n" % argv[-1]
    pool = Pool([Target(port=stub.port)])
    assert pool.call_many([["SHOW", n] for n in range(3000)]) == [b"%d" % n for n in range(3000)]
    assert stub.connections == 1
    pool.close()


def test_a_node_that_is_leaving_is_passed_over() -> None:
    """It says so before it has done anything, so asking the next one is safe."""
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(running_stub()) for _ in range(2))
        first.answer = lambda argv: b"-LEAVING soon\r\n"
        pool = Pool([Target(port=first.port), Target(port=second.port)])
        assert pool.call(["PING"]) == b"OK"
        assert pool.call(["PING"]) == b"OK"
        assert first.names() == [b"PING", b"PING"]  # one to see that it is there, and ours; then it rests
        pool.close()


@pytest.mark.parametrize("patience", [0.0, None])
def test_nodes_are_learned_from_the_first_and_used_when_it_dies(patience: float | None) -> None:
    """Whether the first call shares a connection or, as one in its own words, has one to itself."""
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(running_stub()) for _ in range(2))
        hello = b"*3\r\n:1\r\n$8\r\naaaaaaaa\r\n*4\r\n$8\r\nbbbbbbbb\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n$1\r\n1\r\n" % (
            len(str(second.port)), second.port,
        )
        first.answer = lambda argv: hello if argv[0] == b"HELLO" else b"+first\r\n"
        second.answer = lambda argv: b"+second\r\n"
        pool = Pool([Target(port=first.port)])
        assert pool.call(["PING"], patience) == b"first"
        assert pool.call(["SHOW", "x"], near="bbbbbbbb") == b"second"
        first.stop()
        with contextlib.suppress(errors.Unknown):
            pool.call(["PING"])
        assert pool.call(["PING"]) == b"second"
        pool.close()


def test_jobs_are_fetched_where_most_of_them_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes((Target(port=1), Target(port=2)))
    nodes.learned(Target(port=1), [1, b"aaaaaaaa", [b"bbbbbbbb", b"127.0.0.1", b"2", b"1"]])
    assert [each.port for each in nodes.order()] == [1, 2]
    monkeypatch.setattr("holdfast.client.nodes.FAVOUR_S", 0.0)
    entry = [b"q", b"DIbbbbbbbb", b""]
    assert not nodes.saw([entry] * 99) and nodes.saw([entry])
    assert [each.port for each in nodes.order()] == [2, 1]
    nodes.failed(Target(port=2))
    assert [each.port for each in nodes.order()] == [1, 2]  # it rests
    nodes.worked(Target(port=2))
    assert [each.port for each in nodes.order()] == [2, 1]


def test_who_there_is_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that joins later is found, too."""
    nodes = Nodes((Target(port=1),))
    assert not nodes.is_known(Target(port=1))
    nodes.learned(Target(port=1), [1, b"aaaaaaaa", [b"bbbbbbbb", b"127.0.0.1", b"2", b"1"]])
    assert nodes.is_known(Target(port=1))
    monkeypatch.setattr("holdfast.client.nodes.FRESH_S", 0.0)
    nodes.learned(Target(port=1), [1, b"aaaaaaaa", [b"cccccccc", b"127.0.0.1", b"3", b"1"]])
    assert not nodes.is_known(Target(port=1)) and [each.port for each in nodes.targets()] == [1, 2, 3]


def test_a_call_that_waits_holds_nobody_up_and_closing_ends_it(stub: Stub) -> None:
    stub.answer = only_getjob_waits
    pool = Pool([Target(port=stub.port)])
    raised: list[errors.Error] = []

    def wait() -> None:
        try:
            pool.call(GETJOB, None, give_back)
        except errors.Error as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    stub.wait_for(lambda s: b"GETJOB" in s.names())
    assert pool.call(["PING"]) == b"OK"
    pool.close()
    thread.join(10)
    assert type(raised[0]) is errors.Closed
    with pytest.raises(errors.Closed):
        pool.call(["PING"])


def test_a_connection_that_died_while_idle_is_replaced_unnoticed(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node was restarted between two calls. Nothing was under way, so nobody has to hear of it."""
    pool = Pool([Target(port=stub.port)])
    pool.call(["PING"])
    stub.hang_up()
    ((line,),) = pool._lines.values()
    monkeypatch.setattr("holdfast.client.shared.IDLE_S", -1.0)
    while line.is_good():  # The news travels through the kernel.
        pass
    assert pool.call(["PING"]) == b"OK"
    assert stub.connections == 2
    pool.close()


def test_a_waiting_connection_that_died_while_idle_is_replaced_unnoticed(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_S", -1.0)
    pool = Pool([Target(port=stub.port)])
    pool.call(GETJOB, 0, give_back)
    stub.hang_up()
    (connection,) = pool._idle[Target(port=stub.port)]
    while not connection.is_stale():
        pass
    assert pool.call(GETJOB, 0, give_back) == b"OK"
    assert stub.connections == 2
    pool.close()


def test_a_call_that_was_under_way_is_not_repeated(stub: Stub) -> None:
    stub.answer = lambda argv: HANG_UP
    pool = Pool([Target(port=stub.port)])
    with pytest.raises(errors.ConnectionLost):
        pool.call(["ADDJOB", "q", "b", 0])
    assert stub.names() == [b"ADDJOB"]
    stub.answer = lambda argv: b"+OK\r\n"
    assert pool.call(["PING"]) == b"OK"
    pool.close()


def test_the_first_node_that_answers_is_used(stub: Stub, nobody: Target) -> None:
    pool = Pool([nobody, Target(port=stub.port)])
    assert pool.call(["PING"]) == b"OK"
    pool.close()
    with pytest.raises(errors.Unreachable, match=r"no node can be reached: .*; "):
        Pool([nobody, nobody]).call(["PING"])


def test_places_to_wait_are_bounded(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 0)
    pool = Pool([Target(port=stub.port)])
    with pytest.raises(errors.TooManyClients):
        pool.call(GETJOB, None, give_back)
    assert pool.call(GETJOB, 0, give_back) == b"OK"
    pool.close()

    async def main() -> None:
        async_pool = AsyncPool([Target(port=stub.port)])
        with pytest.raises(errors.TooManyClients):
            await async_pool.call(GETJOB, None, give_back)
        await async_pool.close()

    asyncio.run(main())


def test_a_forked_child_makes_its_own_connections(stub: Stub) -> None:
    pool = Pool([Target(port=stub.port)])
    pool.call(["PING"])
    ((parents,),) = pool._lines.values()
    child = os.fork()
    if child == 0:
        is_well = pool.call(["PING"]) == b"OK" and [parents] not in pool._lines.values()
        os._exit(0 if is_well else 1)
    assert os.waitpid(child, 0)[1] == 0 and stub.connections == 2
    assert pool.call(["PING"]) == b"OK" and list(pool._lines.values()) == [[parents]]
    pool.close()


def test_tasks_share_one_connection(stub: Stub) -> None:
    async def main() -> None:
        stub.answer = lambda argv: b"+%b\r\n" % argv[-1]
        pool = AsyncPool([Target(port=stub.port)])
        answers = await asyncio.gather(*(pool.call(["SHOW", n]) for n in range(500)))
        assert answers == [b"%d" % n for n in range(500)]
        assert stub.connections == 1
        await pool.close()
        with pytest.raises(errors.Closed):
            await pool.call(["PING"])

    asyncio.run(main())


def test_async_closing_ends_those_who_wait(stub: Stub) -> None:
    async def main() -> None:
        stub.answer = only_getjob_waits
        pool = AsyncPool([Target(port=stub.port)])
        task = asyncio.create_task(pool.call(GETJOB, None, give_back))
        await asyncio.to_thread(stub.wait_for, lambda s: b"GETJOB" in s.names())
        assert await pool.call(["PING"]) == b"OK"
        await pool.close()
        with pytest.raises(errors.Closed):
            await task

    asyncio.run(main())


def test_async_dead_connections_and_dead_nodes_are_passed_over(stub: Stub, nobody: Target) -> None:
    async def main() -> None:
        pool = AsyncPool([nobody, Target(port=stub.port)])
        await pool.call(["PING"])
        stub.hang_up()
        ((line,),) = pool._lines.values()
        while line.is_good():
            await asyncio.sleep(0)
        assert await pool.call(["PING"]) == b"OK"
        await pool.close()
        with pytest.raises(errors.Unreachable):
            await AsyncPool([nobody, nobody]).call(["PING"])

    asyncio.run(main())


def test_closing_waits_until_a_cancelled_caller_has_given_its_job_back(stub: Stub) -> None:
    async def main() -> None:
        stub.answer = lambda argv: SILENCE if argv[0] == b"GETJOB" else b":1\r\n"
        stub.at_end = job_reply("ID9")
        pool = AsyncPool([Target(port=stub.port)])
        task = asyncio.create_task(pool.call(GETJOB, None, give_back))
        await asyncio.to_thread(stub.wait_for, lambda s: len(s.seen) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await pool.close()
        assert stub.seen[1:] == [[b"RELEASE", b"ID9"]]

    asyncio.run(main())


SPECIAL: list[list[str | bytes | int]] = [
    ["MONITOR"], ["quit"], ["AUTH", "pw"], ["HELLO", 3], [b"hello", "2"], ["CLIENT", "REPLY", "OFF"],
    ["client", b"reply", "skip"], ["CLIENT", "SETNAME", "n"], ["CLIENT", "SETINFO", "lib-name", "n"],
]  # fmt: skip


@pytest.mark.parametrize("words", SPECIAL)
def test_what_changes_a_shared_connection_is_not_sent(stub: Stub, words: list[str | bytes | int]) -> None:
    pool = Pool([Target(port=stub.port)])
    with pytest.raises(errors.BadRequest, match="changes the connection"):
        pool.call(words)
    pool.close()

    async def main() -> None:
        async_pool = AsyncPool([Target(port=stub.port)])
        with pytest.raises(errors.BadRequest, match="changes the connection"):
            await async_pool.call(words)
        await async_pool.close()

    asyncio.run(main())
    assert stub.seen == []


def test_what_only_looks_at_a_connection_is_sent(stub: Stub) -> None:
    pool = Pool([Target(port=stub.port)])
    for words in (["HELLO"], ["CLIENT", "ID"], ["CLIENT"], ["CLIENT", "LIST"]):
        assert pool.call(words) == b"OK"
    pool.close()


def test_an_interrupted_caller_does_not_leave_others_waiting(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C hits the thread that reads for all. Where it was in the stream nobody knows: the others are told so, the
    next call makes a new connection."""
    stub.answer = lambda argv: b"+OK\r\n" if argv[0] in (b"PING", b"HELLO") else SILENCE
    pool = Pool([Target(port=stub.port)])
    pool.call(["PING"])
    ((line,),) = pool._lines.values()
    raised: list[BaseException] = []

    def ask(words: list[str]) -> None:
        try:
            pool.call(words)
        except BaseException as error:
            raised.append(error)

    first = threading.Thread(target=ask, args=(["SHOW", "reads"],))
    first.start()
    stub.wait_for(lambda s: s.names().count(b"SHOW") == 1)
    while not (readers := [ticket for ticket in line._line if ticket.is_reader]):
        pass
    (reader,) = readers
    second = threading.Thread(target=ask, args=(["SHOW", "waits"],))
    second.start()
    stub.wait_for(lambda s: s.names().count(b"SHOW") == 2)
    line._leave(reader, False)
    for thread in (first, second):
        thread.join(10)
        assert not thread.is_alive()
    assert [type(each) for each in raised] == [errors.ConnectionLost] * 2
    assert pool.call(["PING"]) == b"OK"
    pool.close()


def test_a_thousand_calls_of_many_threads_each_get_their_own_answer(stub: Stub) -> None:
    stub.answer = lambda argv: b"+%b\r\n" % argv[-1]
    pool = Pool([Target(port=stub.port)])
    wrong: list[object] = []

    def ask(name: int) -> None:
        for number in range(50):
            words = [["SHOW", f"{name}-{number}-{i}"] for i in range(name % 3 + 1)]
            answers = pool.call_many(words) if len(words) > 1 else [pool.call(words[0])]
            if answers != [each[1].encode() for each in words]:
                wrong.append((words, answers))

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not wrong and stub.connections == 1
    pool.close()


def test_an_answer_that_never_comes_is_unknown_and_names_its_jobs(stub: Stub) -> None:
    from holdfast.client.queue import Queue

    stub.answer = lambda argv: b"+OK\r\n" if argv[0] == b"PING" else SILENCE
    with Queue(Pool([Target(port=stub.port, answer_timeout=0.2)])) as queue:
        with pytest.raises(errors.NoAnswer) as caught:
            queue.done("ID1", "ID2")
        assert caught.value.jobs == ("ID1", "ID2")
        assert stub.names() == [b"ACKJOB"]
        with pytest.raises(errors.NoAnswer):
            queue.show("ID1")
        assert stub.names().count(b"SHOW") == 2  # a question may be asked again
