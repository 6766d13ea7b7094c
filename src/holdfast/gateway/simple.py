"""The simple door: one bounded queue, three paths, any HTTP client.

    POST /push    the body of the request is the job          201, 429 when full, 503 when out of memory
    POST /get     the oldest job, as the body of the answer   200, or 204 when there is none; programs may GET it
    GET  /stats   {"queueSize": n, …}

Nothing is answered before it is replicated. /get removes what it returns: the job is acknowledged once the answer
has been written to the connection, and given back if the connection was gone before. `?lease=seconds` leaves it
leased, and the headers Holdfast-Id and Holdfast-Token are what /v1 wants to hear when the work is done.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.types import Receive, Scope, Send

from holdfast.client.errors import BadRequest
from holdfast.client.figures import QueueFigures
from holdfast.client.queue import AsyncQueue
from holdfast.core.limits import DURATION_S_MAX, MIB
from holdfast.gateway import answers
from holdfast.gateway.asking import Behind, behind, hung_up, the_queue, while_there
from holdfast.gateway.problems import MEDIA
from holdfast.gateway.sites import may_take

router = APIRouter(tags=["simple"], responses=MEDIA)
Asking = Annotated[AsyncQueue, Depends(the_queue)]
Gate = Annotated[Behind, Depends(behind)]

BODY_BYTES_MAX = 48 * MIB
"""What a node takes at most, however it is set: a longer body is not even read."""


class Settled(Response):
    """An answer that does something when it has been written, or when it could not be."""

    def __init__(
        self, content: bytes, headers: dict[str, str], written: Callable[[], Awaitable[object]],
        lost: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(content, 200, headers, "application/octet-stream")
        self.written = written
        self.lost = lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(hung_up(Request(scope, receive)))
        try:
            await asyncio.sleep(0)
            if gone.done():
                await self.lost()
                return
            try:
                await super().__call__(scope, receive, send)
            except BaseException:
                await asyncio.shield(self.lost())
                raise
            await asyncio.shield(self.written())
        finally:
            gone.cancel()


@router.post("/push", status_code=201, response_class=Response, openapi_extra={
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}
})
async def push(asking: Asking, gate: Gate, request: Request) -> Response:
    """Add a job: its body is the body of the request."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise BadRequest(f"a body has at most {BODY_BYTES_MAX} bytes")
    job = await asking.add(gate.simple, b"".join(pieces))
    return Response(status_code=201, headers={"Holdfast-Id": job})


@router.post("/get", dependencies=[Depends(may_take)], response_class=Response, responses={
    200: {"content": {"application/octet-stream": {}}, "description": "A job's body"}, 204: {"description": "No job"},
})
@router.get("/get", dependencies=[Depends(may_take)], response_class=Response, responses={
    200: {"content": {"application/octet-stream": {}}, "description": "A job's body"}, 204: {"description": "No job"},
})
async def get(
    asking: Asking, gate: Gate, request: Request,
    lease: Annotated[float | None, Query(gt=0, le=DURATION_S_MAX, description="keep it leased so long")] = None,
    timeout: Annotated[float, Query(ge=0, le=300, description="seconds to wait for a job")] = 0.0,
) -> Response:
    """Take the oldest job, and remove it unless `lease` says otherwise."""
    job = await while_there(request, asking.try_next(gate.simple, timeout=timeout, lease=lease))
    if job is None:
        return Response(status_code=204)
    headers = {"Holdfast-Id": job.id, "Holdfast-Token": job.token}
    if lease is not None:
        return Response(job.body, headers=headers, media_type="application/octet-stream")
    return Settled(job.body, headers, job.done, job.release)


@router.get("/stats")
async def stats(asking: Asking, gate: Gate) -> answers.Totals:
    """How many jobs are queued, with workers, and done, at all nodes."""
    found = (await asking.figures(gate.simple)).queues
    row = found[0] if found else QueueFigures(gate.simple)
    settings = await asking.settings(gate.simple)
    bound = settings.get("totalmaxlen") or settings.get("maxlen") or 0
    return answers.Totals(
        queueSize=row.queued, leased=row.leased, delayed=row.delayed,
        maxSize=int(bound) if isinstance(bound, int | bytes) else 0, added=row.added, taken=row.taken,
    )
