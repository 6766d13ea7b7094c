"""Calls that take long: is the node still there?

A node that is stopped, or cut off without a word, takes connections and commands and answers none. Whoever waits for it
with a fixed limit waits too long when it is dead, and not long enough when it only has much to do. So a call that has
had no answer for `doubt_s` has its node asked something that takes no time, over a connection of its own:

    PING is answered    the node is there, and the call goes on waiting
    it is not           the node is *silent*: others are tried first (`nodes`) until it answers that very PING, which
                        it does as soon as it wakes. A call that was to be answered at once is given up on
                        (`NoAnswer`: nobody knows whether it was carried out); one that may wait goes on for as long as
                        it may, and one that may wait for ever until the node has been silent for its answer_timeout

There is one PING per node at a time, however many calls wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .connection import AsyncConnection
from .errors import Error, Unknown, Unreachable
from .later import Later
from .manners import DOUBT_S, give_up_after
from .nodes import Nodes
from .resp import Argv
from .target import Target

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Later("asyncio")

T = TypeVar("T")
PING_S: Final = 30.0
"""One PING is waited for so long before another is sent: the network may have lost it."""
AGAIN_S: Final = 0.5
"""Between two tries to reach a node that is silent."""


class Attending:
    """Watches over the calls of one pool. `doubt_s` None: as for threads (`knocking`), so where there is no other node
    to go to, or no limit to how long an answer may take, it is waited for."""

    def __init__(self, nodes: Nodes, doubt_s: float | None) -> None:
        self.doubt_s = DOUBT_S if doubt_s is None else doubt_s
        self._is_usual = doubt_s is None
        self._nodes = nodes
        self._watches: dict[_Watch, None] = {}
        """Calls under way, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._pings: dict[Target, asyncio.Task[None]] = {}
        self._began: dict[Target, float] = {}
        """When the PING that is under way was sent, or the last one."""
        self._heard: dict[Target, float] = {}

    async def attend(
        self, target: Target, work: Coroutine[Any, Any, T], commands: Sequence[Argv] = (), patience: float | None = 0.0
    ) -> T:
        """What comes of a call; `NoAnswer` if its node is silent and its time (`give_up_after`) is over."""
        loop = asyncio.get_running_loop()
        watch = _Watch(self, loop, target, commands, patience)
        self._watches[watch] = None
        if self._timer is None:
            self._timer = loop.call_later(self.doubt_s, self._look_at_all, loop)
        try:
            return await work
        except asyncio.CancelledError:
            if watch.is_ours():
                raise target.silent(watch.waited()) from None
            raise
        finally:
            del self._watches[watch]
            watch.end()

    def _look_at_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all calls: most are over long before it rings, and have cost next to nothing."""
        for watch in self._watches:
            if watch.waited() < self.doubt_s:
                break
            watch.look()
        self._timer = loop.call_later(self.doubt_s / 2, self._look_at_all, loop) if self._watches else None

    def is_silent(self, target: Target) -> None:
        """It did not answer: others first, until it does."""
        self._nodes.silent(target)
        self._ping(target)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        pings = list(self._pings.values())
        for ping in pings:
            ping.cancel()
        await asyncio.gather(*pings, return_exceptions=True)

    async def answers(self, target: Target) -> bool:
        """Does it, within doubt_s? If it did a moment ago it need not be asked."""
        if self._is_usual and (target.answer_timeout is None or len(self._nodes.targets()) == 1):
            return True
        now = asyncio.get_running_loop().time()
        if target not in self._pings and now - self._heard.get(target, -math.inf) < self.doubt_s:
            return True
        done, _ = await asyncio.wait([self._ping(target)], timeout=self.doubt_s)
        if not done:
            self._nodes.silent(target)
        return bool(done)

    def silent_for(self, target: Target) -> float:
        """Seconds since it was asked what it has not answered."""
        return asyncio.get_running_loop().time() - self._began[target]

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


class _Watch:
    """Over one call."""

    def __init__(
        self, attending: Attending, loop: asyncio.AbstractEventLoop, target: Target, commands: Sequence[Argv],
        patience: float | None,
    ) -> None:
        self._attending = attending
        self._loop = loop
        self._target = target
        self._commands = commands
        self._patience = patience
        self._began = loop.time()
        self._call: asyncio.Task[Any] = asyncio.current_task(loop)  # type: ignore[assignment]
        self._before = self._call.cancelling()
        self._looking: asyncio.Task[None] | None = None
        self._was_given_up = False

    def waited(self) -> float:
        return self._loop.time() - self._began

    def look(self) -> None:
        if self._looking is None:
            self._looking = self._loop.create_task(self._until_silent())

    async def _until_silent(self) -> None:
        while await self._attending.answers(self._target) or not self._is_enough():
            await asyncio.sleep(self._attending.doubt_s)
        self._was_given_up = True
        self._call.cancel()

    def _is_enough(self) -> bool:
        limit = give_up_after(self._commands, self._patience, self._target)
        if limit is not None:
            return self.waited() >= limit
        most = math.inf if self._target.answer_timeout is None else self._target.answer_timeout
        return self._attending.silent_for(self._target) >= most

    def is_ours(self) -> bool:
        """Whether the call was cancelled because the node is silent, and for no other reason."""
        return self._was_given_up and self._call.cancelling() <= self._before + 1

    def end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._was_given_up:
            self._call.uncancel()


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
