"""Live figures as server-sent events: the same for everybody who looks, asked of the nodes once a second at most.

    GET /v1/events    event: figures / data: {"time": …, "queues": […], "totals": {…}, "nodes": […], "silent": […]}

`nodes` are the members with where and how they are, `silent` those of them whose figures are missing in the sums.


One task asks while anybody listens, and stops when nobody does, so a hundred open pages cost the nodes as much as one.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse

from holdfast.client.errors import Error
from holdfast.client.figures import FIGURES, MOST
from holdfast.client.queue import AsyncQueue
from holdfast.core.rights import User
from holdfast.core.users import may_touch
from holdfast.gateway import members, queues
from holdfast.gateway.asking import the_user
from holdfast.gateway.problems import MEDIA, TooMany
from holdfast.gateway.who import check

router = APIRouter(prefix="/v1", tags=["queues"], responses=MEDIA)

EVERY_S = 1.0
LISTENERS_MAX = 1000
"""Open streams of one gateway; a browser opens one per tab."""
LISTENERS_PER_USER = 200
"""Of these, of one user; without users everybody is one."""
SUMMED = tuple(each.said for each in FIGURES if each.name not in MOST)
LARGEST = tuple(each.said for each in FIGURES if each.name in MOST)


class Live:
    """The latest figures, and those who wait for the next."""

    def __init__(self, queue: AsyncQueue) -> None:
        self.queue = queue
        self.latest: dict[str, Any] = {}
        self.listeners: Counter[bytes] = Counter()  # by user
        self.changed = asyncio.Condition()
        self.task: asyncio.Task[None] | None = None

    async def figures(self) -> dict[str, Any]:
        rows, silent = await queues.figures(self.queue, "*")
        told = members.told(await members.nodes(self.queue), silent)
        names = [each[:members.NEAR] for each in silent]
        return {"time": time.time(), "queues": rows, "totals": summed(rows), "nodes": told, "silent": names}

    async def run(self) -> None:
        while True:
            try:
                found = await self.figures()
            except Error as error:
                found = {"time": time.time(), "error": str(error)}
            async with self.changed:
                self.latest = found
                self.changed.notify_all()
            await asyncio.sleep(EVERY_S)

    def check_room(self, user: bytes) -> None:
        """Raises TooMany if nobody else can listen."""
        if self.listeners.total() >= LISTENERS_MAX or self.listeners[user] >= LISTENERS_PER_USER:
            raise TooMany("too many follow these figures already; close one, or try again later")

    async def follow(self, user: bytes) -> AsyncIterator[dict[str, Any]]:
        """Figures as they come, the latest at once."""
        self.listeners[user] += 1
        if self.task is None:
            self.task = asyncio.create_task(self.run())
        try:
            seen: dict[str, Any] = {}
            while True:
                async with self.changed:
                    while self.latest is seen or not self.latest:
                        await self.changed.wait()
                    seen = self.latest
                yield seen
        finally:
            self.listeners[user] -= 1
            if self.listeners.total() == 0 and self.task is not None:
                self.task.cancel()
                self.task, self.latest = None, {}

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task


def seen_by(user: User, figures: dict[str, Any]) -> dict[str, Any]:
    """Without the queues that this user may not touch."""
    if not user.patterns or "queues" not in figures:
        return figures
    rows = [row for row in figures["queues"] if may_touch(user, queues.name_of(row))]
    return {**figures, "queues": rows, "totals": summed(rows)}


def summed(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Figures of many queues as one; of times the longest counts."""
    sums = {name: sum(int(row.get(name) or 0) for row in rows) for name in SUMMED}
    return {**sums, **{name: max([int(row.get(name) or 0) for row in rows], default=0) for name in LARGEST}}


@router.get("/events", response_class=StreamingResponse, responses={
    200: {"content": {"text/event-stream": {}}, "description": "Figures, once a second"}
})
async def events(request: Request, user: Annotated[User, Depends(the_user)]) -> StreamingResponse:
    """Follow the figures of all queues."""
    return stream(request.app.state.live, user, by_name, by_name)


Told = Callable[[dict[str, Any]], dict[str, Any]]


def by_name(row: dict[str, Any]) -> dict[str, Any]:
    """Figures by the names they have everywhere in /v1; inside they go by those of CLUSTER QSTAT."""
    found = {"name": row.get("name"), "name_hex": row.get("name-hex"), "paused": row.get("pause")}
    return {name: value for name, value in found.items() if value is not None} | {
        each.name: row[each.said] for each in FIGURES if each.said in row
    }


def stream(live: Live, user: User, told: Told = dict, told_sums: Told = dict) -> StreamingResponse:
    """`told`: what a row of figures is for those who listen here; `told_sums`: and what the sums are."""
    check(user, ["INFO"])
    live.check_room(user.name)

    async def lines() -> AsyncIterator[bytes]:
        async for figures in live.follow(user.name):
            seen = seen_by(user, figures)
            if "queues" in seen:
                rows = [told(row) for row in seen["queues"]]
                seen = {**seen, "queues": rows, "totals": told_sums(seen["totals"])}
            yield b"event: figures\ndata: " + json.dumps(seen).encode() + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
