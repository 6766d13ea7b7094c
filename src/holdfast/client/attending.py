"""Calls that take long: is the node still there?

A node that is stopped, or cut off without a word, takes connections and commands and answers none. Whoever waits for it
with a fixed limit waits too long when it is dead, and not long enough when it only has much to do. So a call that has
had no answer for `doubt_s` has its node asked something that takes no time, over a connection of its own:

    PING is answered    the node is there, and the call goes on waiting
    it is not           the node is *silent*: others are tried first (`nodes`) until it answers that very PING, which
                        it does as soon as it wakes. A call that was to be answered at once is given up on
                        (`NoAnswer`: nobody knows whether it was carried out); one that may wait goes on for as long as
                        it may, and one that may wait for ever until the node has been silent for its answer_timeout

There is one PING per node at a time, however many calls wait for it. For pools that serve many callers, as a gateway's:
for one caller it would cost more than it is worth.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from .connection import AsyncConnection
from .errors import Error, Unknown, Unreachable
from .nodes import Nodes
from .target import Target

T = TypeVar("T")
PING_S: Final = 30.0
"""One PING is waited for so long before another is sent: the network may have lost it."""
AGAIN_S: Final = 0.5
"""Between two tries to reach a node that is silent."""


class Attending:
    """Watches over the calls of one pool."""

    def __init__(self, nodes: Nodes, doubt_s: float) -> None:
        self.doubt_s = doubt_s
        self._nodes = nodes
        self._pings: dict[Target, asyncio.Task[None]] = {}
        self._began: dict[Target, float] = {}
        """When the PING that is under way was sent, or the last one."""
        self._heard: dict[Target, float] = {}

    async def attend(self, target: Target, work: Coroutine[Any, Any, T], limit: float | None = 0.0) -> T:
        """What comes of a call. `NoAnswer` if its node is silent and `limit` seconds have gone; None: it may take for
        ever."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        task = loop.create_task(work)
        try:
            while True:
                done, _ = await asyncio.wait([task], timeout=self.doubt_s)
                if done:
                    return task.result()
                if await self._answers(target) or task.done():
                    continue
                now = loop.time()
                if self._is_enough(target, now - began, limit, now):
                    raise target.silent(now - began)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def is_silent(self, target: Target) -> None:
        """It did not answer: others first, until it does."""
        self._nodes.silent(target)
        self._ping(target)

    async def close(self) -> None:
        pings = list(self._pings.values())
        for ping in pings:
            ping.cancel()
        await asyncio.gather(*pings, return_exceptions=True)

    def _is_enough(self, target: Target, waited: float, limit: float | None, now: float) -> bool:
        if limit is not None:
            return waited >= limit
        most = math.inf if target.answer_timeout is None else target.answer_timeout
        return now - self._began[target] >= most

    async def _answers(self, target: Target) -> bool:
        """Does it, within doubt_s? If it did a moment ago it need not be asked."""
        now = asyncio.get_running_loop().time()
        if target not in self._pings and now - self._heard.get(target, -math.inf) < self.doubt_s:
            return True
        done, _ = await asyncio.wait([self._ping(target)], timeout=self.doubt_s)
        if not done:
            self._nodes.silent(target)
        return bool(done)

    def _ping(self, target: Target) -> asyncio.Task[None]:
        """The PING that is under way."""
        ping = self._pings.get(target)
        if ping is None:
            loop = asyncio.get_running_loop()
            ping = self._pings[target] = loop.create_task(self._until_it_answers(target))
            self._began[target] = loop.time()
        return ping

    async def _until_it_answers(self, target: Target) -> None:
        try:
            while not await answers(target):
                await asyncio.sleep(AGAIN_S)
            self._heard[target] = asyncio.get_running_loop().time()
            self._nodes.answered(target)
        finally:
            del self._pings[target]


async def answers(target: Target) -> bool:
    """Whether a node says anything; that it does not like us is an answer, too."""
    try:
        connection = await AsyncConnection.open(target)
        try:
            await connection.call(["PING"], PING_S)
        finally:
            await connection.close()
    except (Unreachable, Unknown):
        return False
    except Error:
        pass
    return True
