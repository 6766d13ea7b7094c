"""Adding a stream of jobs: NDJSON in, NDJSON out, as fast as the nodes take them and no faster.

    POST /v1/queues/q/stream
    {"body": "one"}                    →  {"line": 1, "id": "DI…"}
    {"json": {"to": "a@b"}, "delay": 5} →  {"line": 2, "id": "DI…"}
    {"nonsense"                        →  {"line": 3, "error": "…", "code": "ERR"}

Each line is a job with its own options. Up to WINDOW of them are under way at once; when so many are, the request is
not read any further, and its sender feels that as a full connection. Answers come in the order of the lines. A line
that is refused because a queue or a node is full is tried again for PATIENCE_S, so that a fast producer is slowed
down and not turned away; after that it is answered with the error, and the stream goes on.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from holdfast.client.errors import BadRequest, Duplicate, Error, Refused
from holdfast.client.queue import AsyncQueue
from holdfast.gateway.asking import the_queue
from holdfast.gateway.models import NewJob
from holdfast.gateway.paths import Name
from holdfast.gateway.problems import MEDIA, shown

router = APIRouter(prefix="/v1", tags=["jobs"], responses=MEDIA)

WINDOW = 256
"""Jobs of one stream under way at once: enough to fill round trips, few enough to be forgotten with the client."""
LINE_BYTES_MAX = 64 * 1024 * 1024
PATIENCE_S = 30.0
AGAIN_S = 0.1
Line: TypeAlias = tuple[int, asyncio.Task[dict[str, Any]]]
"""Its number, and the add that was begun for it."""


@router.post("/queues/{queue}/stream", response_class=StreamingResponse, openapi_extra={
    "requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}, responses={200: {"content": {"application/x-ndjson": {}}, "description": "A line for each line"}})
async def stream(
    asking: Annotated[AsyncQueue, Depends(the_queue)], queue: Name, request: Request
) -> StreamingResponse:
    """Add jobs line by line."""
    return BothWays(answers(asking, queue, request), media_type="application/x-ndjson")


class BothWays(StreamingResponse):
    """An answer that begins while the request is still being read: only the reader may listen to the client."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):
            await self.stream_response(send)


async def answers(asking: AsyncQueue, queue: str, request: Request) -> AsyncIterator[bytes]:
    line = asyncio.Queue[Line | None](WINDOW)
    reading = asyncio.create_task(read(asking, queue, request, line))
    try:
        while (begun := await line.get()) is not None:
            number, task = begun
            yield json.dumps({"line": number, **await task}).encode() + b"\n"
        await reading
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await reading
        while not line.empty():
            left = line.get_nowait()
            if left is not None:
                left[1].cancel()


async def read(asking: AsyncQueue, queue: str, request: Request, line: asyncio.Queue[Line | None]) -> None:
    """Begin one add per line; waits where WINDOW of them are unanswered. An empty line is none, but it counts: the
    number in an answer is that of the line in the sender's file."""
    number = 0
    try:
        async for text in lines(request):
            number += 1
            if text.strip():
                await line.put((number, asyncio.create_task(add(asking, queue, text))))
    finally:
        await line.put(None)


async def lines(request: Request) -> AsyncIterator[bytes]:
    left: list[bytes] = []  # of a line that has not ended: put together once, however many pieces it comes in
    size = 0
    async for piece in request.stream():
        first, *others = piece.split(b"\n")
        left.append(first)
        size += len(first)
        if size > LINE_BYTES_MAX:
            raise BadRequest(f"a line has at most {LINE_BYTES_MAX} bytes")
        if others:
            yield b"".join(left)
            for text in others[:-1]:
                yield text
            left = [others[-1]]
            size = len(others[-1])
    if size:
        yield b"".join(left)


def faults(error: ValidationError) -> str:
    """What is wrong with a line, and where in it."""
    return "; ".join(": ".join(filter(None, ("/".join(map(str, each["loc"])), each["msg"]))) for each in error.errors())


async def add(asking: AsyncQueue, queue: str, text: bytes) -> dict[str, Any]:
    try:
        new = NewJob.model_validate_json(text)
        content, words = new.content(), new.words()
    except ValidationError as error:
        return {"error": faults(error), "code": "ERR"}
    except Error as error:
        return {"error": error.text, "code": error.code}
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            return {"id": await asking.add(queue, content, **words)}
        except Refused as error:
            if isinstance(error, Duplicate) or asyncio.get_running_loop().time() > deadline:
                return {"error": shown(error.text), "code": error.code}
            await asyncio.sleep(AGAIN_S)
        except (Error, TypeError) as error:
            code = error.code if isinstance(error, Error) else "ERR"
            return {"error": shown(str(error)), "code": code}
