"""Which url opens what, and what a wrong one is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import doors
from holdfast.client import errors
from holdfast.client.queue import Queue

from .stub_node import HANG_UP, Command, Stub


def places(url: str) -> list[str]:
    scheme, rest = doors.split(url)
    return [str(target) for target in doors.targets(scheme, rest, 1, 1)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("holdfast://a", ["a:7711"]),
        ("holdfast://a:1,b:2,[::1]:3", ["a:1", "b:2", "[::1]:3"]),
        ("HOLDFAST://:pw@a:1/", ["a:1"]),
        ("holdfast://[fe80::1]", ["[fe80::1]:7711"]),
        ("unix:///run/a%20b.sock", ["/run/a b.sock"]),
        ("unix://:pw@/run/x", ["/run/x"]),
    ],
)
def test_addresses(url: str, expected: list[str]) -> None:
    assert places(url) == expected


def pong(argv: Command) -> bytes:
    return b"+PONG\r\n" if argv[0] == b"PING" else b"+OK\r\n"


def test_login() -> None:
    target = doors.targets("holdfast", "//ann:p%40ss%3A@a", 1, 2)[0]
    assert (target.user, target.password) == ("ann", "p@ss:")
    assert (target.connect_timeout, target.answer_timeout) == (1, 2)


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "redis://a", "holdfast:a", "holdfast://", "holdfast://a:x", "holdfast://a:0",
     "holdfast://a,,b", "holdfast://a/0", "holdfast://a?x=1", "holdfast://[::1", "holdfast://secret@a",
     "unix://run/x", "memory:here", "memory:?no-such-setting=1", "memory:?maxmemory=lots"],
)
def test_a_wrong_url_is_a_bad_request(url: str) -> None:
    with pytest.raises(errors.BadRequest):
        doors.open(url)


@pytest.mark.parametrize("scheme", doors.THROUGH)
def test_a_gateway_that_is_not_there_is_told(scheme: str) -> None:
    with pytest.raises(errors.Unreachable):
        doors.open(f"{scheme}://127.0.0.1:1", connect_timeout=2)


def test_memory() -> None:
    with doors.open("memory:?maxmemory=100mb") as queue:
        assert queue.call("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"104857600"]


def test_a_node_over_tcp_and_over_a_unix_socket(stub: Stub, unix_stub: tuple[Stub, str]) -> None:
    stub.answer = unix_stub[0].answer = pong
    for url in (f"holdfast://127.0.0.1:{stub.port}", f"unix://{unix_stub[1]}"):
        with doors.open(url) as queue:
            assert isinstance(queue, Queue)
            assert queue.call("TIME") == b"OK"

    async def main() -> None:
        async with await doors.aopen(f"holdfast://:pw@127.0.0.1:{stub.port}") as queue:
            assert await queue.call("TIME") == b"OK"
        assert stub.seen[-3:] == [[b"HELLO"], [b"AUTH", b"pw"], [b"TIME"]]
        async with await doors.aopen("memory:") as queue:
            assert await queue.length("q") == 0

    asyncio.run(main())


def test_a_node_that_wants_a_password_says_so_at_the_door(stub: Stub) -> None:
    stub.answer = lambda argv: b"-NOAUTH Authentication required.\r\n"
    with pytest.raises(errors.NotAllowed):
        doors.open(f"holdfast://127.0.0.1:{stub.port}")
    with pytest.raises(errors.NotAllowed):
        asyncio.run(_open(stub))


def test_a_node_that_is_still_loading_may_be_waited_for(stub: Stub) -> None:
    stub.answer = lambda argv: b"-LOADING reading the journal\r\n"
    with doors.open(f"holdfast://127.0.0.1:{stub.port}") as queue, pytest.raises(errors.Loading):
        queue.add("q", "b")


async def _open(stub: Stub) -> None:
    await doors.aopen(f"holdfast://127.0.0.1:{stub.port}")


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail ESMTP\r\n", b"ERROR\r\n", b"+OK\r\n", b":1\r\n", HANG_UP]
)
def test_something_that_is_no_node_is_told_apart(stub: Stub, reply: bytes | None) -> None:
    stub.answer = lambda argv: reply
    with pytest.raises(errors.Unknown, match="this does not look like a Holdfast node"):
        doors.open(f"holdfast://127.0.0.1:{stub.port}")
    with pytest.raises(errors.Unknown, match="this does not look like a Holdfast node"):
        asyncio.run(_open(stub))


@pytest.mark.parametrize("url", [None, 5, b"memory:"])
def test_a_url_is_text(url: Any) -> None:
    with pytest.raises(TypeError, match="a url as a str"):
        doors.open(url)
    with pytest.raises(TypeError, match="a url as a str"):
        asyncio.run(doors.aopen(url))


@pytest.mark.parametrize("url", ["memory:?port=3", "memory:?requirepass=x"])
def test_a_setting_that_means_nothing_in_a_process_is_refused(url: str) -> None:
    with pytest.raises(errors.BadRequest, match=r"no effect in an embedded queue.*maxmemory"):
        doors.open(url)


def test_an_unknown_option_is_refused_behind_every_door(stub: Stub) -> None:
    stub.answer = pong
    for url in ("memory:", f"holdfast://127.0.0.1:{stub.port}"):
        with doors.open(url) as queue:
            with pytest.raises(TypeError, match="retires"):
                queue.add("q", "b", retires=0)  # type: ignore[call-arg]
            with pytest.raises(TypeError, match="retires"):
                queue.add_many("q", ["b"], retires=0)  # type: ignore[call-arg]


@pytest.mark.parametrize(("place", "url"), [
    ("10.0.0.1:7711", "holdfast://10.0.0.1:7711"), ("localhost", "holdfast://localhost"),
    ("10.0.0.1", "holdfast://10.0.0.1"), ("nonsense", "nonsense"), ("ftp:x", "ftp:x"),
    ("a:1,b:2", "holdfast://a:1,b:2"), ("[::1]:7711", "holdfast://[::1]:7711"), ("ada@a:1", "holdfast://ada@a:1"),
    ("memory:", "memory:"), ("file:./jobs", "file:./jobs"), ("http://g:7780", "http://g:7780"),
    ("redis://a:1", "redis://a:1"), (":7712", "holdfast://127.0.0.1:7712"),
])
def test_a_host_and_a_port_are_a_url_of_a_node(place: str, url: str) -> None:
    assert doors.url_of(place) == url
