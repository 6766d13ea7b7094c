"""The connections of one queue: shared ones for short calls, one each for calls that wait for jobs.

No call waits for another's answer. Commands that the node answers at once share one connection per node (`shared`),
and adds, which may have to wait for copies, share another. When an answer is late there, calls that come after it go
over the next, of at most LINES_MAX. A GETJOB keeps its connection busy for as long as it waits, and so does whatever
else does not share (`manners`): such a call takes an idle connection or makes a new one, and puts it back when the
answer is here. There are at most WAITING_MAX of them; more are refused, since waiting for a place to wait could last
for ever. Calls that wait for another node now and then (`may_wait`) have connections to themselves as well, up to
ASIDE_MAX at a time; more of them share.

Which node? `nodes` knows an order. The first that can be reached is used. A node that is leaving, or still loading, has
not done anything when it says so: the next one is asked. One whose connection breaks is left to the caller as
`Unknown`; the call after that goes to the next node. So is one that is stopped and answers nothing. Where there are
others, that is noticed within seconds (`knocking`; for asyncio `attending`).

A pool does not survive a fork: the child forgets the connections (they are the parent's conversations)
and makes its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from .asks import Undo
from .attending import Attending, answers
from .connection import AsyncConnection, Connection
from .errors import Closed, Error, Leaving, Loading, NoAnswer, TooManyClients, Unknown, Unreachable
from .knocking import ANSWERS_S, Knocking
from .later import Later
from .manners import SHARED_PATIENCE_S, can_share, check_shared, may_wait, shares
from .nodes import Nodes
from .resp import Argv, Reply
from .shared import IDLE_S, AsyncShared, Shared
from .target import Target, none_reachable

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Later("asyncio")

T = TypeVar("T")
WAITING_MAX: Final = 1000
ASIDE_MAX: Final = 100
"""So many calls that may have to wait for another node have a connection each. A burst of thousands must not open
thousands of connections."""
LINES_MAX: Final = 8
"""Shared connections of a kind to one node, all but the first for calls that would come behind a late answer."""
NOT_NOW: Final = (Leaving, Loading)


class _Trying:
    """What both pools do when a node does not take a call: try the next, or tell the caller."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.nodes = Nodes(tuple(targets))
        self._is_closed = False

    def _failed(self, target: Target, error: Error, failures: list[Error]) -> None:
        """Nothing was sent: the next node. It may have been: raised, nobody may send it again but the caller."""
        self.nodes.failed(target)
        if isinstance(error, Unreachable):
            failures.append(error)
        elif self._is_closed:
            raise closed() from None
        else:
            raise error

    def _is_refused(self, target: Target, reply: Reply, failures: list[Error]) -> bool:
        """A node that is leaving, or still loading, has not done anything when it says so."""
        if not isinstance(reply, NOT_NOW):
            return False
        failures.append(reply)
        self.nodes.failed(target)
        return True

    def _is_to_learn(self, target: Target, reply: Reply) -> bool:
        """It has answered, whatever was asked; and who the others are it was not asked yet."""
        return not isinstance(reply, Error) and can_share(target) and not self.nodes.is_known(target)


def last_word(failures: list[Error]) -> Error:
    """No node took the call: what the last one said, unless nobody said anything."""
    if isinstance(failures[-1], Unreachable):
        raise none_reachable(failures)
    return failures[-1]


class Pool(_Trying):
    """Connections to the nodes of a url; a `Channel` for many threads."""

    def __init__(self, targets: Sequence[Target]) -> None:
        super().__init__(targets)
        self._forget()
        _POOLS.add(self)

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        check_shared(argv)
        self._knocking.listen()
        failures: list[Error] = []
        order = self.nodes.order(near)
        for target in order:
            is_last = target is order[-1]
            try:
                if undo is not None or not shares(argv, patience, target):
                    reply = self._alone(target, argv, patience, undo, is_last)
                elif self._aside < ASIDE_MAX and may_wait(argv):
                    reply = self._beside(target, argv, patience, is_last)
                else:
                    line = self._line(target, patience != 0, is_last)
                    try:
                        reply = line.call(argv)
                    except Unreachable:  # It broke under another call, before anything of ours was sent.
                        reply = self._line(target, patience != 0, is_last).call(argv)
            except (Unreachable, Unknown) as error:
                self._failed(target, error, failures)
                continue
            if not self._is_refused(target, reply, failures):
                if undo is not None and self.nodes.saw(reply):
                    self._let_go()
                elif undo is None and self._is_to_learn(target, reply):
                    self._learn(target)
                return reply
        return last_word(failures)

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        if not commands:
            return []
        for argv in commands:
            check_shared(argv)
        self._knocking.listen()
        failures: list[Error] = []
        order = self.nodes.order(near)
        for target in order:
            is_last = target is order[-1]
            try:
                if all(shares(argv, 0, target) for argv in commands):
                    return self._line(target, False, is_last).call_many(commands)
                return self._alone_many(target, commands, is_last)
            except (Unreachable, Unknown) as error:
                self._failed(target, error, failures)
        raise none_reachable(failures)

    def twin(self) -> AsyncPool:
        return AsyncPool(self.nodes.targets())

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            connections = [*chain.from_iterable(self._idle.values()), *self._busy]
            lines = list(chain.from_iterable(self._lines.values()))
            self._idle.clear()
        self._knocking.close()
        for connection in connections:
            connection.close()
        for line in lines:
            line.close()

    def _line(self, target: Target, is_for_adds: bool, is_last: bool = False) -> Shared:
        """The shared connection to a node. `is_last`: there is no other node to go to."""
        for line in self._lines.get((target, is_for_adds), ()):
            if line.is_free():
                return line
        with self._lock:
            making = self._making.setdefault(target, threading.Lock())
        with making:  # One thread connects, the others wait for what it brings.
            return self._make_line(target, is_for_adds, is_last)

    def _make_line(self, target: Target, is_for_adds: bool, is_last: bool) -> Shared:
        if self._is_closed:
            raise closed()
        lines = [line for line in self._lines.get((target, is_for_adds), ()) if line.is_good()]
        best = min(lines, key=Shared.late_by, default=None)
        if best is not None and (best.is_free() or len(lines) >= LINES_MAX):
            return best
        line = Shared(self._open(target, is_last), SHARED_PATIENCE_S if is_for_adds else 0.0)
        with self._lock:
            self._lines[target, is_for_adds] = [*lines, line]
        self.nodes.worked(target)
        return line

    def _learn(self, target: Target) -> None:
        """Ask a node that has answered who the others are. If that fails, the call before it has not."""
        with contextlib.suppress(Error):
            self.nodes.learned(target, self._line(target, False).call(["HELLO"]))

    def _open(self, target: Target, is_last: bool) -> Connection:
        """A new connection. As long as there is another node, one that says nothing is not waited for: nothing was
        asked yet."""
        if is_last:
            connection = Connection(target)
        elif self._knocking.is_silent(target):  # Another thread has just found out.
            raise target.unreachable("it does not answer")
        else:
            connection = self._try(target)
        connection.doubt = self._knocking.is_there
        return connection

    def _try(self, target: Target) -> Connection:
        soon = ANSWERS_S if target.answer_timeout is None else min(ANSWERS_S, target.answer_timeout)
        try:
            connection = Connection(
                replace(target, connect_timeout=min(ANSWERS_S, target.connect_timeout), answer_timeout=soon)
            )
            try:
                connection.call(["PING"])
            except Unknown as error:
                raise target.unreachable(error.text) from error
        except Unreachable as error:
            if isinstance(error.__cause__, NoAnswer):
                self._knocking.missed(target)
            raise
        connection.target = target
        return connection

    def _alone(
        self, target: Target, argv: Argv, patience: float | None, undo: Undo | None, is_last: bool
    ) -> Reply:
        is_waiting = patience is None or patience > 0
        with self._lock:
            if is_waiting and self._waiting >= WAITING_MAX:
                raise crowded()
            self._waiting += is_waiting
        try:
            connection = self._checkout(target, is_last)
            try:
                return connection.call(argv, patience, undo)
            finally:
                self._checkin(connection)
        finally:
            with self._lock:
                self._waiting -= is_waiting

    def _beside(self, target: Target, argv: Argv, patience: float | None, is_last: bool) -> Reply:
        """A call that could share, over a connection of its own: it may have to wait for another node."""
        with self._lock:
            self._aside += 1
        try:
            connection = self._checkout(target, is_last)
            try:
                return connection.call(argv, patience)
            finally:
                self._checkin(connection)
        finally:
            with self._lock:
                self._aside -= 1

    def _alone_many(self, target: Target, commands: Sequence[Argv], is_last: bool) -> list[Reply]:
        connection = self._checkout(target, is_last)
        try:
            return connection.call_many(commands)
        finally:
            self._checkin(connection)

    def _checkout(self, target: Target, is_last: bool) -> Connection:
        while True:
            with self._lock:
                if self._is_closed:
                    raise closed()
                idle = self._idle[target]
                connection = idle.pop() if idle else None
                if connection is not None:
                    self._busy.add(connection)
            if connection is None:
                return self._connect(target, is_last)
            if time.monotonic() - connection.used < IDLE_S or not connection.is_stale():
                return connection
            with self._lock:
                self._busy.discard(connection)
            connection.close()

    def _connect(self, target: Target, is_last: bool) -> Connection:
        connection = self._open(target, is_last)
        self.nodes.worked(target)
        with self._lock:
            if not self._is_closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise closed()

    def _checkin(self, connection: Connection) -> None:
        connection.used = time.monotonic()
        with self._lock:
            self._busy.discard(connection)
            if connection.is_open and not self._is_closed:
                self._idle[connection.target].append(connection)

    def _let_go(self) -> None:
        """Another node is better: connections that lie idle elsewhere will not be used soon."""
        best = self.nodes.order()[0]
        with self._lock:
            old = [each for target in list(self._idle) if target != best for each in self._idle.pop(target)]
        for connection in old:
            connection.close()

    def _forget(self) -> None:
        """Start with nothing: in a new pool, and in a forked child."""
        self._lock = threading.Lock()
        self._knocking = Knocking(self.nodes)
        self._making: dict[Target, threading.Lock] = {}
        self._waiting = 0
        """Calls that wait for jobs, or may."""
        self._aside = 0
        """Calls that could share, and have a connection of their own."""
        self._idle: defaultdict[Target, list[Connection]] = defaultdict(list)
        self._busy: set[Connection] = set()
        self._lines: dict[tuple[Target, bool], list[Shared]] = {}


_POOLS: Final[WeakSet[Pool]] = WeakSet()
"""All of this process."""


def forget_all() -> None:
    """In a forked child: what the parent's pools have is the parent's."""
    for pool in _POOLS:
        pool._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_all)


class AsyncPool(_Trying):
    """The same for the tasks of one event loop. `doubt_s`: after so long without an answer it is found out whether a
    node is there at all, also where there is no other."""

    def __init__(self, targets: Sequence[Target], doubt_s: float | None = None) -> None:
        super().__init__(targets)
        self._attending = Attending(self.nodes, doubt_s)
        self._making: dict[tuple[Target, bool], asyncio.Task[AsyncShared]] = {}
        self._waiting = 0
        self._aside = 0
        self._idle: defaultdict[Target, list[AsyncConnection]] = defaultdict(list)
        self._busy: set[AsyncConnection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._lines: dict[tuple[Target, bool], list[AsyncShared]] = {}

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        check_shared(argv)
        failures: list[Error] = []
        for target in self.nodes.order(near):
            try:
                if undo is not None or not shares(argv, patience, target):
                    reply = await self._alone(target, argv, patience, undo)
                elif self._aside < ASIDE_MAX and may_wait(argv):
                    reply = await self._beside(target, argv, patience)
                else:
                    line = await self._line(target, patience != 0)
                    try:
                        reply = await self._over(line, line.call(argv), [argv], patience)
                    except Unreachable:  # It broke under another call, before anything of ours was sent.
                        line = await self._line(target, patience != 0)
                        reply = await self._over(line, line.call(argv), [argv], patience)
            except (Unreachable, Unknown) as error:
                self._failed(target, error, failures)
                continue
            if not self._is_refused(target, reply, failures):
                if undo is not None and self.nodes.saw(reply):
                    await self._let_go()
                elif undo is None and self._is_to_learn(target, reply):
                    await self._learn(target)
                return reply
        return last_word(failures)

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        if not commands:
            return []
        for argv in commands:
            check_shared(argv)
        failures: list[Error] = []
        for target in self.nodes.order(near):
            try:
                if all(shares(argv, 0, target) for argv in commands):
                    line = await self._line(target, False)
                    return await self._over(line, line.call_many(commands), commands, 0.0)
                return await self._alone_many(target, commands)
            except (Unreachable, Unknown) as error:
                self._failed(target, error, failures)
        raise none_reachable(failures)

    async def is_anybody_there(self, seconds: float) -> bool:
        """Does any node answer a PING within this time? All are asked at once."""
        asked = [asyncio.ensure_future(answers(target)) for target in self.nodes.targets()]
        try:
            async with asyncio.timeout(seconds):
                for each in asyncio.as_completed(asked):
                    if await each:
                        return True
        except TimeoutError:
            pass
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return False

    async def close(self) -> None:
        self._is_closed = True
        await self._attending.close()
        connections = [*chain.from_iterable(self._idle.values()), *self._busy]
        self._idle.clear()
        for connection in connections:
            await connection.close()
        for line in chain.from_iterable(self._lines.values()):
            await line.close()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _line(self, target: Target, is_for_adds: bool) -> AsyncShared:
        """The shared connection to a node."""
        key = (target, is_for_adds)
        lines = self._lines.get(key, [])
        for line in lines:
            if line.is_free():
                return line
        if len(lines) >= LINES_MAX and all(line.is_good() for line in lines):
            return min(lines, key=AsyncShared.late_by)
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.get_running_loop().create_task(self._make_line(target, is_for_adds))
            making.add_done_callback(heard)
        return await asyncio.shield(making)  # One try for all who want it: where it fails, all go on together.

    async def _make_line(self, target: Target, is_for_adds: bool) -> AsyncShared:
        key = (target, is_for_adds)
        try:
            if self._was_closed():
                raise closed()
            line = await self._opened(target, AsyncShared.open(target, SHARED_PATIENCE_S if is_for_adds else 0.0))
            if self._was_closed():
                await line.close()
                raise closed()
            self._lines[key] = [*(each for each in self._lines.get(key, ()) if each.is_good()), line]
            self.nodes.worked(target)
            return line
        finally:
            del self._making[key]

    async def _over(
        self, line: AsyncShared, work: Coroutine[Any, Any, T], commands: Sequence[Argv], patience: float | None
    ) -> T:
        """A call over a shared connection. When one is given up on, so are those beside it: it is the same node."""
        try:
            return await self._attending.attend(line.target, work, commands, patience)
        except NoAnswer as error:
            line.fail(error)
            raise

    async def _opened(self, target: Target, work: Coroutine[Any, Any, T]) -> T:
        """A new connection. Nothing was asked over it yet: where the node is silent, the next may be tried."""
        try:
            return await self._attending.attend(target, work)
        except NoAnswer as error:
            raise target.unreachable(error.text) from error
        except Unreachable as error:
            if isinstance(error.__cause__, TimeoutError | NoAnswer):
                self._attending.is_silent(target)
            raise

    async def _learn(self, target: Target) -> None:
        """See `Pool._learn`."""
        with contextlib.suppress(Error):
            line = await self._line(target, False)
            self.nodes.learned(target, await self._over(line, line.call(["HELLO"]), [["HELLO"]], 0.0))

    async def _alone(self, target: Target, argv: Argv, patience: float | None, undo: Undo | None) -> Reply:
        is_waiting = patience is None or patience > 0
        if is_waiting and self._waiting >= WAITING_MAX:
            raise crowded()
        self._waiting += is_waiting
        try:
            connection = await self._checkout(target)
            try:
                return await self._attending.attend(target, connection.call(argv, patience, undo), [argv], patience)
            finally:
                self._checkin(connection)
        finally:
            self._waiting -= is_waiting

    async def _beside(self, target: Target, argv: Argv, patience: float | None) -> Reply:
        """See `Pool._beside`."""
        self._aside += 1
        try:
            connection = await self._checkout(target)
            try:
                return await self._attending.attend(target, connection.call(argv, patience), [argv], patience)
            finally:
                self._checkin(connection)
        finally:
            self._aside -= 1

    async def _alone_many(self, target: Target, commands: Sequence[Argv]) -> list[Reply]:
        connection = await self._checkout(target)
        try:
            return await self._attending.attend(target, connection.call_many(commands), commands, 0.0)
        finally:
            self._checkin(connection)

    def _checkin(self, connection: AsyncConnection) -> None:
        self._busy.discard(connection)
        self._leaving |= connection.withdrawals
        for task in connection.withdrawals:
            task.add_done_callback(self._leaving.discard)
        if connection.is_open and not self._is_closed:
            self._idle[connection.target].append(connection)

    async def _checkout(self, target: Target) -> AsyncConnection:
        if self._was_closed():
            raise closed()
        while self._idle[target]:  # Looked up each time: while we wait, another task may let go of all of them.
            connection = self._idle[target].pop()
            if not connection.is_stale():
                self._busy.add(connection)
                return connection
            await connection.close()
        connection = await self._opened(target, AsyncConnection.open(target))
        self.nodes.worked(target)
        if self._was_closed():
            await connection.close()
            raise closed()
        self._busy.add(connection)
        return connection

    async def _let_go(self) -> None:
        """See `Pool._let_go`."""
        best = self.nodes.order()[0]
        old = [each for target in list(self._idle) if target != best for each in self._idle.pop(target)]
        for connection in old:
            await connection.close()

    def _was_closed(self) -> bool:
        """A question of its own: between two awaits the answer changes."""
        return self._is_closed


def heard(task: asyncio.Task[AsyncShared]) -> None:
    """That it failed is known, also if nobody who wanted it is there any more."""
    if not task.cancelled():
        task.exception()


def closed() -> Closed:
    return Closed("this queue was closed")


def crowded() -> TooManyClients:
    return TooManyClients(f"{WAITING_MAX} calls of this queue are already waiting for jobs")
