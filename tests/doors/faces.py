"""Every way to a queue, and one way to test them all.

A *door* is how a url of its kind is had for a test: see DOORS, one line each. A *face* is how a program holds the
queue: sync or async. The tests are written once, as coroutines against `Face`; the sync face runs each call of a
`Queue` in a thread, so the very same lines drive both.

To add a door: a context manager that gives a url, and a line in DOORS.
"""
from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tests.gateway.running import Gateway, address
from tests.proc.harness import Node

import holdfast


@contextlib.contextmanager
def memory() -> Iterator[str]:
    yield "memory:?enable-debug=yes"


@contextlib.contextmanager
def file() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"file:{folder}/jobs"


@contextlib.contextmanager
def resp() -> Iterator[str]:
    with Node() as node:
        yield f"holdfast://127.0.0.1:{node.port}"


@contextlib.contextmanager
def served() -> Iterator[str]:
    """An embedded queue, served from inside a process."""
    with holdfast.open("memory:") as queue, holdfast.serve(queue) as serving:
        yield serving.url


@contextlib.contextmanager
def http() -> Iterator[str]:
    with Node() as node, Gateway(address(node), "--grpc", "-1") as gateway:
        yield gateway.url


@contextlib.contextmanager
def grpc() -> Iterator[str]:
    with Node() as node, Gateway(address(node)) as gateway:
        yield f"grpc://127.0.0.1:{gateway.grpc_port}"


DOORS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "memory": memory,
    "file": file,
    "resp": resp,
    "served": served,
    "http": http,
    "grpc": grpc,
}


class Face:
    """A `Queue` as if it were an `AsyncQueue`: every method is awaited, and jobs too."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(plain(each) for each in args)
            return dressed(await asyncio.to_thread(found, *args, **kwargs))

        return call

    async def jobs(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        found = await asyncio.to_thread(self.inner.jobs, *args, **kwargs)
        end = object()
        while (job := await asyncio.to_thread(next, found, end)) is not end:
            yield dressed(job)

    async def browse(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for view in await asyncio.to_thread(lambda: list(self.inner.browse(*args, **kwargs))):
            yield view

    async def __aenter__(self) -> Face:
        await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.inner.__exit__, *error)


def dressed(value: Any) -> Any:
    if isinstance(value, holdfast.Job):
        return Face(value)
    return [dressed(each) for each in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    if isinstance(value, Face):
        return value.inner
    return [plain(each) for each in value] if isinstance(value, list) else value


@contextlib.asynccontextmanager
async def opened(url: str, face: str) -> AsyncIterator[Any]:
    """The queue behind a url, by one of its faces."""
    if face == "async":
        async with await holdfast.aopen(url) as queue:
            yield queue
    else:
        async with Face(await asyncio.to_thread(holdfast.open, url)) as queue:
            yield queue
