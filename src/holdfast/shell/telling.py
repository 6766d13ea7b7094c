"""HISTORY for the clients of a server: who reads from where, who waits, and what they are told.

Places are looked up in the loop, which is quick; files are read by threads. A reader that waits (BLOCK) is woken when
a turn has written something: it gets what is there by then, and whoever asks again gets what came meanwhile,
so a busy node serves its readers in large pieces without being asked to.
"""
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.effects import Request
from holdfast.core.node import Node
from holdfast.core.session import FOR_SHELL, Session
from holdfast.journal.history import History
from holdfast.journal.history_format import Cursor
from holdfast.journal.history_read import (
    LAST,
    NoPlace,
    Stretch,
    read_piece,
    seek,
    seek_time,
    segment_at,
    stretch,
)

OFF: Final = "NOHISTORY history is off: CONFIG SET history yes turns it on, where the node has a dir"
READERS_S: Final = 3600.0
"""A reader that has not asked for so long is none any more."""
READERS_MAX: Final = 1000


@dataclass(slots=True)
class Waiting:
    session: Session
    words: list[str]
    alarm: asyncio.TimerHandle | None = None


class Telling:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.history: History | None = None
        self.turn: Callable[[], object] = lambda: None  # what was answered leaves
        self.waiting: dict[int, Waiting] = {}
        self.is_woken = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.readers: dict[str, tuple[str, float]] = {}  # by name or address: where it is, and since when

    # -- on and off ----------------------------------------------------------------------------------------

    def begin(self, history: History) -> None:
        self.history = history
        history.on_written = self.written

    def end(self) -> None:
        """History is off from now on, and those who wait are told."""
        self.history = None
        for number in list(self.waiting):
            self.give_up(number)

    # -- requests ------------------------------------------------------------------------------------------

    def carry_out(self, request: Request) -> None:
        assert request.session is not None
        words = request.argument.decode("ascii", "replace").split(" ")
        self.start(self.serve(request.session, words))

    def start(self, serving: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(serving)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def serve(self, session: Session, words: list[str]) -> None:
        history = self.history
        try:
            if history is None:
                raise NoPlace(OFF)
            if words[0] == "READ":
                reply = await self.read(history, session, words)
            elif words[0] == "SEEK":
                reply = bulk(await asyncio.to_thread(seek, stretch(history, words[1]), int(words[2])))
            elif words[0] == "AT":
                where = segment_at(history, int(words[1]))
                reply = bulk(await asyncio.to_thread(seek_time, where, int(words[1])))
            else:
                reply = self.info(history)
        except NoPlace as error:
            reply = f"-{error}\r\n".encode()
        except OSError as error:
            reply = f"-ERR the history cannot be read: {error.strerror}\r\n".encode()
        if reply:
            self.answer(session, reply)

    async def read(self, history: History, session: Session, words: list[str]) -> bytes:
        """What is there; nothing if it has to wait."""
        cursor, count, block = words[1], int(words[2]), int(words[3])
        where = cut_short(stretch(history, cursor), words[4])
        if where.is_empty() and block >= 0 and words[4] == "-":
            self.wait(session, [*words[:1], str(where.begin), *words[2:]], block)
            return b""
        after, piece = await asyncio.to_thread(read_piece, where, count)
        name = (session.name or session.address.encode()).decode("utf-8", "replace")
        if name in self.readers or len(self.readers) < READERS_MAX:
            self.readers[name] = (after, time.monotonic())
        return b"*2\r\n" + bulk(after) + b"$%d\r\n%b\r\n" % (len(piece), piece)

    def answer(self, session: Session, reply: bytes) -> None:
        if self.node.sessions.get(session.number) is session and session.blocked == FOR_SHELL:
            self.node.answer(session, reply)
            self.turn()

    # -- waiting -------------------------------------------------------------------------------------------

    def wait(self, session: Session, words: list[str], block_ms: int) -> None:
        waiting = Waiting(session, words)
        if block_ms > 0:
            loop = asyncio.get_running_loop()
            waiting.alarm = loop.call_later(block_ms / 1000, self.give_up, session.number)
        self.waiting[session.number] = waiting

    def written(self) -> None:
        if self.waiting and not self.is_woken:
            self.is_woken = True
            asyncio.get_running_loop().call_soon(self.wake)

    def wake(self) -> None:
        self.is_woken = False
        waiting, self.waiting = self.waiting, {}
        for each in waiting.values():
            if each.alarm is not None:
                each.alarm.cancel()
            self.start(self.serve(each.session, [*each.words[:3], "-1", *each.words[4:]]))

    def give_up(self, number: int) -> None:
        """Its patience has ended: nothing, and the cursor to ask with again."""
        each = self.waiting.pop(number, None)
        if each is not None:
            self.answer(each.session, b"*2\r\n" + bulk(each.words[1]) + b"$0\r\n\r\n")

    def tick(self) -> None:
        """Once a second: forget those who are gone."""
        for number in [number for number in self.waiting if number not in self.node.sessions]:
            alarm = self.waiting.pop(number).alarm
            if alarm is not None:
                alarm.cancel()
        oldest = time.monotonic() - READERS_S
        self.readers = {name: each for name, each in self.readers.items() if each[1] > oldest}

    # -- what there is -------------------------------------------------------------------------------------

    def info(self, history: History) -> bytes:
        segments = [each for each in history.all() if each.records]
        facts = {
            "history": "yes" if self.node.is_telling else "no",
            "node": self.node.node_id.decode(),
            "segments": str(len(history.all())),
            "bytes": str(history.size()),
            "records": str(history.records()),
            "first": str(history.first()),
            "first-ms": str(segments[0].first if segments else 0),
            "last": str(history.last()),
            "last-ms": str(segments[-1].last if segments else 0),
            "lost": str(history.lost),
        }
        reply = b"*%d\r\n" % (2 * len(facts) + 2)
        for name, value in facts.items():
            reply += bulk(name) + bulk(value)
        reply += bulk("readers") + b"*%d\r\n" % len(self.readers)
        for name, (text, _) in self.readers.items():
            cursor = Cursor.read(text)
            assert cursor is not None
            reply += b"*3\r\n" + bulk(name) + bulk(text) + b":%d\r\n" % history.bytes_after(cursor)
        return reply


def cut_short(where: Stretch, until: str) -> Stretch:
    """The same up to a cursor, where there is one."""
    if until == "-":
        return where
    cursor = Cursor.read(until)
    if cursor is None or until == LAST:
        raise NoPlace("BADCURSOR UNTIL takes a cursor that was given before")
    if cursor.segment > where.begin.segment:
        return where
    end = cursor.position if cursor.segment == where.begin.segment else 0
    return Stretch(where.path, where.begin, min(where.end, end))


def bulk(text: str) -> bytes:
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)
