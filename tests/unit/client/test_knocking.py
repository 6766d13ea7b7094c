"""Threads and a node that takes connections and answers nothing: noticed soon, passed over, used again when it wakes.

The stub is stopped by SILENCE to everything, as SIGSTOP does it: the kernel still takes connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from holdfast.client import errors, knocking, manners, pool, shared
from holdfast.client.asks import give_back
from holdfast.client.manners import doubt_after
from holdfast.client.pool import Pool
from holdfast.client.queue import Queue
from holdfast.client.resp import Argv
from holdfast.client.target import Target

from .stub_node import SILENCE, Command, Stub
from .test_attending import named, stopped
from .test_pool import GETJOB, running_stub

SOON_S = 5.0
"""Far less than the answer_timeout of 30 s, and far more than it takes."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (manners, shared):
        monkeypatch.setattr(module, "DOUBT_S", 0.1)
    for module in (knocking, pool):
        monkeypatch.setattr(module, "ANSWERS_S", 0.2)
    monkeypatch.setattr(pool, "SHARED_PATIENCE_S", 0.1)
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON_S


@pytest.fixture
def nodes() -> Iterator[tuple[Stub, Stub]]:
    with ExitStack() as stack:
        first, second = (stack.enter_context(running_stub()) for _ in range(2))
        first.answer, second.answer = named(b"first"), named(b"second")
        yield first, second


def pool_of(*stubs: Stub) -> Pool:
    return Pool([Target(port=stub.port) for stub in stubs])


@pytest.mark.parametrize("argv", [["SHOW", "x"], [b"CLUSTER", "NODES"], ["ADDJOB", "q", "b", 0]])
def test_a_node_that_answers_no_greeting_is_passed_over(nodes: tuple[Stub, Stub], argv: Argv) -> None:
    """Nothing was asked yet, so an add goes on to the next node, too; and many threads wait as long as one."""
    first, second = nodes
    first.answer = stopped
    pool = pool_of(first, second)
    with ThreadPoolExecutor(20) as threads:
        assert set(threads.map(lambda _: pool.call(argv), range(20))) == {b"second"}
    assert set(first.names()) == {b"PING"}
    pool.close()


def test_a_question_is_asked_again_elsewhere_and_an_add_is_not(nodes: tuple[Stub, Stub]) -> None:
    first, second = nodes
    for words in (["SHOW", "x"], ["CLUSTER", "NODES"]):
        queue = Queue(pool_of(first, second))
        first.answer = named(b"first")
        assert queue.call(*words) == b"first"
        first.answer = stopped
        assert queue.call(*words) == b"second"
        queue.close()
    first.answer = named(b"first")
    queue = Queue(pool_of(first, second))
    assert queue.add("q", "body", timeout=0.1) == "first"
    first.answer = stopped
    with pytest.raises(errors.NoAnswer):
        queue.add("q", "body", timeout=0.1)
    assert b"ADDJOB" not in second.names()
    assert queue.add("q", "body", timeout=0.1) == "second"
    queue.close()


def test_a_node_that_wakes_is_used_again(nodes: tuple[Stub, Stub]) -> None:
    """It hears the PING that it was sent while it slept; nobody has to try it with a call of his own."""
    first, second = nodes
    first.answer = stopped
    pool = pool_of(first, second)
    for _ in range(5):
        assert pool.call(["SHOW", "x"]) == b"second"
    assert pool.nodes.order()[0].port == second.port
    first.answer = named(b"first")
    first.say(b"+PONG\r\n")  # to what it was asked before
    while pool.call(["SHOW", "x"]) != b"first":
        time.sleep(0.01)
    pool.close()


def test_a_node_that_only_takes_its_time_is_waited_for(nodes: tuple[Stub, Stub]) -> None:
    first, second = nodes

    def slow(argv: Command) -> bytes:
        return named(b"first")(argv) if argv[0] in (b"PING", b"HELLO") else SILENCE

    first.answer = slow
    pool = pool_of(first, second)
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(pool.call, ["EXPLAIN", "x"]), threads.submit(pool.call, GETJOB, 0.1, give_back)]
        first.wait_for(lambda s: s.names().count(b"PING") >= 6)
        assert not any(each.done() for each in asked)
        first.say(b"+late\r\n")
        assert [each.result() for each in asked] == [b"late", b"late"]
    assert pool.nodes.order()[0].port == first.port
    pool.close()


def test_the_only_node_is_waited_for(nodes: tuple[Stub, Stub]) -> None:
    first, _ = nodes
    pool = pool_of(first)
    assert pool.call(["SHOW", "x"]) == b"first"
    first.answer = stopped
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(pool.call, ["SHOW", "x"])
        time.sleep(0.5)  # longer than it would take to doubt it
        assert not asked.done()
        first.say(b"+late\r\n")
        assert asked.result() == b"late"
    pool.close()


def test_where_all_are_silent_that_is_no_reason_not_to_ask(nodes: tuple[Stub, Stub]) -> None:
    first, second = nodes
    first.answer = second.answer = stopped
    pool = Pool([Target(port=stub.port, answer_timeout=0.3) for stub in nodes])
    for _ in range(3):
        with pytest.raises((errors.NoAnswer, errors.Unreachable)):
            pool.call(["SHOW", "x"])
    assert b"SHOW" in second.names()
    pool.close()


@pytest.mark.parametrize(("commands", "patience", "seconds"), [
    ([["SHOW", "x"]], 0.0, 0.1), ([["GETJOB", "FROM", "q"]], 5.0, 5.1), ([["GETJOB", "FROM", "q"]], None, 30.0),
    ([["QFLUSH", "q"]], 0.0, None), ([["SHOW", "x"], ["QFLUSH", "q"]], 0.0, None),
])
def test_what_may_keep_a_node_busy_is_not_doubted(
    commands: list[Argv], patience: float | None, seconds: float | None
) -> None:
    assert doubt_after(commands, patience, Target()) == seconds
    assert doubt_after(commands, patience, Target(answer_timeout=None)) is None
