"""A node inside your process: no server, no socket, no thread of its own.

The machine (`holdfast.core.node`) is the one the server runs. Here it has a lock around it, and the calls
of your threads and tasks are its clients. A call takes a session, executes, and gives the session back; a
GETJOB that finds nothing leaves its session blocked, and the caller waits.

Who moves time? The machine acts only when it is told that it is later. With a server that is the event
loop; here it is whoever is there:

* every call first lets the machine do what has become due (leases that ran out, delays, expiries);
* of the callers that wait, one is the *keeper*: it sleeps until the machine's `next_wake()`, moves time,
  and wakes those who got an answer. The others sleep until they are woken. When the keeper has its own
  answer, another waiter becomes keeper. A call that makes the next wake come sooner (a job with a short
  delay) wakes the keeper to look again.

So nothing runs when nobody calls, and nobody needs it to.

With a folder (`file:`) there is a journal, and an answer is passed on when its records are written.

Leaving early. A caller that is interrupted (Ctrl-C, a cancelled task) withdraws: its session is
disconnected before time is moved on, so that a job which has just become due is not handed to nobody. If
the answer had come before that, its jobs are given back (NACK).

An interrupt may also come while the machine is at work for this caller. So what the machine leaves behind
is read to its end (`_execute`) and a wakeup stays in the list until it is delivered (`_follow_up`).

Both faces stand on the same `Local`: `SyncLoopback` for threads, `AsyncLoopback` for the tasks of an
event loop. They may even share one. The lock is held for the length of one command, so the event loop
does not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.client.asks import Undo
from holdfast.client.errors import BadRequest, Closed, Error, Unknown, Unreachable
from holdfast.client.queue import AsyncQueue, Queue
from holdfast.client.resp import Argv, Reply, new_reader, to_bytes
from holdfast.core.commands.clients import logged_in
from holdfast.core.config import BY_NAME, BadSetting, Config
from holdfast.core.effects import APPLY_SETTINGS, CLOSE, KILL, VERIFY
from holdfast.core.node import Node
from holdfast.core.session import NOTHING, Session
from holdfast.journal import identity
from holdfast.journal.folder import JournalError
from holdfast.journal.journal import Journal
from holdfast.journal.lock import lock, unlock
from holdfast.journal.own import Work

NAP_S_MAX: Final = 3600.0
"""Nobody sleeps longer in one go. Event loops have trouble with alarms in a distant future."""
IDLE_SESSIONS_MAX: Final = 16
TICKS_MAX: Final = 1000
"""Each tick is itself bounded; what is still due after so many is left to the next call."""
BREATHE_MS: Final = 1
"""An async caller that never has to wait still lets the loop run other tasks this often."""

SETTINGS: Final = ("maxmemory", "maxmemory-policy", "max-body-bytes", "enable-debug")
"""What an embedded node can be told. The other settings are about sockets, logs and passwords."""

log = logging.getLogger("holdfast")


FILE_SETTINGS: Final = (
    *SETTINGS, "overflow-from", "appendfsync", "journal-segment-bytes", "journal-keep-bytes", "journal-handouts",
    "requeue-on-load", "auto-aof-rewrite-percentage", "auto-aof-rewrite-min-size",
)
"""The same for one that keeps its jobs in a folder."""
TICK_MS: Final = 1000


def open_file(folder: Path, settings: Mapping[str, str] | None = None) -> Queue:
    """A queue that is kept in a folder, for threads. Settings: any of FILE_SETTINGS."""
    return Queue(SyncLoopback(Local(settings, folder=folder)))


def open_file_async(folder: Path, settings: Mapping[str, str] | None = None) -> AsyncQueue:
    """A queue that is kept in a folder, for asyncio."""
    return AsyncQueue(AsyncLoopback(Local(settings, folder=folder)))


def open_memory(settings: Mapping[str, str] | None = None) -> Queue:
    """A queue in the memory of this process, for threads. Settings: any of SETTINGS."""
    return Queue(SyncLoopback(Local(settings)))


def open_memory_async(settings: Mapping[str, str] | None = None) -> AsyncQueue:
    """A queue in the memory of this process, for asyncio."""
    return AsyncQueue(AsyncLoopback(Local(settings)))


class Waiter:
    """One call, from the command to the answer. What sleeping and waking mean is the face's business."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.words: list[bytes] = []
        self.reply: Reply = None
        self.is_over = False
        self.error: Error | None = None
        self.nap: float | None = None
        """Seconds to sleep, None: until woken."""
        self.keeps_session = False
        """Its session is its own for longer than one command (`serving`)."""

    def take(self, data: bytes, read: Callable[[bytes], Reply]) -> None:
        """The answer has come."""
        self.reply = read(data)

    def arm(self) -> None:
        """It has to wait: get ready to be woken."""
        raise NotImplementedError

    def wake(self) -> None:
        """Make its owner look again. From any thread."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget that it was woken."""
        raise NotImplementedError

    def result(self) -> Reply:
        if self.error is not None:
            raise self.error
        return self.reply


class Local:
    """The node, its lock, its clock, its sessions, and those who wait."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, clock_ms: Callable[[], int] | None = None,
        folder: Path | None = None, wall_ms: Callable[[], int] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._clock_ms = clock_ms or _clock()
        self._wall_ms = wall_ms or (lambda: int(time.time() * 1000))
        self._kept: Kept | None = None
        config = _config(settings or {}, SETTINGS if folder is None else FILE_SETTINGS)
        if folder is None:
            self._node = Node(config, random_bytes(20).hex().encode(), random_bytes, self._clock_ms())
        else:
            self._kept = Kept(folder, config, self._clock_ms())
            self._node = self._kept.node
        self._lock = threading.Lock()
        self._reader = new_reader()
        self._idle: list[Session] = []
        self._waiters: dict[Waiter, None] = {}
        self._keeper: Waiter | None = None
        self._armed_ms = 0
        self._pid = os.getpid()
        self._is_closed = False
        self.on_login: Callable[[Session, bytes], None] | None = None
        """Finds out whether a name and secret are right, and says so by `logged_in` (serving.py)."""

    def start(self, argv: Argv, waiter: Waiter) -> bool:
        """Execute a command. True: the answer is in `waiter`; False: it has to wait."""
        if self._pid != os.getpid():
            raise Closed("an embedded queue lives in the process that opened it; a forked child can't use it")
        words = [to_bytes(arg) for arg in argv]
        if not words:
            raise BadRequest("a command has at least one word")
        with self._lock:
            if self._is_closed:
                raise Closed("this queue was closed")
            self._move_time()
            session = waiter.session
            if session is None:
                session = self._idle.pop() if self._idle else self._connect()
            waiter.session = session
            waiter.words = words
            self._execute(waiter)
            if not waiter.is_over:
                waiter.arm()
                session.handle = waiter
                self._waiters[waiter] = None
            if not self._follow_up() and waiter.is_over:
                waiter.error = Unknown(NOT_KEPT)
            return waiter.is_over

    def look(self, waiter: Waiter) -> bool:
        """A waiter looks after its answer. False: not yet, sleep for `waiter.nap`."""
        with self._lock:
            waiter.clear()
            if not self._is_closed:
                self._move_time()
            if waiter.is_over:
                self._dismiss(waiter)
                return True
            if self._keeper is None:
                self._keeper = waiter
            waiter.nap = None
            if self._keeper is waiter:
                self._armed_ms = self._node.next_wake()
                waiter.nap = min(NAP_S_MAX, max(0, self._armed_ms - self._node.now) / 1000)
            return False

    def leave(self, waiter: Waiter, undo: Undo | None) -> None:
        """The caller has gone. Whatever it asked for must not be lost on it."""
        if waiter.session is None:
            return  # It never came in. In a forked child the lock may be held for ever: don't touch it.
        with self._lock:
            if not self._is_closed:
                self._follow_up()  # Its answer may be among what is still to be passed on.
            self._dismiss(waiter)
            if self._is_closed:
                return
            if not waiter.is_over:
                # First of all: when time moves on, its patience may end and a job for it may become due.
                waiter.is_over = True
                self._node.disconnect(waiter.session)
            elif undo is not None:
                self._run_by_itself(undo(waiter.reply))
            self._move_time()
            self._follow_up()

    def welcome(self, address: str, waiter: Waiter) -> None:
        """A client from outside: a session that stays until `leave`."""
        with self._lock:
            if self._is_closed:
                raise Closed("this queue was closed")
            waiter.keeps_session = True
            waiter.session = self._node.connect(address)
            waiter.is_over = True

    def see_off(self, waiter: Waiter) -> None:
        """It has gone, perhaps in the middle of a call."""
        with self._lock:
            self._dismiss(waiter)
            if not self._is_closed and waiter.session is not None:
                waiter.is_over = True
                self._node.disconnect(waiter.session)
                self._move_time()
                self._follow_up()

    def guard(self, password: str) -> None:
        """Ask clients from outside for a password. Those that are here already are trusted."""
        with self._lock:
            self._node.config.set("requirepass", password)

    def logged_in(self, session: Session, name: bytes, verdict: int) -> None:
        """What has been found out about the secret that a client from outside gave."""
        with self._lock:
            if not self._is_closed and session.number in self._node.sessions:
                self._move_time()
                logged_in(self._node, session, name, verdict)
                self._follow_up()

    def nudge(self) -> None:
        """The clock was moved by hand (tests): let everything that has become due happen."""
        with self._lock:
            self._move_time()
            self._follow_up()

    def close(self) -> None:
        """End it. Those who wait are told so; jobs are gone with the node."""
        with self._lock:
            self._is_closed = True
            for waiter in self._waiters:
                waiter.is_over = True
                waiter.error = Closed("this queue was closed while a call was waiting")
                waiter.wake()
            self._waiters.clear()
            self._keeper = None
            self._idle.clear()
            if self._kept is not None and self._pid == os.getpid():
                self._kept.close()
                self._kept = None

    def _move_time(self) -> None:
        node = self._node
        now = self._clock_ms()
        node.set_time(now, self._wall_ms())
        for _ in range(TICKS_MAX):
            if node.next_wake() > now:
                break
            node.tick()
        if node.wakeups or node.requests:
            self._follow_up()

    def _run_by_itself(self, argv: Argv | None) -> None:
        """A command whose answer nobody waits for."""
        if argv is None:
            return
        helper = _Nobody()
        helper.session = self._connect()
        helper.session.handle = helper  # In a CLIENT PAUSE it runs when that is over.
        helper.words = [to_bytes(arg) for arg in argv]
        self._execute(helper)

    def _connect(self) -> Session:
        session = self._node.connect("embedded")
        session.is_trusted = True  # A password is for those from outside (`guard`).
        return session

    def _execute(self, waiter: Waiter) -> None:
        node, session = self._node, waiter.session
        assert session is not None
        try:
            node.execute(session, waiter.words)
        finally:  # Interrupted as well: left where it is, it would be taken for the next command's answer.
            output = node.take_output()
            if session.blocked == NOTHING:
                if output:
                    waiter.take(output, self._read)
                waiter.is_over = True
        if waiter.is_over and not waiter.keeps_session:
            self._release(session)

    def _read(self, data: bytes) -> Reply:
        try:
            self._reader.feed(data)
            return self._reader.gets()
        except BaseException:
            self._reader = new_reader()  # The old one may hold half of what it was fed.
            raise

    def _release(self, session: Session) -> None:
        """Keep a session for the next call, unless it is special (a monitor, RESP3, quiet, closing)."""
        is_like_new = session.is_plain and not session.is_monitor and not session.is_resp3
        if is_like_new and len(self._idle) < IDLE_SESSIONS_MAX:
            session.handle = None
            self._idle.append(session)
        else:
            self._node.disconnect(session)

    def _follow_up(self) -> bool:
        """After an event: write the journal, pass answers on, refuse what only a server can do, see to the keeper.

        False: the journal could not be written, and should have been before anybody has an answer.
        """
        node = self._node
        is_kept = self._kept is None or self._kept.commit(node.now)
        if not is_kept:
            for session, _ in node.wakeups:
                if isinstance(session.handle, Waiter):
                    session.handle.error = Unknown(NOT_KEPT)
        while node.wakeups or node.requests:
            while node.requests:
                request = node.requests[0]
                if request.kind == APPLY_SETTINGS and self._kept is not None:
                    self._kept.apply_settings()
                elif request.kind == VERIFY and request.session is not None and self.on_login is not None:
                    self.on_login(request.session, request.argument)
                elif request.session is not None:
                    self._refuse(request.kind, request.session)
                del node.requests[0]
            while node.wakeups:
                self._pass_on(*node.wakeups[0])
                del node.wakeups[0]
        if self._keeper is not None and node.next_wake() < self._armed_ms:
            self._armed_ms = node.next_wake()
            self._keeper.wake()
        while node.faults:
            log.error("a fault in the embedded node, please report it:\n%s", node.faults.pop())
        return is_kept

    def _pass_on(self, session: Session, data: bytes) -> None:
        waiter = session.handle
        if not isinstance(waiter, Waiter) or waiter.is_over:
            return  # A monitor, or someone who has left.
        if data:
            waiter.take(data, self._read)
            waiter.is_over = True
            if not waiter.keeps_session:
                self._release(session)
        else:
            self._execute(waiter)  # CLIENT PAUSE is over: it had not run yet.
        if waiter.is_over:
            self._waiters.pop(waiter, None)
            waiter.wake()

    def _refuse(self, kind: str, session: Session) -> None:
        if kind == KILL:
            waiter = session.handle
            self._node.disconnect(session)
            if isinstance(waiter, Waiter) and not waiter.is_over:
                waiter.is_over = True
                waiter.error = Closed("this call was ended by CLIENT KILL")
                self._waiters.pop(waiter, None)
                waiter.wake()
        elif kind != CLOSE and session.blocked != NOTHING:
            self._node.answer(session, b"-ERR an embedded node can't do that: it has no server around it\r\n")

    def _dismiss(self, waiter: Waiter) -> None:
        """This one waits no longer. If it kept the time, somebody else must, from this moment on.

        Naming the next keeper here, instead of leaving the place to whoever looks next, matters: the one
        that is woken may find its own answer, leave as well, and would not know of a duty to pass on.
        """
        self._waiters.pop(waiter, None)
        if self._keeper is waiter:
            self._keeper = next(iter(self._waiters), None)
            if self._keeper is not None:
                self._armed_ms = 0  # It looks at the time itself when it is up.
                self._keeper.wake()


NOT_KEPT: Final = "the journal cannot be written: nobody can tell whether this will be remembered"


class Kept:
    """The folder of an embedded node: its lock, its journal, and rewriting a little with each call."""

    def __init__(self, folder: Path, config: Config, now_ms: int) -> None:
        self.lock = -1
        try:
            self.lock = lock(folder)
            identity.check_cores(folder, 1)
            life = identity.incarnation(folder, True, now_ms)
            self.node = Node(config, identity.node_id(folder), os.urandom, now_ms, incarnation=life)
            self.node.set_time(now_ms, int(time.time() * 1000))
            self.config = config
            self.journal = Journal(self.node, folder)
            self.apply_settings()
            for _ in self.journal.load():
                pass
        except JournalError as error:
            unlock(self.lock)
            raise Unreachable(str(error)) from None
        self.ticked_ms = now_ms
        self.work: Work | None = None  # in the background of calls
        self.is_begun = False

    def apply_settings(self) -> None:
        self.journal.writer.policy = self.config.text("appendfsync")
        self.journal.writer.segment_bytes = self.config.number("journal-segment-bytes")
        self.journal.keep(self.config.number("journal-keep-bytes"))

    def commit(self, now_ms: int) -> bool:
        is_kept = self.journal.commit()
        if self.work is not None:
            self.do_some(self.work)
        if now_ms - self.ticked_ms >= TICK_MS:
            self.ticked_ms = now_ms
            self.tick()
        return is_kept

    def tick(self) -> None:
        number = self.config.number
        self.journal.tick()
        if self.work is None:
            self.work = self.journal.next_work(
                number("auto-aof-rewrite-percentage"), number("auto-aof-rewrite-min-size")
            )
            self.is_begun = False

    def do_some(self, work: Work) -> None:
        try:
            if not self.is_begun:
                self.is_begun = True
                work.begin()
            elif work.step():
                work.sync()
                work.end()
                self.work = None
        except OSError as error:  # it is tried again
            work.abandon(error)
            self.work = None

    def close(self) -> None:
        self.journal.close(with_snapshot=True)
        self.node.overflow.store.close()
        unlock(self.lock)


class SyncLoopback:
    """Calls from threads; a `Channel`."""

    def __init__(self, local: Local) -> None:
        self.local = local

    def call(self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = "") -> Reply:
        waiter = _ThreadWaiter()
        try:
            if not self.local.start(argv, waiter):
                while not self.local.look(waiter):
                    waiter.sleep()
        except BaseException:
            self.local.leave(waiter, undo)
            raise
        return waiter.result()

    def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return [self.call(argv) for argv in commands]

    def twin(self) -> AsyncLoopback:
        return AsyncLoopback(self.local)

    def close(self) -> None:
        self.local.close()


class AsyncLoopback:
    """Calls from tasks; an `AsyncChannel`."""

    def __init__(self, local: Local) -> None:
        self.local = local
        self._breathed = time.monotonic()

    async def call(
        self, argv: Argv, patience: float | None = 0.0, undo: Undo | None = None, near: str = ""
    ) -> Reply:
        if time.monotonic() - self._breathed > BREATHE_MS / 1000:
            # Before the command, not after it: a task cancelled here has done nothing yet.
            await asyncio.sleep(0)
            self._breathed = time.monotonic()
        waiter = _TaskWaiter()
        try:
            if not self.local.start(argv, waiter):
                while not self.local.look(waiter):
                    await waiter.sleep()
        except BaseException:
            self.local.leave(waiter, undo)
            raise
        return waiter.result()

    async def call_many(self, commands: Sequence[Argv], near: str = "") -> list[Reply]:
        return [await self.call(argv) for argv in commands]

    async def close(self) -> None:
        self.local.close()


class _Nobody(Waiter):
    """Stands for a caller that has left."""

    def wake(self) -> None:
        pass


class _ThreadWaiter(Waiter):
    def arm(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def sleep(self) -> None:
        self._event.wait(self.nap)


class _TaskWaiter(Waiter):
    def arm(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # Its loop is closed: nobody waits there any more.
            if threading.get_ident() == self._thread:
                self._event.set()
            else:
                self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def sleep(self) -> None:
        alarm = None if self.nap is None else self._loop.call_later(self.nap, self._event.set)
        try:
            await self._event.wait()
        finally:
            if alarm is not None:
                alarm.cancel()


def _clock() -> Callable[[], int]:
    """Milliseconds that start at unix time and never go back, whatever happens to the clock on the wall."""
    offset = time.time() - time.monotonic()
    return lambda: int((time.monotonic() + offset) * 1000)


def _config(settings: Mapping[str, str], possible: tuple[str, ...]) -> Config:
    config = Config()
    for name, value in settings.items():
        if name in BY_NAME and name not in possible:
            raise BadRequest(
                f"{name} has no effect in an embedded queue: it is about a server. "
                f"Those that have one are {', '.join(possible)}"
            )
        try:
            config.set(name, value)
        except BadSetting as error:
            raise BadRequest(str(error) if name not in BY_NAME else f"{name}: {error}") from None
    return config
