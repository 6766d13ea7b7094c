"""What every request needs: the queue behind the gateway, as far as its caller may use it."""
from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from holdfast.client.queue import AsyncQueue
from holdfast.core.rights import User
from holdfast.gateway.problems import Gone
from holdfast.gateway.who import Allowed, Door, address_of

T = TypeVar("T")


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Wait for something as long as its caller does. Raises Gone; then what was waited for is withdrawn."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(hung_up(request))
    try:
        await asyncio.wait([task, leaving], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Gone
    finally:
        for each in (leaving, task):
            each.cancel()
        await asyncio.gather(leaving, task, return_exceptions=True)


async def hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Behind:
    """What a gateway stands before: the nodes, who may come in, and the one queue of the simple door. `hosts`: names
    it goes by."""

    def __init__(self, queue: AsyncQueue, door: Door, simple: str, hosts: Iterable[str] = ()) -> None:
        self.queue = queue
        self.door = door
        self.simple = simple
        self.hosts = frozenset(host.lower() for host in hosts if host)

    def for_user(self, user: User) -> AsyncQueue:
        return AsyncQueue(Allowed(self.queue.channel, user))


def behind(request: Request) -> Behind:
    found = request.app.state.behind
    assert isinstance(found, Behind)
    return found


async def the_user(request: Request, gate: Annotated[Behind, Depends(behind)]) -> User:
    """Who is calling. A session of the console has been looked at before (console/login.py)."""
    known = getattr(request.state, "user", None)
    if isinstance(known, User):
        return known
    return await gate.door.who(request.headers.get("authorization", ""), address_of(request.client))


async def the_queue(
    gate: Annotated[Behind, Depends(behind)], user: Annotated[User, Depends(the_user)]
) -> AsyncQueue:
    return gate.for_user(user)
