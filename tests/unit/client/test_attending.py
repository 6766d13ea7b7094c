"""A node that takes connections and answers nothing: noticed soon, passed over, and used again when it wakes.

The stub is stopped by SILENCE to everything, as SIGSTOP does it: the kernel still takes connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from holdfast.client import attending, errors
from holdfast.client.asks import give_back
from holdfast.client.manners import give_up_after, only_looks
from holdfast.client.pool import AsyncPool
from holdfast.client.queue import AsyncQueue
from holdfast.client.resp import Argv
from holdfast.client.target import Target

from .stub_node import SILENCE, Command, Stub
from .test_pool import GETJOB, running_stub

DOUBT_S = 0.1
SOON_S = 5.0
"""Far less than the answer_timeout of 30 s, and far more than it takes."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attending, "AGAIN_S", 0.02)


def stopped(argv: Command) -> bytes:
    return SILENCE


def named(name: bytes) -> Callable[[Command], bytes]:
    return lambda argv: b"*2\r\n:1\r\n$1\r\nx\r\n" if argv[0] == b"HELLO" else b"+%b\r\n" % name


def run(main: Callable[[Stub, Stub], Coroutine[Any, Any, None]]) -> None:
    """With two nodes, of which the first is stopped."""
    with running_stub() as first, running_stub() as second:
        first.answer, second.answer = stopped, named(b"second")
        began = time.monotonic()
        asyncio.run(main(first, second))
        assert time.monotonic() - began < SOON_S


def pool_of(*stubs: Stub, password: str = "", doubt_s: float | None = DOUBT_S) -> AsyncPool:
    return AsyncPool([Target(port=stub.port, password=password) for stub in stubs], doubt_s)


@pytest.mark.parametrize("argv", [["SHOW", "x"], [b"CLUSTER", "NODES"]])
def test_what_may_have_been_done_is_unknown_and_the_next_call_goes_elsewhere(argv: Sequence[str | bytes]) -> None:
    """Over a shared connection as over one of its own. Nobody sends it a second time but the caller."""

    async def main(first: Stub, second: Stub) -> None:
        pool = pool_of(first, second)
        with pytest.raises(errors.NoAnswer):
            await pool.call(argv)
        assert second.seen == []
        for _ in range(20):
            assert await pool.call(argv) == b"second"
        assert [words for words in first.seen if words[0] != b"PING"] == [[str(word).encode() if isinstance(word, str)
                                                                         else word for word in argv]]
        await pool.close()

    run(main)


def test_it_is_so_for_everybody_who_knows_of_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody needs to ask for it; without it, it would take 30 s."""
    monkeypatch.setattr(attending, "DOUBT_S", DOUBT_S)

    async def main(first: Stub, second: Stub) -> None:
        pool = pool_of(first, second, doubt_s=None)
        with pytest.raises(errors.NoAnswer):
            await pool.call(["SHOW", "x"])
        assert await pool.call(["SHOW", "x"]) == b"second"
        await pool.close()

    run(main)


@pytest.mark.parametrize("count, answer_timeout", [(1, 0.8), (2, None)])
def test_who_has_nowhere_to_go_or_all_the_time_waits(
    monkeypatch: pytest.MonkeyPatch, count: int, answer_timeout: float | None
) -> None:
    monkeypatch.setattr(attending, "DOUBT_S", DOUBT_S)

    async def main(first: Stub, second: Stub) -> None:
        targets = [Target(port=stub.port, answer_timeout=answer_timeout) for stub in (first, second)]
        pool = AsyncPool(targets[:count])
        first.answer = lambda argv: SILENCE if argv[0] == b"SHOW" else b"+OK\r\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(6 * DOUBT_S):
                await pool.call(["SHOW", "x"])
        assert b"PING" not in first.names() and second.seen == []
        await pool.close()

    run(main)


def test_a_caller_who_gives_up_first_is_not_told_of_silence() -> None:
    """The two may come together: who was cancelled from outside is cancelled."""

    async def main(first: Stub, second: Stub) -> None:
        pool = pool_of(first, second)
        call = asyncio.create_task(pool.call(GETJOB, 0.5, give_back))
        while pool.nodes.order()[0].port == first.port:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        asked = asyncio.create_task(pool.call(["SHOW", "x"]))
        assert await asked == b"second" and asked.cancelling() == 0
        await pool.close()

    run(main)


def test_a_question_is_asked_again_elsewhere_and_an_add_is_not() -> None:
    async def main(first: Stub, second: Stub) -> None:
        queue = AsyncQueue(pool_of(first, second))
        assert await queue.call("CLUSTER", "NODES") == b"second"
        await queue.close()
        queue = AsyncQueue(pool_of(first, second))
        with pytest.raises(errors.NoAnswer):
            await queue.add("q", "body", timeout=0.2)
        assert b"ADDJOB" not in second.names()
        assert await queue.add("q", "body", timeout=0.2) == "second"
        assert first.names().count(b"ADDJOB") == 1
        await queue.close()

    run(main)


def test_a_node_that_wakes_is_used_again() -> None:
    """It answers the PING that it was asked while it slept; nobody has to try it with a call of his own."""

    async def main(first: Stub, second: Stub) -> None:
        pool = pool_of(first, second)
        with pytest.raises(errors.NoAnswer):
            await pool.call(["SHOW", "x"])
        assert await pool.call(["SHOW", "x"]) == b"second"
        first.answer = named(b"first")
        first.say(b"+PONG\r\n")  # to what it was asked before
        while await pool.call(["SHOW", "x"]) != b"first":
            await asyncio.sleep(0.01)
        await pool.close()

    run(main)


def test_a_call_that_waits_has_its_time_and_others_hear_of_the_silence_before() -> None:
    async def main(first: Stub, second: Stub) -> None:
        pool = pool_of(first, second)
        began = time.monotonic()
        waiting = asyncio.create_task(pool.call(GETJOB, 1.0, give_back))
        while pool.nodes.order()[0].port == first.port:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        assert await pool.call(["SHOW", "x"]) == b"second"
        with pytest.raises(errors.NoAnswer):
            await waiting
        assert time.monotonic() - began >= 1.0
        await pool.close()

    run(main)


def test_one_that_may_wait_for_ever_ends_with_the_patience_for_silence() -> None:
    async def main(first: Stub, second: Stub) -> None:
        targets = [Target(port=stub.port, answer_timeout=0.5) for stub in (first, second)]
        pool = AsyncPool(targets, DOUBT_S)
        with pytest.raises(errors.NoAnswer):
            await pool.call(GETJOB, None, give_back)
        await pool.close()

    run(main)


def test_a_node_that_only_takes_its_time_is_waited_for() -> None:
    """It answers PING, so it is there: a job that it looks for far away, or a worker that waits, is no silence."""

    async def main(first: Stub, second: Stub) -> None:
        first.answer = lambda argv: b"+PONG\r\n" if argv[0] in (b"PING", b"HELLO") else SILENCE
        pool = pool_of(first, second)
        asked = [asyncio.create_task(pool.call(["EXPLAIN", "x"])), asyncio.create_task(pool.call(GETJOB, None))]
        await asyncio.to_thread(first.wait_for, lambda s: s.names().count(b"PING") >= 3)
        assert not any(task.done() for task in asked)
        assert pool.nodes.order()[0].port == first.port
        first.say(b"+late\r\n")
        assert await asyncio.gather(*asked) == [b"late", b"late"]
        await pool.close()

    run(main)


def test_nothing_was_sent_where_not_even_the_login_was_answered() -> None:
    """So the call itself goes on to the next node, an add as well; and a hundred callers wait as long as one."""

    async def main(first: Stub, second: Stub) -> None:
        pool = pool_of(first, second, password="secret")
        calls = [pool.call(["ADDJOB", "q", "b", 0], 0.0) for _ in range(100)]
        assert set(await asyncio.gather(*calls)) == {b"second"}
        assert set(first.names()) == {b"AUTH"}
        await pool.close()

    run(main)


def test_where_all_are_silent_that_is_no_reason_not_to_ask() -> None:
    async def main(first: Stub, second: Stub) -> None:
        second.answer = stopped
        pool = pool_of(first, second)
        for _ in range(3):
            with pytest.raises(errors.NoAnswer):
                await pool.call(["SHOW", "x"])
        assert second.names().count(b"SHOW") >= 1
        first.answer = named(b"first")
        first.say(b"+late\r\n")
        while True:
            try:
                assert await pool.call(["SHOW", "x"]) == b"first"
                break
            except errors.Unknown:
                pass
        await pool.close()

    run(main)


@pytest.mark.parametrize(("commands", "patience", "limit"), [
    ([["SHOW", "x"]], 0.0, 0.0), ([["GETJOB", "FROM", "q"]], 5.0, 5.0), ([["GETJOB", "FROM", "q"]], None, None),
    ([["QFLUSH", "q"]], 0.0, 30.0), ([[b"dead", "LIST"]], 0.0, 0.0), ([["DEAD", "RETRY", "QUEUE", "q"]], 0.0, 30.0),
    ([["SHOW", "x"], ["QFLUSH", "q"]], 0.0, 30.0),
])
def test_what_may_keep_a_node_busy_has_more_time(
    commands: list[Argv], patience: float | None, limit: float | None
) -> None:
    assert give_up_after(commands, patience, Target()) == limit


def test_what_only_looks() -> None:
    assert only_looks(["PING"]) and only_looks([b"queue", "get", "q"]) and only_looks(["CLUSTER", b"QSTAT", "*"])
    assert not any(map(only_looks, (["QUEUE", "SET", "q", "maxlen", 1], ["CLUSTER"], ["GETJOB", "NOHANG"], ["QFLUSH"])))
