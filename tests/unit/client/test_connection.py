"""One connection against a stub node on a real socket: answers, silence, loss, and callers that leave."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from holdfast.client import connection as module
from holdfast.client import errors
from holdfast.client.asks import give_back
from holdfast.client.connection import AsyncConnection, Connection
from holdfast.client.target import Target

from .stub_node import HANG_UP, SILENCE, Command, Stub, job_reply

GETJOB = ["GETJOB", "FROM", "q"]


def target(stub: Stub, **more: Any) -> Target:
    return Target(port=stub.port, **more)


def echo(argv: Command) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(argv[-1]), argv[-1])


def test_a_call_and_its_answer(stub: Stub) -> None:
    connection = Connection(target(stub))
    assert connection.call(["PING"]) == b"OK"
    stub.answer = lambda argv: b"-ERR no\r\n"
    assert isinstance(connection.call(["PING"]), errors.BadRequest)
    assert connection.is_open and not connection.is_stale()
    connection.close()
    with pytest.raises(errors.Refused):
        connection.call(["PING"])


def test_many_calls_in_one_go_keep_their_order(stub: Stub) -> None:
    stub.answer = echo
    connection = Connection(target(stub))
    count = module.PIPELINE_MAX * 2 + 1
    assert connection.call_many([["ECHO", n] for n in range(count)]) == [b"%d" % n for n in range(count)]
    connection.close()


def test_it_introduces_itself(stub: Stub) -> None:
    Connection(target(stub, password="secret")).close()
    Connection(target(stub, user="ann", password="secret", resp3=True)).close()
    assert stub.seen == [[b"AUTH", b"secret"], [b"AUTH", b"ann", b"secret"], [b"HELLO", b"3"]]


def test_a_wrong_password_is_said_so_and_shown_nowhere(stub: Stub) -> None:
    stub.answer = lambda argv: b"-ERR invalid password\r\n"
    with pytest.raises(errors.NotAllowed) as caught:
        Connection(target(stub, password="hunter2"))
    assert "hunter2" not in repr(caught.value) + repr(target(stub, password="hunter2"))


def test_nobody_there(stub: Stub) -> None:
    unused = socket.create_server(("127.0.0.1", 0))
    port = unused.getsockname()[1]
    unused.close()
    with pytest.raises(errors.Unreachable, match=f"127.0.0.1:{port}: .*refused"):
        Connection(Target(port=port))
    with pytest.raises(errors.Unreachable, match="/nowhere"):
        Connection(Target(path="/nowhere/at/all.sock"))


def test_a_node_that_hangs_up_during_the_introduction_was_not_reached(stub: Stub) -> None:
    """Nothing of the caller's was sent, so this must not be Unknown."""
    stub.answer = lambda argv: HANG_UP
    with pytest.raises(errors.Unreachable):
        Connection(target(stub, password="secret"))


def test_a_connection_lost_after_sending_is_an_unknown_outcome(stub: Stub) -> None:
    stub.answer = lambda argv: HANG_UP
    connection = Connection(target(stub))
    with pytest.raises(errors.ConnectionLost, match="not known whether"):
        connection.call(["ADDJOB", "q", "b", 0])
    assert not connection.is_open


def test_half_an_answer_is_no_answer(stub: Stub) -> None:
    def half(argv: Command) -> bytes:
        stub.say(b"$10\r\nabc")
        stub.hang_up()
        return SILENCE

    stub.answer = half
    with pytest.raises(errors.ConnectionLost):
        Connection(target(stub)).call(["PING"])


@pytest.mark.parametrize("slice_s", [None, 0.02])
def test_a_silent_node_is_given_up_on(
    stub: Stub, slice_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where reads are cut into slices, as on systems where a signal does not interrupt them."""
    monkeypatch.setattr(module, "SLICE_S", slice_s)
    stub.answer = lambda argv: SILENCE
    connection = Connection(target(stub, answer_timeout=0.05))
    with pytest.raises(errors.NoAnswer, match=r"0\.06 s"):
        connection.call(["GETJOB"], patience=0.01)
    assert not connection.is_open


def test_what_is_no_resp_is_a_bad_reply(stub: Stub) -> None:
    stub.answer = lambda argv: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(errors.BadReply, match="does not speak RESP"):
        Connection(target(stub)).call(["PING"])


def test_pushes_are_passed_over_unless_wanted(stub: Stub) -> None:
    stub.answer = lambda argv: b">2\r\n+news\r\n:1\r\n+OK\r\n"
    connection = Connection(target(stub))
    assert connection.call(["PING"]) == b"OK"
    stub.say(b"+line of a monitor\r\n")
    assert connection.receive() == b"line of a monitor"
    connection.close()


def test_unix_socket(unix_stub: tuple[Stub, str]) -> None:
    _, path = unix_stub
    connection = Connection(Target(path=path))
    assert connection.call(["PING"]) == b"OK"
    connection.close()


def test_a_connection_the_node_closed_is_seen_as_stale(stub: Stub) -> None:
    connection = Connection(target(stub))
    connection.call(["PING"])
    stub.hang_up()
    while not connection.is_stale():  # The news travels through the kernel.
        pass
    connection.close()


def test_closing_wakes_the_thread_that_waits(stub: Stub) -> None:
    stub.answer = lambda argv: SILENCE
    connection = Connection(target(stub))
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            connection.call(GETJOB, patience=None)
        except errors.Error as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    stub.wait_for(lambda s: len(s.seen) == 1)
    connection.close()
    thread.join(10)
    assert isinstance(raised[0], errors.ConnectionLost)


def test_a_job_that_came_while_ctrl_c_was_pressed_goes_back(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node hands the job out at the moment the caller is interrupted. Reading what was still under
    way finds it, and a fresh connection gives it back."""
    stub.answer = lambda argv: job_reply("ID7") if argv[0] == b"GETJOB" else b":1\r\n"
    connection = Connection(target(stub))
    receive = connection._receive

    def interrupted(seconds: float | None) -> bytes:
        monkeypatch.setattr(connection, "_receive", receive)
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.call(GETJOB, patience=None, undo=give_back)
    assert not connection.is_open
    assert stub.seen[1:] == [[b"RELEASE", b"ID7"]]


def test_an_interrupted_wait_without_a_job_just_ends(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.answer = lambda argv: SILENCE
    connection = Connection(target(stub))
    receive = connection._receive

    def interrupted(seconds: float | None) -> bytes:
        monkeypatch.setattr(connection, "_receive", receive)
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.call(GETJOB, patience=None, undo=give_back)
    assert stub.names() == [b"GETJOB"]


def test_async_calls(stub: Stub) -> None:
    async def main() -> None:
        stub.answer = echo
        connection = await AsyncConnection.open(target(stub, password="secret"))
        assert await connection.call(["ECHO", "x"]) == b"x"
        count = module.PIPELINE_MAX + 1
        answers = await connection.call_many([["ECHO", n] for n in range(count)])
        assert answers == [b"%d" % n for n in range(count)]
        assert not connection.is_stale()
        await connection.close()
        with pytest.raises(errors.Refused):
            await connection.call(["PING"])

    asyncio.run(main())


def test_async_failures_are_the_same_failures(stub: Stub) -> None:
    async def main() -> None:
        with pytest.raises(errors.Unreachable):
            await AsyncConnection.open(Target(path="/nowhere/at/all.sock"))
        for answer, kind in (
            (HANG_UP, errors.ConnectionLost),
            (SILENCE, errors.NoAnswer),
            (b"what?\r\n", errors.BadReply),
        ):
            stub.answer = lambda argv, answer=answer: answer  # type: ignore[misc]
            connection = await AsyncConnection.open(target(stub, answer_timeout=0.05))
            with pytest.raises(kind):
                await connection.call(["PING"])
            assert not connection.is_open
            await connection.close()
        stub.answer = lambda argv: HANG_UP
        with pytest.raises(errors.Unreachable):
            await AsyncConnection.open(target(stub, password="secret"))

    asyncio.run(main())


def test_async_unix_socket(unix_stub: tuple[Stub, str]) -> None:
    async def main() -> None:
        connection = await AsyncConnection.open(Target(path=unix_stub[1]))
        assert await connection.call(["PING"]) == b"OK"
        await connection.close()

    asyncio.run(main())


def test_one_task_at_a_time(stub: Stub) -> None:
    async def main() -> None:
        stub.answer = lambda argv: SILENCE
        connection = await AsyncConnection.open(target(stub))
        first = asyncio.create_task(connection.call(GETJOB, patience=None))
        await asyncio.sleep(0)
        with pytest.raises(errors.BadRequest, match="pool"):
            await connection.call(["PING"])
        await connection.close()
        with pytest.raises(errors.ConnectionLost):
            await first

    asyncio.run(main())


@pytest.mark.parametrize("late", [b"", job_reply("ID8")], ids=["no job", "a job"])
def test_a_cancelled_wait_takes_no_job_with_it(stub: Stub, late: bytes) -> None:
    """The stub hands the job out when it hears that the caller has gone: the worst moment there is."""

    async def main() -> None:
        stub.answer = lambda argv: SILENCE if argv[0] == b"GETJOB" else b":1\r\n"
        stub.at_end = late
        connection = await AsyncConnection.open(target(stub))
        task = asyncio.create_task(connection.call(GETJOB, patience=None, undo=give_back))
        await asyncio.to_thread(stub.wait_for, lambda s: len(s.seen) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not connection.is_open
        await connection.close()  # Waits for the giving back.
        assert stub.seen[1:] == ([[b"RELEASE", b"ID8"]] if late else [])

    asyncio.run(main())
