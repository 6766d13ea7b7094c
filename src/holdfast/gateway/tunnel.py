"""Commands as they are, over HTTP: for clients of ours behind a proxy that lets only HTTP through.

    POST /v1/call    commands as RESP in, their answers as RESP out, in order

`holdfast.open("http://…")` uses it: whatever a node can do, it can do through a gateway, with the same answers to the
byte. A command that waits (GETJOB, WAITJOB) holds the request open; a request has one of these at most. What a caller
may do is checked command by command, as everywhere. `Holdfast-Near` passes on which node knows a job best.
"""
from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response

from holdfast.client import asks
from holdfast.client.errors import BadRequest, Error
from holdfast.client.plain import Reply
from holdfast.client.queue import AsyncQueue
from holdfast.client.resp import to_bytes
from holdfast.core.limits import MIB
from holdfast.gateway.asking import the_queue, while_there
from holdfast.gateway.problems import MEDIA
from holdfast.wire.resp import ProtocolError, Requests

router = APIRouter(prefix="/v1", tags=["commands"], responses=MEDIA)

REQUEST_BYTES_MAX = 64 * MIB
"""All commands of a request; the same as a node takes in one command."""
COMMANDS_MAX = 10_000
WAITS = (b"GETJOB", b"WAITJOB", b"HISTORY")
MEDIA_TYPE = "application/vnd.holdfast.resp"


@router.post("/call", openapi_extra={
    "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}, response_class=Response, responses={200: {"content": {MEDIA_TYPE: {}}, "description": "Answers, in order"}})
async def call(asking: Annotated[AsyncQueue, Depends(the_queue)], request: Request) -> Response:
    """Run commands of the node, as they are."""
    if not request.headers.get("content-type", "").startswith(MEDIA_TYPE):
        raise HTTPException(415, f"commands are sent as Content-Type: {MEDIA_TYPE}")
    commands = await read(request)
    near = request.headers.get("Holdfast-Near", "")[:8]
    if len(commands) == 1 and commands[0][0].upper() in WAITS:
        argv = commands[0]
        undo = asks.give_back if argv[0].upper() == b"GETJOB" else None
        replies = [await while_there(request, asking.channel.call(argv, patience_of(argv), undo, near))]
    else:
        if any(argv[0].upper() in WAITS for argv in commands if not is_instant(argv)):
            raise BadRequest("a command that waits goes in a request of its own")
        replies = await asking.channel.call_many(commands, near)
    return Response(b"".join(map(encode, replies)), media_type=MEDIA_TYPE)


async def read(request: Request) -> list[list[bytes]]:
    """The commands of a request. Raises BadRequest."""
    parser = Requests()
    parser.bulk_bytes_max = parser.command_bytes_max = REQUEST_BYTES_MAX
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > REQUEST_BYTES_MAX:
            raise BadRequest(f"a request has at most {REQUEST_BYTES_MAX} bytes")
        parser.feed(piece)
    commands: list[list[bytes]] = []
    try:
        while (argv := parser.next(False)) is not None:
            if argv:
                commands.append(argv)
    except ProtocolError as error:
        raise BadRequest(f"this is not RESP: {error.text.decode()}") from None
    if parser.is_partial():
        raise BadRequest("the last command is not complete")
    if not 0 < len(commands) <= COMMANDS_MAX:
        raise BadRequest(f"a request has 1 to {COMMANDS_MAX} commands")
    return commands


def is_instant(argv: list[bytes]) -> bool:
    return b"NOHANG" in {word.upper() for word in argv[:8]}


def patience_of(argv: list[bytes]) -> float | None:
    """How long the node may hold the answer back."""
    if is_instant(argv):
        return 0.0
    for i in range(1, len(argv) - 1):
        if argv[i].upper() in (b"TIMEOUT", b"BLOCK") and argv[i + 1].isdigit():
            return int(argv[i + 1]) / 1000 or None
    return None if argv[0].upper() != b"HISTORY" else 0.0


def encode(reply: Reply) -> bytes:
    """An answer as RESP3 says it: what went in comes out the same."""
    if reply is None:
        return b"_\r\n"
    if isinstance(reply, Error):
        return b"-" + to_bytes(str(reply)).replace(b"\r", b" ").replace(b"\n", b" ") + b"\r\n"
    if isinstance(reply, bool):
        return b"#t\r\n" if reply else b"#f\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, float):
        return b",%s\r\n" % repr(reply).encode()
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, dict):
        pairs = b"".join(encode(name) + encode(value) for name, value in reply.items())
        return b"%%%d\r\n%b" % (len(reply), pairs)
    assert isinstance(reply, list)
    return b"*%d\r\n" % len(reply) + b"".join(map(encode, reply))
